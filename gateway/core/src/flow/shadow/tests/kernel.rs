//! Single rules of the kernel that the replica follows.

use proptest::prelude::*;
use spand_proto::units::{Bytes, Micros, Timestamp};

use super::super::Shadow;
use super::super::flavour::Flavour;
use super::super::observation::{Acked, LossKind, Newest, Sent};
use super::path::{Demand, Path};
use super::*;

#[test]
fn hystart_uses_selective_acknowledgements_in_recovery() {
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

/// A transfer of 21 segments seen 5 ms from its sender, up to its last segment: two per acknowledgement, until none is
/// left, when six are acknowledged at the sender and ten at the tap.
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
fn a_far_senders_peer_window_is_full_by_the_acknowledgements_received() {
    // Eleven outstanding at the tap, and four more at its sender.
    assert!(far_transfer(16 * MSS).rounds.current.receiver_full);
    assert!(!far_transfer(17 * MSS).rounds.current.receiver_full);
}

#[test]
fn in_recovery_a_sender_stops_at_its_own_window() {
    // From 80 segments Reno reduces to 40 and CUBIC to 56. `kept`: segments of every ten that are delivered.
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

// Any input in any order: no panic, and a finite window.

#[derive(Clone, Debug)]
enum Input {
    Open(u64),
    Sent(Sent),
    Acked(Acked),
    Loss(LossKind, u64),
    RecoveryEnd,
    Undo,
    TransferEnd,
}

/// Mostly plausible, at times anything.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..200_000u64, 1 => any::<u64>(), 1 => Just(0)]
}

fn time() -> impl Strategy<Value = Option<Micros>> {
    prop::option::of(number().prop_map(Micros))
}

fn sent() -> impl Strategy<Value = Input> {
    (any::<(u32, u32, bool, bool, bool)>(), number(), number(), prop::option::of(number()), time(), 0..3u8).prop_map(
        |((new, again, full_sized, more, repeats_wait), pipe, flight, peer_window, since_ack, kind)| {
            let new_bytes = if kind == 0 { new } else { 1_000 };
            let retransmitted_bytes = if kind == 2 { again } else { 0 };
            let sent = Sent {
                advised: false,
                new_bytes,
                retransmitted_bytes,
                full_sized,
                more,
                repeats_wait,
                pipe,
                flight,
                peer_window,
                since_ack,
                since_oldest: since_ack,
                stamp: Some(again),
            };
            Input::Sent(sent)
        },
    )
}

fn any_acknowledgement() -> impl Strategy<Value = Input> {
    (number(), number(), number(), time(), number()).prop_map(|(acked_bytes, pipe, flight, rtt, delivered_bytes)| {
        let newest = rtt.map(|rtt| Newest { sent_at: Timestamp(rtt.0), again: false });
        Input::Acked(Acked { acked_bytes, pipe, flight, rtt, newest, delivered_bytes, ..Acked::default() })
    })
}

fn input() -> impl Strategy<Value = Input> {
    let kinds = [LossKind::FastRetransmit, LossKind::Timeout, LossKind::TailLossProbe, LossKind::Ecn];
    prop_oneof![
        1 => number().prop_map(Input::Open),
        20 => sent(),
        20 => any_acknowledgement(),
        2 => (prop::sample::select(kinds.to_vec()), number()).prop_map(|(kind, pipe)| Input::Loss(kind, pipe)),
        1 => Just(Input::RecoveryEnd),
        1 => Just(Input::Undo),
        1 => Just(Input::TransferEnd),
    ]
}

/// A new sender, one met in mid-stream, or one known as BBR.
fn start(kind: u8) -> (Shadow, Timestamp) {
    if kind == 2 {
        let demand = Demand { segments: u64::MAX, per_second: None, receiver: 100_000 };
        let path = Path::new(Algorithm::Bbr(BbrState::default()), 1_000.0, 50_000, 1_000.0, demand).run(2);
        assert_eq!(path.shadow.flavour(), Flavour::Bbr);
        return (path.shadow, Timestamp::from_micros(2_000_000));
    }
    let mut shadow = Shadow::new(0, kind == 1);
    shadow.on_open(Timestamp(0), Bytes(1_000), Some(Micros(20_000)));
    (shadow, Timestamp(0))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn any_input_gives_a_finite_window(all in prop::collection::vec((input(), number()), 1..200), kind in 0..3u8) {
        let (mut shadow, mut at) = start(kind);
        for (input, later) in all {
            at = at.after(Micros(later));
            let sample = match input {
                Input::Open(mss) => {
                    shadow.on_open(at, Bytes(mss), None);
                    None
                }
                Input::Sent(sent) => {
                    shadow.on_sent(at, &sent);
                    None
                }
                Input::Acked(acked) => {
                    shadow.on_ack(at, &acked);
                    None
                }
                Input::Loss(kind, pipe) => shadow.on_loss(at, kind, pipe, pipe).ok(),
                Input::RecoveryEnd => {
                    shadow.on_recovery_end(at, 0);
                    None
                }
                Input::Undo => {
                    shadow.on_undo(at);
                    None
                }
                Input::TransferEnd => shadow.on_transfer_end(at).ok(),
            };
            prop_assert!(shadow.window().is_none_or(|window| window.bytes().is_finite()));
            prop_assert!(shadow.sawtooth().is_none_or(f64::is_finite));
            prop_assert!(sample.is_none_or(|sample| sample.window.bytes().is_finite()));
        }
    }
}
