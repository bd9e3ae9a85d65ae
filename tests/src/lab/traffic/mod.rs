//! Real transfers over kernel TCP: a server that sends what it is asked for, and clients that ask and time the answer.
//!
//! A request is one line: a congestion control and steps, as in `cubic 65536 @200 1000000 ~3000`: send that number of bytes,
//! pause for that number of milliseconds, send as much as possible for that number of milliseconds. `%1448` before the steps sets the size of the
//! application's writes. A connection may ask again.

mod client;
mod plan;
mod server;

pub use client::{Client, Transfer};
pub use plan::{Plan, Step, WRITE_BYTES};
pub use server::{Conduct, Server, state_size};
