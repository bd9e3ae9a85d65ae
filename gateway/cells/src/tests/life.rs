//! Tables that share through the life of their networks.

use spand_core::networks::reported::ReportedConnection;
use spand_proto::report::{ConnectionReport, LimitedBy, Transport};
use spand_proto::units::Segments;

use super::*;

fn end(n: u8, at: Timestamp, connection: u64) -> WindowSample {
    sample(n, at, 10.0, connection, SampleReason::End)
}

#[test]
fn a_network_whose_own_samples_aged_makes_room_before_one_that_has_own_samples() {
    let [mut own, mut other] = [1, 2].map(|gateway| table(gateway, gateway.into(), 2));
    other.add(&end(1, seconds(60), 9));
    // By the order in which they came network 2 would go first.
    own.add(&end(2, seconds(20), 1));
    own.add(&end(1, START, 2));
    for cell in other.own_cells(network(1), 0, seconds(80)) {
        own.take_cell(network(1), cell, seconds(80)).unwrap();
    }
    let aged = seconds(312);
    assert!(own.expire(aged, usize::MAX));
    assert_eq!(own.own_networks(), [network(2)]);
    own.add(&end(3, aged, 3));
    assert_eq!(own.evicted(), 1);
    let is_known = |n| own.view(network(n), aged).is_some();
    assert_eq!([1, 2, 3].map(is_known), [false, true, true]);
}

#[test]
fn a_network_that_takes_the_place_of_another_has_nothing_of_it() {
    let [mut own, mut other] = [1, 2].map(|gateway| table(gateway, gateway.into(), 1));
    other.add(&end(1, START, 9));
    for cell in other.own_cells(network(1), 0, START) {
        own.take_cell(network(1), cell, START).unwrap();
    }
    own.add(&end(2, START, 1));
    let samples = |n| own.view(network(n), START).map(|view| view.samples);
    assert_eq!([1, 2].map(samples), [None, Some(1)]);
}

/// A QUIC connection of a host to an address of network 1 that lost at 30 segments.
fn reported(host: u32, remote: u8, at: Timestamp) -> ReportedConnection {
    let report = ConnectionReport {
        host: ([10, 0, 0, 1], 443).into(),
        remote: ([198, 51, 1, remote], 50_000).into(),
        ended_ago: Micros(0),
        duration: None,
        end_window: None,
        mss: Some(Bytes(1_200)),
        srtt: Some(Micros(40_000)),
        rtt_min: Some(Micros(30_000)),
        acknowledged: Bytes(u64::MAX),
        retransmitted: Segments(1),
        first_flight_loss: None,
        first_flight: None,
        limited_by: Some(LimitedBy::Window),
        arm: None,
        advised: None,
        refusal: None,
        paused: false,
        transport: Transport::Quic,
        loss_window: Some(Bytes(18_000)),
        congestion_events: 2,
        ended_in_slow_start: Some(false),
        careful_resume: None,
    };
    ReportedConnection { reporter: host.into(), arrived: at, report }
}

#[test]
fn an_estimate_of_reports_makes_no_cell_leave_for_other_gateways() {
    let mut table = table(1, 1, 10);
    let rtt = |table: &mut NetworkTable, at| {
        let remote = [198, 51, 1, 1].into();
        table.add_rounds(network(1), at, remote, RttSum::of(Micros(50_000)), LimitCounts::default());
    };
    rtt(&mut table, START);
    let at = seconds(9);
    for (host, remote) in [(1, 1), (1, 2), (2, 3), (2, 4)] {
        table.take_reported(network(1), &reported(host, remote, at), at).unwrap();
    }
    rtt(&mut table, at);
    table.expire(at.after(Micros::from_secs(20)), usize::MAX);
    let now = at.after(Micros::from_secs(20));
    assert!(table.estimate(network(1), now).is_some(), "of reports");
    assert_eq!((table.take_cells(), table.own_cells(network(1), 0, now)), (Vec::new(), Vec::new()));
}
