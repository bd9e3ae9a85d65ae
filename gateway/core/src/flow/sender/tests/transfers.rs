//! Handshakes, round trips, windows and the ends of transfers.

use super::*;
use crate::flow::shadow::flavour::{Flavour, Vote};
use crate::types::Phase;

#[test]
fn the_handshake_is_timed_for_the_network_with_the_first_data() {
    let mut script = Script::new();
    script.send(100, 0..1);
    assert_eq!(script.sender.followed.as_deref().unwrap().pending_stats.rtts(), RttSum::of(Micros(100_000)));
}

#[test]
fn the_byte_of_the_syn_opens_no_window() {
    let mut script = Script::new();
    let host = script.segment(0).source.address;
    let bbr_vote = Vote { reno: 0, bbr: Vote::WHOLE };
    (0..3).for_each(|_| assert_eq!(script.hosts.vote(host, Vote::default(), bbr_vote), 0));
    // Without the MSS option segments are of 536 bytes (RFC 9293 section 3.7.1), twelve of them timestamps.
    let mut data = script.segment(100);
    data.payload_len = 524;
    script.take_sent(&data);
    let mut ack = script.segment(200);
    (ack.payload_len, ack.ack) = (0, Some(1_000 + 524));
    script.take_ack(&ack);
    let shadow = &script.sender.followed.as_deref().unwrap().shadow;
    assert_eq!((shadow.flavour(), shadow.window().unwrap().segments(Bytes(524)).0), (Flavour::Bbr, 11));
}

#[test]
fn a_second_copy_by_the_mirror_port_is_no_retransmission() {
    let mut script = Script::new();
    script.send(100, 0..2);
    let mut copy = script.segment(100);
    copy.seq = 1_000;
    copy.ip_id = Some(1);
    copy.at = at(101);
    assert!(script.sender.is_copy(&copy), "same identification and timestamp");
    copy.at = at(160);
    assert!(!script.sender.is_copy(&copy), "too late for a copy");
    copy.at = at(101);
    copy.ip_id = Some(9);
    assert!(!script.sender.is_copy(&copy), "another packet");
}

#[test]
fn probes_of_a_closed_window_and_keep_alives_are_no_losses() {
    let mut script = Script::new();
    script.send(100, 0..1);
    let mut closed = script.segment(200);
    (closed.payload_len, closed.ack, closed.window) = (0, Some(1_000 + MSS), 0);
    script.take_ack(&closed);
    for ms in [500, 1_100, 2_300] {
        let mut probe = script.segment(ms);
        (probe.seq, probe.payload_len) = (1_000 + MSS, 1);
        script.take_sent(&probe);
    }
    let before = script.rtts();
    (closed.at, closed.ack, closed.window) = (at(2_900), Some(1_001 + MSS), 60_000);
    script.take_ack(&closed);
    assert_eq!(script.rtts(), before, "a probe is not timed");
    let mut keep_alive = script.segment(9_000);
    (keep_alive.seq, keep_alive.payload_len) = (1_000 + MSS, 1);
    script.take_sent(&keep_alive);
    assert_eq!(script.losses(), (0, 0));
}

#[test]
fn data_beyond_any_announced_window_is_kept_from_the_replica() {
    let mut script = Script::new();
    script.send(200, 0..4);
    let mut damaged = script.segment(201);
    damaged.seq = damaged.seq.wrapping_add(1 << 30);
    damaged.ip_id = Some(9_999);
    script.take_sent(&damaged);
    assert_eq!(script.sender.board.flight(), u64::from(4 * MSS));
    assert_eq!(script.counters.ignored(Ignored::BeyondWindow), 1);
    script.send(202, 4..6);
    assert_eq!(script.sender.board.flight(), u64::from(6 * MSS), "the stream goes on where it was");
}

#[test]
fn a_handshake_repeated_twice_leaves_a_window_of_one() {
    let window = |repeats: u64| {
        let mut script = Script::new();
        for n in 1..=repeats {
            script.ip_id += 1;
            let mut syn = script.segment(n);
            (syn.flags, syn.seq, syn.payload_len) = (Flags(Flags::SYN), 999, 0);
            script.take_sent(&syn);
        }
        script.send(200, 0..1);
        script.sender.replica().and_then(Shadow::window).map(Window::bytes)
    };
    // Without the option the segment size is 524, so each segment here is two packets.
    assert_eq!((window(0), window(1), window(2)), (Some(5_240.0), Some(5_240.0), Some(1_048.0)));
}

#[test]
fn an_overtaken_acknowledgement_announces_no_window() {
    let mut script = Script::new();
    script.send(200, 0..10);
    script.ack(300, 6);
    let mut late = script.segment(301);
    (late.payload_len, late.ack, late.window) = (0, Some(1_000 + 2 * MSS), 0);
    script.take_ack(&late);
    assert_eq!(script.sender.peer_window_bytes(), Some(60_000));
    (late.ack, late.window) = (Some(1_000 + 6 * MSS), 500);
    script.take_ack(&late);
    assert_eq!(script.sender.peer_window_bytes(), Some(500), "one for the same segment is an update");
}

#[test]
fn acknowledgements_of_what_was_not_sent_open_no_window() {
    let mut script = Script::new();
    script.send(200, 0..10);
    let mut optimistic = script.segment(250);
    optimistic.payload_len = 0;
    optimistic.ack = Some(1_000 + (1 << 29));
    script.take_ack(&optimistic);
    assert_eq!(script.counters.ignored(Ignored::BeyondWindow), 1);
    assert_eq!(script.sender.board.flight(), u64::from(10 * MSS), "it acknowledges nothing");
    // Inside the window it may be a gap in the capture: taken as acknowledged, but not as delivered.
    let before = script.sender.delivered;
    script.ack(300, 40);
    assert_eq!(script.sender.board.flight(), 0);
    assert_eq!(script.sender.delivered - before, u64::from(10 * MSS));
}

#[test]
fn times_that_make_no_round_trip_give_none() {
    let mut script = Script::new();
    script.send(1_000, 0..1);
    let before = script.rtts();
    script.ack_with(900, 1, &[], 0);
    script.send(2_000, 1..2);
    script.ack_with(200_000, 2, &[], 0);
    assert_eq!(script.rtts(), before);
    assert_eq!(script.counters.ignored(Ignored::Mistimed), 2);
}

#[test]
fn data_after_silence_is_a_new_transfer_without_the_timer() {
    let mut script = Script::new();
    script.send(200, 0..2);
    script.ack(300, 2);
    let deadline = script.sender.silence_ends_at().unwrap();
    assert!(script.is_under_way(Timestamp(deadline.0 - 1)), "not a nanosecond early");
    assert!(!script.is_under_way(deadline));
}

#[test]
fn a_fin_makes_no_flight_larger_than_the_window() {
    let mut script = Script::new();
    script.send(100, 0..9);
    let mut last = script.segment(100);
    last.seq = 1_000 + 9 * MSS;
    last.flags = Flags(Flags::ACK | Flags::FIN);
    script.take_sent(&last);
    let window = script.sender.replica().and_then(Shadow::window);
    assert_eq!(window.map(|window| window.segments(Bytes(u64::from(MSS))).0), Some(10));
}

#[test]
fn the_round_trip_is_smoothed_as_its_sender_does() {
    let mut script = Script::new();
    let smoothed = |script: &Script| script.sender.replica().and_then(Shadow::srtt);
    script.send(200, 0..5);
    assert_eq!(smoothed(&script), Some(Micros(100_000)), "the handshake's");
    script.ack_with(380, 0, &[(1, 3)], 0);
    assert_eq!(smoothed(&script), Some(Micros(110_000)), "a SACK block, (7 * 100 + 180) / 8 ms");
    script.ack_with(390, 0, &[(1, 3)], 0);
    assert_eq!(smoothed(&script), Some(Micros(110_000)), "nothing new in it");
    // More timestamps than are kept until their echo.
    (5..15).for_each(|n| script.send(u64::from(n) + 391, n..n + 1));
    script.send(420, 0..1);
    script.ack_with(610, 3, &[], 420);
    assert_eq!(smoothed(&script), Some(Micros(120_000)), "the echo of what was sent again, (7 * 110 + 190) / 8 ms");
}

/// Every connection has this struct, so its size decides the cache misses. What few connections need is allocated on demand.
#[test]
fn a_sender_takes_no_more_room_than_was_settled() {
    let sizes = [size_of::<Sender>(), size_of::<TrackedSender>()];
    assert!(sizes <= [400, 760] && sizes.iter().sum::<usize>() <= 1_160, "{sizes:?}");
}

/// Times in ms and states: phase, window and threshold in segments, segments that arrived.
fn states(script: &Script) -> Vec<(Phase, f64, Option<f64>, u64)> {
    let one = |state: &SenderState| {
        let segments = |window: Window| window.segments_f64(state.mss).round();
        let arrived = state.delivered_bytes / u64::from(MSS);
        (state.phase, segments(state.window), state.ssthresh.map(segments), arrived)
    };
    script.recorder.states.iter().map(one).collect()
}

#[test]
fn a_sender_under_way_is_reported_at_its_begin_each_round_trip_at_losses_and_until_it_ends() {
    let mut script = Script::new();
    script.send(100, 0..10);
    assert_eq!(states(&script), [(Phase::SlowStart, 10.0, None, 0)], "with the first segment");
    for n in 1..=5 {
        script.ack(200 + u64::from(n), 2 * n);
    }
    script.send(210, 10..30);
    assert_eq!(states(&script).len(), 3, "with the first acknowledgement, and with that of all");
    script.ack(310, 20);
    let later = *states(&script).last().unwrap();
    assert!(matches!(later, (Phase::SlowStart, 20.0.., None, 20)), "a round trip later: {later:?}");
    script.ack_with(311, 20, &[(21, 30)], 210);
    script.send(312, 20..21);
    let lost = states(&script);
    assert_eq!(lost.last().map(|(phase, ..)| *phase), Some(Phase::Recovery));
    assert!(lost.last().unwrap().2.is_some(), "a loss sets a threshold");
    script.ack(412, 30);
    let repaired = states(&script);
    assert_eq!(repaired.last().map(|(phase, ..)| *phase), Some(Phase::CongestionAvoidance));
    assert_eq!(script.recorder.ends, 0);
    let reported = script.recorder.states.len();
    assert!(!script.is_under_way(at(2_000)));
    assert_eq!((script.recorder.ends, script.recorder.states.len()), (1, reported));
}

#[test]
fn nothing_is_reported_where_no_rule_looks_at_it() {
    let mut script = Script::new();
    script.recorder.without_live = true;
    script.send(100, 0..10);
    script.ack(200, 10);
    script.send(210, 10..20);
    script.ack_with(310, 10, &[(11, 20)], 210);
    script.send(311, 10..11);
    assert!(script.losses().0 > 0 && script.recorder.states.is_empty());
}

#[test]
fn what_transfers_delivered_is_flushed_without_the_silence_between_them() {
    let mut script = Script::new();
    script.send(100, 0..4);
    script.ack(200, 4);
    script.is_under_way(at(5_000));
    script.send(9_000, 4..6);
    script.ack(9_100, 6);
    script.is_under_way(at(20_000));
    let bytes: Vec<u64> = script.recorder.delivered.iter().map(|delivered| delivered.bytes / u64::from(MSS)).collect();
    let since: Vec<Timestamp> = script.recorder.delivered.iter().map(|delivered| delivered.since).collect();
    assert_eq!((bytes, since), (vec![4, 2], vec![at(100), at(9_000)]));
}

// Losses, timeouts, probes and ECN echoes, and segments that resemble them.

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
    assert_eq!(script.losses(), (2, 0), "after a quarter of a round trip it is lost: no timeout");
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
    // Something was acknowledged since: the next timeout is a new reduction, after the recovery.
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
    assert_eq!(losses(Ecn::NotEct, None), ((0, 0), (0, 0)), "a sender without ECN ignores echoes");
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
    // Of five segments these are lost, so three cannot have arrived.
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
        .recorder
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
