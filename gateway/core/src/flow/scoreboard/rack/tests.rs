use proptest::prelude::*;

use super::*;
use crate::flow::scoreboard::Stamp;

const LIMIT: usize = 100;
const MIN_RTT: Option<Micros> = Some(Micros(40_000));

fn ms(n: u64) -> Timestamp {
    Timestamp((n + 1) * 1_000_000)
}

/// Segments of 100 bytes, sent at these times in milliseconds.
fn sent(times: &[u64]) -> Scoreboard {
    let mut board = Scoreboard::starting_at(0);
    for (n, at) in (0..).zip(times) {
        send(&mut board, n, *at);
    }
    board
}

fn send(board: &mut Scoreboard, n: u64, at: u64) {
    board.send(n * 100, n * 100 + 100, Stamp { at: ms(at), ..Stamp::default() }, LIMIT);
}

fn sack(board: &mut Scoreboard, n: u64, at: u64) {
    board.sack((n * 100, n * 100 + 100), ms(at), MIN_RTT, LIMIT, &mut None);
}

fn judge(board: &mut Scoreboard, at: u64, recovering: bool) {
    board.mark_lost_by_time(ms(at), &PathTimes { min_rtt: MIN_RTT, srtt: Some(Micros(50_000)), recovering });
}

#[test]
fn one_arrival_loses_what_was_sent_long_before_it() {
    let mut board = sent(&[0, 0, 0, 50]);
    sack(&mut board, 3, 100);
    judge(&mut board, 100, false);
    assert_eq!((board.repairs().lost, board.pipe()), (300, 0));
}

#[test]
fn what_was_sent_just_before_may_come_yet() {
    let mut board = sent(&[0, 11, 20]);
    sack(&mut board, 2, 60);
    judge(&mut board, 60, false);
    assert_eq!(board.repairs().lost, 100, "a quarter of the smallest round trip is waited for");
    judge(&mut board, 60, true);
    assert_eq!(board.repairs().lost, 200, "but not while a loss is being repaired");
}

#[test]
fn rack_uses_the_round_trip_of_the_segment_processed_last() {
    // The third, sent long after the first two, is SACKed when the first is acknowledged; then another block covers the fourth.
    let mut board = sent(&[0, 0, 30, 30]);
    board.acknowledge(100, ms(60), MIN_RTT);
    sack(&mut board, 2, 60);
    judge(&mut board, 60, false);
    assert_eq!(board.repairs().lost, 0, "60 ms for what is acknowledged, and a quarter of the smallest");
    board.acknowledge(100, ms(61), MIN_RTT);
    sack(&mut board, 3, 61);
    judge(&mut board, 61, false);
    assert_eq!(board.repairs().lost, 100, "31 ms for the block");
}

#[test]
fn a_packet_acknowledged_in_part_counts_as_a_whole() {
    // Two segments in one packet, and one sent later; the first is acknowledged, with a block of the last.
    let mut board = Scoreboard::starting_at(0);
    board.send(0, 200, Stamp { at: ms(0), ..Stamp::default() }, LIMIT);
    send(&mut board, 2, 15);
    board.acknowledge(100, ms(60), MIN_RTT);
    sack(&mut board, 2, 60);
    judge(&mut board, 60, false);
    assert_eq!(board.repairs().lost, 0, "60 ms for the packet, and a quarter of the smallest round trip");
    judge(&mut board, 70, false);
    assert_eq!(board.repairs().lost, 100);
}

#[test]
fn three_arrivals_end_the_wait_unless_the_path_reorders() {
    let arrive = |board: &mut Scoreboard| {
        for n in [2, 3, 4] {
            sack(board, n, 41 + n);
        }
        judge(board, 45, false);
    };
    let mut board = sent(&[0, 1, 2, 3, 4]);
    arrive(&mut board);
    assert_eq!(board.repairs().lost, 200);
    let mut board = sent(&[0, 1, 2, 3, 4]);
    sack(&mut board, 4, 44);
    arrive(&mut board);
    assert_eq!(board.repairs().lost, 0, "the last one came before two that were sent ahead of it");
}

#[test]
fn what_a_tap_shows_late_makes_nothing_lost() {
    let late = |by: u64| {
        let mut board = sent(&[0]);
        send(&mut board, 2, 1);
        send(&mut board, 1, 3);
        board.note_late(Micros(by));
        sack(&mut board, 1, 60);
        judge(&mut board, 60, true);
        board.repairs().lost
    };
    assert_eq!([late(0), late(2_000)], [200, 100], "the first one was sent longer before it than the tap is late");
    let mut board = sent(&[0]);
    send(&mut board, 0, 5);
    send(&mut board, 2, 10);
    board.acknowledge(100, ms(60), MIN_RTT);
    judge(&mut board, 60, true);
    assert_eq!(board.repairs().lost, 0, "what is not seen yet was sent just before what followed it");
}

#[test]
fn what_is_sent_again_can_be_lost_again() {
    let mut board = sent(&[0, 0, 50]);
    sack(&mut board, 2, 100);
    judge(&mut board, 100, false);
    send(&mut board, 0, 101);
    assert_eq!(board.pipe(), 100);
    send(&mut board, 3, 130);
    sack(&mut board, 3, 180);
    judge(&mut board, 180, true);
    assert_eq!((board.repairs().lost, board.repairs().retransmitted, board.pipe()), (200, 0, 0));
}

#[test]
fn a_tail_loss_probe_is_counted_once() {
    let mut board = sent(&[0, 0]);
    send(&mut board, 1, 100);
    assert_eq!(board.pipe(), 200);
}

proptest! {
    #[test]
    fn what_is_passed_over_would_not_have_been_lost(
        steps in prop::collection::vec((0..4_u8, 0..12_u64, 0..30_u64), 1..80),
    ) {
        let mut board = Scoreboard::starting_at(0);
        let (mut at, mut next) = (0, 0);
        for (what, n, wait) in steps {
            at += wait;
            match what {
                0 => {
                    send(&mut board, next, at);
                    next += 1;
                }
                1 if n < next => send(&mut board, n, at),
                2 if n < next => sack(&mut board, n, at),
                _ => {
                    board.acknowledge(board.una().max(n.min(next) * 100), ms(at), MIN_RTT);
                }
            }
            let mut whole = board.clone();
            whole.settled_to = 0;
            whole.repairs_mut().repeats_unsettled_since = Timestamp(0);
            judge(&mut board, at, n % 2 == 0);
            judge(&mut whole, at, n % 2 == 0);
            prop_assert_eq!((board.repairs().lost, board.repairs().retransmitted), (whole.repairs().lost, whole.repairs().retransmitted));
        }
    }
}
