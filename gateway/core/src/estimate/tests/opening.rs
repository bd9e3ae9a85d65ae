//! The rules that give openings, on senders whose answer is known. Windows are in segments of [`MSS`].

use std::num::NonZeroUsize;

use proptest::prelude::*;
use spand_proto::estimate::RuleKind;

use super::*;
use crate::types::SampleReason::{Carried, EndSlowStart};
use crate::types::{SenderId, SenderState};
use crate::window::live::LiveSenders;
use crate::window::live::losses::LossCount;

const KINDS: [RuleKind; 5] = [RuleKind::Liss, RuleKind::Iss, RuleKind::Miss, RuleKind::Cached, RuleKind::Averaged];
const PLACES: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// Senders of one network.
struct Crowd {
    live: LiveSenders,
    now: Timestamp,
}

fn id(connection: u64) -> SenderId {
    SenderId { connection: ConnectionId(connection), remote: [192, 0, 2, 7].into() }
}

impl Crowd {
    fn new() -> Self {
        Self { live: LiveSenders::default(), now: Timestamp::from_micros(1_700_000_000_000_000) }
    }

    fn wait(&mut self, ms: u64) {
        self.now = self.now.after(Micros::from_millis(ms));
    }

    fn report(&mut self, connection: u64, phase: Phase, segments: f64) {
        self.report_with(connection, phase, segments, None, 0);
    }

    fn report_with(&mut self, connection: u64, phase: Phase, segments: f64, ssthresh: Option<f64>, arrived: u64) {
        let state = SenderState {
            phase,
            window: segments_window(segments),
            ssthresh: ssthresh.map(segments_window),
            delivered_bytes: arrived * MSS.0,
            mss: MSS,
            rtt: RTT,
            silence: Micros::from_secs(20),
        };
        self.live.report(self.now, id(connection), &state, PLACES);
    }

    fn opening(&self, kind: RuleKind) -> Option<Opening> {
        let (record, config) = (NetworkRecord::new(Micros::from_secs(10)), WindowConfig::default());
        rule(kind).opening(record.slice(self.now, &config), LiveView::new(Some(&self.live), self.now), self.now)
    }

    fn threshold(&self, kind: RuleKind) -> Option<f64> {
        let opening = self.opening(kind)?;
        assert_eq!(opening.rule, kind);
        Some(opening.threshold.segments_f64(MSS))
    }
}

fn near(given: Option<f64>, expected: f64) {
    let given = given.unwrap();
    assert!((given - expected).abs() < 1e-4, "{given} instead of {expected}");
}

#[test]
fn liss_gives_the_fair_share_by_the_oldest_window() {
    use Phase::{CongestionAvoidance, Recovery, SlowStart};
    let mut crowd = Crowd::new();
    assert_eq!(crowd.threshold(RuleKind::Liss), None, "nobody is under way");
    crowd.report(1, SlowStart, 16.0);
    assert_eq!(crowd.threshold(RuleKind::Liss), None, "nobody is in congestion avoidance");
    crowd.report(2, CongestionAvoidance, 20.0);
    // S = 16, L = 1, w = 20: (16 + 20) / (1 + 0.8 + 1).
    near(crowd.threshold(RuleKind::Liss), 36.0 / 2.8);
    crowd.live.end(crowd.now, id(1));
    near(crowd.threshold(RuleKind::Liss), 10.0);
    crowd.report(3, CongestionAvoidance, 90.0);
    crowd.report(4, Recovery, 2.0);
    crowd.report(5, CongestionAvoidance, 1.0);
    near(crowd.threshold(RuleKind::Liss), 16.0);
    // The oldest is in slow start after a timeout: the next one shows the share. S = 10, L = 3, w = 16.
    crowd.report(2, SlowStart, 10.0);
    crowd.report(3, CongestionAvoidance, 16.0);
    near(crowd.threshold(RuleKind::Liss), 12.5405);
    crowd.wait(20_001);
    assert_eq!(crowd.threshold(RuleKind::Liss), None, "all are silent");
}

#[test]
fn iss_takes_the_oldest_window_smoothed() {
    let mut crowd = Crowd::new();
    let avoiding = Phase::CongestionAvoidance;
    crowd.report_with(1, avoiding, 20.0, None, 0);
    near(crowd.threshold(RuleKind::Iss), 5.0);
    crowd.report_with(1, avoiding, 30.0, None, 100);
    let smoothed = 10.0 * 0.998_f64.powi(100) + 30.0 * (1.0 - 0.998_f64.powi(100));
    near(crowd.threshold(RuleKind::Iss), smoothed / 2.0);
    near(crowd.threshold(RuleKind::Liss), 15.0);
}

#[test]
fn miss_adds_the_times_of_losses() {
    let mut crowd = Crowd::new();
    let lose = |crowd: &mut Crowd, connection, ms| {
        crowd.wait(ms);
        for n in 1..=3 {
            crowd.report(n, Phase::CongestionAvoidance, 20.0);
        }
        crowd.live.lose(crowd.now, id(connection), RTT, LossCount::Episodes);
        crowd.opening(RuleKind::Miss).unwrap().losses
    };
    assert_eq!(lose(&mut crowd, 2, 0), None);
    assert_eq!(lose(&mut crowd, 1, 4_000), None, "no sender lost twice");
    let losses = lose(&mut crowd, 2, 12_000).unwrap();
    // Of all 4 s, then 7/8 of that and 1/8 of 12 s; the second is the oldest that lost twice.
    let expected = (Micros::from_secs(5), Micros::from_secs(16), crowd.now);
    assert_eq!((losses.interval, losses.oldest_interval, losses.last), expected);
    let losses = lose(&mut crowd, 1, 5_000).unwrap();
    assert_eq!((losses.interval, losses.oldest_interval), (Micros::from_secs(5), Micros::from_secs(17)));
    near(crowd.threshold(RuleKind::Miss), 15.0);
    assert_eq!(crowd.opening(RuleKind::Liss).unwrap().losses, None);
}

#[test]
fn cached_takes_the_threshold_of_another_connection() {
    let mut crowd = Crowd::new();
    crowd.report_with(1, Phase::SlowStart, 20.0, None, 0);
    assert_eq!(crowd.threshold(RuleKind::Cached), None);
    crowd.report_with(2, Phase::CongestionAvoidance, 20.0, Some(12.0), 0);
    crowd.report_with(3, Phase::CongestionAvoidance, 20.0, Some(7.0), 0);
    near(crowd.threshold(RuleKind::Cached), 12.0);
    crowd.live.end(crowd.now, id(2));
    near(crowd.threshold(RuleKind::Cached), 7.0);
    crowd.live.end(crowd.now, id(3));
    near(crowd.threshold(RuleKind::Cached), 7.0);
    crowd.wait(300_000);
    near(crowd.threshold(RuleKind::Cached), 7.0);
    crowd.wait(1);
    assert_eq!(crowd.threshold(RuleKind::Cached), None, "too old");
}

#[test]
fn averaged_is_the_mean_of_five_minutes_as_of_the_last() {
    // It begins 20 s into a minute.
    let mut crowd = Crowd::new();
    let mut given = Vec::new();
    for second in 0..=120 {
        crowd.report(1, Phase::CongestionAvoidance, if second < 60 { 30.0 } else { 90.0 });
        crowd.report(2, Phase::SlowStart, 10.0);
        given.push(crowd.threshold(RuleKind::Averaged));
        crowd.wait(1_000);
    }
    assert_eq!(given[39], None, "not a whole minute");
    assert_eq!([given[40], given[99]], [Some(20.0); 2], "two with 40 segments together");
    // Sixty times 40 segments and 39 times 100, of two senders each time.
    near(given[100], 6_300.0 / 198.0);
    assert_eq!(given[100], given[120]);
}

#[test]
fn the_other_rules_give_none_and_those_that_do_share_as_robust() {
    for kind in [RuleKind::Spand, RuleKind::Probe, RuleKind::Robust] {
        let mut crowd = Crowd::new();
        crowd.report_with(1, Phase::CongestionAvoidance, 20.0, Some(10.0), 0);
        assert!(!rule(kind).needs_live() && crowd.opening(kind).is_none());
        assert_eq!(kind.of_share(), kind);
    }
    let mut path = Path::new(RuleKind::Robust);
    path.add_all(&[1, 2, 3, 4, 5].map(|n| (Loss, 10.0 + f64::from(n), n)));
    let robust = path.estimate().unwrap();
    for kind in KINDS {
        path.rule = rule(kind);
        assert_eq!(path.estimate().unwrap(), robust, "also its name: agents of older releases know it");
        assert!(path.rule.needs_live());
    }
}

proptest! {
    #[test]
    fn no_window_leads_to_a_threshold_that_is_none(
        senders in proptest::collection::vec(
            (any::<u8>(), 0..3_u8, proptest::num::f64::ANY, proptest::num::f64::ANY, any::<u64>(), any::<u64>(), any::<u64>()),
            0..40,
        ),
    ) {
        let mut crowd = Crowd::new();
        for (n, phase, window, ssthresh, delivered_bytes, mss, us) in senders {
            let phase = [Phase::SlowStart, Phase::CongestionAvoidance, Phase::Recovery][usize::from(phase)];
            let Some(window) = Window::from_bytes(window) else { continue };
            let state = SenderState {
                phase,
                window,
                ssthresh: Window::from_bytes(ssthresh),
                delivered_bytes,
                mss: Bytes(mss),
                rtt: Micros(us),
                silence: Micros(us),
            };
            crowd.live.report(crowd.now, id(n.into()), &state, NonZeroUsize::new(20).unwrap());
            crowd.live.lose(crowd.now, id(n.into()), Micros(us), LossCount::PerEvent);
            crowd.wait(us % 3_000);
        }
        for kind in KINDS {
            if let Some(opening) = crowd.opening(kind) {
                let bytes = opening.threshold.bytes();
                prop_assert!(bytes.is_finite() && bytes > 0.0, "{kind}: {bytes}");
            }
        }
    }
}

// The bottleneck's buffer by losses.

/// A loss of a connection to `host` that shows this many segments in the queue of a path with a round trip of 20 ms.
fn shown(path: &mut Path, connection: u64, host: u8, queued: f64) {
    let (least, rtt) = (20_000.0, 40_000.0);
    let sample = path.sample(Loss, queued / (1.0 - least / rtt), host);
    path.add(&WindowSample {
        connection: ConnectionId(connection),
        reduced_before: true,
        rtt_min: Some(Micros(20_000)),
        rtt: Some(Micros(40_000)),
        ..sample
    });
}

fn buffer_of(shows: &[(u64, u8, f64)]) -> Option<f64> {
    let mut path = Path::new(RuleKind::Robust);
    for (connection, host, queued) in shows {
        shown(&mut path, *connection, *host, *queued);
    }
    path.estimate()?.buffer.map(|buffer| (buffer.segments_f64(MSS) * 1e6).round() / 1e6)
}

#[test]
fn three_connections_that_agree_show_a_buffer_and_fewer_do_not() {
    assert_eq!(buffer_of(&[(1, 1, 20.0), (2, 2, 20.0), (3, 3, 22.0)]), Some(20.0));
    assert_eq!(buffer_of(&[(1, 1, 20.0), (2, 2, 20.0), (2, 2, 20.0), (1, 1, 20.0)]), None);
    assert_eq!(buffer_of(&[(1, 1, 20.0), (2, 1, 20.0), (3, 1, 22.0)]), Some(20.0), "of one host");
}

#[test]
fn losses_at_any_length_of_the_queue_show_none() {
    assert_eq!(buffer_of(&[(1, 1, 27.0), (2, 2, 10.0), (3, 3, 2.0), (4, 4, 1.0), (5, 5, 1.0), (6, 6, 3.0)]), None);
    let mut of_each = Vec::new();
    for connection in 1..5 {
        for queued in [27.0, 3.0, 2.0, 1.0] {
            of_each.push((connection, u8::try_from(connection).unwrap(), queued));
        }
    }
    assert_eq!(buffer_of(&of_each), None);
}

#[test]
fn one_address_decides_nothing() {
    let honest = [(1, 1, 20.0), (2, 2, 21.0), (3, 3, 22.0), (4, 4, 19.0)];
    for lie in [0.001, 1.0, 1e6, 1e9] {
        let lies = (10..14).map(|connection| (connection, 9, lie));
        let found = buffer_of(&honest.into_iter().chain(lies).collect::<Vec<_>>()).unwrap();
        assert!((20.0..=21.0).contains(&found), "{lie}: {found}");
        // Of two addresses the larger counts: a lie cannot make the buffer smaller.
        let two = [(1, 1, 20.0), (2, 1, 20.0), (3, 2, lie)];
        assert!(buffer_of(&two).is_none_or(|found| found >= 20.0), "{lie}");
    }
}

#[test]
fn senders_at_a_time_share_the_queue() {
    let mut path = Path::new(RuleKind::Robust);
    for connection in 1..5 {
        shown(&mut path, connection, u8::try_from(connection).unwrap(), 10.0);
    }
    // 400 round trips of 100 ms within 10 s.
    path.record.bucket_at(path.now, &path.config).unwrap().window_limited = 400;
    let buffer = path.estimate().unwrap().buffer.unwrap().segments_f64(MSS);
    assert!((buffer - 40.0).abs() < 1e-9, "{buffer}");
}

#[test]
fn what_cannot_be_a_loss_in_a_full_queue_shows_nothing() {
    let not = |change: fn(&mut WindowSample)| {
        let mut path = Path::new(RuleKind::Robust);
        for connection in 1..5 {
            let mut sample = path.sample(Loss, 40.0, 1);
            sample.connection = ConnectionId(connection);
            (sample.reduced_before, sample.rtt_min, sample.rtt) = (true, Some(Micros(20_000)), Some(Micros(40_000)));
            change(&mut sample);
            path.add(&sample);
        }
        path.estimate().unwrap().buffer
    };
    assert!(not(|_| ()).is_some());
    assert_eq!(not(|sample| sample.reason = SampleReason::Ecn), None);
    assert_eq!(not(|sample| sample.reason = End), None);
    assert_eq!(not(|sample| sample.reduced_before = false), None, "the first loss");
    assert_eq!(not(|sample| sample.rtt = None), None);
    assert_eq!(not(|sample| sample.rtt = sample.rtt_min), None, "no queue");
    assert_eq!(not(|sample| sample.rtt = Some(Micros(1))), None, "shorter than the smallest");
    assert_eq!(not(|sample| sample.rtt_min = Some(Micros(0))), None);
}

// Lower bounds where too few samples show a share.

fn robust(samples: &[(SampleReason, f64, u8)]) -> Path {
    let mut path = Path::new(RuleKind::Robust);
    path.add_all(samples);
    path
}

#[test]
fn lower_bounds_alone_give_the_largest_that_two_addresses_attest() {
    let path = robust(&[(EndSlowStart, 40.0, 1), (EndSlowStart, 16.0, 1), (EndSlowStart, 38.0, 2), (Carried, 90.0, 3)]);
    let estimate = path.estimate().unwrap();
    assert!(estimate.is_lower_bound);
    assert_near(estimate.share.segments_f64(MSS), 40.0);
    assert_eq!((estimate.samples, estimate.connections, estimate.loss_connections), (4, 4, 0));
    assert!(estimate.confidence.value() < 0.5);
    assert!(
        robust(&[(EndSlowStart, 40.0, 1), (EndSlowStart, 16.0, 2)]).estimate().is_none(),
        "fewer than samples are wanted"
    );
}

#[test]
fn what_every_start_has_shows_nothing() {
    assert!(robust(&[(EndSlowStart, 10.0, 1), (EndAppLimited, 2.0, 2), (EndSlowStart, 10.0, 3)]).estimate().is_none());
}

#[test]
fn enough_samples_show_the_share_whatever_ended_below_it() {
    let mut path =
        robust(&[(EndSlowStart, 16.0, 1), (EndSlowStart, 16.0, 2), (EndSlowStart, 16.0, 3), (Loss, 80.0, 1)]);
    assert!(path.estimate().unwrap().is_lower_bound);
    path.add_all(&[(Loss, 80.0, 2), (Loss, 80.0, 3)]);
    let estimate = path.estimate().unwrap();
    assert_eq!((estimate.is_lower_bound, estimate.share.segments(MSS).0), (false, 80));
}
