//! Single rules of the sender's kernel that the replica follows.

use super::*;

#[test]
fn hystart_hears_selective_acknowledgements_while_a_loss_is_repaired() {
    let left_with = |rtt: Micros| {
        let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
        rounds(&mut shadow, &mut at, &mut delivered, &[10, 20, 40]);
        for n in 1..=80 {
            let sent = Sent { new_bytes: 1_000, full_sized: true, pipe: n * MSS, flight: n * MSS, ..Sent::default() };
            shadow.on_sent(at, &sent);
        }
        let _sample = shadow.on_loss(at, LossKind::FastRetransmit, 80 * MSS, 80 * MSS);
        for _ in 0..12 {
            (at, delivered) = (at.after(Micros(3_000)), delivered + MSS);
            let sacked =
                Acked { acked_bytes: 0, pipe: 43 * MSS, flight: 79 * MSS, rtt: Some(rtt), ..acked(0, delivered) };
            shadow.on_ack(at, &sacked);
            let (pipe, flight) = (44 * MSS, 79 * MSS);
            shadow.on_sent(at, &Sent { retransmitted_bytes: 1_000, full_sized: true, pipe, flight, ..Sent::default() });
        }
        shadow.on_recovery_end(at, 0);
        shadow.cubic.cwnd.whole()
    };
    assert_eq!(left_with(RTT), 56);
    assert_eq!(
        left_with(Micros(200_000)),
        44,
        "the window then was below the threshold: slow start, and it ends there"
    );
}

/// A transfer of 21 segments seen 5 ms from its sender, up to its last segment: two for each acknowledgement, until none is
/// left, when the sender has heard of six and the tap of ten.
fn far_transfer(peer_window: u64) -> Shadow {
    let mut shadow = opened();
    shadow.on_reaction(Micros(10_000));
    let mut at = Timestamp(0);
    let full = Sent {
        new_bytes: 1_000,
        full_sized: true,
        since_ack: Some(Micros(10)),
        peer_window: Some(peer_window),
        ..Sent::default()
    };
    for n in 1..=10 {
        shadow.on_sent(at, &Sent { pipe: n * MSS, flight: n * MSS, ..full });
    }
    for n in 1..=10 {
        at = at.after(if n == 1 { RTT } else { Micros(200) });
        let flight = (10 - n) * MSS;
        shadow.on_ack(at, &Acked { pipe: flight, flight, ..acked(MSS, n * MSS) });
    }
    let first_answer = Timestamp(0).after(RTT).after(Micros(10_000));
    for n in 1..=11 {
        at = first_answer.after(Micros((n - 1) / 2 * 200));
        shadow.on_sent(at, &Sent { pipe: n * MSS, flight: n * MSS, ..full });
    }
    shadow
}

#[test]
fn a_far_senders_last_flight_ends_with_the_window_that_it_had_then() {
    let end = far_transfer(1_000_000).on_transfer_end(Timestamp(0)).unwrap();
    assert_eq!((end.reason, end.window.segments(Bytes(MSS)).0), (SampleReason::EndSlowStart, 15));
}

#[test]
fn a_far_senders_peer_is_full_by_what_it_had_heard() {
    // Eleven outstanding at the tap, and four that its sender had not heard of.
    assert!(far_transfer(16 * MSS).rounds.current.receiver_full);
    assert!(!far_transfer(17 * MSS).rounds.current.receiver_full);
}

#[test]
fn in_recovery_a_sender_stops_at_its_own_window() {
    // From 80 segments Reno goes down to 40 and CUBIC to 56. `kept`: segments of every ten that arrive.
    let named = |kept: u64| {
        let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
        rounds(&mut shadow, &mut at, &mut delivered, &[10, 20, 40]);
        for n in 1..=80 {
            let sent = Sent { new_bytes: 1_000, full_sized: true, pipe: n * MSS, flight: n * MSS, ..Sent::default() };
            shadow.on_sent(at, &sent);
        }
        let _sample = shadow.on_loss(at, LossKind::FastRetransmit, 80 * MSS, 80 * MSS);
        let (mut pipe, mut sent) = (79, 1);
        let repeat = |shadow: &mut Shadow, pipe: u64| {
            let (pipe, flight) = (pipe * MSS, 80 * MSS);
            shadow.on_sent(at, &Sent { retransmitted_bytes: 1_000, full_sized: true, pipe, flight, ..Sent::default() });
        };
        repeat(&mut shadow, pipe);
        for n in 1..=50u64 {
            delivered += MSS;
            pipe -= 1;
            shadow.on_ack(at, &Acked { pipe: pipe * MSS, flight: 80 * MSS, ..acked(0, delivered) });
            if sent < ((n + 1) * kept).div_ceil(10) {
                (pipe, sent) = (pipe + 1, sent + 1);
                repeat(&mut shadow, pipe);
            }
        }
        shadow.leaning()
    };
    let (reno, cubic) = (named(5), named(7));
    assert!(reno.is_towards_reno() && !cubic.is_towards_reno(), "{reno:?} {cubic:?}");
}
