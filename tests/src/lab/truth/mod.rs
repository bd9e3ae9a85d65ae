//! What the kernel itself says about its senders, recorded by time and flow.
//!
//! Two sources, joined by socket cookie and clock: `TCP_INFO` of every watched socket each millisecond (all states, every
//! congestion control), and the tracepoints `tcp_probe` (per received segment, `ESTABLISHED` only) and
//! `tcp_cong_state_set` where tracefs can be mounted.

mod info;
mod record;
pub mod rules;
mod trace;

pub use info::{Poller, Watch};
pub use record::{CongestionState, FlowId, Record, Row, Source, read_csv};
pub use trace::Trace;
