//! The table against a twin that keeps everything, and the events of one network through its life.

mod life;
mod twin;

use spand_proto::units::Micros;

use super::twin::{START, network, sample};
use super::*;
use crate::flow::sample::{ConnectionId, SampleReason};

fn table(limit: usize) -> NetworkTable {
    NetworkTable::new(WindowConfig::default(), NonZeroUsize::new(limit).unwrap(), RuleKind::Spand, 7)
}

fn seconds(s: u64) -> Timestamp {
    START.after(Micros::from_secs(s))
}

fn end(n: u8, at: Timestamp, segments: f64, connection: u64) -> WindowSample {
    sample(n, at, segments, connection, SampleReason::End)
}

fn events(table: &mut NetworkTable) -> Vec<Event> {
    std::iter::from_fn(|| table.poll_event()).collect()
}
