use spand_proto::units::Micros;

use super::*;

fn repeat(start: u64, una: u64, ts_value: u32) -> Repeat {
    Repeat {
        start,
        end: start + 1_000,
        una,
        nxt: 20_000,
        sacked: 3_000,
        mss: 1_000,
        unseen: false,
        standing: Standing::SentOnce,
        since_sent: Some(Micros(150_000)),
        since_ack: Some(Micros(10)),
        timeout: Micros(300_000),
        sack_permitted: true,
        paced: false,
        ts_value: Some(ts_value),
    }
}

fn advance(una: u64, echo: u32) -> Progress {
    Progress {
        una,
        nxt: 20_000,
        answer_at: Timestamp(0),
        kind: AckKind::Advance,
        original: false,
        dsack: false,
        echo: Some(echo),
        ece: false,
        lost: 0,
        repeated: 0,
        lost_again: false,
        counted: None,
    }
}

#[test]
fn an_echo_of_a_repeat_of_the_episode_before_takes_nothing_back() {
    let mut recovery = Recovery::default();
    assert_eq!(recovery.repeated(&Repeat { nxt: 11_000, ..repeat(1_000, 1_000, 100) }), Some(LossKind::FastRetransmit));
    assert_eq!(recovery.repeated(&repeat(13_000, 1_000, 120)), None);
    assert!(recovery.acknowledged(&advance(11_000, 100)).ended);
    assert_eq!(recovery.repeated(&repeat(11_000, 11_000, 150)), Some(LossKind::FastRetransmit));
    assert!(!recovery.acknowledged(&advance(12_000, 120)).undone);
}

#[test]
fn an_echo_older_than_the_only_repeat_takes_it_back() {
    let mut recovery = Recovery::default();
    assert_eq!(recovery.repeated(&repeat(1_000, 1_000, 100)), Some(LossKind::FastRetransmit));
    assert!(recovery.acknowledged(&advance(20_000, 90)).undone);
}

#[test]
fn a_loss_begins_where_the_acknowledgements_show_it() {
    let show = |una: u64, nxt: u64, lost: u64, repeated: u64| Progress { nxt, lost, repeated, ..advance(una, 300) };
    let mut recovery = Recovery::default();
    recovery.acknowledged(&show(1_000, 11_000, 1_000, 0));
    // Pacing delays the retransmission, and new data leaves before it; no SACK is left that would show the loss.
    let paced = Repeat { nxt: 15_000, sacked: 0, ..repeat(1_000, 1_000, 100) };
    assert_eq!(recovery.repeated(&paced), Some(LossKind::FastRetransmit), "no timeout");
    assert!(recovery.acknowledged(&show(11_000, 16_000, 0, 0)).ended, "at what had been sent by the acknowledgement");

    assert_eq!(
        recovery.repeated(&Repeat { nxt: 16_000, ..repeat(12_000, 12_000, 220) }),
        Some(LossKind::FastRetransmit)
    );
    assert!(recovery.acknowledged(&show(16_000, 19_000, 2_000, 0)).began.is_none(), "nothing of it was repeated yet");
    assert_eq!(
        recovery.repeated(&Repeat { nxt: 20_000, ..repeat(17_000, 16_000, 240) }),
        Some(LossKind::FastRetransmit)
    );
    let turn = recovery.acknowledged(&show(19_000, 23_000, 1_000, 1_000));
    assert!(turn.ended && turn.began.is_some() && recovery.is_active(), "its repeat left before the end");
    assert!(recovery.acknowledged(&show(23_000, 24_000, 0, 0)).ended);
}

#[test]
fn a_retransmission_without_an_acknowledgement_is_a_timeout() {
    let begun = |kind| {
        let mut recovery = Recovery::default();
        let silence = if kind == LossKind::Timeout { 300_000 } else { 10 };
        let first =
            Repeat { since_ack: Some(Micros(silence)), since_sent: Some(Micros(300_000)), ..repeat(1_000, 1_000, 100) };
        assert_eq!(recovery.repeated(&first), Some(kind));
        recovery
    };
    // Without SACK duplicates continue while the timer runs.
    let head = Repeat {
        standing: Standing::Repeated,
        sack_permitted: false,
        since_sent: Some(Micros(300_000)),
        ..repeat(1_000, 1_000, 400)
    };
    assert_eq!(begun(LossKind::FastRetransmit).repeated(&head), Some(LossKind::Timeout));
    let with_sack = Repeat { sack_permitted: true, standing: Standing::Lost, ..head };
    assert_eq!(begun(LossKind::FastRetransmit).repeated(&with_sack), None, "acknowledgements caused it");
    let never_before = Repeat { standing: Standing::SentOnce, since_ack: Some(Micros(300_000)), ..head };
    assert_eq!(begun(LossKind::FastRetransmit).repeated(&never_before), Some(LossKind::Timeout));
    // The estimate of the round trip is poor: the first timeout came sooner than expected, and so does the next.
    let soon = Repeat { standing: Standing::Repeated, since_sent: Some(Micros(150_000)), ..repeat(1_000, 1_000, 400) };
    assert_eq!(begun(LossKind::Timeout).repeated(&soon), Some(LossKind::Timeout), "nothing was acknowledged since");
    let mut advanced = begun(LossKind::Timeout);
    advanced.acknowledged(&advance(2_000, 100));
    assert_eq!(advanced.repeated(&Repeat { start: 2_000, una: 2_000, ..soon }), None);
}

#[test]
fn the_last_segment_again_is_no_probe_where_it_counts_as_lost() {
    let last = Repeat { nxt: 2_000, sacked: 0, since_ack: Some(Micros(10)), ..repeat(1_000, 1_000, 100) };
    assert_eq!(Recovery::default().repeated(&last), None, "a probe");
    assert_eq!(
        Recovery::default().repeated(&Repeat { standing: Standing::Lost, ..last }),
        Some(LossKind::FastRetransmit)
    );
}

#[test]
fn a_loss_while_a_mark_is_answered_is_over_where_that_would_have_been() {
    let mut recovery = Recovery::default();
    recovery.note_ecn_capable();
    let echoed = Progress { ece: true, nxt: 11_000, ..advance(1_000, 90) };
    assert_eq!(recovery.acknowledged(&echoed).began, Some(LossKind::Ecn));
    assert_eq!(recovery.repeated(&repeat(1_000, 1_000, 100)), Some(LossKind::FastRetransmit));
    assert!(recovery.acknowledged(&advance(11_000, 100)).ended, "not at 20,000, what had been sent by then");
}

/// After 11,000 bytes an ECN echo came.
fn reduced() -> Recovery {
    let mut recovery = Recovery::default();
    recovery.note_ecn_capable();
    let echoed = Progress { ece: true, nxt: 11_000, ..advance(1_000, 90) };
    assert_eq!(recovery.acknowledged(&echoed).began, Some(LossKind::Ecn));
    recovery
}

#[test]
fn an_echo_that_shows_a_loss_too_is_recovery_s() {
    let mut recovery = Recovery::default();
    recovery.note_ecn_capable();
    let both = Progress { ece: true, lost: 1_000, ..advance(1_000, 90) };
    assert_eq!(recovery.acknowledged(&both).began, None);
    assert_eq!(recovery.repeated(&repeat(1_000, 1_000, 100)), Some(LossKind::FastRetransmit));
    let echoed = Progress { ece: true, nxt: 24_000, ..advance(20_000, 100) };
    let turn = recovery.acknowledged(&echoed);
    assert!(turn.ended && turn.began == Some(LossKind::Ecn), "an echo counts at once where it is repaired");
}

#[test]
fn a_mark_is_answered_until_something_sent_after_it_arrives() {
    let mut recovery = reduced();
    let echoed = |una| Progress { ece: true, nxt: 13_000, ..advance(una, 90) };
    assert_eq!(recovery.acknowledged(&echoed(11_000)).began, None);
    assert_eq!(recovery.acknowledged(&echoed(12_000)).began, Some(LossKind::Ecn));
}

#[test]
fn a_recovery_that_ends_where_it_begins_begins_again() {
    let mut recovery = reduced();
    let lost = |una, repeated| Progress { nxt: 16_000, lost: 1_000, repeated, ..advance(una, 90) };
    recovery.acknowledged(&lost(11_000, 0));
    assert_eq!(recovery.repeated(&repeat(11_000, 11_000, 100)), Some(LossKind::FastRetransmit));
    assert_eq!(recovery.repeated(&repeat(12_000, 11_000, 101)), None, "the same one");
    let turn = recovery.acknowledged(&Progress { kind: AckKind::Duplicate, ..lost(11_000, 1_000) });
    assert!(turn.ended && turn.began == Some(LossKind::FastRetransmit));
    assert!(!recovery.acknowledged(&lost(15_000, 1_000)).ended, "now at 16,000");
}

#[test]
fn for_a_distant_tap_the_point_includes_data_sent_before_the_acknowledgement_arrived() {
    let ended_at = |una, cwr| {
        let mut recovery = Recovery::default();
        let answer_at = Timestamp::from_micros(10_000);
        recovery.acknowledged(&Progress { lost: 1_000, nxt: 11_000, answer_at, ..advance(1_000, 90) });
        recovery.sent(Timestamp::from_micros(8_000), (11_000, 12_000), cwr);
        recovery.sent(Timestamp::from_micros(9_000), (12_000, 13_000), false);
        recovery.sent(Timestamp::from_micros(11_000), (13_000, 14_000), false);
        assert!(recovery.repeated(&repeat(1_000, 1_000, 100)).is_some());
        recovery.acknowledged(&advance(una, 100)).ended
    };
    assert_eq!((ended_at(12_000, false), ended_at(13_000, false)), (false, true));
    assert!(ended_at(11_000, true), "the first one with CWR was sent after it");
}

#[test]
fn pacing_may_delay_a_fast_retransmit_beyond_the_timeout() {
    let begun = |paced| {
        let mut recovery = Recovery::default();
        recovery.acknowledged(&Progress { lost: 1_000, ..advance(1_000, 90) });
        let silence = Some(Micros(400_000));
        let standing = Standing::Lost;
        let late = Repeat { since_ack: silence, since_sent: silence, standing, paced, ..repeat(1_000, 1_000, 100) };
        recovery.repeated(&late)
    };
    assert_eq!((begun(true), begun(false)), (Some(LossKind::FastRetransmit), Some(LossKind::Timeout)));
}

#[test]
fn with_sack_a_repeat_on_its_way_is_repeated_by_the_timer_alone() {
    let again = |since_ack_us, since_sent_us| {
        let mut recovery = Recovery::default();
        assert!(recovery.repeated(&repeat(1_000, 1_000, 100)).is_some());
        let (since_ack, since_sent) = (Some(Micros(since_ack_us)), Some(Micros(since_sent_us)));
        recovery.repeated(&Repeat { standing: Standing::Repeated, since_ack, since_sent, ..repeat(1_000, 1_000, 400) })
    };
    assert_eq!(again(70_000, 310_000), Some(LossKind::Timeout));
    assert_eq!(again(10, 310_000), None, "an acknowledgement caused it");
    assert_eq!(again(70_000, 250_000), None, "too soon");
}

/// F-RTO after a timeout of the first of the segments sent (1,000 to 20,000): `timeouts` in a row, then `between`, then an
/// acknowledgement of segments sent once.
fn is_spurious(before: impl Fn(&mut Recovery), timeouts: usize, between: impl Fn(&mut Recovery)) -> bool {
    let silence = Some(Micros(310_000));
    let timer =
        Repeat { sacked: 0, since_ack: silence, since_sent: silence, ts_value: None, ..repeat(1_000, 1_000, 0) };
    let mut recovery = Recovery::default();
    before(&mut recovery);
    for _ in 0..timeouts {
        assert_eq!(recovery.repeated(&timer), Some(LossKind::Timeout));
    }
    assert!(
        !recovery.acknowledged(&Progress { echo: None, ..advance(2_000, 0) }).undone,
        "the repeat may have done that"
    );
    between(&mut recovery);
    recovery.acknowledged(&Progress { original: true, echo: None, nxt: 22_000, ..advance(4_000, 0) }).undone
}

#[test]
fn an_original_that_arrives_after_a_timeout_undoes_it() {
    let nothing = |_: &mut Recovery| ();
    assert!(is_spurious(nothing, 1, nothing));
    assert!(is_spurious(nothing, 3, nothing), "the timer backed off");

    let repairs = |recovery: &mut Recovery| assert_eq!(recovery.repeated(&repeat(2_000, 2_000, 0)), None);
    assert!(!is_spurious(nothing, 1, repairs), "F-RTO has ended");
    let duplicate = |nxt| {
        move |recovery: &mut Recovery| {
            recovery.acknowledged(&Progress { kind: AckKind::Duplicate, echo: None, nxt, ..advance(2_000, 0) });
        }
    };
    assert!(!is_spurious(nothing, 1, duplicate(22_000)), "new segments arrive, and what lies between is missing");
    assert!(is_spurious(nothing, 1, duplicate(20_000)), "it has sent nothing new");
    let recovers = |recovery: &mut Recovery| assert!(recovery.repeated(&repeat(1_000, 1_000, 0)).is_some());
    assert!(!is_spurious(recovers, 1, nothing), "a loss was being repaired");
}

// Senders without SACK count.

#[test]
fn without_sack_a_timer_runs_out_beside_fewer_than_three_duplicates() {
    let begun = |duplicates, ms: u64| {
        let mut recovery = Recovery::default();
        for _ in 0..duplicates {
            recovery.acknowledged(&Progress { kind: AckKind::Duplicate, ..advance(1_000, 0) });
        }
        let since_sent = Some(Micros(ms * 1_000));
        recovery.repeated(&Repeat { sacked: 0, sack_permitted: false, since_sent, ..repeat(1_000, 1_000, 100) })
    };
    assert_eq!(begun(2, 300), Some(LossKind::Timeout));
    assert_eq!(begun(3, 300), Some(LossKind::FastRetransmit));
    assert_eq!(begun(2, 100), Some(LossKind::FastRetransmit), "too soon for the timer");
}

#[test]
fn without_sack_an_unprompted_retransmission_is_a_timeout() {
    let head =
        Repeat { sacked: 0, sack_permitted: false, since_sent: Some(Micros(500_000)), ..repeat(1_000, 1_000, 100) };
    let begun = |in_recovery: bool, since_ack_us, paced| {
        let mut recovery = Recovery::default();
        if in_recovery {
            assert!(recovery.repeated(&Repeat { since_sent: Some(Micros(100_000)), sacked: 3_000, ..head }).is_some());
        }
        for _ in 0..5 {
            recovery.acknowledged(&Progress { kind: AckKind::Duplicate, ..advance(1_000, 0) });
        }
        recovery.repeated(&Repeat { since_ack: Some(Micros(since_ack_us)), paced, ..head })
    };
    assert_eq!(begun(false, 10, false), Some(LossKind::FastRetransmit), "the fifth duplicate caused it");
    let waited = begun(false, 70_000, false);
    assert_eq!(waited, Some(LossKind::Timeout), "a sender that has seen reordering waits for more of them");
    assert_eq!(begun(false, 70_000, true), Some(LossKind::FastRetransmit), "pacing delays the fast retransmit");
    assert_eq!((begun(true, 10, false), begun(true, 70_000, false)), (None, Some(LossKind::Timeout)));
}

#[test]
fn without_sack_recovery_lasts_until_something_sent_since_is_acknowledged() {
    let ended_at = |sack_permitted, una| {
        let mut recovery = Recovery::default();
        assert!(recovery.repeated(&Repeat { sack_permitted, ..repeat(1_000, 1_000, 100) }).is_some());
        recovery.acknowledged(&advance(una, 100)).ended
    };
    assert_eq!((ended_at(true, 20_000), ended_at(false, 20_000), ended_at(false, 21_000)), (true, false, true));
}

/// A sender without SACK with `outstanding` segments of 1,000 bytes from `una` on receives duplicates.
fn receive_duplicates(recovery: &mut Recovery, una: u64, outstanding: u16, duplicates: usize) {
    let counted = Some(Counted { outstanding, lost: 0, acked: 0 });
    let nxt = una + 1_000 * u64::from(outstanding);
    for _ in 0..duplicates {
        recovery.acknowledged(&Progress { kind: AckKind::Duplicate, nxt, echo: None, counted, ..advance(una, 0) });
    }
}

#[test]
fn duplicates_left_after_an_undo_begin_another_recovery() {
    let plain = |start: u64| Repeat { sack_permitted: false, sacked: 0, ..repeat(start, start, 100) };
    let partly = |recovery: &mut Recovery, echo: u32| {
        let counted = Some(Counted { outstanding: 18, lost: 0, acked: 1 });
        recovery.acknowledged(&Progress { counted, ..advance(2_000, echo) })
    };
    let mut recovery = Recovery::default();
    receive_duplicates(&mut recovery, 1_000, 19, 11);
    assert_eq!(recovery.repeated(&plain(1_000)), Some(LossKind::FastRetransmit));
    assert!(partly(&mut recovery, 90).undone, "the original had arrived");
    assert_eq!(recovery.repeated(&plain(2_000)), Some(LossKind::FastRetransmit), "eleven more arrived above");

    receive_duplicates(&mut recovery, 2_000, 18, 1);
    assert!(!partly(&mut recovery, 150).undone);
    assert_eq!(recovery.repeated(&plain(2_000)), None, "it goes on");
}

#[test]
fn a_sender_that_saw_reordering_waits_for_more_duplicates_or_its_timer() {
    let late = Repeat {
        sack_permitted: false,
        sacked: 0,
        nxt: 9_000,
        since_sent: Some(Micros(300_000)),
        since_ack: Some(Micros(1_000)),
        ..repeat(1_000, 1_000, 100)
    };
    let after = |reordering: u16, duplicates: usize| {
        let mut recovery = Recovery::default();
        receive_duplicates(&mut recovery, 1_000, reordering, usize::from(reordering));
        let counted = Some(Counted { outstanding: 0, lost: 0, acked: reordering });
        recovery.acknowledged(&Progress { counted, ..advance(1_000, 0) });
        receive_duplicates(&mut recovery, 1_000, 20, duplicates);
        recovery.repeated(&late)
    };
    assert_eq!(after(0, 3), Some(LossKind::FastRetransmit));
    assert_eq!(after(6, 5), Some(LossKind::Timeout));
    assert_eq!(after(6, 6), Some(LossKind::FastRetransmit));
}

#[test]
fn duplicates_after_a_timeout_do_not_count_before_new_data() {
    let silent = Repeat {
        sack_permitted: false,
        sacked: 0,
        since_sent: Some(Micros(300_000)),
        since_ack: Some(Micros(300_000)),
        ..repeat(1_000, 1_000, 100)
    };
    let mut recovery = Recovery::default();
    assert_eq!(recovery.repeated(&silent), Some(LossKind::Timeout));
    receive_duplicates(&mut recovery, 1_000, 19, 4);
    assert_eq!(recovery.duplicates, 0);
    receive_duplicates(&mut recovery, 1_000, 21, 4);
    assert_eq!(recovery.duplicates, 4);
    receive_duplicates(&mut recovery, 20_000, 2, 1);
    assert_eq!(recovery.duplicates, 0, "all that had been sent before is acknowledged");
}

#[test]
fn what_is_passed_over_changes_nothing() {
    let (mut passed, all) = (0, 3 << 5);
    for n in 0..all {
        let bit = |at: u32| n >> at & 1 == 1;
        let progress = Progress {
            una: 5_000,
            nxt: 9_000,
            answer_at: Timestamp(u64::MAX),
            kind: [AckKind::Advance, AckKind::Duplicate, AckKind::Other][n >> 5],
            original: bit(0),
            dsack: bit(0),
            echo: bit(1).then_some(7),
            ece: bit(2),
            lost: if bit(3) { 1_000 } else { 0 },
            repeated: 0,
            lost_again: bit(4),
            counted: None,
        };
        let mut recovery = Recovery::default();
        let turn = recovery.acknowledged(&progress);
        if changes_nothing(&progress) {
            passed += 1;
            assert_eq!(turn, Turn::default(), "{progress:?}");
            assert_eq!(format!("{recovery:?}"), format!("{:?}", Recovery::default()), "{progress:?}");
        }
    }
    assert_eq!(passed, all / 3, "of the three kinds two, and of those without losses half");
}
