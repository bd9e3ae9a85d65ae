//! Networks, samples, and what becomes of them.

use std::net::IpAddr;

use spand_core::networks::{NetworkTable, OtherGateways};
use spand_core::types::{ConnectionId, SampleReason, WindowSample};
use spand_core::window::record::NetworkRecord;
use spand_proto::network::Network;
use spand_proto::units::{Bytes, Micros, Timestamp, Window};

use crate::table::SharedNetworks;

/// A start in the middle of a bucket.
pub(super) const START: Timestamp = Timestamp::from_micros(1_700_000_005_000_000);

/// Network number N.
pub(super) fn network(n: u8) -> Network {
    Network::of(IpAddr::from([198, 51, n, 0]))
}

/// A window of this many segments of 1,000 bytes towards network N, by a connection to the host of the same number.
pub(super) fn sample(n: u8, at: Timestamp, segments: f64, connection: u64, reason: SampleReason) -> WindowSample {
    WindowSample {
        at,
        network: network(n),
        remote: [198, 51, n, u8::try_from(connection % 200).unwrap()].into(),
        connection: ConnectionId(connection),
        window: Window::from_bytes(segments * 1_000.0).unwrap(),
        mss: Bytes(1_000),
        reason,
        reduced_before: true,
        transfer: Bytes(100_000),
        advised: false,
        rtt_min: Some(Micros(20_000)),
        rtt: Some(Micros(21_000 + connection % 5 * 9_000 + u64::from(segments > 30.0) * 70_000)),
    }
}

/// What all gateways saw of a network.
pub(super) fn merged_record(table: &NetworkTable, network: Network, now: Timestamp) -> NetworkRecord {
    let own = table.own_network(network).unwrap();
    let merged = table.others::<SharedNetworks>().unwrap().merged_at(own, now);
    merged.map_or_else(|| own.record.clone(), std::borrow::Cow::into_owned)
}
