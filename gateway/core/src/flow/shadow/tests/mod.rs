mod answers;
#[path = "../../../../../../tests/tests/closed_loop/congestion.rs"]
mod congestion;
mod kernel;
mod naming;
mod path;

use spand_proto::units::{Bytes, Micros, Timestamp};

use self::congestion::{Algorithm, BbrState, CubicState};
use self::path::{Demand, Path};
use super::cwnd::Cwnd;
use super::evidence::Steady;
use super::observation::{Acked, LossKind, Sent};
use super::rounds::Signs;
use super::*;
use crate::counters::Ignored;
use crate::types::SampleReason;

const MSS: u64 = 1_000;
const RTT: Micros = Micros(100_000);

/// Feeds a sender that fills `windows` segments, one round trip after the other, each acknowledged whole.
fn rounds(shadow: &mut Shadow, at: &mut Timestamp, delivered: &mut u64, windows: &[u64]) {
    for &window in windows {
        for n in 1..=window {
            let pipe = n * MSS;
            let sent = Sent {
                new_bytes: 1_000,
                full_sized: true,
                pipe,
                flight: pipe,
                since_ack: Some(Micros(10)),
                ..Sent::default()
            };
            shadow.on_sent(*at, &sent);
        }
        *at = at.after(RTT);
        *delivered += window * MSS;
        shadow.on_ack(*at, &acked(window * MSS, *delivered));
    }
}

fn acked(bytes: u64, delivered_bytes: u64) -> Acked {
    let rtt = Some(RTT);
    Acked { acked_bytes: bytes, delivered_bytes, rtt, ..Acked::default() }
}

fn opened() -> Shadow {
    let mut shadow = Shadow::new(0, false);
    shadow.on_open(Timestamp(0), Bytes(MSS), Some(RTT));
    shadow
}

fn whole(shadow: &Shadow) -> u32 {
    shadow.window().unwrap().segments(Bytes(MSS)).0
}

#[test]
fn slow_start_doubles_and_a_loss_in_it_gives_no_sample() {
    let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
    rounds(&mut shadow, &mut at, &mut delivered, &[10, 20, 40]);
    assert_eq!((whole(&shadow), shadow.phase()), (80, Phase::SlowStart));
    assert_eq!(shadow.on_loss(at, LossKind::FastRetransmit, 80 * MSS, 80 * MSS), Err(Ignored::SlowStartLoss));
    assert_eq!(shadow.phase(), Phase::Recovery);
}

#[test]
fn an_unconfirmed_end_of_slow_start_holds_on_a_host_that_runs_cubic() {
    let at_loss = |prior: Prior| {
        let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
        shadow.presume(at, prior);
        rounds(&mut shadow, &mut at, &mut delivered, &[10, 20]);
        // The next flight is acknowledged segment by segment and meets a queue, so HyStart ends slow start at its ninth.
        for n in 1..=40 {
            let pipe = n * MSS;
            shadow.on_sent(at, &Sent { new_bytes: 1_000, full_sized: true, pipe, flight: pipe, ..Sent::default() });
        }
        for n in 1..=12 {
            at = at.after(Micros(3_000));
            delivered += MSS;
            let pipe = (40 - n) * MSS;
            let rtt = Some(Micros(130_000));
            shadow.on_ack(
                at,
                &Acked { acked_bytes: MSS, delivered_bytes: delivered, pipe, flight: pipe, rtt, ..Acked::default() },
            );
        }
        shadow
            .on_loss(at, LossKind::FastRetransmit, 40 * MSS, 40 * MSS)
            .map(|sample| sample.window.segments(Bytes(MSS)).0)
    };
    assert_eq!(at_loss(Prior::LossBased(Flavour::Cubic)), Ok(40 + 8 - 1));
    assert_eq!(at_loss(Prior::Unknown), Err(Ignored::SlowStartLoss), "it may be Reno");
    assert_eq!(at_loss(Prior::LossBased(Flavour::Reno)), Err(Ignored::SlowStartLoss));
}

#[test]
fn a_loss_of_a_sender_that_may_be_bbr_waits_for_its_name() {
    let sample = |bbr: f64| {
        let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
        rounds(&mut shadow, &mut at, &mut delivered, &[10, 20, 40]);
        (shadow.reno.cwnd, shadow.cubic.cwnd) = (Cwnd::new(40), Cwnd::new(40));
        shadow.reno.cwnd.end_slow_start();
        shadow.cubic.cwnd.end_slow_start();
        shadow.follow_as_bbr(at);
        let loss = shadow.on_loss(at, LossKind::FastRetransmit, 40 * MSS, MSS);
        assert_eq!(loss, Err(Ignored::UnknownControl));
        assert_eq!(shadow.take_sample(at), None);
        shadow.lean_to_bbr(bbr);
        assert!(shadow.after_loss.as_mut().unwrap().judges());
        shadow.take_sample(at).map(|sample| sample.window.segments(Bytes(MSS)).0)
    };
    assert_eq!(sample(-1.0), Some(39), "it backed off");
    assert_eq!(sample(1.0), None, "it starts up");
}

#[test]
fn a_transfer_that_lost_packets_in_slow_start_shows_what_the_path_carried_since() {
    let end = |is_bbr: bool| {
        let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
        if is_bbr {
            shadow.follow_as_bbr(at);
        }
        rounds(&mut shadow, &mut at, &mut delivered, &[10, 20, 40]);
        shadow.on_loss(at, LossKind::FastRetransmit, 40 * MSS, MSS).unwrap_err();
        shadow.on_recovery_end(at, 0);
        rounds(&mut shadow, &mut at, &mut delivered, &[20, 25]);
        if is_bbr {
            shadow.lean_to_bbr(1.0);
        }
        let end = shadow.on_transfer_end(at).unwrap();
        (end.reason, end.window.segments(Bytes(MSS)).0)
    };
    assert_eq!(end(false), (SampleReason::Carried, 25));
    assert_eq!(end(true).0, SampleReason::Rate, "BBR's own rate");
}

#[test]
fn a_timeout_gives_no_sample_and_restarts() {
    let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
    rounds(&mut shadow, &mut at, &mut delivered, &[10, 20]);
    assert_eq!(shadow.on_loss(at, LossKind::Timeout, 0, 40 * MSS), Err(Ignored::Timeout));
    assert_eq!((whole(&shadow), shadow.phase()), (1, Phase::SlowStart));
    assert_eq!(shadow.on_transfer_end(at), Err(Ignored::EndAfterLoss));
}

#[test]
fn the_end_of_a_slow_start_is_what_was_sent_and_not_what_its_last_acknowledgements_opened() {
    let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
    rounds(&mut shadow, &mut at, &mut delivered, &[10, 20, 40]);
    let end = shadow.on_transfer_end(at).unwrap();
    assert_eq!((end.window.segments(Bytes(MSS)).0, end.reason), (40, SampleReason::EndSlowStart));
}

#[test]
fn a_sender_met_in_mid_stream_has_no_window_yet() {
    let mut shadow = Shadow::new(0, true);
    shadow.on_open(Timestamp(0), Bytes(MSS), None);
    assert_eq!(shadow.window(), None);
    assert_eq!(shadow.on_transfer_end(Timestamp(0)), Err(Ignored::Midstream));
}

const BULK: Demand = Demand { segments: u64::MAX, per_second: None, receiver: 100_000 };

/// Share of the acknowledgements outside recovery at which the window was off by at most `off`.
fn within(errors: &[f64], off: f64) -> f64 {
    errors.iter().filter(|error| **error <= off).count() as f64 / errors.len() as f64
}

/// 1,000 segments per second over 100 ms, room for 60: sawtooths between 80 and 160.
fn bulk(algorithm: Algorithm) -> Path {
    Path::new(algorithm, 1_000.0, 50_000, 60.0, BULK).run(60)
}

fn assert_loss_samples(path: &Path) {
    let in_avoidance = path.losses.iter().filter(|(_, slow_start, _)| !slow_start).count();
    assert!(in_avoidance >= 3, "only {in_avoidance} losses to judge");
    for (before, slow_start, sample) in &path.losses {
        match sample {
            Ok(sample) => {
                assert!(!slow_start, "a sample in slow start");
                let window = sample.window.bytes() / path::MSS as f64;
                assert!((window + 1.0 - before).abs() < 2.0, "sample {window:.1}, window was {before:.1}");
            }
            Err(reason) => assert_eq!((*reason, *slow_start), (Ignored::SlowStartLoss, true)),
        }
    }
}

#[test]
fn a_reno_sender_is_followed_through_losses() {
    let path = bulk(Algorithm::Reno);
    assert_eq!((path.shadow.flavour(), path.wrong_flavour), (Flavour::Reno, 0));
    assert!(within(&path.errors, 0.02) > 0.95, "{}", within(&path.errors, 0.02));
    assert_loss_samples(&path);
}

#[test]
fn a_cubic_sender_is_followed_through_losses() {
    let path = bulk(Algorithm::Cubic(CubicState::default()));
    assert_eq!((path.shadow.flavour(), path.wrong_flavour), (Flavour::Cubic, 0));
    assert!(within(&path.errors, 0.02) > 0.95, "{}", within(&path.errors, 0.02));
    assert_loss_samples(&path);
}

#[test]
fn a_bbr_sender_gives_its_share_and_not_its_window() {
    let demand = Demand { segments: 8_000, ..BULK };
    let mut path = Path::new(Algorithm::Bbr(BbrState::default()), 1_000.0, 50_000, 1_000.0, demand).run(60);
    assert_eq!((path.shadow.flavour(), path.wrong_flavour), (Flavour::Bbr, 0));
    assert!(within(&path.errors, 0.1) > 0.8, "{}", within(&path.errors, 0.1));
    let end = path.shadow.on_transfer_end(Timestamp::from_micros(60_000_000)).unwrap();
    let share = end.window.bytes() / path::MSS as f64;
    assert!((share - 100.0).abs() < 10.0, "share {share:.1} of a path of 100");
}

#[test]
fn a_loss_of_a_bbr_sender_gives_its_share_as_it_is() {
    let demand = Demand { segments: 8_000, ..BULK };
    let mut path = Path::new(Algorithm::Bbr(BbrState::default()), 1_000.0, 50_000, 1_000.0, demand).run(60);
    let share = path.shadow.share_segments();
    let at = Timestamp::from_micros(60_000_000);
    let loss = path.shadow.on_loss(at, LossKind::FastRetransmit, 100 * MSS, 100 * MSS).unwrap();
    assert!((loss.window.bytes() / MSS as f64 - share).abs() < 0.01, "{:?} of {share}", loss.window);
}

#[test]
fn an_application_that_writes_slowly_limits_itself_and_gives_a_lower_bound() {
    let demand = Demand { segments: 4_000, per_second: Some(300.0), receiver: 100_000 };
    let mut path = Path::new(Algorithm::Reno, 1_000.0, 50_000, 60.0, demand).run(60);
    assert!(path.limiters.get("application").unwrap() * 4 > path.limiters.values().sum::<u32>() * 3);
    let end = path.shadow.on_transfer_end(Timestamp::from_micros(60_000_000)).unwrap();
    assert_eq!(end.reason, SampleReason::EndAppLimited);
    assert!(end.window.bytes() <= path.window * path::MSS as f64, "{:?} of {}", end.window, path.window);
}

#[test]
fn a_receiver_with_a_small_window_limits_the_sender() {
    let demand = Demand { segments: 8_000, per_second: None, receiver: 44 };
    let mut path = Path::new(Algorithm::Cubic(CubicState::default()), 1_000.0, 50_000, 60.0, demand).run(60);
    assert!(path.limiters.get("receiver").unwrap() * 10 > path.limiters.values().sum::<u32>() * 9);
    let end = path.shadow.on_transfer_end(Timestamp::from_micros(60_000_000)).unwrap();
    assert_eq!((end.reason, end.window.segments(Bytes(path::MSS)).0), (SampleReason::EndReceiverLimited, 44));
}

#[test]
fn an_undone_reduction_gives_the_window_back() {
    let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
    rounds(&mut shadow, &mut at, &mut delivered, &[10, 20]);
    assert!(shadow.on_loss(at, LossKind::FastRetransmit, 40 * MSS, 40 * MSS).is_err());
    shadow.on_recovery_end(at, 0);
    assert!(whole(&shadow) < 40);
    shadow.on_undo(at);
    assert_eq!((whole(&shadow), shadow.phase()), (40, Phase::SlowStart));
}

#[test]
fn idle_time_halves_the_window_per_timeout_down_to_ten() {
    let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
    rounds(&mut shadow, &mut at, &mut delivered, &[10, 20, 40]);
    // 100 ms and 200 ms of variation make a timeout of 300 ms: one and a half of them.
    at = at.after(Micros(450_000));
    rounds(&mut shadow, &mut at, &mut delivered, &[1]);
    assert!((40..=42).contains(&whole(&shadow)), "{}", whole(&shadow));
    at = at.after(Micros::from_secs(60));
    rounds(&mut shadow, &mut at, &mut delivered, &[1]);
    assert_eq!(whole(&shadow), 10);
}

#[test]
fn a_first_flight_above_the_restarted_window_shows_that_a_known_sender_keeps_it() {
    let after_idle = |prior: Prior, flights: [u64; 3]| {
        let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
        shadow.presume(at, prior);
        rounds(&mut shadow, &mut at, &mut delivered, &[10, 20, 40]);
        flights.map(|flight| {
            at = at.after(Micros::from_secs(60));
            rounds(&mut shadow, &mut at, &mut delivered, &[flight]);
            whole(&shadow)
        })
    };
    let named = Prior::LossBased(Flavour::Cubic);
    let kept = after_idle(named, [30, 30, 1]);
    assert!(kept[0] >= 80 && kept[2] == kept[1], "from the second time on always: {kept:?}");
    assert_eq!(after_idle(named, [30, 1, 1])[1], 10, "once may be a gap of the capture");
    assert_eq!(after_idle(named, [11, 11, 1])[2], 10, "a segment more is chance");
    assert!(after_idle(Prior::Unknown, [30, 30, 1])[0] < 80, "BBR keeps its own");
}

#[test]
fn a_replica_stays_small() {
    assert!(size_of::<Shadow>() <= 832, "{}", size_of::<Shadow>());
}
