//! Senders under way: how many are kept.

use super::*;
use crate::flow::sample::Phase;

#[test]
fn of_a_million_connections_to_one_network_the_oldest_64_are_kept() {
    let mut table = announced_table().comparing(&[RuleKind::Liss]);
    let before = table.memory().used_bytes;
    let at = seconds(1);
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
        table.add_state(network(1), at, id, &state);
    }
    assert_eq!(table.live_shared(), 1_000_000 - 64);
    assert!(table.memory().used_bytes - before < 24_000, "{}", table.memory().used_bytes - before);
    // The oldest is among the kept: one more gets its share with 64 others, all with the same window.
    let compared = table.view(network(1), at).unwrap().compared[0];
    let threshold = compared.opening.unwrap().threshold.bytes();
    assert!((threshold - 64.0 * 10_000.0 / 65.0).abs() < 1e-6, "{threshold}");
    // The youngest of those kept ends: its place is free, that of the first beyond is none.
    let ends = |table: &mut NetworkTable, n| {
        table.end_transfer(network(1), at, SenderId { connection: ConnectionId(n), remote: HOST }, false);
        table.view(network(1), at).unwrap().compared[0].opening.unwrap().threshold.bytes()
    };
    assert_eq!(ends(&mut table, 64).to_bits(), threshold.to_bits());
    assert!(ends(&mut table, 63) < threshold);
}
