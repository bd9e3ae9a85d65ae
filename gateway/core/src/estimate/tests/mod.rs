//! The rules on windows whose answer is known, and the loop in which the plain average ratchets down.

mod buffer;
mod hostile;
mod marks;
mod robust;

use spand_proto::model::{Epoch, LINUX_SEGMENTS_PER_ACK};
use spand_proto::units::Segments;

use super::*;
use crate::types::{ConnectionId, SampleReason};

const MSS: Bytes = Bytes(1_000);
const RTT: Micros = Micros::from_millis(100);

/// A network's window under a rule, in segments of [`MSS`].
struct Path {
    rule: &'static dyn Rule,
    record: NetworkRecord,
    config: WindowConfig,
    now: Timestamp,
    connections: u64,
}

impl Path {
    fn new(kind: RuleKind) -> Self {
        let config = WindowConfig::default();
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        let mut record = NetworkRecord::new(config.bucket);
        record.bucket_at(now, &config).unwrap().rtt.add(RTT);
        Self { rule: rule(kind), record, config, now, connections: 0 }
    }

    /// A sample of a new connection to host number `host`, advised.
    fn sample(&mut self, reason: SampleReason, segments: f64, host: u8) -> WindowSample {
        self.connections += 1;
        WindowSample {
            at: self.now,
            network: network(),
            remote: [192, 0, 2, host].into(),
            connection: ConnectionId(self.connections),
            window: segments_window(segments),
            mss: MSS,
            reason,
            reduced_before: false,
            transfer: Bytes(1_000_000),
            advised: true,
            rtt_min: None,
            rtt: None,
        }
    }

    /// Admits and adds a sample; its value in segments.
    fn add(&mut self, sample: &WindowSample) -> f64 {
        let known = Known {
            share: self.estimate().map(|estimate| estimate.share),
            rtt: Some(RTT),
            carried: self.rule.carried(self.record.slice(self.now, &self.config), sample.remote),
            raised: self.record.raised,
        };
        let admitted = self.rule.admit(sample, &known);
        if admitted.raised {
            self.record.raised = Some(sample.at);
        }
        self.record.add(sample, admitted.window, &self.config);
        admitted.window.segments_f64(MSS)
    }

    fn add_all(&mut self, samples: &[(SampleReason, f64, u8)]) {
        for (reason, segments, host) in samples {
            let sample = self.sample(*reason, *segments, *host);
            self.add(&sample);
        }
    }

    fn estimate(&self) -> Option<Estimate> {
        let known = (&self.record, &Delivery::default(), None);
        estimate(network(), known, self.now, &self.config, self.rule).ok()
    }

    fn share(&self) -> f64 {
        self.estimate().unwrap().share.segments_f64(MSS)
    }

    fn wait(&mut self, time: Micros) {
        self.now = self.now.after(time);
    }
}

fn network() -> Network {
    "192.0.2.0/24".parse().unwrap()
}

fn segments_window(segments: f64) -> Window {
    Window::from_bytes(segments * MSS.0 as f64).unwrap()
}

fn spand(samples: &[(SampleReason, f64, u8)]) -> Path {
    let mut path = Path::new(RuleKind::Spand);
    path.add_all(samples);
    path
}

fn assert_near(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-6, "{value} instead of {expected}");
}

use SampleReason::{End, EndAppLimited, EndReceiverLimited, EndSlowStart, FirstFlight, Loss, Rate};

#[test]
fn the_plain_average_keeps_fractions() {
    assert_near(spand(&[(End, 10.5, 1), (Loss, 12.0, 2), (End, 11.0, 3)]).share(), 33.5 / 3.0);
}

#[test]
fn no_address_gives_more_than_half() {
    let mut samples = vec![(End, 10.0, 2), (End, 20.0, 3)];
    samples.extend([(End, 100.0, 1); 8]);
    assert_near(spand(&samples).share(), 0.5 * 100.0 + 0.5 * 15.0);
    assert_near(spand(&[(End, 100.0, 1), (End, 100.0, 1), (End, 10.0, 2), (End, 20.0, 3)]).share(), 57.5);
    assert_near(spand(&[(End, 10.0, 1), (End, 20.0, 1), (End, 60.0, 1)]).share(), 30.0);
}

#[test]
fn an_address_that_fills_a_bucket_first_gets_no_more_than_its_part() {
    let mut path = spand(&[(End, 100.0, 1); 16]);
    (2..86).for_each(|host| path.add_all(&[(End, 10.0, host)]));
    assert_near(path.share(), (16.0 * 100.0 + 84.0 * 10.0) / 100.0);
    let rest: Vec<_> = path.record.contributions.iter().filter(|place| place.source.is_none()).collect();
    assert_eq!(rest.iter().map(|rest| rest.samples).collect::<Vec<_>>(), [84 - 15]);
}

#[test]
fn the_plain_average_takes_no_lower_bound() {
    let sampled = [(End, 10.0, 1), (End, 10.0, 2), (End, 10.0, 3)];
    let bounds = [(EndAppLimited, 500.0, 4), (EndReceiverLimited, 14.0, 5)];
    assert_near(spand(&[&sampled[..], &bounds].concat()).share(), 10.0);
}

#[test]
fn too_little_is_no_estimate_and_says_why() {
    let why = |path: &Path| {
        estimate(network(), (&path.record, &Delivery::default(), None), path.now, &path.config, path.rule).unwrap_err()
    };
    assert_eq!(why(&spand(&[(EndAppLimited, 9.0, 1); 9])), NoEstimate::TooFewSamples);
    assert_eq!(why(&spand(&[(End, 9.0, 1), (Loss, 9.0, 2)])), NoEstimate::TooFewSamples);
    let mut one = Path::new(RuleKind::Spand);
    let sample = one.sample(End, 9.0, 1);
    for _ in 0..3 {
        one.add(&sample);
    }
    assert_eq!(why(&one), NoEstimate::TooFewConnections);
    let mut old = spand(&[(End, 9.0, 1); 3]);
    old.config.max_age = Micros::from_secs(100);
    old.wait(Micros::from_secs(101));
    assert_eq!(why(&old), NoEstimate::Expired);
}

#[test]
fn the_segment_size_is_the_median_of_the_samples() {
    let median = |sizes: &[u64]| {
        let mut path = Path::new(RuleKind::Spand);
        for mss in sizes {
            let sample = path.sample(End, 10.0, 1);
            path.add(&WindowSample { mss: Bytes(*mss), ..sample });
        }
        path.estimate().unwrap().mss
    };
    assert_eq!(median(&[536, 1_448, 1_448, 1_220]), Bytes(1_220));
    assert_eq!(median(&[1_448, 536, 536, 1_448, 1_448]), Bytes(1_448));
    let many: Vec<u64> = (1..=12).rev().map(|n| 100 * n).chain([1_200, 100, 100]).collect();
    assert_eq!(median(&many), Bytes(600), "100 three times, 1,200 twice");
}

#[test]
fn confidence_is_what_its_formula_says() {
    let scattered: Vec<_> = (0..20).map(|n| (End, if n % 2 == 0 { 15.0 } else { 25.0 }, n)).collect();
    let mut path = spand(&scattered);
    let confidence = |path: &Path| path.estimate().unwrap().confidence.value();
    let of = |addresses: f64, squares: f64| 1.0 / (1.0 + (0.25 + squares) / addresses.powi(2) / 0.16);
    // 16 addresses a quarter off, and the common rest of a full bucket.
    let fresh = of(17.0, 16.0 * 0.0625);
    assert_near(confidence(&path), fresh);
    path.wait(Micros::from_secs(150));
    assert_near(confidence(&path), fresh / 2.0);
    assert_near(confidence(&spand(&[(End, 10.0, 1); 3])), of(1.0, 0.0));
    let mut robust = Path::new(RuleKind::Robust);
    robust.add_all(&[(End, 10.0, 1), (End, 10.0, 2), (Loss, 10.0, 1)]);
    assert_near(confidence(&robust), 0.5 * of(2.0, 0.0));
    robust.add_all(&[(Loss, 10.0, 2), (FirstFlight, 2.0, 2)]);
    assert_near(confidence(&robust), of(2.0, 0.0));
}

/// A path with a share of 20 and 30 carried without loss: the next probing end sample counts as 21.
fn probing() -> Path {
    let mut path = Path::new(RuleKind::Probe);
    path.add_all(&[(Loss, 10.0, 1), (Loss, 20.0, 2), (Loss, 30.0, 3)]);
    path
}

#[test]
fn an_advised_end_probes_one_segment_above_the_share() {
    let mut path = probing();
    let sample = path.sample(End, 12.0, 4);
    assert_near(path.add(&sample), 21.0);
    let mut path = probing();
    let above = path.sample(End, 25.0, 4);
    assert_near(path.add(&above), 25.0);
}

#[test]
fn what_is_no_probe_counts_as_measured() {
    let as_measured = |change: fn(&mut WindowSample)| {
        let mut path = probing();
        let mut sample = path.sample(End, 12.0, 4);
        change(&mut sample);
        assert_near(path.add(&sample), 12.0);
    };
    as_measured(|sample| sample.advised = false);
    as_measured(|sample| sample.reason = Loss);
    as_measured(|sample| sample.transfer = Bytes(10_999));
    let mut unknown = Path::new(RuleKind::Probe);
    let first = unknown.sample(End, 12.0, 4);
    assert_near(unknown.add(&first), 12.0);
}

#[test]
fn a_network_is_probed_once_per_round_trip() {
    let mut path = probing();
    let add = |path: &mut Path| {
        let sample = path.sample(End, 12.0, 4);
        path.add(&sample)
    };
    assert!(add(&mut path) > 20.0);
    path.wait(Micros(RTT.0 - 1));
    assert_near(add(&mut path), 12.0);
    path.wait(Micros(1));
    assert!(add(&mut path) > 18.0);
}

#[test]
fn a_probe_stays_one_segment_above_what_was_carried() {
    let mut path = Path::new(RuleKind::Probe);
    path.add_all(&[(Loss, 20.0, 1), (Loss, 20.0, 2), (Loss, 20.0, 3)]);
    for _ in 0..200 {
        path.wait(RTT);
        let sample = path.sample(End, 15.0, 4);
        assert!(path.add(&sample) <= 21.0 + 1e-9);
    }
    path.wait(Micros::from_secs(300));
    path.add_all(&[(End, 15.0, 1), (End, 15.0, 2), (End, 15.0, 3)]);
    assert!(path.share() < 16.0, "what was carried ages too: {}", path.share());
}

/// 200 loss-free transfers of 30 segments one after the other, 2 s apart, on a path with room for 31: each starts at the
/// advice of the moment and adds its end window. The share they begin with is what a loss elsewhere left.
fn loop_of_transfers(kind: RuleKind, share: f64) -> f64 {
    let mut path = Path::new(kind);
    path.add_all(&[(Loss, share, 1), (Loss, share, 2), (Loss, share, 3)]);
    for n in 0..200_u8 {
        path.wait(Micros::from_secs(2));
        path.record.bucket_at(path.now, &path.config).unwrap().rtt.add(RTT);
        let share = path.estimate().unwrap().share_segments(MSS);
        let start = Epoch::new(share, LINUX_SEGMENTS_PER_ACK).window_for(Segments(30)).shifted;
        // Congestion avoidance: each acknowledged segment opens the window by its inverse.
        let mut window = f64::from(start.0);
        (0..30).for_each(|_| window += 1.0 / window.floor());
        assert!(window < 32.0, "the path has room for every start of this loop");
        let mut sample = path.sample(End, window, n);
        sample.transfer = Bytes(30_000);
        path.add(&sample);
    }
    path.share()
}

#[test]
fn the_plain_average_ratchets_down_and_probing_does_not() {
    let (plain, probing) = (loop_of_transfers(RuleKind::Spand, 29.0), loop_of_transfers(RuleKind::Probe, 29.0));
    assert!(
        plain < 18.0,
        "cut to whole segments it sinks: from 16..29 a transfer of 30 starts at 15 and ends near 17: {plain}"
    );
    assert!(probing > 29.0, "{probing}");
}

#[test]
fn from_a_small_share_short_transfers_probe_no_further_than_they_show() {
    let (plain, probing) = (loop_of_transfers(RuleKind::Spand, 8.0), loop_of_transfers(RuleKind::Probe, 8.0));
    assert!((9.5..10.5).contains(&plain), "{plain}");
    assert!((12.0..14.0).contains(&probing), "{probing}");
}
