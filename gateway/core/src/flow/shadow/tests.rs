use spand_proto::units::{Bytes, Micros, Timestamp};

use super::observation::{Acked, LossKind, Sent};
use super::*;
use crate::counters::Ignored;
use crate::flow::sample::SampleReason;

const MSS: u64 = 1_000;
const RTT: Micros = Micros(100_000);

/// Feeds a sender that fills `windows` segments, one round trip after the other, each acknowledged whole.
fn rounds(shadow: &mut Shadow, at: &mut Timestamp, delivered: &mut u64, windows: &[u64]) {
    for &window in windows {
        for n in 1..=window {
            let pipe = n * MSS;
            let sent = Sent {
                new_bytes: 1_000,
                full_sized: true,
                pipe,
                flight: pipe,
                since_ack: Some(Micros(10)),
                ..Sent::default()
            };
            shadow.on_sent(*at, &sent);
        }
        *at = at.after(RTT);
        *delivered += window * MSS;
        shadow.on_ack(*at, &acked(window * MSS, *delivered));
    }
}

fn acked(bytes: u64, delivered_bytes: u64) -> Acked {
    let rtt = Some(RTT);
    Acked { acked_bytes: bytes, delivered_bytes, rtt, srtt: rtt, min_rtt: rtt, ..Acked::default() }
}

fn opened() -> Shadow {
    let mut shadow = Shadow::new(Timestamp(0), false);
    shadow.on_open(Timestamp(0), Bytes(MSS), Some(RTT));
    shadow
}

fn whole(shadow: &Shadow) -> u32 {
    shadow.window().unwrap().segments(Bytes(MSS)).0
}

#[test]
fn slow_start_doubles_and_a_loss_in_it_gives_no_sample() {
    let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
    rounds(&mut shadow, &mut at, &mut delivered, &[10, 20, 40]);
    assert_eq!((whole(&shadow), shadow.phase()), (80, Phase::SlowStart));
    assert_eq!(shadow.on_loss(at, LossKind::FastRetransmit, 80 * MSS, 80 * MSS), Err(Ignored::SlowStartLoss));
    assert_eq!(shadow.phase(), Phase::Recovery);
}

#[test]
fn a_timeout_gives_no_sample_and_starts_anew() {
    let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
    rounds(&mut shadow, &mut at, &mut delivered, &[10, 20]);
    assert_eq!(shadow.on_loss(at, LossKind::Timeout, 0, 40 * MSS), Err(Ignored::Timeout));
    assert_eq!((whole(&shadow), shadow.phase()), (1, Phase::SlowStart));
    assert_eq!(shadow.on_transfer_end(at), Err(Ignored::EndAfterLoss));
}

#[test]
fn the_end_of_a_slow_start_is_what_was_sent_and_not_what_its_last_acknowledgements_opened() {
    let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
    rounds(&mut shadow, &mut at, &mut delivered, &[10, 20, 40]);
    let end = shadow.on_transfer_end(at).unwrap();
    assert_eq!((end.window.segments(Bytes(MSS)).0, end.reason), (40, SampleReason::End));
}

#[test]
fn a_sender_met_in_mid_stream_has_no_window_yet() {
    let mut shadow = Shadow::new(Timestamp(0), true);
    shadow.on_open(Timestamp(0), Bytes(MSS), None);
    assert_eq!(shadow.window(), None);
    assert_eq!(shadow.on_transfer_end(Timestamp(0)), Err(Ignored::Midstream));
}
