//! Any input under any policy.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::{estimate, request, *};
use crate::estimate::Estimate;
use crate::opening::{LossClock, Opening};
use crate::start::*;
use crate::units::Window;

/// Any policy that a configuration could make.
fn policy() -> impl Strategy<Value = StartPolicy> {
    let fraction = proptest::option::of((0.001..=1.0).prop_map(|part| Fraction::try_from(part).unwrap()));
    let floor = proptest::option::of((any::<u32>(), any::<u32>()))
        .prop_map(|f| f.map(|(lowest, loss_connections)| Floor { lowest: Segments(lowest), loss_connections }));
    let pacing = (any::<bool>(), any::<u32>()).prop_map(|(bucket, at_once)| {
        let at_once = Segments(at_once);
        if bucket { PacingRule::TokenBucket { depth: at_once } } else { PacingRule::AfterBurst { burst: at_once } }
    });
    let cap = proptest::option::of(any::<u32>().prop_map(Segments));
    (fraction, cap, floor, pacing, 1..=u32::MAX, any::<bool>()).prop_map(|(fraction, cap, floor, pacing, k, check)| {
        let rtt_bounds = check.then_some(RttBounds { low: 0.5, high: 2.0 });
        let segments_per_ack = NonZeroU32::new(k).unwrap();
        StartPolicy { segments_per_ack, fraction, cap, floor, rtt_bounds, pacing, ..StartPolicy::CAREFUL }
    })
}

proptest! {
    #[test]
    fn no_input_panics_and_every_start_is_consistent(
        policy in policy(),
        share_bytes in 0.0..1e15f64,
        size in proptest::option::of(any::<u64>()),
        mss: u64,
        snd_wnd in proptest::option::of(any::<u64>()),
        rtt in proptest::option::of(any::<u64>()),
        initial_window: u32,
        budget in proptest::option::of(any::<u32>()),
    ) {
        let estimate = Estimate { share: Window::from_bytes(share_bytes).unwrap(), ..estimate(0) };
        let request = StartRequest {
            size: size.map(Bytes).into(),
            mss: Bytes(mss),
            snd_wnd: snd_wnd.map(Bytes),
            handshake_rtt: rtt.map(Micros),
            initial_window: Segments(initial_window),
            budget: budget.map(Segments),
            ..request(&estimate)
        };
        if let Ok(start) = start(&request, &policy) {
            prop_assert!(start.cwnd.0 >= 1 && start.ssthresh >= start.cwnd);
            prop_assert_eq!(start.clipped_by.is_some(), start.cwnd < start.account.shifted);
            let mut window = start.account.shifted;
            for bound in &start.account.bounds {
                prop_assert_eq!(bound.before, window);
                window = bound.after;
            }
            prop_assert_eq!(window, start.cwnd);
            if let Some(pacing) = start.pacing {
                prop_assert!(pacing.rate.0 > 0 && pacing.after_segments < start.cwnd);
            }
        }
    }
}

/// The reason for which `change` makes a good request be refused.
fn reason(policy: &StartPolicy, change: impl FnOnce(&mut Estimate), ask: impl FnOnce(&mut StartRequest<'_>)) -> String {
    let mut estimate = estimate(40);
    change(&mut estimate);
    let mut request = request(&estimate);
    ask(&mut request);
    start(&request, policy).map_or_else(|refusal| refusal.reason().to_string(), |_| "none".to_owned())
}

#[test]
fn every_refusal_has_its_reason_and_its_edge() {
    let careful =
        |change: fn(&mut Estimate), ask: fn(&mut StartRequest<'_>)| reason(&StartPolicy::CAREFUL, change, ask);
    let now = |us| Timestamp::from_micros(us);
    assert_eq!(careful(|_| (), |_| ()), "none");
    assert_eq!(careful(|_| (), |r| r.estimate = None), "no_estimate");
    assert_eq!(careful(|e| e.samples = 2, |_| ()), "too_few_samples");
    assert_eq!(careful(|e| e.samples = 3, |_| ()), "none");
    assert_eq!(careful(|e| e.connections = 1, |_| ()), "too_few_connections");
    assert_eq!(careful(|e| e.connections = 2, |_| ()), "none");
    assert_eq!(reason(&StartPolicy::CAREFUL, |_| (), |r| r.now = now(300_000_000)), "none");
    assert_eq!(reason(&StartPolicy::CAREFUL, |_| (), |r| r.now = now(300_000_001)), "stale");
    assert_eq!(careful(|_| (), |r| r.handshake_rtt = Some(Micros(50_000))), "none");
    assert_eq!(careful(|_| (), |r| r.handshake_rtt = Some(Micros(49_999))), "rtt_mismatch");
    assert_eq!(careful(|_| (), |r| r.handshake_rtt = Some(Micros(200_000))), "none");
    assert_eq!(careful(|_| (), |r| r.handshake_rtt = Some(Micros(200_001))), "rtt_mismatch");
    assert_eq!(careful(|_| (), |r| r.mss = Bytes(0)), "mss_zero");
    assert_eq!(careful(|_| (), |r| r.size = TransferSize::Known(Bytes(0))), "empty_transfer");
    let no_rtt = |e: &mut Estimate| (e.rtt_mean, e.rtt_min) = (None, Some(Micros(0)));
    assert_eq!(careful(no_rtt, |_| ()), "no_rtt");
    // Paper mode checks no path: it needs a round trip only to pace, and the handshake's own will do.
    assert_eq!(reason(&StartPolicy::PAPER, no_rtt, |_| ()), "none");
    assert_eq!(reason(&StartPolicy::PAPER, no_rtt, |r| r.handshake_rtt = None), "no_rtt");
}

#[test]
fn names_are_unique_and_found_again() {
    for &reason in RefusalReason::VARIANTS {
        assert_eq!(reason.name().parse(), Ok(reason));
        assert_eq!(serde_json::to_string(&reason).unwrap(), format!("\"{reason}\""));
    }
    for &mode in Mode::VARIANTS {
        assert_eq!(mode.name().parse(), Ok(mode));
        assert_eq!(serde_json::to_string(&mode).unwrap(), format!("\"{mode}\""));
        assert_eq!(StartPolicy::of(mode).mode, mode);
    }
    for limit in Limit::VARIANTS {
        assert_eq!(serde_json::to_string(limit).unwrap(), format!("\"{limit}\""));
    }
    assert!("brave".parse::<Mode>().is_err());
    assert!(Fraction::try_from(0.0).is_err() && Fraction::try_from(f64::NAN).is_err());
    assert!(Fraction::try_from(1.0).is_ok() && Fraction::try_from(1.01).is_err());
}

// The shapes of the other papers, and the buffer's bound.

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
fn careful_resume_starts_as_plain_tcp_and_jumps_to_half_of_the_share_within_every_limit() {
    let estimate = estimate(60);
    let policy = StartPolicy { shape: Shape::CarefulResume, ..StartPolicy::CAREFUL };
    let ask = |policy: &StartPolicy, change: fn(&mut StartRequest<'_>)| {
        let mut request = request(&estimate);
        change(&mut request);
        start(&request, policy).map(|start| (windows(&start), start.pacing, start.account.jump.map(|jump| jump.0)))
    };
    let jump = |policy: &StartPolicy, change| ask(policy, change).unwrap().2;
    assert_eq!(ask(&policy, |_| ()).unwrap(), ((10, NO_THRESHOLD.0), None, Some(30)));
    assert_eq!(jump(&StartPolicy { cap: Some(Segments(25)), ..policy }, |_| ()), Some(25));
    assert_eq!(jump(&StartPolicy { fraction: Fraction::try_from(0.25).ok(), ..policy }, |_| ()), Some(15));
    assert_eq!(jump(&policy, |r| r.snd_wnd = Some(Bytes(28 * MSS.0))), Some(28));
    assert_eq!(jump(&policy, |r| r.budget = Some(Segments(12))), Some(22));
    assert_eq!(shaped(&estimate, Shape::Paced, StartPolicy::CAREFUL).account.jump, None);
    // The RFC's bounds of the round trip, and not those of the policy.
    let at = |ms: u64| {
        let request = StartRequest { handshake_rtt: Some(Micros::from_millis(ms)), ..request(&estimate) };
        start(&request, &policy).map_err(|refusal| refusal.reason())
    };
    assert!(at(50).is_ok() && at(1_000).is_ok());
    assert_eq!((at(49).err(), at(1_001).err()), (Some(RefusalReason::RttMismatch), Some(RefusalReason::RttMismatch)));
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
