use proptest::prelude::*;
use spand_proto::units::{Micros, Timestamp};

use super::*;

const LIMIT: usize = 1_000;

fn ms(n: u64) -> Timestamp {
    Timestamp(n * 1_000_000)
}

fn sent_at(at: u64) -> Stamp {
    Stamp { at: ms(at), ..Stamp::default() }
}

/// Ten segments of 100 bytes, sent 1 ms apart from 0 on.
fn ten_segments() -> Scoreboard {
    let mut board = Scoreboard::starting_at(0);
    for i in 0..10 {
        board.send(i * 100, (i + 1) * 100, sent_at(i), LIMIT);
    }
    board
}

#[test]
fn an_acknowledgement_of_a_segments_end_times_it() {
    let mut board = ten_segments();
    let first = board.acknowledge(100, ms(50), None);
    assert_eq!((first.advanced, first.rtt), (100, Some(Micros(50_000))));
    let two = board.acknowledge(300, ms(60), None);
    assert_eq!((two.advanced, two.rtt), (200, Some(Micros(58_000))));
    assert_eq!(two.arrived, Some(ms(2)));
    assert_eq!(board.acknowledge(300, ms(70), None).rtt, None, "a duplicate times nothing");
    let part = board.acknowledge(350, ms(80), None);
    assert_eq!(part.rtt, None, "inside a segment");
    assert_eq!(part.arrived, Some(ms(3)));
    assert_eq!(board.acknowledge(400, ms(90), None).rtt, None, "that segment was acknowledged in part");
    assert_eq!(board.acknowledge(500, ms(95), None).rtt, Some(Micros(91_000)));
}

#[test]
fn karns_rule_and_the_one_behind_it() {
    let mut board = ten_segments();
    board.send(0, 100, sent_at(40), LIMIT);
    assert_eq!(board.transmissions(0), Some((sent_at(40), 2)));
    let ack = board.acknowledge(100, ms(90), None);
    assert_eq!((ack.rtt, ack.ambiguous, ack.arrived, ack.repeated), (None, true, None, Some(sent_at(40))));
    let behind = board.acknowledge(500, ms(91), None);
    assert_eq!((behind.rtt, behind.ambiguous), (None, false), "sent before the retransmission it waited for");
    board.send(1_000, 1_100, sent_at(95), LIMIT);
    assert_eq!(board.acknowledge(1_100, ms(150), None).rtt, Some(Micros(55_000)), "sent after it");
}

#[test]
fn a_needless_retransmission_spoils_what_was_sent_before_it() {
    let mut board = ten_segments();
    board.acknowledge(500, ms(40), None);
    board.send(0, 100, sent_at(41), LIMIT);
    assert_eq!(board.acknowledge(600, ms(60), None).rtt, None);
    assert_eq!(board.pipe(), 400);
}

#[test]
fn the_pipe_follows_sack_loss_and_retransmission() {
    let mut board = ten_segments();
    assert_eq!(board.sack((300, 500), ms(90), None, LIMIT, &mut None), 200);
    board.mark_lost();
    assert_eq!((board.pipe(), board.repairs().lost), (800, 0), "two SACKed segments prove nothing");
    assert_eq!(board.sack((300, 600), ms(90), None, LIMIT, &mut None), 100);
    board.mark_lost();
    assert_eq!((board.pipe(), board.repairs().lost), (400, 300));
    board.send(0, 100, sent_at(50), LIMIT);
    assert_eq!(board.pipe(), 500);
    let ack = board.acknowledge(600, ms(90), None);
    assert_eq!(ack.sacked_before, 300);
    assert_eq!((board.pipe(), board.repairs().lost, board.sacked()), (400, 0, 0));
}

#[test]
fn a_sack_block_times_what_it_is_the_first_to_report_and_was_sent_once() {
    let mut board = ten_segments();
    board.send(300, 400, sent_at(50), LIMIT);
    let mut arrived = None;
    board.sack((300, 600), ms(90), None, LIMIT, &mut arrived);
    assert_eq!(arrived, Some(ms(5)), "not what was sent again");
    let mut arrived = None;
    board.sack((300, 800), ms(91), None, LIMIT, &mut arrived);
    assert_eq!(arrived, Some(ms(7)));
    board.forbid_timing(800, 900);
    let mut arrived = None;
    board.sack((800, 900), ms(92), None, LIMIT, &mut arrived);
    assert_eq!(arrived, None, "a probe of a closed window");
}

#[test]
fn a_timeout_leaves_only_what_is_sent_again() {
    let mut board = ten_segments();
    board.sack((900, 1_000), ms(90), None, LIMIT, &mut None);
    board.mark_all_lost();
    assert_eq!(board.pipe(), 0);
    board.send(0, 100, sent_at(300), LIMIT);
    assert_eq!(board.pipe(), 100);
}

#[test]
fn without_sack_duplicates_count_as_arrived() {
    let mut board = ten_segments();
    (0..4).for_each(|_| board.duplicate_arrived(100));
    board.mark_lost_below(100);
    assert_eq!(board.pipe(), 500, "four arrived and one is lost");
    board.send(0, 100, sent_at(50), LIMIT);
    board.acknowledge(300, ms(90), None);
    board.forget_duplicates(300, 100, true);
    assert_eq!((board.arrived(), board.pipe()), (200, 500), "the first filled a hole, two more had been counted");
    (0..20).for_each(|_| board.duplicate_arrived(100));
    assert_eq!(board.pipe(), 0, "no more arrive than are out");
    board.acknowledge(900, ms(95), None);
    board.forget_duplicates(600, 100, false);
    assert_eq!(board.pipe(), 100);
}

#[test]
fn bytes_never_seen_count_in_flight_and_are_never_timed() {
    let mut board = Scoreboard::starting_at(0);
    board.send(200, 300, sent_at(0), LIMIT);
    assert_eq!(board.pipe(), 300);
    board.send(0, 100, sent_at(5), LIMIT);
    assert_eq!(board.transmissions(0), Some((sent_at(5), 1)), "it fills what was not seen");
    assert_eq!(board.acknowledge(100, ms(9), None).rtt, Some(Micros(4_000)));
    assert_eq!(board.acknowledge(200, ms(9), None).rtt, None);
    assert_eq!(board.acknowledge(300, ms(9), None).rtt, None, "sent before the fill");
}

#[test]
fn at_the_limit_segments_merge_untimed() {
    let mut board = Scoreboard::starting_at(0);
    board.send(0, 100, sent_at(0), 1);
    assert!(board.send(100, 200, sent_at(1), 1));
    assert_eq!(board.segments.len(), 1);
    assert_eq!(board.acknowledge(200, ms(5), None), CumulativeAck { advanced: 200, ..CumulativeAck::default() });
}

#[derive(Clone, Debug)]
enum Step {
    Send(u64, u64),
    Ack(u64),
    Sack(u64, u64),
    MarkLost,
    Timeout,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u64..3_000, 1u64..300).prop_map(|(start, len)| Step::Send(start, start + len)),
        2 => (0u64..3_000).prop_map(Step::Ack),
        3 => (0u64..3_000, 1u64..600).prop_map(|(left, len)| Step::Sack(left, left + len)),
        1 => Just(Step::MarkLost),
        1 => Just(Step::Timeout),
    ]
}

proptest! {
    /// The running sums must be what a recount of the segments gives, whatever happens in whatever order.
    #[test]
    fn sums_agree_with_a_recount(steps in prop::collection::vec(step(), 1..120), limit in prop_oneof![1usize..40, Just(100_000)]) {
        let mut board = Scoreboard::starting_at(0);
        for (i, step) in steps.into_iter().enumerate() {
            match step {
                Step::Send(start, end) => { board.send(start, end, sent_at(i as u64), limit); }
                Step::Ack(ack) => { board.acknowledge(ack, ms(i as u64), None); }
                Step::Sack(left, right) => {
                    board.sack((left, right), ms(90), None, limit, &mut None);
                    let inside = |s: &&Outstanding| s.start >= left && s.end <= right;
                    let held = board.segments.iter().filter(inside).all(|s| s.marks.has(Mark::Sacked));
                    prop_assert!(held || limit < 40, "a block leaves nothing inside it unmarked");
                }
                Step::MarkLost => board.mark_lost(),
                Step::Timeout => board.mark_all_lost(),
            }
            let sum = |wanted: &dyn Fn(&Outstanding) -> bool| -> u64 {
                board.segments.iter().filter(|segment| wanted(segment)).map(Outstanding::len).sum()
            };
            prop_assert_eq!(board.repairs().sacked, sum(&|s| s.marks.has(Mark::Sacked)));
            prop_assert_eq!(board.repairs().lost, sum(&|s| s.marks.has(Mark::Lost) && !s.marks.has(Mark::Sacked)));
            prop_assert_eq!(board.repairs().retransmitted, sum(&|s| s.marks.has(Mark::Retransmitted)));
            prop_assert_eq!(board.flight(), sum(&|_| true), "every byte in flight belongs to one segment");
            let mut at = board.una;
            for segment in &board.segments {
                prop_assert_eq!(segment.start, at);
                at = segment.end;
            }
        }
    }
}
