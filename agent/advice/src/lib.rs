//! Starts for connections whose congestion control lives in the application, as in QUIC, by the advice of the host's agent.
//!
//! An [`Adviser`] keeps a connection to the agent's Unix socket, and the advice for the networks that the application asked for. An
//! answer comes from memory and never waits for the agent or for a network: where the agent is gone, or does not hold the
//! destination's network yet, the answer is a plain start at once.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use spand_advice::{Adviser, Outcome, Question};
//!
//! let adviser = Adviser::connect("/run/spand-agent/applications.sock", "video");
//! let question = Question::of("192.0.2.7:443".parse().unwrap()).bytes(300_000).rtt(Duration::from_millis(40));
//! let connection = adviser.start(&question);
//! match connection.start() {
//!     Ok(start) => println!("begin with {} bytes", start.window_bytes),
//!     Err(reason) => println!("a plain start: {reason}"),
//! }
//! connection.report(&Outcome { acknowledged_bytes: 300_000, ..Outcome::default() });
//! ```
//!
//! Needs no asynchronous runtime: two threads keep the socket. `docs/explain/applications.md` has the protocol.

#![forbid(unsafe_code)]

mod adviser;
mod budget;
mod message;
mod pace;
#[cfg(feature = "quinn")]
pub mod quinn;
mod reason;
mod table;
#[cfg(test)]
mod tests;

pub use adviser::{Adviser, Connection};
pub use message::{
    Asked, Ended, MOST_LINE_BYTES, MOST_MSS_BYTES, Nothing, Offer, Outcome, Renewed, SILENCE, Settings, Started,
    ToAgent, ToApplication, VERSION,
};
pub use pace::{Pace, Ready};
pub use reason::Reason;
pub use table::{Answer, Counts, Pacing, Question, Resume, Start, Table};
