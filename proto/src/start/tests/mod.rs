mod arbitrary;

use super::*;
use crate::estimate::{Confidence, RuleKind};
use crate::units::{BytesPerSecond, Window};

const MSS: Bytes = Bytes(1_448);

/// An estimate of `share` segments and 100 ms from ten samples of five connections, none by a loss.
fn estimate(share: u32) -> Estimate {
    Estimate {
        network: "192.0.2.0/24".parse().unwrap(),
        share: Window::from_segments(Segments(share), MSS),
        mss: MSS,
        rtt_min: Some(Micros::from_millis(80)),
        rtt_mean: Some(Micros::from_millis(100)),
        samples: 10,
        connections: 5,
        loss_connections: 1,
        loss_window: None,
        is_lower_bound: false,
        opening: None,
        buffer: None,
        bdp: None,
        losses: 0,
        refreshed: Timestamp(0),
        confidence: Confidence::new(0.5),
        rule: RuleKind::Probe,
        mark: None,
    }
}

/// A transfer of unknown size that nothing else limits.
fn request(estimate: &Estimate) -> StartRequest<'_> {
    StartRequest {
        estimate: Some(estimate),
        now: Timestamp(0),
        size: TransferSize::Unknown,
        mss: MSS,
        snd_wnd: None,
        handshake_rtt: Some(Micros::from_millis(100)),
        initial_window: DEFAULT_INITIAL_WINDOW,
        budget: None,
    }
}

fn segments(count: u64) -> TransferSize {
    TransferSize::Known(Bytes(count * MSS.0))
}

fn windows(start: &Start) -> (u32, u32) {
    (start.cwnd.0, start.ssthresh.0)
}

#[test]
fn paper_mode_grants_the_whole_window_of_the_model_and_paces_it() {
    let estimate = estimate(20);
    let start = start(&StartRequest { size: segments(30), ..request(&estimate) }, &StartPolicy::PAPER).unwrap();
    assert_eq!(windows(&start), (15, 15));
    assert_eq!((start.clipped_by, start.account.bounds.len()), (None, 0));
    // 15 segments of 1448 bytes in 100 ms, four of them at once.
    assert_eq!(
        start.pacing,
        Some(Pacing { after_segments: Segments(4), rate: BytesPerSecond(217_200), rtt: Micros(100_000) })
    );
    let steps = start.account.transfer.unwrap();
    assert_eq!((steps.size, steps.remainder, steps.rounds), (Segments(30), Segments(30), 2));
}

#[test]
fn paper_mode_has_no_floor() {
    let estimate = estimate(4);
    let start = start(&StartRequest { size: segments(30), ..request(&estimate) }, &StartPolicy::PAPER).unwrap();
    assert_eq!((windows(&start), start.pacing), ((2, 2), None));
}

#[test]
fn a_size_that_is_only_usual_makes_no_start_smaller_than_plain_tcp() {
    let tiny = Bytes(215);
    for policy in [StartPolicy::CAREFUL, StartPolicy::PAPER, StartPolicy { floor: None, ..StartPolicy::CAREFUL }] {
        for share in 1..200 {
            let mut estimate = estimate(share);
            estimate.loss_connections = 5;
            for size in [tiny, Bytes(30 * MSS.0), Bytes(1_000 * MSS.0)] {
                let at = |size| start(&StartRequest { size, ..request(&estimate) }, &policy).unwrap().cwnd;
                let (usual, known, unknown) =
                    (at(TransferSize::Usual(size)), at(TransferSize::Known(size)), at(TransferSize::Unknown));
                assert!(
                    usual >= unknown.min(DEFAULT_INITIAL_WINDOW),
                    "{:?}, Wc {share}, {size:?}: {usual}",
                    policy.mode
                );
                assert!(usual == known || usual <= DEFAULT_INITIAL_WINDOW, "{usual} {known}");
            }
        }
    }
    let at = |size, policy| start(&StartRequest { size, ..request(&estimate(19)) }, &policy).unwrap().cwnd.0;
    assert_eq!(at(TransferSize::Known(tiny), StartPolicy::PAPER), 1, "stated, it is the paper's");
    assert_eq!(at(TransferSize::Usual(tiny), StartPolicy::PAPER), 10);
}

#[test]
fn a_clip_of_a_long_transfer_leaves_the_threshold_where_the_model_put_it() {
    let estimate = estimate(60);
    let part = StartPolicy { fraction: Some(Fraction::try_from(0.75).unwrap()), ..StartPolicy::CAREFUL };
    let unknown = start(&request(&estimate), &part).unwrap();
    assert_eq!((windows(&unknown), unknown.clipped_by), ((45, 60), Some(Limit::Fraction)));
    assert_eq!(
        windows(&start(&request(&estimate), &StartPolicy::CAREFUL).unwrap()),
        (60, 60),
        "by default the whole share"
    );
    let size = segments(100);
    let long = start(&StartRequest { size, ..request(&estimate) }, &StartPolicy::PAPER).unwrap();
    let clipped = StartRequest { size, snd_wnd: Some(Bytes(14_480)), ..request(&estimate) };
    let clipped = start(&clipped, &StartPolicy::PAPER).unwrap();
    assert_eq!((clipped.cwnd, clipped.clipped_by), (Segments(10), Some(Limit::PeerWindow)));
    assert_eq!(clipped.ssthresh, long.ssthresh);
}

/// Round trips of a loss-free transfer that slow start carries to `ssthresh` and congestion avoidance beyond.
fn walk(size: u32, cwnd: u32, ssthresh: u32) -> u32 {
    let (mut window, mut sent, mut rounds) = (cwnd, 0, 0);
    while sent < size {
        sent += window;
        rounds += 1;
        window = if window < ssthresh { (2 * window).min(ssthresh) } else { window + 1 };
    }
    rounds
}

/// docs/explain/decisions/starts.md rests on these counts.
#[test]
fn a_clipped_transfer_of_one_flight_is_never_slower_than_plain_tcp() {
    let (mut cases, mut clipping_both_is_slower, mut than_plain_tcp) = (0, 0, 0);
    for share in 11..=60 {
        let estimate = estimate(share);
        for size in 11..=share {
            for clip in 10..size {
                let snd_wnd = Some(Bytes(u64::from(clip) * MSS.0));
                let asked = StartRequest { size: segments(size.into()), snd_wnd, ..request(&estimate) };
                let start = start(&asked, &StartPolicy::PAPER).unwrap();
                assert_eq!((windows(&start), start.clipped_by), ((clip, size), Some(Limit::PeerWindow)));
                let (ours, plain) = (walk(size, clip, size), walk(size, 10, u32::MAX / 2));
                assert!(ours <= plain, "Wc {share}, F {size}, clip {clip}: {ours} round trips, plain TCP {plain}");
                cases += 1;
                clipping_both_is_slower += u32::from(walk(size, clip, clip) > ours);
                than_plain_tcp += u32::from(walk(size, clip, clip) > plain);
            }
        }
    }
    assert_eq!((cases, clipping_both_is_slower, than_plain_tcp), (22_100, 5_065, 2_195));
}

#[test]
fn each_limit_is_reported_with_the_window_before_and_after_it() {
    let estimate = estimate(400);
    let asked = StartRequest { snd_wnd: Some(Bytes(65_535)), budget: Some(Segments(20)), ..request(&estimate) };
    let start = start(&asked, &StartPolicy::CAREFUL).unwrap();
    let bounds: Vec<_> = start.account.bounds.iter().map(|b| (b.limit, b.value.0, b.before.0, b.after.0)).collect();
    assert_eq!(
        bounds,
        [
            (Limit::Fraction, 400, 400, 400),
            (Limit::Cap, 100, 400, 100),
            (Limit::PeerWindow, 45, 100, 45),
            (Limit::Budget, 30, 45, 30),
            (Limit::Floor, 10, 30, 30),
        ]
    );
    assert_eq!((windows(&start), start.clipped_by), ((30, 400), Some(Limit::Budget)));
}

#[test]
fn a_spent_budget_leaves_the_hosts_default() {
    let estimate = estimate(60);
    let start = start(&StartRequest { budget: Some(Segments(0)), ..request(&estimate) }, &StartPolicy::CAREFUL);
    let start = start.unwrap();
    assert_eq!((start.cwnd, start.clipped_by, start.pacing), (Segments(10), Some(Limit::Budget), None));
}

#[test]
fn paper_mode_keeps_no_budget() {
    let estimate = estimate(60);
    let asked = StartRequest { budget: Some(Segments(0)), ..request(&estimate) };
    assert_eq!(windows(&start(&asked, &StartPolicy::PAPER).unwrap()), (60, 60));
}

#[test]
fn the_floor_is_the_hosts_default_and_losses_of_three_connections_lower_it_where_that_is_allowed() {
    let lowest = |lowest| StartPolicy {
        floor: Some(Floor { lowest: Segments(lowest), loss_connections: 3 }),
        ..StartPolicy::CAREFUL
    };
    let of = |losses, policy| {
        let estimate = Estimate { loss_connections: losses, ..estimate(4) };
        start(&StartRequest { size: segments(12), ..request(&estimate) }, &policy).unwrap()
    };
    let small = |losses| of(losses, lowest(2));
    assert_eq!(windows(&of(3, StartPolicy::CAREFUL)), (10, 25), "by default losses lower nothing");
    assert_eq!(windows(&small(2)), (10, 25));
    assert_eq!(small(2).clipped_by, None);
    assert_eq!(windows(&small(3)), (2, 25));
    // A host whose own default is below the lowered floor keeps it.
    let estimate = Estimate { loss_connections: 9, ..estimate(1) };
    let asked = StartRequest { initial_window: Segments(1), ..request(&estimate) };
    assert_eq!(windows(&start(&asked, &lowest(2)).unwrap()), (1, 25));
}

#[test]
fn ten_segments_leave_at_once_and_the_rest_at_its_rate_over_the_longer_round_trip() {
    let ten = estimate(10);
    assert_eq!(start(&request(&ten), &StartPolicy::CAREFUL).unwrap().pacing, None);
    let many = estimate(40);
    let asked = StartRequest { handshake_rtt: Some(Micros::from_millis(160)), ..request(&many) };
    let pacing = start(&asked, &StartPolicy::CAREFUL).unwrap().pacing.unwrap();
    // Those beyond ten leave at the rate of the share of 40: 30 of 1448 bytes in 160 ms.
    assert_eq!(pacing, Pacing { after_segments: Segments(10), rate: BytesPerSecond(271_500), rtt: Micros(160_000) });
    for handshake_rtt in [None, Some(Micros::from_millis(50))] {
        let asked = StartRequest { handshake_rtt, ..request(&many) };
        assert_eq!(start(&asked, &StartPolicy::CAREFUL).unwrap().pacing.unwrap().rtt, Micros(100_000));
    }
}

#[test]
fn a_share_that_no_loss_bounds_leaves_as_fast_as_the_queue_allows_that_it_has_shown() {
    let leaves_in = |share: u32, window: u32, (loss_connections, losses), us: u64| {
        let estimate = Estimate { loss_connections, losses, ..estimate(share) };
        // A receiver that takes less changes nothing.
        let asked = StartRequest { snd_wnd: Some(Bytes(30 * MSS.0)), ..request(&estimate) };
        let policy = StartPolicy { fraction: None, cap: Some(Segments(window)), ..StartPolicy::CAREFUL };
        let start = start(&asked, &policy).unwrap();
        assert_eq!(start.cwnd, Segments(30));
        let bytes = u64::from(share - 10) * MSS.0;
        assert_eq!(start.pacing.unwrap().rate.0, (bytes * 1_000_000).div_ceil(us));
    };
    leaves_in(200, 60, (1, 0), 100_000);
    leaves_in(200, 60, (0, 1), 100_000);
    // All 50 after the burst may wait where 50 may.
    leaves_in(200, 60, (0, 0), 12_500);
    // 20 of 70, and 60 of 70, must leave the queue before the last arrives.
    leaves_in(200, 80, (0, 0), 28_571);
    leaves_in(40, 40, (0, 0), 66_666);
}

#[test]
fn the_last_segment_of_paper_mode_leaves_when_the_bucket_would_let_it_and_no_faster_than_the_share() {
    let policy = StartPolicy { pacing: PacingRule::AfterBurst { burst: Segments(10) }, ..StartPolicy::PAPER };
    let pacing = |share, size, own_ms| {
        let estimate = estimate(share);
        let asked = StartRequest {
            size: segments(size),
            handshake_rtt: Some(Micros::from_millis(own_ms)),
            ..request(&estimate)
        };
        start(&asked, &policy).unwrap().pacing.unwrap()
    };
    // 30 segments far below the share: twenty of them in 26 thirtieths of the handshake's own round trip.
    let rate = (20 * MSS.0 * 1_000_000_u64).div_ceil(69_333);
    assert_eq!(
        pacing(200, 30, 80),
        Pacing { after_segments: Segments(10), rate: BytesPerSecond(rate), rtt: Micros(80_000) }
    );
    // Where its receiver takes less of a start, the rest is not spread over more time: ten of twenty in 16 thirtieths.
    let estimate = estimate(200);
    let asked = StartRequest { size: segments(30), snd_wnd: Some(Bytes(20 * MSS.0)), ..request(&estimate) };
    let rate = (10 * MSS.0 * 1_000_000_u64).div_ceil(53_333);
    assert_eq!(start(&asked, &policy).unwrap().pacing.unwrap().rate, BytesPerSecond(rate));
    // A whole share over the longer round trip.
    assert_eq!(pacing(30, 30, 80).rate, BytesPerSecond(20 * MSS.0 * 10));
    assert_eq!(pacing(30, 30, 80).rtt, Micros(100_000));
}

#[test]
fn no_start_is_paced_slower_than_plain_tcp_sends() {
    // After a burst the share is 12 and the mean round trip 100 ms. The two segments beyond ten would leave at 20 segments a second.
    let crowd = estimate(12);
    let rate = |handshake_ms: u64| {
        let asked = StartRequest { handshake_rtt: Some(Micros::from_millis(handshake_ms)), ..request(&crowd) };
        start(&asked, &StartPolicy { rtt_bounds: None, ..StartPolicy::CAREFUL }).unwrap().pacing.unwrap().rate
    };
    // Ten segments in the handshake's round trip, or in half of the mean.
    assert_eq!(rate(80), BytesPerSecond(10 * MSS.0 * 1_000 / 80));
    assert_eq!(rate(50), BytesPerSecond(10 * MSS.0 * 1_000 / 50));
    assert_eq!(rate(1), rate(50));
}

#[test]
fn a_start_is_not_shifted_below_what_keeps_the_path_busy() {
    // 80 of 100 ms are without a queue, so 23 of 29 segments fill the path. Equation 3 gives 28, its shift 15.
    let estimate = estimate(29);
    let asked = StartRequest { size: TransferSize::Known(Bytes(30 * 1_448)), ..request(&estimate) };
    let window = |policy: StartPolicy| start(&asked, &policy).unwrap().cwnd;
    assert_eq!(window(StartPolicy { fraction: None, ..StartPolicy::CAREFUL }), Segments(23));
    assert_eq!(window(StartPolicy::PAPER), Segments(15));
}

#[test]
fn a_share_that_no_loss_backs_sets_no_threshold_but_in_paper_mode() {
    let estimate = Estimate { loss_connections: 0, ..estimate(40) };
    assert_eq!(windows(&start(&request(&estimate), &StartPolicy::CAREFUL).unwrap()), (40, NO_THRESHOLD.0));
    assert_eq!(windows(&start(&request(&estimate), &StartPolicy::PAPER).unwrap()), (40, 40));
}

#[test]
fn slow_start_goes_on_to_half_of_what_was_in_flight_at_losses() {
    let thresholds = |segments: u32| {
        let loss_window = Some(Window::from_segments(Segments(segments), MSS));
        let estimate = Estimate { loss_window, ..estimate(40) };
        [StartPolicy::CAREFUL, StartPolicy::PAPER].map(|policy| start(&request(&estimate), &policy).unwrap().ssthresh.0)
    };
    assert_eq!(thresholds(60), [40, 40]);
    assert_eq!(thresholds(300), [150, 40]);
    assert_eq!(thresholds(1_000_000), [65_535, 40]);
}

#[test]
fn a_transfer_longer_than_an_epoch_starts_as_a_long_one() {
    // An epoch of a share of 29 has 389 segments; the last ten of 399 would start at 10.
    let estimate = estimate(29);
    let asked = StartRequest { size: TransferSize::Known(Bytes(399 * 1_448)), ..request(&estimate) };
    assert_eq!(start(&asked, &StartPolicy::CAREFUL).unwrap().ssthresh, Segments(29));
    assert_eq!(start(&asked, &StartPolicy::PAPER).unwrap().ssthresh, Segments(10));
}

#[test]
fn observe_computes_what_careful_would_do() {
    let estimate = estimate(60);
    let careful = start(&request(&estimate), &StartPolicy::CAREFUL).unwrap();
    let observe = start(&request(&estimate), &StartPolicy::OBSERVE).unwrap();
    assert_eq!(Start { mode: Mode::Careful, ..observe }, careful);
}

/// The example of docs/reference/protocol.md.
#[test]
fn the_example_of_the_protocol_page_is_what_the_function_answers() {
    let estimate = Estimate { loss_connections: 1, ..estimate(40) };
    let asked = StartRequest {
        size: TransferSize::Known(Bytes(144_800)),
        snd_wnd: Some(Bytes(65_535)),
        handshake_rtt: Some(Micros(96_000)),
        ..request(&estimate)
    };
    let start = start(&asked, &StartPolicy::CAREFUL).unwrap();
    let pacing = Pacing { after_segments: Segments(10), rate: BytesPerSecond(434_400), rtt: Micros(100_000) };
    assert_eq!((windows(&start), start.pacing), ((33, 33), Some(pacing)));
    let steps = start.account.transfer.unwrap();
    assert_eq!((steps.size.0, steps.epoch_segments, steps.remainder.0), (100, 711, 100));
    assert_eq!((steps.optimal.0, steps.rounds, start.account.shifted.0), (38, 3, 33));
    let values: Vec<_> = start.account.bounds.iter().map(|bound| (bound.limit.name(), bound.value.0)).collect();
    assert_eq!(values, [("fraction", 40), ("cap", 100), ("peer_window", 45), ("floor", 10)]);
}

#[test]
fn a_short_transfer_is_not_held_to_the_share_of_a_crowd() {
    let bdp = |segments: u32| Some(Window::from_segments(Segments(segments), Bytes(1_448)));
    let crowded = Estimate { bdp: bdp(80), ..estimate(11) };
    let sized = |estimate: &Estimate, segments: u64| {
        let request = StartRequest { size: TransferSize::Known(Bytes(segments * 1_448)), ..request(estimate) };
        let start = start(&request, &StartPolicy::CAREFUL).unwrap();
        (start.cwnd.0, start.ssthresh.0, start.account.raised.map(|raised| raised.0))
    };
    // Of the windows that take as many flights as twenty the smallest.
    assert_eq!([20, 30, 70, 100].map(|size| sized(&crowded, size).0), [20, 15, 18, 20]);
    assert_eq!(sized(&crowded, 100), (20, 25, Some(20)));
    // A longer one starts with its share, and slow start takes it further.
    assert_eq!(sized(&crowded, 101).2, None);
    assert_eq!(sized(&crowded, 2_000), (11, 25, None));
    assert_eq!(start(&request(&crowded), &StartPolicy::CAREFUL).unwrap().ssthresh, Segments(25), "of unknown size");

    // No more than the empty path holds, and nothing where that is not known or the share is larger.
    assert_eq!(sized(&Estimate { bdp: bdp(13), ..crowded.clone() }, 13), (13, 13, Some(13)));
    assert_eq!(sized(&Estimate { bdp: bdp(13), ..crowded.clone() }, 2_000).1, 13);
    assert_eq!(sized(&Estimate { bdp: None, ..crowded.clone() }, 20), sized(&estimate(11), 20));
    assert_eq!(sized(&Estimate { bdp: bdp(80), ..estimate(40) }, 20), sized(&estimate(40), 20));
    let paper = StartRequest { size: TransferSize::Known(Bytes(20 * 1_448)), ..request(&crowded) };
    assert_eq!(start(&paper, &StartPolicy::PAPER).unwrap().account.raised, None);
}
