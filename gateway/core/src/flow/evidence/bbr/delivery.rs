//! The delivery rate, as senders estimate it (draft-cheng-iccrg-delivery-rate-estimation; `tcp_rate.c`): the data delivered
//! between the sending of a packet and its acknowledgement, over that time or the time in which it was sent, whichever is
//! longer.
//!
//! Only some packets of a flight are tracked. An acknowledgement is that of the packet sent last among those newly delivered,
//! retransmitted or not; the last mark before that packet stands in for its own.

use std::collections::VecDeque;

use spand_proto::units::{Micros, Timestamp};

use super::rate::{self, MaxFilter};
use crate::flow::observation::Newest;
use crate::flow::sequence::low_half;

/// Round trips of the maximum filter.
const RATE_ROUNDS: u32 = 10;
/// Most packets whose sending is recorded; a flight is marked at a few less.
const MARKS: usize = 128;
const MARKS_PER_FLIGHT: u64 = 112;

/// A packet with payload as BBR sees it.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "five facts that do not hang together")]
pub(in super::super) struct Departure {
    /// Its bytes, new or not.
    pub(in super::super) bytes: u64,
    pub(in super::super) flight_bytes: u64,
    pub(in super::super) pipe_bytes: u64,
    pub(in super::super) pipe_segments: u32,
    /// It carries new data.
    pub(in super::super) new: bool,
    /// Nothing was outstanding before it.
    pub(in super::super) idle: bool,
    /// The application had no more data after it.
    pub(in super::super) dry: bool,
    /// A write of the application ended with it.
    pub(in super::super) pushed: bool,
    /// Only a pace holds it back: the peer's window has room, and there is no queue before the tap.
    pub(in super::super) paced: bool,
}

/// An acknowledgement as BBR sees it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Delivery {
    pub(in super::super) at: Timestamp,
    pub(in super::super) newest: Option<Newest>,
    /// The round trip that it measured, and the smallest of all.
    pub(in super::super) rtt: Option<Micros>,
    pub(in super::super) least_rtt: Option<Micros>,
    pub(in super::super) delivered_bytes: u64,
    pub(in super::super) newly_bytes: u64,
    pub(in super::super) mss: u32,
    /// Losses are being repaired; not a reduction after an ECN echo.
    pub(in super::super) recovering: bool,
}

/// The delivery state when a packet was sent. Only differences count, so the low halves are enough.
#[derive(Clone, Copy, Debug)]
struct Mark {
    sent_us: u32,
    delivered_bytes: u32,
    delivered_us: u32,
    /// When the packet sent last among those delivered was sent.
    first_sent_us: u32,
    app_limited: bool,
}

/// A rate sample (`struct rate_sample`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    /// Packets per microsecond: see [`rate`].
    pub(super) rate: u32,
    /// It ended a packet-timed round trip.
    pub(super) new_round: bool,
    /// `is_app_limited`: the packet that it acknowledged was sent with less than the window allowed.
    pub(super) app_limited: bool,
}

/// The delivery state.
#[derive(Clone, Debug)]
pub(super) struct DeliveryRate {
    /// In order of time, [`MARKS`] at most, allocated at the start.
    marks: VecDeque<Mark>,
    /// Bytes sent since the last mark.
    unmarked_bytes: u64,
    delivered_bytes: u64,
    delivered_at: Timestamp,
    first_sent_us: u32,
    /// Until more than this is delivered, the application limits the rate (`tp->app_limited`); 0 if it does not.
    app_limited_until: u64,
    round: u32,
    round_end_delivered: u64,
    largest: MaxFilter,
}

impl DeliveryRate {
    /// Bytes that it allocates.
    pub(super) const BESIDE_BYTES: usize = MARKS * size_of::<Mark>();

    pub(super) fn new(at: Timestamp, delivered_bytes: u64) -> Self {
        Self {
            marks: VecDeque::with_capacity(MARKS),
            unmarked_bytes: 0,
            delivered_bytes,
            delivered_at: at,
            first_sent_us: low_us(at),
            app_limited_until: 0,
            round: 0,
            round_end_delivered: delivered_bytes,
            largest: MaxFilter::default(),
        }
    }

    /// Largest rate of the last [`RATE_ROUNDS`]; 0 before the first.
    pub(super) fn max(&self) -> u32 {
        self.largest.max()
    }

    /// Whether the application limits what is sent (`tp->app_limited`).
    pub(super) fn is_app_limited(&self) -> bool {
        self.app_limited_until > 0
    }

    /// The round trip under way ends with the data delivered so far.
    pub(super) fn start_round(&mut self) {
        self.round_end_delivered = self.delivered_bytes;
    }

    /// The sender has no more data with `in_network` bytes outstanding: until they are delivered, rates are those of the application
    /// (`tcp_rate_check_app_limited`).
    pub(super) fn limit_by_application(&mut self, in_network: u64) {
        self.app_limited_until = self.delivered_bytes.saturating_add(in_network).max(1);
    }

    /// A packet was sent.
    pub(super) fn on_sent(&mut self, at: Timestamp, sent: &Departure) {
        if sent.idle {
            self.delivered_at = at;
            self.first_sent_us = low_us(at);
        }
        let app_limited = self.app_limited_until > 0;
        let spacing = sent.flight_bytes / MARKS_PER_FLIGHT;
        let due =
            self.marks.back().is_none_or(|last| self.unmarked_bytes >= spacing || last.app_limited != app_limited);
        // Without room the newest packets are not marked until acknowledgements free some.
        if due && self.marks.len() < MARKS {
            self.marks.push_back(Mark {
                sent_us: low_us(at),
                delivered_bytes: low_half(self.delivered_bytes),
                delivered_us: low_us(self.delivered_at),
                first_sent_us: self.first_sent_us,
                app_limited,
            });
            self.unmarked_bytes = 0;
        }
        self.unmarked_bytes = self.unmarked_bytes.saturating_add(sent.bytes);
    }

    /// An acknowledgement. A rate over less than the smallest round trip comes from acknowledgements in a clump, not from the path: it is
    /// no sample (`tcp_rate_gen`).
    pub(super) fn on_ack(&mut self, delivery: &Delivery) -> Option<Sample> {
        self.delivered_bytes = delivery.delivered_bytes;
        if self.delivered_bytes > self.app_limited_until {
            self.app_limited_until = 0;
        }
        if delivery.newly_bytes > 0 {
            self.delivered_at = delivery.at;
        }
        let newest = delivery.newest?;
        let sent_us = low_us(newest.sent_at);
        let before = self.marks.partition_point(|mark| since(mark.sent_us, sent_us) < 1 << 31);
        let last = before.checked_sub(1)?;
        self.marks.drain(..last);
        let mark = self.marks.front().copied()?;
        self.first_sent_us = sent_us;
        let time_us = since(mark.delivered_us, low_us(delivery.at)).max(since(mark.first_sent_us, sent_us));
        if time_us == 0 || delivery.least_rtt.is_some_and(|least| u64::from(time_us) < least.0) {
            return None;
        }
        let delivered = u64::from(since(mark.delivered_bytes, low_half(self.delivered_bytes)));
        let new_round = self.delivered_bytes.saturating_sub(delivered) >= self.round_end_delivered;
        if new_round {
            self.round = self.round.saturating_add(1);
            self.start_round();
        }
        let rate = rate::of(delivered, delivery.mss, u64::from(time_us));
        Some(Sample { rate, new_round, app_limited: mark.app_limited })
    }

    /// Adds a rate; one that the application limited counts only if it is the largest.
    pub(super) fn add(&mut self, sample: Sample) {
        if !sample.app_limited || sample.rate >= self.max() {
            self.largest.add(self.round, RATE_ROUNDS, sample.rate);
        }
    }
}

/// From `earlier` to `later`, in their unit.
fn since(earlier: u32, later: u32) -> u32 {
    later.wrapping_sub(earlier)
}

fn low_us(at: Timestamp) -> u32 {
    low_half(at.0 / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Timestamp {
        Timestamp((n + 1) * 1_000_000)
    }

    fn send(rate: &mut DeliveryRate, at: u64, idle: bool) {
        let sent = Departure {
            bytes: 1_000,
            flight_bytes: 10_000,
            pipe_bytes: 10_000,
            pipe_segments: 10,
            new: true,
            idle,
            dry: false,
            pushed: false,
            paced: true,
        };
        rate.on_sent(ms(at), &sent);
    }

    fn ack(rate: &mut DeliveryRate, at: u64, sent: u64, delivered_bytes: u64) -> Sample {
        let delivery = Delivery {
            at: ms(at),
            newest: Some(Newest { sent_at: ms(sent), again: false }),
            rtt: None,
            least_rtt: Some(Micros(10_000)),
            delivered_bytes,
            newly_bytes: 1_000,
            mss: 1_000,
            recovering: false,
        };
        let sample = rate.on_ack(&delivery).unwrap();
        rate.add(sample);
        sample
    }

    /// Segments a second.
    fn per_second(rate: &DeliveryRate) -> String {
        format!("{:.0}", rate::segments_in(rate.max(), Micros(1_000_000)))
    }

    #[test]
    fn acknowledgements_that_come_in_a_clump_do_not_raise_the_rate() {
        let mut rate = DeliveryRate::new(ms(0), 0);
        for n in 0..10 {
            send(&mut rate, n * 10, n == 0);
        }
        for n in 0..10 {
            ack(&mut rate, 100, n * 10, (n + 1) * 1_000);
        }
        assert_eq!(
            per_second(&rate),
            "100",
            "ten segments took 90 ms to send, and 100 ms until they were acknowledged"
        );
        // Of ten that take 90 ms half are acknowledged in one clump, and the rest with one more 40 ms later.
        send(&mut rate, 110, true);
        for n in 1..10 {
            send(&mut rate, 110 + n * 10, false);
        }
        ack(&mut rate, 210, 150, 15_000);
        send(&mut rate, 211, false);
        ack(&mut rate, 250, 211, 21_000);
        assert_eq!(per_second(&rate), "100", "six segments in 40 ms, but sent in 61");
    }

    #[test]
    fn a_packet_sent_again_is_an_account_of_its_own() {
        let mut rate = DeliveryRate::new(ms(0), 0);
        send(&mut rate, 0, true);
        send(&mut rate, 5, false);
        ack(&mut rate, 20, 0, 1_000);
        send(&mut rate, 25, false);
        assert!(ack(&mut rate, 45, 25, 2_000).new_round, "the first transmission was of the round before");
    }

    #[test]
    fn what_an_application_held_back_is_no_rate_of_the_path_until_it_is_delivered() {
        let mut rate = DeliveryRate::new(ms(0), 0);
        send(&mut rate, 0, true);
        ack(&mut rate, 10, 0, 1_000);
        rate.limit_by_application(1_000);
        send(&mut rate, 20, true);
        assert!(ack(&mut rate, 40, 20, 2_000).app_limited);
        send(&mut rate, 50, true);
        assert!(ack(&mut rate, 60, 50, 3_000).app_limited, "delivered up to there, and not beyond it");
        send(&mut rate, 70, true);
        assert!(!ack(&mut rate, 80, 70, 4_000).app_limited);
        assert_eq!(per_second(&rate), "100");
    }
}
