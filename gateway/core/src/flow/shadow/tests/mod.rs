mod algorithms;
mod kernel;
mod nonsense;
mod path;

use spand_proto::units::{Bytes, Micros, Timestamp};

use self::algorithms::{Algorithm, BbrState, CubicState};
use self::path::{Demand, Path};
use super::evidence::Steady;
use super::observation::{Acked, LossKind, Sent};
use super::rounds::Signs;
use super::*;
use crate::counters::Ignored;
use crate::flow::sample::SampleReason;

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
fn the_pipe_after_a_loss_speaks_for_the_control_whose_window_it_fills() {
    let after_loss = |pipe_segments: u32, ran_dry: bool| {
        let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
        rounds(&mut shadow, &mut at, &mut delivered, &[10, 20, 40]);
        // The tap stands beside the sender.
        shadow.clock.on_ack(at, delivered, true);
        shadow.clock.learn_reaction(at, Some(RTT));
        let _sample = shadow.on_loss(at, LossKind::FastRetransmit, 80 * MSS, 80 * MSS);
        shadow.on_recovery_end(at, 0);
        let signs = Signs { full_sized: 30, pipe_max_segments: pipe_segments, ran_dry, ..Signs::default() };
        (0..4).for_each(|_| shadow.weigh_filling(at, signs));
        (shadow.leaning().best(), shadow.flavour())
    };
    assert_eq!(after_loss(40, false), (Flavour::Reno, Flavour::Reno));
    assert_eq!(after_loss(56, false), (Flavour::Cubic, Flavour::Cubic));
    assert_eq!(after_loss(80, false), (Flavour::Bbr, Flavour::Bbr), "it did not back off");
    assert_eq!(after_loss(40, true), (Flavour::Cubic, Flavour::Unknown), "the application had no more: the usual one");
    assert_eq!(
        after_loss(20, false),
        (Flavour::Cubic, Flavour::Unknown),
        "nearer to Reno's, but that should have been filled"
    );
}

#[test]
fn a_window_that_grew_back_unseen_is_no_sign_of_bbr() {
    let later = |unseen_rounds: usize| {
        let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
        rounds(&mut shadow, &mut at, &mut delivered, &[10, 20, 40]);
        shadow.clock.on_ack(at, delivered, true);
        shadow.clock.learn_reaction(at, Some(RTT));
        let _sample = shadow.on_loss(at, LossKind::FastRetransmit, 80 * MSS, 80 * MSS);
        shadow.on_recovery_end(at, 0);
        // Round trips of two segments are too few to judge.
        rounds(&mut shadow, &mut at, &mut delivered, &vec![2; unseen_rounds]);
        shadow.weigh_filling(at, Signs { full_sized: 30, pipe_max_segments: 80, ..Signs::default() });
        shadow.leaning().own()
    };
    assert_eq!(later(0), Flavour::Bbr);
    assert_eq!(later(8), Flavour::Bbr);
    assert_eq!(later(30), Flavour::Unknown);
}

#[test]
fn what_other_flows_of_the_host_tell_holds_until_its_own_packets_speak_against_it() {
    let mut shadow = opened();
    shadow.presume(Timestamp(0), Prior::Bbr);
    assert_eq!((shadow.flavour(), shadow.leaning().own()), (Flavour::Bbr, Flavour::Unknown));
    assert!(shadow.bbr.is_some(), "and is followed from the start");
    shadow.leaning.lean_to_bbr(-0.9);
    shadow.leaning.compare(0.0, 0.3);
    assert_eq!((shadow.flavour(), shadow.leaning().own()), (Flavour::Bbr, Flavour::Reno));
    shadow.leaning.lean_to_bbr(-0.2);
    assert_eq!(shadow.flavour(), Flavour::Reno);
}

#[test]
fn a_host_that_does_not_run_bbr_lets_reno_against_cubic_speak() {
    let named = |prior: Prior, reno: f64, bbr: f64| {
        let mut shadow = opened();
        shadow.presume(Timestamp(0), prior);
        shadow.leaning.compare(0.0, reno);
        shadow.leaning.lean_to_bbr(bbr);
        shadow.flavour()
    };
    let host = |flavour| Prior::LossBased(flavour);
    assert_eq!(named(Prior::Unknown, 0.3, 0.0), Flavour::Unknown, "it may be BBR");
    assert_eq!(named(host(Flavour::Unknown), 0.3, 0.0), Flavour::Reno);
    assert_eq!(named(host(Flavour::Unknown), 0.0, 0.0), Flavour::Unknown);
    assert_eq!(named(host(Flavour::Cubic), 0.1, 0.1), Flavour::Cubic, "it says nothing clear of its own");
    assert_eq!(named(host(Flavour::Cubic), 0.3, 0.0), Flavour::Unknown, "its own packets speak against it");
    assert_eq!(named(host(Flavour::Cubic), 0.3, -0.2), Flavour::Reno);
    assert_eq!(named(host(Flavour::Cubic), 0.3, 0.2), Flavour::Bbr);
    assert_eq!(named(Prior::Bbr, -0.1, -1.0), Flavour::Unknown);
}

#[test]
fn a_window_that_shrinks_without_a_cause_is_not_that_of_reno_or_cubic() {
    let leans = |slow_start: bool, pipe_segments: u32| {
        let mut shadow = opened();
        shadow.reno.cwnd.set(100);
        shadow.cubic.cwnd.set(100);
        if !slow_start {
            shadow.reno.cwnd.end_slow_start();
            shadow.cubic.cwnd.end_slow_start();
        }
        shadow.weigh_steady_pipe(&Steady { pipe_segments, behind_bytes: 0 });
        assert_eq!(whole(&shadow), pipe_segments);
        shadow.leaning.bbr() > 0.0
    };
    assert!(leans(false, 80));
    assert!(!leans(false, 95), "a burst that is held back");
    assert!(!leans(true, 80), "HyStart ended slow start earlier than the replica");
}

/// The leaning towards BBR after `times` round trips of these signs, in thousandths.
#[expect(clippy::cast_possible_truncation, reason = "at most three thousand")]
fn towards_bbr(times: u8, ended: Signs) -> i32 {
    let mut shadow = opened();
    shadow.clock.presume_reaction(Micros(50));
    for _ in 0..times {
        shadow.weigh_clocking(Timestamp(0), ended);
    }
    (shadow.leaning().bbr() * 1_000.0).round() as i32
}

#[test]
fn a_few_segments_tell_a_paced_sender_from_one_that_answers() {
    let small = |pipe, full_sized, clocked| Signs { pipe_max_segments: pipe, full_sized, clocked, ..Signs::default() };
    assert!(towards_bbr(4, small(2, 1, 1)) < -150, "a window below BBR's least, and always full");
    assert!(towards_bbr(4, small(5, 4, 4)) < -150);
    assert_eq!(towards_bbr(4, small(4, 3, 3)), 0, "BBR's least window");
    assert_eq!(towards_bbr(4, small(7, 2, 2)), 0, "others would have filled it");
    assert_eq!(towards_bbr(4, small(3, 2, 1)), 0);
    assert!(towards_bbr(2, small(3, 2, 0)) > 150);
    assert_eq!(
        towards_bbr(9, Signs { pushed: true, ..small(3, 2, 0) }),
        0,
        "an application that writes whole segments"
    );
    assert_eq!(towards_bbr(9, Signs { ran_dry: true, ..small(3, 2, 0) }), 0);
    assert!(towards_bbr(200, small(3, 2, 0)) < 1_000, "a scheduler may pace others: not for long against its losses");
}

#[test]
fn what_was_clocked_before_the_application_ran_out_counts_half() {
    let then_dry =
        |clocked| Signs { pipe_max_segments: 20, full_sized: 10, clocked, ran_dry: true, ..Signs::default() };
    let whole = towards_bbr(1, Signs { ran_dry: false, ..then_dry(10) });
    assert_eq!((whole < 0, towards_bbr(1, then_dry(10))), (true, whole / 2));
    assert_eq!((towards_bbr(1, then_dry(9)), towards_bbr(1, then_dry(0))), (0, 0), "its pace may be the application's");
}

#[test]
fn one_pipe_beyond_the_replica_of_bbr_does_not_outweigh_all_that_spoke_for_it() {
    let mut shadow = opened();
    shadow.presume(Timestamp(0), Prior::Bbr);
    shadow.leaning.lean_to_bbr(0.4);
    shadow.reno.cwnd.set(900);
    shadow.cubic.cwnd.set(900);
    shadow.weigh_raise(800);
    assert_eq!(shadow.leaning().own(), Flavour::Bbr);
}

#[test]
fn both_windows_wrong_alike_name_nobody() {
    let mut shadow = opened();
    for _ in 0..9 {
        shadow.leaning.compare(0.9, 0.9);
    }
    assert_eq!(shadow.leaning().own(), Flavour::Unknown);
    // A window of four hardly tells the two apart, one of forty does.
    for (window, named) in [(4, Flavour::Unknown), (40, Flavour::Cubic)] {
        let mut shadow = opened();
        shadow.leaning.lean_to_bbr(-1.0);
        shadow.reno.cwnd.set(window);
        shadow.cubic.cwnd.set(window);
        shadow.compare(0.3, 0.0);
        assert_eq!(shadow.flavour(), named, "{window}");
    }
}

#[test]
fn a_mark_is_nothing_to_bbr() {
    let mut shadow = opened();
    shadow.presume(Timestamp(0), Prior::Bbr);
    let (mut at, mut delivered) = (Timestamp(0), 0);
    rounds(&mut shadow, &mut at, &mut delivered, &[10, 20, 40]);
    let before = whole(&shadow);
    let _sample = shadow.on_loss(at, LossKind::Ecn, 9 * MSS, 9 * MSS);
    assert_eq!(whole(&shadow), before);
    let _sample = shadow.on_loss(at, LossKind::FastRetransmit, 9 * MSS, 9 * MSS);
}

#[test]
fn repeats_that_leave_evenly_by_themselves_name_bbr() {
    let towards_bbr = |kind: LossKind, gaps_us: &[u64]| {
        let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
        shadow.on_reaction(Micros(50));
        rounds(&mut shadow, &mut at, &mut delivered, &[10, 20]);
        let _sample = shadow.on_loss(at, kind, 20 * MSS, 9 * MSS);
        for (gap_us, n) in gaps_us.iter().zip(1..) {
            at = at.after(Micros(*gap_us));
            let (pipe, since_ack) = (n * MSS, Some(Micros(50_000)));
            let repeat =
                Sent { retransmitted_bytes: 1_000, full_sized: true, pipe, flight: 20 * MSS, ..Sent::default() };
            shadow.on_sent(at, &Sent { since_ack, ..repeat });
        }
        shadow.leaning().scales().1
    };
    assert!(towards_bbr(LossKind::FastRetransmit, &[5_000, 5_000, 5_100, 4_900, 5_000]) > 0.15);
    assert!(towards_bbr(LossKind::FastRetransmit, &[5_000, 2_000, 8_000, 4_000, 1_000]) <= 0.0, "each at its own time");
    assert!(towards_bbr(LossKind::Timeout, &[5_000, 5_000, 5_100, 4_900, 5_000]) <= 0.0);
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
fn an_end_of_slow_start_that_nothing_bears_out_holds_where_the_host_is_known_to_run_cubic() {
    let at_loss = |prior: Prior| {
        let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
        shadow.presume(at, prior);
        rounds(&mut shadow, &mut at, &mut delivered, &[10, 20]);
        // The next flight is answered one by one and finds a queue, so that HyStart ends slow start at its ninth.
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

/// One more segment of new data than fills the window: times in ms since an acknowledgement, since something was sent, and since
/// the lowest segment was.
#[derive(Clone, Copy, Debug)]
struct Late {
    unheard: u64,
    unsent: u64,
    since_oldest: u64,
}

/// Sends one in congestion avoidance, to a tap so far from the sender. Gives the window before and after it, and what is said at a
/// loss that a SACK then shows.
fn after_late(late: Late, reaction: Micros) -> (u32, u32, u32) {
    let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
    rounds(&mut shadow, &mut at, &mut delivered, &[10, 20]);
    let _sample = shadow.on_loss(at, LossKind::FastRetransmit, 40 * MSS, 40 * MSS);
    shadow.on_recovery_end(at, 0);
    shadow.clock = AckClock::default();
    shadow.on_reaction(reaction);
    shadow.clock.on_ack(at, delivered, false);
    let window = whole(&shadow);
    let full = u64::from(window) * MSS;
    at = at.after(reaction);
    let sent = Sent { new_bytes: 1_000, full_sized: true, since_ack: Some(reaction), ..Sent::default() };
    for pipe in (1..=u64::from(window)).map(|n| n * MSS) {
        shadow.on_sent(at, &Sent { pipe, flight: pipe, ..sent });
    }
    at = at.after(Micros(late.unsent * 1_000));
    let since_ack = Some(Micros(late.unheard * 1_000));
    let since_oldest = Some(Micros(late.since_oldest * 1_000));
    shadow.on_sent(at, &Sent { pipe: full + MSS, flight: full + MSS, since_ack, since_oldest, ..sent });
    let after = whole(&shadow);
    at = at.after(RTT);
    shadow.on_ack(at, &Acked { pipe: full, flight: full + MSS, delivered_bytes: delivered + MSS, ..Acked::default() });
    let said = shadow.on_loss(at.after(reaction), LossKind::FastRetransmit, full, full + MSS).unwrap();
    (window, after, said.window.segments(Bytes(MSS)).0)
}

#[test]
fn a_tail_loss_probe_goes_beyond_the_window_and_says_nothing_of_it() {
    let late = |unheard, unsent, since_oldest| Late { unheard, unsent, since_oldest };
    for reaction in [Micros(50), Micros(5_000)] {
        // Two round trips; a timeout of 300 ms.
        for probe in [late(250, 250, 200), late(150, 150, 300)] {
            let (before, after, said) = after_late(probe, reaction);
            assert_eq!((after, said), (before, before - 1), "{probe:?}, {reaction:?}");
        }
        // An answer, twice, and the application, in between and in one go after a pause.
        for none in [late(0, 0, 200), late(reaction.0 / 1_000, 150, 300), late(150, 150, 200), late(250, 0, 0)] {
            let (before, after, said) = after_late(none, reaction);
            assert_eq!((after, said), (before + 1, before), "{none:?}, {reaction:?}");
        }
    }
}

#[test]
fn neither_does_one_in_a_reduction() {
    let after = |unheard: u64| {
        let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
        rounds(&mut shadow, &mut at, &mut delivered, &[10, 20]);
        shadow.clock.on_ack(at, delivered, false);
        let _sample = shadow.on_loss(at, LossKind::Ecn, 40 * MSS, 0);
        let sent = Sent { new_bytes: 1_000, full_sized: true, since_ack: Some(Micros(0)), ..Sent::default() };
        shadow.on_sent(at, &Sent { pipe: 20 * MSS, flight: 20 * MSS, ..sent });
        let (pipe, flight, since_ack) = (21 * MSS, 21 * MSS, Some(Micros(unheard * 1_000)));
        shadow.on_sent(at.after(Micros(250_000)), &Sent { pipe, flight, since_ack, ..sent });
        whole(&shadow)
    };
    assert_eq!((after(250), after(0)), (20, 21), "two round trips after the last acknowledgement, and with one");
}

#[test]
fn a_timeout_gives_no_sample_and_starts_anew() {
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
    assert_eq!((end.window.segments(Bytes(MSS)).0, end.reason), (40, SampleReason::End));
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
    for (before, slow_start, said) in &path.losses {
        match said {
            Ok(sample) => {
                assert!(!slow_start, "a sample in slow start");
                let said = sample.window.bytes() / path::MSS as f64;
                assert!((said + 1.0 - before).abs() < 2.0, "said {said:.1}, window was {before:.1}");
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
    // What its window goes by may have been measured through a queue.
    path.shadow.min_rtt = path.shadow.min_rtt.get().map(|rtt| Micros(rtt.0 / 2)).into();
    assert!(path.shadow.share_segments() < share * 0.9);
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
fn a_replica_stays_small() {
    assert!(size_of::<Shadow>() <= 736, "{}", size_of::<Shadow>());
}
