//! The table against a twin that keeps everything, and the events of one network through its life.

mod life;
mod reported;
mod twin;

use spand_proto::units::{Bytes, Micros, Window};

use super::twin::{START, network, sample, sender};
use super::view::NetworkView;
use super::*;
use crate::types::{ConnectionId, SampleReason};

fn table(limit: usize) -> NetworkTable {
    NetworkTable::new(WindowConfig::default(), NonZeroUsize::new(limit).unwrap(), RuleKind::Spand, 7)
}

fn seconds(s: u64) -> Timestamp {
    START.after(Micros::from_secs(s))
}

fn end(n: u8, at: Timestamp, segments: f64, connection: u64) -> WindowSample {
    sample(n, at, segments, connection, SampleReason::End)
}

fn events(table: &mut NetworkTable) -> Vec<NetworkEvent> {
    iter::from_fn(|| table.poll_event()).collect()
}

const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn shares(events: &[NetworkEvent]) -> Vec<Result<f64, Withdrawal>> {
    events
        .iter()
        .map(|event| match event {
            NetworkEvent::Estimate(estimate) => Ok(estimate.share.bytes() / 1_000.0),
            NetworkEvent::Withdrawn { reason, .. } => Err(*reason),
            other @ NetworkEvent::Network(_) => panic!("no view was asked for: {other:?}"),
        })
        .collect()
}

/// A table in which network 1 has an announced estimate of 10 segments.
fn announced_table() -> NetworkTable {
    let mut table = table(10);
    for connection in 1..=3 {
        table.add(&end(1, START, 10.0, connection));
    }
    assert_eq!(shares(&events(&mut table)), [Ok(10.0)]);
    table
}
