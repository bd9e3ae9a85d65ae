//! The table against a twin that keeps everything, and the events of one network through its life.

mod life;
mod twin;

use std::net::IpAddr;

use spand_proto::estimate::RuleKind;
use spand_proto::units::{Bytes, Micros, Window};

use super::*;
use crate::flow::sample::{Phase, SampleReason};

/// A start in the middle of a bucket.
const START: Timestamp = Timestamp::from_micros(1_700_000_005_000_000);

fn table(limit: usize) -> NetworkTable {
    NetworkTable::new(WindowConfig::default(), NonZeroUsize::new(limit).unwrap(), RuleKind::Spand, 7)
}

/// Network number `n`.
fn network(n: u8) -> Network {
    Network::of(IpAddr::from([198, 51, n, 0]))
}

fn seconds(s: u64) -> Timestamp {
    START.after(Micros::from_secs(s))
}

/// A window of so many segments of 1,000 bytes towards network `n`, by a connection to the host of the same number.
fn sample(n: u8, at: Timestamp, segments: f64, connection: u64, reason: SampleReason) -> WindowSample {
    let host = u8::try_from(connection % 200).unwrap();
    WindowSample {
        at,
        network: network(n),
        remote: [198, 51, n, host].into(),
        connection: ConnectionId(connection),
        window: Window::from_bytes(segments * 1_000.0).unwrap(),
        mss: Bytes(1_000),
        reason,
        sawtooth: None,
        phase: Phase::CongestionAvoidance,
        transfer: Bytes(100_000),
        advised: false,
        rtt_min: None,
    }
}

fn end(n: u8, at: Timestamp, segments: f64, connection: u64) -> WindowSample {
    sample(n, at, segments, connection, SampleReason::End)
}

fn events(table: &mut NetworkTable) -> Vec<Event> {
    std::iter::from_fn(|| table.poll_event()).collect()
}
