//! Windows that hosts report of QUIC connections: what an honest one gives, and how far a lying one gets.

use spand_proto::report::{ConnectionReport, LimitedBy, Transport};
use spand_proto::units::Segments;

use super::*;
use crate::networks::reported::{MOST_OF_ONE_HOST, ReportRefused, ReportedConnection, ReportedView, SAMPLES_PER_HOST};

const MSS: f64 = 1_200.0;

fn robust(limit: usize) -> NetworkTable {
    NetworkTable::new(WindowConfig::default(), NonZeroUsize::new(limit).unwrap(), RuleKind::Robust, 7)
}

/// A connection of this host to an address of network 1 that lost at this window, and ended at `at`.
fn lost(host: u32, remote: u8, segments: f64, at: Timestamp) -> ReportedConnection {
    let report = ConnectionReport {
        host: ([10, 0, 0, 1], 443).into(),
        remote: (address(remote), 50_000).into(),
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
        loss_window: Some(Bytes(Window::from_bytes((segments + 1.0) * MSS).unwrap().half_bytes() / 2)),
        congestion_events: 2,
        ended_in_slow_start: Some(false),
        careful_resume: None,
    };
    ReportedConnection { reporter: host.into(), arrived: at, report }
}

fn address(host: u8) -> IpAddr {
    [198, 51, 1, host].into()
}

/// Every host reports `each` connections in every bucket of two minutes, at windows around its own; the clock at the end.
fn report(table: &mut NetworkTable, hosts: &[(u32, f64)], each: u32) -> Timestamp {
    let mut at = START;
    for second in 0..120_u32 {
        at = seconds(second.into());
        if second % 10 >= each {
            continue;
        }
        for (host, segments) in hosts {
            // The peaks of a sawtooth scatter.
            let scattered = segments * (0.9 + 0.05 * f64::from((second + host) % 5));
            let remote = u8::try_from(second % 7 + host * 8 % 200).unwrap();
            table.take_reported(network(1), &lost(*host, remote, scattered, at), at).unwrap();
        }
        table.expire(at, usize::MAX);
        while table.poll_event().is_some() {}
    }
    at
}

fn share(table: &NetworkTable, at: Timestamp) -> f64 {
    table.estimate(network(1), at).unwrap().share.bytes() / MSS
}

fn view(table: &NetworkTable, at: Timestamp) -> NetworkView {
    table.view(network(1), at).unwrap()
}

#[test]
fn a_network_that_only_reports_know_has_an_estimate_of_them() {
    for hosts in [1, 2, 5] {
        let mut table = robust(10);
        let honest: Vec<_> = (1..=hosts).map(|host| (host, 40.0)).collect();
        let at = report(&mut table, &honest, 3);
        let share = share(&table, at);
        assert!((share / 40.0 - 1.0).abs() < 0.15, "{hosts} hosts: {share} of 40");
        let view = view(&table, at);
        let reported = view.reported.unwrap();
        assert_eq!((reported.samples, reported.hosts, reported.in_force), (36 * hosts, hosts, true));
        assert_eq!((view.samples, view.lower_bounds, view.why_not), (0, 0, None), "of the wire is nothing");
        assert_eq!((view.rtt_mean, view.rtt_min), (Some(Micros(40_000)), Some(Micros(30_000))));
        assert_eq!(table.changed_records(10), [(network(1), None)], "nothing of it is stored");
    }
}

#[test]
fn reports_alone_need_three_samples_of_two_remote_addresses() {
    let mut table = robust(10);
    let mut take = |host, remote| {
        table.take_reported(network(1), &lost(host, remote, 30.0, START), START).unwrap();
        shares(&events(&mut table)).len()
    };
    assert_eq!([take(1, 1), take(1, 1), take(2, 1), take(3, 1)], [0; 4], "one remote address, however many report it");
    assert_eq!(take(1, 2), 1);
}

#[test]
fn an_advised_start_that_ends_low_holds_the_share_of_reports_as_on_the_wire() {
    let share = |advised: Option<Segments>| {
        let mut table = robust(10);
        for host in 1..=8 {
            let is_low = host > 4;
            let mut ended = lost(host, u8::try_from(host).unwrap(), 0.0, START);
            (ended.report.loss_window, ended.report.congestion_events) = (None, 0);
            ended.report.end_window = Some(Bytes(if is_low { 12_000 } else { 48_000 }));
            ended.report.advised = advised.filter(|_| is_low);
            table.take_reported(network(1), &ended, START).unwrap();
        }
        share(&table, START)
    };
    assert_near(share(Some(Segments(40))), 40.0);
    assert!(share(None) < 35.0);
}

#[test]
fn a_lying_host_moves_a_network_that_five_honest_ones_report_by_at_most_a_tenth() {
    let honest: Vec<_> = (1..=5).map(|host| (host, 40.0)).collect();
    let mut table = robust(10);
    let at = report(&mut table, &honest, 4);
    let before = share(&table, at);
    for lie in [1.0, 10.0, 60.0, 80.0, 200.0, 40_000.0] {
        let mut table = robust(10);
        let at = report(&mut table, &[honest.as_slice(), &[(99, lie)]].concat(), 4);
        let moved = share(&table, at) / before - 1.0;
        assert!(moved.abs() < 0.1, "{lie}: {moved}");
    }
}

#[test]
fn a_lying_host_beside_an_honest_one_raises_their_network_by_at_most_a_third() {
    let mut table = robust(10);
    let at = report(&mut table, &[(1, 40.0)], 4);
    let before = share(&table, at);
    let moved = |lie| {
        let mut table = robust(10);
        let at = report(&mut table, &[(1, 40.0), (99, lie)], 4);
        share(&table, at) / before - 1.0
    };
    let raised = [50.0, 60.0, 80.0, 200.0, 40_000.0].map(moved);
    assert!(raised.iter().all(|moved| (0.0..=1.0 / 3.0 + 1e-9).contains(moved)), "{raised:?}");
    // Of two that do not agree the lower one is believed, as on the wire: a start is never smaller than the host's default.
    assert!(moved(1.0) < -0.9);
}

#[test]
fn a_lying_host_alone_gives_a_share_of_at_most_a_hundred_segments() {
    let mut table = robust(10);
    let at = report(&mut table, &[(99, 40_000.0)], 4);
    assert_near(table.estimate(network(1), at).unwrap().share.bytes(), MOST_OF_ONE_HOST);
    // A second one lifts the bound: two hosts that agree are believed.
    let mut table = robust(10);
    let at = report(&mut table, &[(98, 1_000.0), (99, 1_000.0)], 4);
    assert!(share(&table, at) > 900.0);
}

#[test]
fn hosts_with_lower_bounds_alone_do_not_lift_the_bound_of_a_lying_one() {
    let mut table = robust(10);
    let mut at = START;
    for second in 0..60_u32 {
        at = seconds(second.into());
        for host in 1..=5 {
            let mut ended = lost(host, u8::try_from(second % 7 + host * 8).unwrap(), 40.0, at);
            (ended.report.loss_window, ended.report.congestion_events) = (None, 0);
            (ended.report.end_window, ended.report.ended_in_slow_start) = (Some(Bytes(48_000)), Some(true));
            ended.report.limited_by = Some(LimitedBy::Application);
            // Within its limit of samples, or not.
            _ = table.take_reported(network(1), &ended, at);
        }
        _ = table.take_reported(network(1), &lost(99, u8::try_from(100 + second % 3).unwrap(), 40_000.0, at), at);
    }
    assert!(table.estimate(network(1), at).unwrap().share.bytes() <= MOST_OF_ONE_HOST + 1.0);
}

#[test]
fn a_lying_host_moves_nothing_where_the_wire_gives_the_estimate() {
    let mut table = robust(10);
    let lie = |table: &mut NetworkTable, at| table.take_reported(network(1), &lost(99, 9, 40_000.0, at), at);
    // It was there first.
    for _ in 0..3 {
        lie(&mut table, START).unwrap();
    }
    let on_wire = |at, connection| sample(1, at, 10.0, connection, SampleReason::Loss);
    for connection in 1..=3 {
        table.add(&on_wire(seconds(20), connection));
    }
    let mut alone = robust(10);
    for connection in 1..=3 {
        alone.add(&on_wire(seconds(20), connection));
    }
    assert_eq!(lie(&mut table, seconds(21)), Err(ReportRefused::Wire));
    assert_eq!(table.estimate(network(1), seconds(21)), alone.estimate(network(1), seconds(21)), "to the last bit");
    assert_eq!(
        (view(&table, seconds(21)).reported, table.memory()),
        (None, alone.memory()),
        "and nothing is left of it"
    );
    // Only when the wire has nothing more, reports count again.
    table.expire(seconds(400), usize::MAX);
    lie(&mut table, seconds(400)).unwrap();
}

#[test]
fn a_host_gives_four_samples_of_a_network_in_a_bucket_and_other_hosts_have_their_own() {
    let mut table = robust(10);
    let mut take = |host, remote, at| table.take_reported(network(1), &lost(host, remote, 30.0, at), at);
    let first: Vec<_> = (0..6).map(|remote| take(1, remote, START)).collect();
    let most = SAMPLES_PER_HOST as usize;
    assert!(first[..most].iter().all(Result::is_ok), "{first:?}");
    assert!(first[most..].iter().all(|taken| *taken == Err(ReportRefused::HostLimit)), "{first:?}");
    assert_eq!(take(1, 9, START.before(Micros::from_secs(30))), Err(ReportRefused::HostLimit), "late ones as well");
    assert!((2..=16).all(|host| take(host, 1, START).is_ok()));
    assert_eq!(take(17, 1, START), Err(ReportRefused::NoRoom), "sixteen hosts have a place");
    assert_eq!(take(2, 2, START), Ok(()), "those keep theirs");
    assert_eq!(take(1, 1, seconds(10)), Ok(()));
    assert_eq!(take(1, 1, seconds(9_999)), Ok(()), "a window later");
}

#[test]
fn reports_make_no_network_where_half_of_the_table_is_in_use() {
    let mut table = robust(4);
    let report = |n: u8| {
        let mut report = lost(1, 1, 30.0, START);
        report.report.remote = ([192, 0, n, 1], 50_000).into();
        report
    };
    for n in 1..=3 {
        let taken = table.take_reported(network(n), &report(n), START);
        assert_eq!(taken, if n <= 2 { Ok(()) } else { Err(ReportRefused::NoRoom) });
    }
    table.take_reported(network(2), &report(2), START).unwrap();
    assert_eq!((table.len(), table.evicted()), (2, 0));
    // The wire takes what it needs.
    (5..=8).for_each(|n| table.add(&end(n, START, 10.0, 1)));
    assert_eq!((table.len(), table.evicted()), (4, 2));
}

#[test]
fn reports_age_as_samples_do_and_leave_nothing_behind() {
    let mut table = robust(10);
    let at = report(&mut table, &[(1, 30.0), (2, 30.0)], 3);
    assert!(table.memory().used_bytes > 0);
    let late = at.after(Micros::from_secs(301));
    table.expire(late, usize::MAX);
    assert_eq!(shares(&events(&mut table)), [Err(Withdrawal::Expired)]);
    assert_eq!((table.len(), table.memory().used_bytes, table.poll_timeout()), (0, 0, None));
    assert_eq!(table.view(network(1), late), None);
}

#[test]
fn an_estimate_of_reports_expires_after_older_samples_of_the_wire_did() {
    // A bucket outlives the age of samples.
    let config = WindowConfig { max_age: Micros::from_secs(60), ..WindowConfig::default() };
    let mut table = NetworkTable::new(config, NonZeroUsize::new(10).unwrap(), RuleKind::Robust, 7);
    table.add(&sample(1, START, 30.0, 1, SampleReason::Loss));
    let at = seconds(100);
    for remote in 1..=3 {
        table.take_reported(network(1), &lost(1, remote, 30.0, at), at).unwrap();
    }
    assert_eq!(shares(&events(&mut table)).len(), 1);
    for second in 101..=160 {
        table.expire(seconds(second), usize::MAX);
    }
    assert_eq!(shares(&events(&mut table)), [], "at the age limit it still holds");
    table.expire(seconds(161), usize::MAX);
    assert_eq!(shares(&events(&mut table)), [Err(Withdrawal::TooFew)]);
}

#[test]
fn memory_of_reports_is_free_when_the_wire_gives_the_estimate_at_its_turn() {
    let learnt = |table: &mut NetworkTable| {
        (1..=3).for_each(|connection| table.add(&sample(1, START, 10.0, connection, SampleReason::Loss)));
        table.expire(seconds(1), usize::MAX);
        table.memory()
    };
    let mut table = robust(10);
    for remote in 1..=3 {
        table.take_reported(network(1), &lost(1, remote, 30.0, START), START).unwrap();
    }
    let memory = learnt(&mut table);
    assert_eq!((view(&table, seconds(1)).reported, memory), (None, learnt(&mut robust(10))));
}

#[test]
fn samples_of_the_wire_that_are_too_few_take_no_estimate_from_reports() {
    let mut table = robust(10);
    let at = report(&mut table, &[(1, 30.0), (2, 30.0)], 3);
    table.add(&sample(1, at, 5.0, 1, SampleReason::Loss));
    assert!((share(&table, at) / 30.0 - 1.0).abs() < 0.15);
    let ReportedView { samples, in_force, .. } = view(&table, at).reported.unwrap();
    assert_eq!((samples, in_force, view(&table, at).samples), (72, true, 1));
}

fn assert_near(value: f64, expected: f64) {
    assert!((value / expected - 1.0).abs() < 1e-9, "{value} instead of {expected}");
}
