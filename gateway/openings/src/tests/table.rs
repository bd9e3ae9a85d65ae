//! A table of networks with these rules: how many senders it keeps.

use spand_core::config::WindowConfig;
use spand_core::networks::NetworkTable;
use spand_core::types::{LimitCounts, RttSum};
use spand_proto::network::Network;

use super::*;

const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

#[test]
fn of_a_million_connections_to_one_network_the_oldest_64_are_kept() {
    let network = Network::of(HOST);
    let openings = openings(RuleKind::Robust, &[RuleKind::Liss], PLACES, LossCount::Episodes);
    let mut table = NetworkTable::new(WindowConfig::default(), PLACES, RuleKind::Robust, 0)
        .comparing(&[RuleKind::Liss])
        .with_openings(openings);
    let at = Timestamp::from_micros(1_700_000_005_000_000);
    table.add_rounds(network, at, HOST, RttSum::of(Micros::from_millis(100)), LimitCounts::default());
    let before = table.memory().used_bytes;
    let state = SenderState {
        phase: Phase::CongestionAvoidance,
        window: Window::from_bytes(10_000.0).unwrap(),
        ssthresh: None,
        delivered_bytes: 0,
        mss: Bytes(1_000),
        rtt: Micros::from_millis(100),
        silence: Micros::from_secs(20),
    };
    for n in 0..1_000_000 {
        let id = SenderId { connection: ConnectionId(n), remote: HOST };
        table.add_state(network, at, id, &state);
    }
    assert_eq!(table.live_shared(), 1_000_000 - 64);
    let held = table.memory().used_bytes - before;
    assert!((64 * 140..64 * 160).contains(&held), "{held}");
    // The oldest is among the kept: one more gets its share with 64 others, all with the same window.
    let compared = table.view(network, at).unwrap().compared[0];
    let threshold = compared.opening.unwrap().threshold.bytes();
    assert!((threshold - 64.0 * 10_000.0 / 65.0).abs() < 1e-6, "{threshold}");
    // The youngest of those kept ends: its place is free, that of the first beyond is none.
    let ends = |table: &mut NetworkTable, n| {
        table.end_transfer(network, at, SenderId { connection: ConnectionId(n), remote: HOST }, None);
        table.view(network, at).unwrap().compared[0].opening.unwrap().threshold.bytes()
    };
    assert_eq!(ends(&mut table, 64).to_bits(), threshold.to_bits());
    assert!(ends(&mut table, 63) < threshold);
}
