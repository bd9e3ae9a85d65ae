//! The rules that give openings, on senders whose answer is known. Windows are in segments of [`MSS`].

use proptest::prelude::*;

use super::*;

const KINDS: [RuleKind; 5] = [RuleKind::Liss, RuleKind::Iss, RuleKind::Miss, RuleKind::Cached, RuleKind::Averaged];
const MSS: Bytes = Bytes(1_000);
const RTT: Micros = Micros::from_millis(100);

/// Senders of one network.
struct Crowd {
    live: LiveSenders,
    now: Timestamp,
}

fn id(connection: u64) -> SenderId {
    SenderId { connection: ConnectionId(connection), remote: [192, 0, 2, 7].into() }
}

fn segments_window(segments: f64) -> Window {
    Window::from_bytes(segments * MSS.0 as f64).unwrap()
}

impl Crowd {
    fn new() -> Self {
        Self {
            live: LiveSenders::new(RuleKind::Robust, PLACES, LossCount::Episodes),
            now: Timestamp::from_micros(1_700_000_000_000_000),
        }
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
        self.live.report(self.now, id(connection), &state);
    }

    fn opening(&self, kind: RuleKind) -> Option<Opening> {
        self.live.compared(kind, self.now)
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
        crowd.live.lose(crowd.now, id(connection), RTT);
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
fn only_these_rules_keep_senders_and_give_openings() {
    let mut crowd = Crowd::new();
    crowd.report_with(1, Phase::CongestionAvoidance, 20.0, Some(10.0), 0);
    let kept = |rule, compared: &[RuleKind]| openings(rule, compared, PLACES, LossCount::Episodes).is_some();
    for rule in [RuleKind::Spand, RuleKind::Probe, RuleKind::Robust] {
        assert!(crowd.opening(rule).is_none() && !kept(rule, &[]) && !kept(rule, &[RuleKind::Probe]));
    }
    for rule in KINDS {
        assert!(kept(rule, &[]) && kept(RuleKind::Robust, &[RuleKind::Spand, rule]));
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
        crowd.live = LiveSenders::new(RuleKind::Liss, NonZeroUsize::new(20).unwrap(), LossCount::PerEvent);
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
            crowd.live.report(crowd.now, id(n.into()), &state);
            crowd.live.lose(crowd.now, id(n.into()), Micros(us));
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
