//! Handshakes, round trips, windows and the ends of transfers.

use super::*;
use crate::flow::sample::Phase;
use crate::flow::shadow::flavour::{Flavour, Vote};

#[test]
fn the_handshake_is_timed_for_the_network_with_the_first_data() {
    let mut script = Script::new();
    script.send(100, 0..1);
    assert_eq!(script.sender.followed.as_deref().unwrap().pending_stats.rtts(), RttSum::of(Micros(100_000)));
}

#[test]
fn the_octet_of_the_handshake_opens_no_window() {
    let mut script = Script::new();
    let host = script.segment(0).source.address;
    let says_bbr = Vote { reno: 0, bbr: Vote::WHOLE };
    (0..3).for_each(|_| assert_eq!(script.hosts.vote(host, Vote::default(), says_bbr), 0));
    // Without an option, segments are of 536 octets (RFC 9293 section 3.7.1), twelve of them timestamps.
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
    // Without the option the segment size is 524, and what is sent makes two packets.
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
    assert_eq!(script.sender.board.flight(), u64::from(10 * MSS), "nonsense acknowledges nothing");
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
fn data_after_silence_is_a_new_transfer_though_no_timer_told() {
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
    // More timestamps than wait for their echo at a time.
    (5..15).for_each(|n| script.send(u64::from(n) + 391, n..n + 1));
    script.send(420, 0..1);
    script.ack_with(610, 3, &[], 420);
    assert_eq!(smoothed(&script), Some(Micros(120_000)), "the echo of what was sent again, (7 * 110 + 190) / 8 ms");
}

/// What every connection holds is what the cache misses are made of. What few connections need is made when it is needed.
#[test]
fn a_sender_takes_no_more_room_than_was_settled() {
    let sizes = [size_of::<Sender>(), size_of::<TrackedSender>()];
    assert!(sizes <= [400, 680] && sizes.iter().sum::<usize>() <= 1_080, "{sizes:?}");
}

/// Times in ms and states: phase, window and threshold in segments, segments that arrived.
fn states(script: &Script) -> Vec<(Phase, f64, Option<f64>, u64)> {
    let one = |state: &SenderState| {
        let segments = |window: Window| window.segments_f64(state.mss).round();
        let arrived = state.delivered_bytes / u64::from(MSS);
        (state.phase, segments(state.window), state.ssthresh.map(segments), arrived)
    };
    script.heard.states.iter().map(one).collect()
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
    assert_eq!(script.heard.ends, 0);
    let reported = script.heard.states.len();
    assert!(!script.is_under_way(at(2_000)));
    assert_eq!((script.heard.ends, script.heard.states.len()), (1, reported));
}

#[test]
fn nothing_is_reported_where_no_rule_looks_at_it() {
    let mut script = Script::new();
    script.heard.without_live = true;
    script.send(100, 0..10);
    script.ack(200, 10);
    script.send(210, 10..20);
    script.ack_with(310, 10, &[(11, 20)], 210);
    script.send(311, 10..11);
    assert!(script.losses().0 > 0 && script.heard.states.is_empty());
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
    let bytes: Vec<u64> = script.heard.delivered.iter().map(|delivered| delivered.bytes / u64::from(MSS)).collect();
    let since: Vec<Timestamp> = script.heard.delivered.iter().map(|delivered| delivered.since).collect();
    assert_eq!((bytes, since), (vec![4, 2], vec![at(100), at(9_000)]));
}
