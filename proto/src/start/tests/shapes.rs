//! The shapes of the other papers, and the buffer's bound.

use super::*;
use crate::opening::{LossClock, Opening};

/// What [`estimate`] gives, with a threshold of `opening` segments by the senders under way, and their losses every five seconds, the
/// oldest's every twenty, the last one just now.
fn opened(share: u32, opening: u32) -> Estimate {
    let losses = LossClock {
        interval: Micros::from_secs(5),
        oldest_interval: Micros::from_secs(20),
        last: Timestamp::from_micros(1_000_000),
    };
    let threshold = Window::from_segments(Segments(opening), MSS);
    Estimate { opening: Some(Opening { rule: RuleKind::Robust, threshold, losses: Some(losses) }), ..estimate(share) }
}

fn shaped(estimate: &Estimate, shape: Shape, policy: StartPolicy) -> Start {
    let request = StartRequest { now: Timestamp::from_micros(1_000_000), ..request(estimate) };
    start(&request, &StartPolicy { shape, ..policy }).unwrap()
}

#[test]
fn a_threshold_leaves_the_window_to_the_host() {
    let start = shaped(&opened(60, 33), Shape::Threshold, StartPolicy::PAPER);
    assert_eq!((windows(&start), start.pacing), ((10, 33), None));
    assert_eq!(windows(&shaped(&opened(60, 4), Shape::Threshold, StartPolicy::PAPER)), (10, 10));
}

#[test]
fn a_careful_threshold_rests_on_losses() {
    let mut estimate = opened(60, 33);
    estimate.loss_window = Some(Window::from_segments(Segments(90), MSS));
    // One crawling connection does not make a whole network crawl: half of what was in flight at losses is the least.
    assert_eq!(shaped(&estimate, Shape::Threshold, StartPolicy::CAREFUL).ssthresh, Segments(45));
    estimate.loss_connections = 0;
    assert_eq!(shaped(&estimate, Shape::Threshold, StartPolicy::CAREFUL).ssthresh, NO_THRESHOLD);
}

#[test]
fn a_jump_is_paced_and_bounded_as_every_start() {
    let start = shaped(&opened(60, 50), Shape::Jump, StartPolicy::CAREFUL);
    assert_eq!((windows(&start), start.clipped_by), ((50, 50), None));
    let part = StartPolicy { fraction: Some(Fraction::try_from(0.75).unwrap()), ..StartPolicy::CAREFUL };
    let start = shaped(&opened(60, 50), Shape::Jump, part);
    assert_eq!((windows(&start), start.clipped_by), ((45, 50), Some(Limit::Fraction)));
    // 40 segments in 100 ms: those of the opening less what no rate holds back.
    assert_eq!(start.pacing.unwrap().rate, BytesPerSecond(579_200));
    let whole = shaped(&opened(60, 50), Shape::Jump, StartPolicy::PAPER);
    assert_eq!((windows(&whole), whole.clipped_by), ((50, 50), None));
}

#[test]
fn times_of_losses_give_a_window_that_shrinks_and_is_capped() {
    let policy = StartPolicy { shape: Shape::Measured, ..StartPolicy::PAPER };
    let estimate = opened(60, 33);
    let at = |ms| {
        let now = Timestamp::from_micros(1_000_000).after(Micros::from_millis(ms));
        start(&StartRequest { now, ..request(&estimate) }, &policy).unwrap()
    };
    // 20 s over 100 ms: 200 right after a loss, and the cap of careful starts holds in every mode.
    let first = at(0);
    assert_eq!((windows(&first), first.clipped_by, first.account.overdue), ((100, 200), Some(Limit::Cap), false));
    assert_eq!(windows(&at(4_000)), (40, 40));
    assert_eq!(windows(&at(4_500)), (20, 33));
    let overdue = at(5_001);
    assert_eq!((windows(&overdue), overdue.account.overdue), ((10, 33), true));
}

#[test]
fn what_a_connection_measures_itself_starts_as_plain_tcp() {
    for shape in [Shape::OwnThreshold, Shape::OwnPaced] {
        let start = shaped(&estimate(60), shape, StartPolicy::PAPER);
        assert_eq!((windows(&start), start.pacing), ((10, NO_THRESHOLD.0), None));
    }
}

#[test]
fn without_an_opening_there_is_no_start() {
    let estimate = estimate(60);
    for shape in [Shape::Threshold, Shape::Jump, Shape::Measured] {
        let refusal = start(&request(&estimate), &StartPolicy { shape, ..StartPolicy::PAPER }).unwrap_err();
        assert_eq!(refusal.reason(), RefusalReason::NoOpening);
        assert!(refusal.to_string().contains(shape.name()), "{refusal}");
    }
}

#[test]
fn the_buffer_bounds_what_is_not_paced() {
    let mut estimate = estimate(60);
    (estimate.buffer, estimate.loss_window) = (Some(window(4)), Some(window(60)));
    estimate.loss_connections = 3;
    let floor = Some(Floor { lowest: Segments(2), loss_connections: 3 });
    let plain = StartPolicy { fills_pipe: false, floor, ..StartPolicy::CAREFUL };
    let policy = StartPolicy { buffered: true, ..plain };
    let at = |size, policy: &StartPolicy| {
        start(&StartRequest { size: segments(size), ..request(&estimate) }, policy).unwrap()
    };
    // Six segments in one burst: the buffer holds four, and as many leave meanwhile.
    let short = at(9, &policy);
    assert_eq!((windows(&short), short.clipped_by), ((8, 8), Some(Limit::Buffer)));
    assert_eq!(windows(&at(9, &plain)), (9, 30));
    // The host's default window is never bounded where the floor is that.
    assert_eq!(windows(&at(9, &StartPolicy { floor: StartPolicy::CAREFUL.floor, ..policy })), (10, 10));
    // A paced start keeps both.
    assert_eq!(windows(&at(1_000, &policy)), windows(&at(1_000, &plain)));
    // Standard slow start ends just below.
    estimate.buffer = Some(window(20));
    let threshold = shaped(&estimate, Shape::OwnThreshold, StartPolicy { buffered: true, ..StartPolicy::PAPER });
    assert_eq!(threshold.ssthresh, Segments(39));
}

fn window(segments: u32) -> Window {
    Window::from_segments(Segments(segments), MSS)
}
