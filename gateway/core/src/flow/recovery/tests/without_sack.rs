//! Senders without SACK: all that they know they count.

use super::*;

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
fn without_sack_what_answers_no_acknowledgement_is_the_timer_s() {
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
    assert_eq!(begun(false, 10, false), Some(LossKind::FastRetransmit), "the fifth duplicate asked for it");
    let waited = begun(false, 70_000, false);
    assert_eq!(waited, Some(LossKind::Timeout), "a sender that has seen reordering waits for more of them");
    assert_eq!(begun(false, 70_000, true), Some(LossKind::FastRetransmit), "what was asked for waits for its pace");
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

/// A sender without SACK that has `outstanding` segments of 1,000 bytes from `una` on hears duplicates.
fn hear_duplicates(recovery: &mut Recovery, una: u64, outstanding: u16, duplicates: usize) {
    let counted = Some(Counted { outstanding, lost: 0, acked: 0 });
    let nxt = una + 1_000 * u64::from(outstanding);
    for _ in 0..duplicates {
        recovery.acknowledged(&Progress { kind: AckKind::Duplicate, nxt, echo: None, counted, ..advance(una, 0) });
    }
}

#[test]
fn what_duplicates_told_of_begins_a_repair_anew_where_a_part_of_it_was_needless() {
    let plain = |start: u64| Repeat { sack_permitted: false, sacked: 0, ..repeat(start, start, 100) };
    let partly = |recovery: &mut Recovery, echo: u32| {
        let counted = Some(Counted { outstanding: 18, lost: 0, acked: 1 });
        recovery.acknowledged(&Progress { counted, ..advance(2_000, echo) })
    };
    let mut recovery = Recovery::default();
    hear_duplicates(&mut recovery, 1_000, 19, 11);
    assert_eq!(recovery.repeated(&plain(1_000)), Some(LossKind::FastRetransmit));
    assert!(partly(&mut recovery, 90).undone, "the original had arrived");
    assert_eq!(recovery.repeated(&plain(2_000)), Some(LossKind::FastRetransmit), "eleven more arrived above");

    hear_duplicates(&mut recovery, 2_000, 18, 1);
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
    let heard = |reordering: u16, duplicates: usize| {
        let mut recovery = Recovery::default();
        hear_duplicates(&mut recovery, 1_000, reordering, usize::from(reordering));
        let counted = Some(Counted { outstanding: 0, lost: 0, acked: reordering });
        recovery.acknowledged(&Progress { counted, ..advance(1_000, 0) });
        hear_duplicates(&mut recovery, 1_000, 20, duplicates);
        recovery.repeated(&late)
    };
    assert_eq!(heard(0, 3), Some(LossKind::FastRetransmit));
    assert_eq!(heard(6, 5), Some(LossKind::Timeout));
    assert_eq!(heard(6, 6), Some(LossKind::FastRetransmit));
}

#[test]
fn duplicates_after_a_timeout_tell_of_nothing_before_something_new_was_sent() {
    let silent = Repeat {
        sack_permitted: false,
        sacked: 0,
        since_sent: Some(Micros(300_000)),
        since_ack: Some(Micros(300_000)),
        ..repeat(1_000, 1_000, 100)
    };
    let mut recovery = Recovery::default();
    assert_eq!(recovery.repeated(&silent), Some(LossKind::Timeout));
    hear_duplicates(&mut recovery, 1_000, 19, 4);
    assert_eq!(recovery.duplicates, 0);
    hear_duplicates(&mut recovery, 1_000, 21, 4);
    assert_eq!(recovery.duplicates, 4);
    hear_duplicates(&mut recovery, 20_000, 2, 1);
    assert_eq!(recovery.duplicates, 0, "all that had been sent before is acknowledged");
}
