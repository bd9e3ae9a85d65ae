//! Losses, timeouts, probes and marks, and what is none of them.

use super::*;
use crate::flow::sample::Phase;

#[test]
fn one_window_of_losses_is_one_event() {
    let mut script = Script::new();
    script.send(100, 0..10);
    for right in 4..=6 {
        script.ack_with(200, 0, &[(3, right)], 100);
    }
    script.send(201, 0..2);
    assert_eq!(script.losses(), (1, 0));
    script.ack_with(301, 2, &[(3, 10)], 201);
    script.send(302, 2..3);
    assert!(script.sender.recovery.is_active());
    script.ack_with(402, 10, &[], 302);
    assert!(!script.sender.recovery.is_active());
    assert_eq!(script.losses(), (1, 0), "three losses, one window");
    script.send(403, 10..20);
    for right in 12..=14 {
        script.ack_with(503, 10, &[(11, right)], 403);
    }
    script.send(504, 10..11);
    assert_eq!(script.losses(), (2, 0), "the next window has its own");
}

#[test]
fn an_acknowledgement_that_ends_a_recovery_leaves_what_is_above_it_to_a_timer() {
    let mut script = Script::new();
    script.send(100, 0..4);
    script.ack_with(200, 0, &[(1, 4)], 100);
    script.send(201, 4..6);
    script.send(202, 0..1);
    script.ack_with(302, 4, &[], 202);
    assert!(!script.sender.recovery.is_due());
    assert_eq!(script.sender.board.lost_and_repeated(), (0, 0), "sent 1 ms before what arrived: it may come yet");
    script.send(330, 4..5);
    assert_eq!(script.losses(), (2, 0), "after a quarter of a round trip it is given up: no timeout");
}

#[test]
fn silence_before_a_retransmission_is_a_timeout_and_so_is_each_further_one() {
    let mut script = Script::new();
    script.send(100, 0..4);
    script.send(500, 0..1);
    assert_eq!(script.losses(), (1, 1));
    script.send(1_300, 0..1);
    assert_eq!(script.losses(), (2, 2));
    script.ack(1_400, 1);
    script.send(1_401, 1..3);
    assert_eq!(script.losses(), (2, 2), "what it repeats after that belongs to it");
}

#[test]
fn after_a_timeout_the_loss_of_a_repeat_is_one_of_its_own() {
    let mut script = Script::new();
    script.send(100, 0..10);
    script.send(500, 0..1);
    script.ack(600, 1);
    script.send(601, 1..3);
    assert_eq!(script.losses(), (1, 1));
    script.ack_with(701, 1, &[(2, 3)], 601);
    assert_eq!(script.losses(), (2, 1), "what was sent with it has arrived");
    assert_eq!(script.sender.replica().map(Shadow::phase), Some(Phase::Recovery));
    script.send(702, 1..2);
    script.ack_with(802, 3, &[], 702);
    script.send(803, 3..4);
    assert_eq!(script.losses(), (2, 1), "it is repeated for that");
    // Something was acknowledged since: the next timeout reduces anew, where recovery is over.
    script.send(1_500, 3..4);
    assert_eq!(script.losses(), (3, 2));
}

#[test]
fn a_tail_probe_is_no_loss_until_later_data_is_acknowledged_without_a_dsack() {
    let mut script = Script::new();
    script.send(100, 0..4);
    script.ack(200, 3);
    script.send(400, 3..4);
    script.ack(500, 4);
    assert_eq!(script.losses(), (0, 0));
    script.send(501, 4..6);
    script.ack(601, 6);
    assert_eq!(script.losses(), (1, 0));
}

#[test]
fn a_sack_block_that_finds_no_room_on_the_scoreboard_is_counted() {
    let mut script = Script::new();
    script.limits.outstanding_segments = std::num::NonZeroU32::new(2).unwrap();
    script.send(100, 0..4);
    assert_eq!(script.counters.ignored(Ignored::Inexact), 2, "two of four were merged");
    script.ack_with(200, 0, &[(2, 3)], 100);
    assert_eq!(script.sender.board.sacked(), 0);
    assert_eq!(script.counters.ignored(Ignored::Inexact), 4, "either end of the block lies inside a merged segment");
    script.send(300, 2..3);
    assert_eq!(script.counters.ignored(Ignored::Inexact), 6, "and of the repeat");
}

#[test]
fn a_tail_probe_answered_by_a_dsack_was_needless() {
    let mut script = Script::new();
    script.send(100, 0..4);
    script.ack(200, 3);
    script.send(400, 3..4);
    script.ack_with(401, 4, &[], 100);
    script.ack_with(500, 4, &[(3, 4)], 100);
    script.send(501, 4..6);
    script.ack(601, 6);
    assert_eq!(script.losses(), (0, 0));
}

#[test]
fn an_echo_of_the_original_takes_a_timeout_back() {
    let mut script = Script::new();
    script.send(100, 0..4);
    script.send(500, 0..1);
    assert!(script.sender.recovery.is_active());
    script.ack_with(510, 4, &[], 100);
    assert!(!script.sender.recovery.is_active());
    assert_eq!(script.sender.board.pipe(), 0);
    assert_eq!(script.losses(), (1, 1));
}

#[test]
fn what_was_only_overtaken_is_no_loss() {
    let mut script = Script::new();
    script.send(100, 0..2);
    script.ack(150, 1);
    script.send(160, 4..8);
    script.ack_with(260, 2, &[(4, 8)], 160);
    let mut late = script.segment(161);
    late.at = at(262);
    late.seq = 1_000 + 2 * MSS;
    late.options.timestamps = Some(Timestamps { value: 159, echo: 0 });
    script.take_sent(&late);
    assert_eq!(script.losses(), (0, 0));
    script.send(263, 3..4);
    assert_eq!(script.losses(), (1, 0), "sent after what came ahead of it: lost before the tap");
}

#[test]
fn one_congestion_echo_per_window_counts() {
    let losses = |ecn: Ecn, cwr_at: Option<u32>| {
        let mut script = Script::new();
        script.ecn = ecn;
        script.send(100, 0..4);
        script.echo(200, 1);
        let first = script.losses();
        script.echo(201, 2);
        script.echo(202, 4);
        assert_eq!(script.losses(), first, "the echo is about the same window");
        script.send(203, 4..6);
        if let Some(n) = cwr_at {
            let mut reduced = script.segment(203);
            (reduced.seq, reduced.flags) = (1_000 + n * MSS, Flags(Flags::ACK | Flags::CWR));
            script.take_sent(&reduced);
        }
        script.echo(303, 5);
        (first, script.losses())
    };
    assert_eq!(losses(Ecn::Ect0, None), ((1, 0), (2, 0)), "nothing needs to be sent for it");
    assert_eq!(
        losses(Ecn::Ect0, Some(6)),
        ((1, 0), (1, 0)),
        "the sender had sent so far when the first echo reached it"
    );
    assert_eq!(losses(Ecn::NotEct, None), ((0, 0), (0, 0)), "a sender without ECN heeds no echo");
}

#[test]
fn duplicates_that_leave_no_room_for_what_was_lost_deliver_nothing() {
    let mut script = Script::new();
    script.sender.sack_agreed = false;
    script.send(100, 0..5);
    for ms in 201..=203 {
        script.ack(ms, 0);
    }
    let delivered = script.sender.delivered;
    // Of five segments these are lost, so that no three can have arrived.
    script.send(204, 0..4);
    script.ack(205, 0);
    assert_eq!(script.sender.delivered, delivered);
}

/// Samples of an advised first flight of `segments`, of which number `lost` and those from `lost_from` on are lost and repaired.
fn first_flight(segments: u32, lost: u32, lost_from: u32, midstream: bool) -> Vec<(SampleReason, f64)> {
    let mut script = Script::new();
    script.sender.midstream = midstream;
    let address = script.segment(0).source.address;
    script.ledger = PushLedger::new(1);
    script.ledger.note(address, address, at(99));
    script.send(100, 0..segments);
    script.ack(200, lost);
    for right in lost + 2..=lost_from {
        script.ack_with(201, lost, &[(lost + 1, right)], 100);
    }
    script.send(202, lost..lost + 1);
    script.ack_with(302, lost_from, &[], 202);
    script.send(303, lost_from..segments + 1);
    script.ack_with(403, segments + 1, &[], 303);
    script
        .heard
        .samples
        .iter()
        .map(|sample| (sample.reason, sample.window.segments_f64(Bytes(MSS.into())).round()))
        .collect()
}

#[test]
fn a_lost_first_flight_beyond_the_initial_window_gives_what_of_it_arrived() {
    assert_eq!(first_flight(30, 4, 20, false), [(SampleReason::FirstFlight, 19.0)]);
    assert_eq!(first_flight(5, 0, 5, false), [], "the usual initial window of the smallest segments: slow start");
}

#[test]
fn a_midstream_sender_without_a_name_gives_no_sample() {
    assert_eq!(first_flight(30, 4, 20, true), []);
}
