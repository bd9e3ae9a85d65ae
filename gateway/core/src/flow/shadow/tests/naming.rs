//! Evidence for each congestion control.

use super::*;

#[test]
fn the_pipe_after_a_loss_names_the_control_whose_window_it_fills() {
    let after_loss = |pipe_segments: u32, ran_dry: bool| {
        let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
        rounds(&mut shadow, &mut at, &mut delivered, &[10, 20, 40]);
        // The tap is beside the sender.
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
        // Round trips of two segments are too few for evidence.
        rounds(&mut shadow, &mut at, &mut delivered, &vec![2; unseen_rounds]);
        shadow.weigh_filling(at, Signs { full_sized: 30, pipe_max_segments: 80, ..Signs::default() });
        shadow.leaning().own()
    };
    assert_eq!(later(0), Flavour::Bbr);
    assert_eq!(later(8), Flavour::Bbr);
    assert_eq!(later(30), Flavour::Unknown);
}

#[test]
fn the_verdict_on_the_host_holds_until_its_own_packets_contradict_it() {
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
fn on_a_host_without_bbr_reno_against_cubic_decides() {
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
    assert_eq!(named(host(Flavour::Cubic), 0.1, 0.1), Flavour::Cubic, "its own packets are not clear");
    assert_eq!(named(host(Flavour::Cubic), 0.3, 0.0), Flavour::Unknown, "its own packets contradict it");
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

/// The leaning towards BBR after `times` round trips of these signs after a loss, in thousandths.
#[expect(clippy::cast_possible_truncation, reason = "at most three thousand")]
fn towards_bbr(times: u8, ended: Signs) -> i32 {
    let mut shadow = opened();
    shadow.clock.presume_reaction(Micros(50));
    shadow.tooth = Some((5.0, 10.0));
    shadow.rounds.note_loss();
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
fn before_a_loss_answers_are_little_evidence_against_bbr() {
    let clocked = Signs { pipe_max_segments: 20, full_sized: 20, clocked: 20, ..Signs::default() };
    let mut shadow = opened();
    shadow.clock.presume_reaction(Micros(50));
    shadow.lean_to_bbr(0.4);
    for _ in 0..9 {
        shadow.weigh_clocking(Timestamp(0), clocked);
    }
    assert!((shadow.leaning().bbr() + 0.1).abs() < 1e-6, "BBR that starts up fills its window, too");
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
fn one_pipe_beyond_the_replica_of_bbr_does_not_outweigh_the_evidence_for_it() {
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
    // Windows of four of the two hardly differ, windows of forty do.
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
fn of_a_sender_taken_for_bbr_what_was_in_flight_is_compared_with_others() {
    let in_use = |prior: Prior| {
        let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
        shadow.presume(at, prior);
        rounds(&mut shadow, &mut at, &mut delivered, &[10, 20, 30, 30, 30, 30]);
        (whole(&shadow), shadow.window_in_use().unwrap().segments(Bytes(MSS)).0)
    };
    let (model, bbr) = in_use(Prior::Bbr);
    assert!(model > 50 && bbr == 30, "{model}, {bbr}");
    let (window, reno) = in_use(Prior::LossBased(Flavour::Reno));
    assert_eq!(window, reno, "a window that losses bound is compared as it is");
}

// Tail loss probes, which exceed the window.

/// A segment of new data beyond a filled window: times in ms since an acknowledgement, since the last segment, and since the lowest
/// one.
#[derive(Clone, Copy, Debug)]
struct Late {
    unacked: u64,
    unsent: u64,
    since_oldest: u64,
}

/// Sends one in congestion avoidance, with the tap at a distance. Returns the window before and after it, and the sample of a loss
/// that a SACK then shows.
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
    let since_ack = Some(Micros(late.unacked * 1_000));
    let since_oldest = Some(Micros(late.since_oldest * 1_000));
    shadow.on_sent(at, &Sent { pipe: full + MSS, flight: full + MSS, since_ack, since_oldest, ..sent });
    let after = whole(&shadow);
    at = at.after(RTT);
    shadow.on_ack(at, &Acked { pipe: full, flight: full + MSS, delivered_bytes: delivered + MSS, ..Acked::default() });
    let sampled = shadow.on_loss(at.after(reaction), LossKind::FastRetransmit, full, full + MSS).unwrap();
    (window, after, sampled.window.segments(Bytes(MSS)).0)
}

#[test]
fn a_tail_loss_probe_goes_beyond_the_window_and_says_nothing_of_it() {
    let late = |unacked, unsent, since_oldest| Late { unacked, unsent, since_oldest };
    for reaction in [Micros(50), Micros(5_000)] {
        // Two round trips; a timeout of 300 ms.
        for probe in [late(250, 250, 200), late(150, 150, 300)] {
            let (before, after, sampled) = after_late(probe, reaction);
            assert_eq!((after, sampled), (before, before - 1), "{probe:?}, {reaction:?}");
        }
        // An answer, twice, and the application, in between and in one go after a pause.
        for none in [late(0, 0, 200), late(reaction.0 / 1_000, 150, 300), late(150, 150, 200), late(250, 0, 0)] {
            let (before, after, sampled) = after_late(none, reaction);
            assert_eq!((after, sampled), (before + 1, before), "{none:?}, {reaction:?}");
        }
    }
}

#[test]
fn neither_does_one_in_a_reduction() {
    let after = |unacked: u64| {
        let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
        rounds(&mut shadow, &mut at, &mut delivered, &[10, 20]);
        shadow.clock.on_ack(at, delivered, false);
        let _sample = shadow.on_loss(at, LossKind::Ecn, 40 * MSS, 0);
        let sent = Sent { new_bytes: 1_000, full_sized: true, since_ack: Some(Micros(0)), ..Sent::default() };
        shadow.on_sent(at, &Sent { pipe: 20 * MSS, flight: 20 * MSS, ..sent });
        let (pipe, flight, since_ack) = (21 * MSS, 21 * MSS, Some(Micros(unacked * 1_000)));
        shadow.on_sent(at.after(Micros(250_000)), &Sent { pipe, flight, since_ack, ..sent });
        whole(&shadow)
    };
    assert_eq!((after(250), after(0)), (20, 21), "two round trips after the last acknowledgement, and with one");
}
