//! Whatever is told, in whatever order: no panic, and a window is a number.

use proptest::prelude::*;
use spand_proto::units::{Bytes, Micros, Timestamp};

use super::super::Shadow;
use super::super::flavour::Flavour;
use super::super::observation::{Acked, LossKind, Newest, Sent};
use super::algorithms::{Algorithm, BbrState};
use super::path::{Demand, Path};

#[derive(Clone, Debug)]
enum Told {
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

fn sent() -> impl Strategy<Value = Told> {
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
            };
            Told::Sent(sent)
        },
    )
}

fn acked() -> impl Strategy<Value = Told> {
    (number(), number(), number(), time(), number()).prop_map(|(acked_bytes, pipe, flight, rtt, delivered_bytes)| {
        let newest = rtt.map(|rtt| Newest { sent_at: Timestamp(rtt.0), again: false });
        Told::Acked(Acked { acked_bytes, pipe, flight, rtt, newest, delivered_bytes, ..Acked::default() })
    })
}

fn told() -> impl Strategy<Value = Told> {
    let kinds = [LossKind::FastRetransmit, LossKind::Timeout, LossKind::TailLossProbe, LossKind::Ecn];
    prop_oneof![
        1 => number().prop_map(Told::Open),
        20 => sent(),
        20 => acked(),
        2 => (prop::sample::select(kinds.to_vec()), number()).prop_map(|(kind, pipe)| Told::Loss(kind, pipe)),
        1 => Just(Told::RecoveryEnd),
        1 => Just(Told::Undo),
        1 => Just(Told::TransferEnd),
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
    fn nonsense_is_borne(all in prop::collection::vec((told(), number()), 1..200), kind in 0..3u8) {
        let (mut shadow, mut at) = start(kind);
        for (told, later) in all {
            at = at.after(Micros(later));
            let said = match told {
                Told::Open(mss) => {
                    shadow.on_open(at, Bytes(mss), None);
                    None
                }
                Told::Sent(sent) => {
                    shadow.on_sent(at, &sent);
                    None
                }
                Told::Acked(acked) => {
                    shadow.on_ack(at, &acked);
                    None
                }
                Told::Loss(kind, pipe) => shadow.on_loss(at, kind, pipe, pipe).ok(),
                Told::RecoveryEnd => {
                    shadow.on_recovery_end(at, 0);
                    None
                }
                Told::Undo => {
                    shadow.on_undo(at);
                    None
                }
                Told::TransferEnd => shadow.on_transfer_end(at).ok(),
            };
            prop_assert!(shadow.window().is_none_or(|window| window.bytes().is_finite()));
            prop_assert!(shadow.sawtooth().is_none_or(f64::is_finite));
            prop_assert!(said.is_none_or(|said| said.window.bytes().is_finite()));
        }
    }
}
