//! What the kernel itself says about its senders, recorded by time and flow.
//!
//! Three sources, joined by flow and clock: what the kernel knows at every segment in and out ([`SegmentTruth`]: all
//! states, every congestion control), `TCP_INFO` of every watched socket at intervals ([`Poller`]: the kernel's accounts of
//! what held it back, and the end of each socket), and the tracepoints `tcp_probe` and `tcp_cong_state_set` ([`Trace`]:
//! `ESTABLISHED` only) where tracefs can be mounted. Where the kernel lacks the second, [`entered`] takes its place.

mod info;
mod record;
pub mod rules;
mod segments;
mod trace;

pub use info::{Poller, Watch};
pub use record::{CongestionState, FlowId, Limit, Record, Row, Source, read_csv};
pub use segments::SegmentTruth;
pub use trace::{Trace, entered, has_states};
