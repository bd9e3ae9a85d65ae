//! The requirements of RFC 9959, each by its section.

use proptest::prelude::*;

use super::*;

/// The setting of the RFC's own examples: ten packets first, 29 in flight at the jump, 300 saved.
const INITIAL: u64 = 10;
const FLIGHT: u64 = 29;
const JUMP: Jump = Jump { window: 150, saved_rtt: RTT };
const RTT: Micros = Micros(100_000);
/// Packets before the first unvalidated one.
const BEFORE: u64 = 39;

/// An acknowledgement at the moment of the jump.
fn ack() -> Ack {
    Ack {
        now: Micros(1_000_000),
        newest: INITIAL,
        sent: BEFORE,
        flight: FLIGHT,
        rtt: RTT,
        min_rtt: RTT,
        ..Ack::default()
    }
}

/// One of `acked` packets up to `newest`, of `sent`, this long after the jump.
fn later(after: u64, acked: u64, newest: u64, sent: u64) -> Ack {
    Ack { now: Micros(1_000_000 + after), acked, newest, sent, flight: sent - newest, ..ack() }
}

fn begun() -> CarefulResume {
    CarefulResume::new(INITIAL, INITIAL)
}

fn jumped() -> CarefulResume {
    let mut resume = begun();
    let transition = resume.jump(Some(JUMP), &ack(), FLIGHT).unwrap();
    assert_eq!((transition.phase, transition.window, transition.ssthresh), (Phase::Unvalidated, Some(150), None));
    resume
}

/// All 121 unvalidated packets were sent, and what was in flight before the jump has arrived.
fn validating() -> CarefulResume {
    let mut resume = jumped();
    let transition = resume.on_sent(Micros(1_050_000), BEFORE + 121, 150).unwrap();
    assert_eq!((transition.phase, transition.window), (Phase::Validating, Some(150)));
    resume
}

/// [`validating`], and packet 35 of the unvalidated ones is lost.
fn retreating() -> (CarefulResume, Transition) {
    let mut resume = validating();
    assert_eq!(resume.on_ack(&later(110_000, FLIGHT + 5, BEFORE + 34, BEFORE + 121)), None);
    let transition = resume.on_congestion(BEFORE + 121).unwrap();
    (resume, transition)
}

#[test]
fn section_3_2_jumps_where_the_initial_data_has_arrived_and_more_waits() {
    let resume = begun();
    assert!(resume.may_jump(&ack(), 1, FLIGHT));
    assert!(!resume.may_jump(&Ack { newest: INITIAL - 1, ..ack() }, 1_000, FLIGHT), "initial data is on its way");
    assert!(!resume.may_jump(&ack(), 0, FLIGHT), "nothing waits");
    assert!(!resume.may_jump(&Ack { recovering: true, ..ack() }, 1, FLIGHT), "a loss is repaired");
    assert!(!jumped().may_jump(&ack(), 1_000, FLIGHT), "there is one jump");
}

#[test]
fn section_3_2_congestion_in_reconnaissance_ends_careful_resume() {
    let mut resume = begun();
    let normal = Some(Transition { phase: Phase::Normal, window: None, ssthresh: None });
    assert_eq!(resume.on_congestion(12), normal);
    assert!(!resume.may_jump(&ack(), 1_000, FLIGHT));
    assert_eq!(resume.jump(Some(JUMP), &ack(), FLIGHT), None);
    assert_eq!((resume.phase(), resume.ended_in()), (Phase::Normal, Phase::Reconnaissance));
}

#[test]
fn section_3_2_parameters_that_others_use_or_that_expired_end_careful_resume() {
    let mut resume = begun();
    let normal = Some(Transition { phase: Phase::Normal, window: None, ssthresh: None });
    assert_eq!(resume.jump(None, &ack(), FLIGHT), normal);
    assert_eq!(resume.phase(), Phase::Normal);
}

#[test]
fn section_3_2_a_round_trip_of_half_the_saved_one_or_less_ends_careful_resume() {
    let phase = |min_rtt: u64| {
        let mut resume = begun();
        let transition = resume.jump(Some(JUMP), &Ack { min_rtt: Micros(min_rtt), ..ack() }, FLIGHT).unwrap();
        assert_eq!(transition.window.is_some(), transition.phase == Phase::Unvalidated, "the window stays");
        transition.phase
    };
    assert_eq!(phase(0), Phase::Normal);
    assert_eq!(phase(50_000), Phase::Normal);
    assert_eq!(phase(50_001), Phase::Unvalidated);
    // Section 4.2.1.
    assert_eq!(phase(1_000_000), Phase::Unvalidated);
    assert_eq!(phase(1_000_001), Phase::Normal);
}

#[test]
fn section_3_3_the_jump_must_be_larger_than_what_is_there() {
    for (cwnd, flight) in [(150, FLIGHT), (FLIGHT, 150), (400, 10)] {
        let mut resume = begun();
        let transition = resume.jump(Some(JUMP), &Ack { flight, ..ack() }, cwnd).unwrap();
        assert_eq!((transition.phase, transition.window), (Phase::Normal, None), "{cwnd}, {flight}");
    }
}

#[test]
fn section_3_3_pipe_size_is_the_flight_before_the_jump_and_what_was_acknowledged_since() {
    let mut resume = jumped();
    assert_eq!(resume.pipe_size(), FLIGHT);
    assert_eq!(resume.on_ack(&later(10_000, 4, INITIAL + 4, BEFORE + 20)), None);
    assert_eq!((resume.pipe_size(), resume.window(), resume.phase()), (FLIGHT + 4, 150, Phase::Unvalidated));
    assert!(resume.phase().holds_window());
}

#[test]
fn section_3_3_unvalidated_packets_are_paced_over_the_current_round_trip() {
    let resume = jumped();
    assert_eq!(resume.pacing_interval(1), Some(Micros(667)));
    assert_eq!(resume.pacing_interval(150), Some(RTT));
    assert_eq!(begun().pacing_interval(1), None);
    assert_eq!(validating().pacing_interval(1), None);
}

#[test]
fn section_3_3_congestion_leads_to_safe_retreat() {
    let mut resume = jumped();
    let transition = resume.on_congestion(BEFORE + 60).unwrap();
    assert_eq!((transition.phase, transition.window), (Phase::SafeRetreat, Some(14)));
}

#[test]
fn section_3_3_a_round_trip_that_shrinks_shows_another_path() {
    let mut resume = jumped();
    let changed = Ack { min_rtt: Micros(50_000), ..later(10_000, 4, INITIAL + 4, BEFORE + 20) };
    let transition = resume.on_ack(&changed).unwrap();
    assert_eq!((transition.phase, transition.window), (Phase::SafeRetreat, Some(16)));
}

#[test]
fn section_3_3_ends_when_the_window_is_full() {
    let mut resume = jumped();
    assert_eq!(resume.on_sent(Micros(1_040_000), BEFORE + 120, 149), None);
    assert_eq!(resume.on_sent(Micros(1_040_000), BEFORE + 121, 150).unwrap().phase, Phase::Validating);
    // Who sees acknowledgements only learns it by the next one.
    let mut resume = jumped();
    let full = Ack { flight: 146, ..later(40_000, 4, INITIAL + 4, BEFORE + 121) };
    assert_eq!(resume.on_ack(&full).unwrap().window, Some(146));
}

#[test]
fn section_3_3_a_window_in_bytes_is_full_where_no_other_packet_fits() {
    const PACKET: u64 = 1_200;
    let mut resume = begun().with_packet(PACKET);
    let jump = Jump { window: 150_000, saved_rtt: RTT };
    resume.jump(Some(jump), &ack(), FLIGHT).unwrap();
    let (mut sent, mut acknowledged) = (resume, resume);
    assert_eq!(sent.on_sent(Micros(1_040_000), BEFORE + 121, 148_800), None, "one fits still");
    assert_eq!(sent.on_sent(Micros(1_040_000), BEFORE + 121, 148_801).unwrap().window, Some(148_801));
    let with = |flight| Ack { flight, ..later(40_000, 2_400, INITIAL + 4, BEFORE + 121) };
    assert_eq!(acknowledged.on_ack(&with(146_400)), None);
    assert_eq!(acknowledged.on_ack(&with(146_401)).unwrap().window, Some(146_401));
    assert_eq!(resume.with_packet(1).on_sent(Micros(1_040_000), BEFORE + 121, 149_999), None);
}

#[test]
fn section_3_3_ends_with_the_first_acknowledgement_of_an_unvalidated_packet() {
    let mut resume = jumped();
    assert_eq!(resume.on_ack(&later(90_000, FLIGHT, BEFORE, BEFORE + 80)), None);
    let transition = resume.on_ack(&later(95_000, 1, BEFORE + 1, BEFORE + 80)).unwrap();
    assert_eq!((transition.phase, transition.window), (Phase::Validating, Some(79)));
}

#[test]
fn section_3_3_ends_after_a_round_trip() {
    let mut resume = jumped();
    assert_eq!(resume.on_ack(&later(100_000, 2, INITIAL + 2, BEFORE + 40)), None);
    assert_eq!(resume.on_ack(&later(100_001, 2, INITIAL + 4, BEFORE + 40)).unwrap().phase, Phase::Validating);
    let mut resume = jumped();
    assert_eq!(resume.on_sent(Micros(1_100_001), BEFORE + 40, 60).unwrap().phase, Phase::Validating);
}

#[test]
fn section_3_3_a_sender_that_did_not_use_the_jump_goes_back_to_the_pipe_size() {
    // 29 before, 29 acknowledged: as much as is in flight now.
    let mut resume = jumped();
    let transition = resume.on_ack(&later(100_001, FLIGHT, BEFORE, BEFORE + 58)).unwrap();
    assert_eq!((transition.phase, transition.window, transition.ssthresh), (Phase::Normal, Some(58), None));
    assert_eq!(resume.ended_in(), Phase::Unvalidated);
    let mut resume = jumped();
    let transition = resume.on_ack(&later(100_001, FLIGHT, BEFORE, BEFORE + 59)).unwrap();
    assert_eq!((transition.phase, transition.window), (Phase::Validating, Some(59)));
    // Never below the initial window without congestion.
    let mut resume = begun();
    resume.jump(Some(JUMP), &Ack { flight: 2, ..ack() }, INITIAL).unwrap();
    assert_eq!(resume.on_sent(Micros(1_100_001), BEFORE + 3, 5).unwrap().window, Some(INITIAL));
}

#[test]
fn section_3_4_validating_ends_with_the_last_unvalidated_packet() {
    let mut resume = validating();
    assert!(!resume.phase().holds_window(), "the window grows by normal congestion control");
    assert_eq!(resume.on_ack(&later(200_000, 149, BEFORE + 120, BEFORE + 200)), None);
    let transition = resume.on_ack(&later(200_000, 1, BEFORE + 121, BEFORE + 200)).unwrap();
    assert_eq!(transition, Transition { phase: Phase::Normal, window: None, ssthresh: None });
    assert_eq!((resume.ended_in(), resume.pipe_size()), (Phase::Validating, FLIGHT + 150));
    assert_eq!(resume.on_congestion(BEFORE + 300), None, "normal congestion control reacts alone");
}

#[test]
fn section_3_4_congestion_leads_to_safe_retreat() {
    let (resume, transition) = retreating();
    assert_eq!((transition.phase, resume.pipe_size()), (Phase::SafeRetreat, 63));
}

#[test]
fn section_3_5_the_window_is_half_of_the_pipe_size_and_at_least_the_initial_one() {
    let (_, transition) = retreating();
    assert_eq!(transition.window, Some(31));
    let mut resume = begun();
    resume.jump(Some(JUMP), &Ack { flight: 12, ..ack() }, INITIAL).unwrap();
    assert_eq!(resume.on_congestion(BEFORE + 9).unwrap().window, Some(INITIAL));
}

#[test]
fn section_3_5_the_window_does_not_grow_while_the_pipe_size_does() {
    let (mut resume, _) = retreating();
    let repairing = |acked, newest| Ack { recovering: true, ..later(220_000, acked, newest, BEFORE + 121) };
    assert_eq!(resume.on_ack(&repairing(86, BEFORE + 34)), None);
    assert_eq!((resume.window(), resume.pipe_size()), (31, 149));
    assert!(resume.phase().holds_window());
    assert_eq!(resume.on_congestion(BEFORE + 121), None, "one retreat");
}

#[test]
fn section_3_5_ends_with_the_last_unvalidated_packet_and_a_threshold_of_half_the_pipe_size() {
    let (mut resume, _) = retreating();
    let repaired = |newest, recovering| Ack { recovering, ..later(320_000, 1, newest, BEFORE + 121) };
    assert_eq!(resume.on_ack(&repaired(BEFORE + 120, false)), None);
    assert_eq!(resume.on_ack(&repaired(BEFORE + 121, true)), None, "the loss is not repaired yet");
    let transition = resume.on_ack(&repaired(BEFORE + 121, false)).unwrap();
    assert_eq!((transition.phase, transition.window, transition.ssthresh), (Phase::Normal, None, Some(33)));
    assert_eq!(resume.ended_in(), Phase::SafeRetreat);
}

#[test]
fn section_3_6_persistent_congestion_ends_careful_resume_in_every_phase() {
    for mut resume in [begun(), jumped(), validating(), retreating().0] {
        let before = resume.phase();
        let transition = resume.on_timeout().unwrap();
        assert_eq!(transition, Transition { phase: Phase::Normal, window: None, ssthresh: None });
        assert_eq!(resume.ended_in(), before);
        assert_eq!(resume.on_timeout(), None);
    }
}

#[test]
fn section_3_7_nothing_moves_the_window_afterwards() {
    let mut resume = validating();
    resume.on_timeout().unwrap();
    assert_eq!(resume.on_ack(&later(200_000, 40, BEFORE + 121, BEFORE + 200)), None);
    assert_eq!(resume.on_sent(Micros(9_000_000), BEFORE + 400, 400), None);
    assert_eq!(resume.jump(Some(JUMP), &ack(), INITIAL), None);
}

#[test]
fn names_are_those_of_the_rfc() {
    let names: Vec<&str> = Phase::VARIANTS.iter().map(|phase| phase.name()).collect();
    assert_eq!(names, ["reconnaissance", "unvalidated", "validating", "safe_retreat", "normal"]);
}

proptest! {
    /// Whatever happens: no panic, no phase is entered twice, and the bounds of the window hold at every transition.
    #[test]
    fn every_sequence_of_events_goes_forward_and_keeps_the_bounds(
        initial in 0_u64..40, window: u64, saved in 0_u64..1_000_000,
        events in prop::collection::vec((0_u8..5, any::<[u64; 3]>(), 0_u64..300, 0_u64..300_000, any::<bool>()), 1..60),
    ) {
        let mut resume = CarefulResume::new(initial, initial);
        let mut entered = vec![Phase::Reconnaissance];
        for (kind, [newest, sent, flight], small, now, recovering) in events {
            let ack = Ack {
                now: Micros(now), acked: small, newest: newest % 400, sent: sent % 400, flight: flight % 400,
                rtt: Micros(100_000), min_rtt: Micros(now / 2), recovering,
            };
            let before = resume;
            let transition = match kind {
                0 => resume.jump(Some(Jump { window, saved_rtt: Micros(saved) }), &ack, small),
                1 => resume.on_sent(ack.now, ack.sent, ack.flight),
                2 => resume.on_congestion(ack.sent),
                3 if small == 0 => resume.on_timeout(),
                _ => resume.on_ack(&ack),
            };
            prop_assert!(resume.pipe_size() >= before.pipe_size() || before.phase() == Phase::Reconnaissance);
            let Some(transition) = transition else {
                prop_assert_eq!(resume.phase(), before.phase());
                continue;
            };
            prop_assert_eq!(resume.phase(), transition.phase);
            prop_assert!(!entered.contains(&transition.phase), "{:?} after {:?}", transition.phase, entered);
            entered.push(transition.phase);
            match transition.phase {
                Phase::Unvalidated => prop_assert!(transition.window == Some(window) && window > small.max(ack.flight)),
                Phase::SafeRetreat => prop_assert!(transition.window == Some((resume.pipe_size() / 2).max(initial))),
                Phase::Validating => prop_assert!(transition.window == Some(ack.flight) && ack.flight > resume.pipe_size()),
                Phase::Normal | Phase::Reconnaissance => {}
            }
            if before.phase() == Phase::SafeRetreat && transition.ssthresh.is_some() {
                prop_assert!(transition.ssthresh <= Some(resume.pipe_size() / 2) && transition.window.is_none());
            }
        }
    }
}
