//! The set of senders under way: order, bounds, silence.

use super::*;

const MSS: u64 = 1_000;

/// No senders yet, and places for three.
fn three() -> LiveSenders {
    LiveSenders::new(RuleKind::Liss, NonZeroUsize::new(3).unwrap(), LossCount::Episodes)
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000).after(Micros::from_millis(ms))
}

fn id(connection: u64) -> SenderId {
    SenderId { connection: ConnectionId(connection), remote: [198, 51, 100, 7].into() }
}

/// A window of N segments, of which none has arrived; its sender may be silent for 500 ms.
fn state(phase: Phase, segments: f64) -> SenderState {
    SenderState {
        phase,
        window: Window::from_bytes(segments * MSS as f64).unwrap(),
        ssthresh: None,
        delivered_bytes: 0,
        mss: Bytes(MSS),
        rtt: Micros::from_millis(100),
        silence: Micros::from_millis(500),
    }
}

fn steady(segments: f64) -> SenderState {
    state(Phase::CongestionAvoidance, segments)
}

fn starting(segments: f64) -> SenderState {
    state(Phase::SlowStart, segments)
}

fn with_threshold(segments: f64) -> SenderState {
    SenderState { ssthresh: Window::from_bytes(segments * MSS as f64), ..steady(2.0 * segments) }
}

fn ids(live: &LiveSenders, now: Timestamp) -> Vec<u64> {
    live.senders(now).map(|sender| sender.id.connection.0).collect()
}

fn crowd(live: &LiveSenders, now: Timestamp) -> (f64, u32) {
    let (bytes, steady) = live.crowd(now);
    (bytes / MSS as f64, steady)
}

#[test]
fn senders_are_kept_in_order_of_age_and_new_ones_displace_none() {
    let mut live = three();
    let shared = [5, 3, 9, 1].map(|n| live.report(at(n), id(n), &steady(10.0)));
    assert_eq!(shared, [false, false, false, true]);
    assert_eq!(ids(&live, at(100)), [5, 3, 9], "by when they began, not by number");
    for n in 10..2_000 {
        assert!(live.report(at(200), id(n), &steady(1.0)));
    }
    assert_eq!(ids(&live, at(200)), [5, 3, 9]);
    live.end(at(210), id(3));
    live.end(at(210), id(4_000));
    assert!(!live.report(at(220), id(11), &steady(10.0)), "there is room again");
    assert_eq!(ids(&live, at(220)), [5, 9, 11]);
    assert!(live.held_bytes() < 1_500, "{}", live.held_bytes());
}

#[test]
fn both_ends_of_a_connection_may_send_to_one_network() {
    let mut live = three();
    let other = SenderId { remote: [198, 51, 100, 8].into(), ..id(1) };
    live.report(at(0), id(1), &steady(10.0));
    live.report(at(0), other, &starting(4.0));
    assert_eq!(crowd(&live, at(0)), (4.0, 1));
    live.end(at(1), id(1));
    assert_eq!(crowd(&live, at(1)), (4.0, 0));
}

#[test]
fn a_sender_silent_for_longer_than_its_timeout_leaves() {
    let mut live = three();
    (1..=3).for_each(|n| assert!(!live.report(at(n), id(n), &with_threshold(n as f64))));
    live.report(at(400), id(2), &with_threshold(2.0));
    assert_eq!(ids(&live, at(501)), [1, 2, 3], "the first for as long as it may");
    assert_eq!(ids(&live, at(503)), [2, 3]);
    assert!(!live.report(at(503), id(7), &steady(9.0)), "its place is free");
    assert!(live.report(at(503), id(8), &steady(9.0)));
    assert_eq!(ids(&live, at(503)), [2, 3, 7]);
    assert!(!live.report(at(600), id(3), &steady(9.0)), "it comes back");
    assert_eq!(ids(&live, at(600)), [2, 7, 3], "as the youngest");
    assert!(ids(&live, at(60_000)).is_empty());
}

#[test]
fn those_in_slow_start_are_summed_and_all_others_counted() {
    let mut live = three();
    assert_eq!(crowd(&live, at(0)), (0.0, 0));
    live.report(at(0), id(1), &steady(20.0));
    live.report(at(0), id(2), &starting(4.0));
    live.report(at(0), id(3), &state(Phase::Recovery, 8.0));
    assert_eq!(crowd(&live, at(0)), (4.0, 2));
    live.report(at(100), id(2), &steady(9.0));
    assert_eq!(crowd(&live, at(100)), (0.0, 3));
}

#[test]
fn a_million_connections_of_one_network_count_and_take_no_room() {
    let (mut live, mut shared) = (three(), 0);
    // 1,000 at a time for 10 s, each with a round trip of 100 ms; a hundred new ones every millisecond, and none says that it ends.
    for n in 0..1_000_000_u64 {
        let state = if n % 4 == 0 { starting(2.0) } else { steady(10.0) };
        shared += u64::from(live.report(at(n / 100), id(n), &state));
    }
    // Three have a place, for half a second each time.
    assert!((999_930..1_000_000).contains(&shared), "{shared}");
    let (bytes, steady) = crowd(&live, at(10_000));
    assert!((2_490.0 * 2.0..=2_500.0 * 2.0 + 6.0).contains(&bytes), "{bytes}");
    assert!((7_490..=7_503).contains(&steady), "{steady}");
    assert!(live.held_bytes() < 1_500, "{}", live.held_bytes());
    assert_eq!(crowd(&live, at(12_000)), (0.0, 0), "they left");
}

#[test]
fn a_round_trip_that_is_too_long_to_be_true_counts_a_second() {
    let mut live = three();
    for n in 0..4 {
        live.report(at(0), id(n), &SenderState { rtt: Micros(u64::MAX), ..steady(10.0) });
    }
    assert_eq!(crowd(&live, at(400)), (0.0, 3), "averaged over whole seconds");
    (0..3).for_each(|n| live.end(at(1_000), id(n)));
    assert_eq!(crowd(&live, at(1_000)), (0.0, 1));
}

#[test]
fn the_smoothed_window_takes_a_500th_per_segment_acknowledged() {
    let mut live = three();
    let smoothed = |live: &LiveSenders| live.senders(at(0)).next().unwrap().smoothed.bytes();
    live.report(at(0), id(1), &steady(10.0));
    assert_eq!(smoothed(&live).to_bits(), 5_000_f64.to_bits(), "half of the first window");
    live.report(at(0), id(1), &SenderState { delivered_bytes: 1_000, ..steady(10.0) });
    assert!((smoothed(&live) - 5_010.0).abs() < 1e-9);
    // One and a half segments more, then the other half: two in all, at a window of 20 segments.
    live.report(at(0), id(1), &SenderState { delivered_bytes: 2_500, ..steady(20.0) });
    assert!((smoothed(&live) - (5_010.0 * 0.998 + 40.0)).abs() < 1e-9);
    live.report(at(0), id(1), &SenderState { delivered_bytes: 3_000, ..steady(20.0) });
    let by_hand = (5_010.0 * 0.998 + 40.0) * 0.998 + 40.0;
    assert!((smoothed(&live) - by_hand).abs() < 1e-9);
    // Four segments at once are as four times one.
    live.report(at(0), id(1), &SenderState { delivered_bytes: 7_000, ..steady(20.0) });
    let by_hand = (0..4).fold(by_hand, |smoothed, _| smoothed * 0.998 + 40.0);
    assert!((smoothed(&live) - by_hand).abs() < 1e-6);
    live.report(at(0), id(1), &SenderState { delivered_bytes: u64::MAX, mss: Bytes(0), ..steady(20.0) });
    assert_eq!(smoothed(&live).to_bits(), 20_000_f64.to_bits(), "nonsense, and none of it is lost or divided by");
}

#[test]
fn losses_are_clocked_for_all_and_for_each() {
    let mut live = three();
    live.report(at(0), id(1), &SenderState { silence: Micros::from_secs(100), ..steady(10.0) });
    let rtt = Micros::from_millis(100);
    for (ms, n) in [(1_000, 1), (1_050, 2), (3_000, 2), (5_000, 1)] {
        live.lose(at(ms), id(n), rtt);
    }
    assert_eq!(live.losses().last(), Some(at(5_000)));
    assert_eq!(live.losses().interval(), Some(Micros::from_secs(2)), "the second is the first, seen by another");
    assert_eq!(live.senders(at(5_000)).next().unwrap().losses.interval(), Some(Micros::from_secs(4)));
}

#[test]
fn the_threshold_that_was_reported_last_stays_for_a_while() {
    let mut live = three();
    let left = |live: &LiveSenders, ms: u64| live.left_with(Micros::from_secs(300), at(ms));
    live.report(at(0), id(1), &with_threshold(7.0));
    live.report(at(0), id(2), &with_threshold(8.0));
    live.report(at(100), id(3), &steady(30.0));
    assert_eq!(left(&live, 100), None, "all are under way");
    live.end(at(150), id(2));
    live.end(at(160), id(3));
    assert_eq!(left(&live, 160).map(Window::bytes), Some(8_000.0), "the last had none");
    live.report(at(300), id(1), &with_threshold(9.0));
    assert_eq!(left(&live, 900).map(Window::bytes), Some(9_000.0), "it fell silent");
    assert_eq!(left(&live, 300_300).map(Window::bytes), Some(9_000.0));
    assert_eq!(left(&live, 300_301), None);
}

#[test]
fn the_mean_window_is_of_all_under_way_each_second() {
    let mut live = three();
    for second in 0..=60 {
        let (now, long) = (at(second * 1_000 + 500), |state| SenderState { silence: Micros::from_secs(2), ..state });
        live.report(now, id(1), &long(steady(30.0)));
        live.report(now, id(2), &long(starting(10.0)));
    }
    let mean = |ms: u64| live.mean_window(at(ms)).map(Window::bytes);
    assert_eq!(mean(61_000), Some(20_000.0));
    assert_eq!(mean(1_000), None, "not a whole minute");
}
