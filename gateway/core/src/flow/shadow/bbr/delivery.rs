//! The delivery rate, as senders estimate it (draft-cheng-iccrg-delivery-rate-estimation; `tcp_rate.c`): what was
//! delivered between the sending of a packet and its acknowledgement, over that time or the time in which it was sent,
//! whichever is longer.
//!
//! Only some packets of a flight are followed. An acknowledgement is that of the packet sent last among those it shows to
//! have arrived, first transmission or not; the account taken down last before that packet stands for its own.

use arrayvec::ArrayVec;
use spand_proto::units::{Micros, Timestamp};

use super::super::observation::Newest;
use super::max_filter::MaxFilter;

/// Round trips that a rate counts for.
const RATE_ROUNDS: u32 = 10;
/// Packets whose sending is remembered at a time; a flight is marked at a few less.
const MARKS: usize = 24;
const MARKS_PER_FLIGHT: u64 = 16;

/// A packet with payload as BBR sees it.
#[derive(Clone, Copy, Debug)]
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
    /// The application had no more after it.
    pub(in super::super) dry: bool,
}

/// An acknowledgement as BBR sees it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Delivery {
    pub(in super::super) at: Timestamp,
    pub(in super::super) newest: Option<Newest>,
    pub(in super::super) delivered_bytes: u64,
    pub(in super::super) newly_bytes: u64,
    pub(in super::super) pipe_bytes: u64,
    /// How much longer than at the tap a round trip takes the sender.
    pub(in super::super) reaction: Micros,
    pub(in super::super) mss: u32,
    /// Losses are being repaired; a reduction for a mark is none.
    pub(in super::super) recovering: bool,
    /// Those of a timeout.
    pub(in super::super) timed_out: bool,
    /// Newly deemed lost.
    pub(in super::super) lost_bytes: u64,
}

/// The delivery account when a packet was sent. Only differences count, so the low halves do.
#[derive(Clone, Copy, Debug)]
struct Mark {
    sent_us: u32,
    delivered_bytes: u32,
    delivered_us: u32,
    /// When the packet sent last among those that had arrived was sent.
    first_sent_us: u32,
    app_limited: bool,
}

/// What an acknowledgement ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    /// A packet-timed round trip.
    pub(super) new_round: bool,
    /// The packet it acknowledged was sent with less than the window allowed.
    pub(super) app_limited: bool,
}

/// The account of deliveries.
#[derive(Clone, Debug)]
pub(super) struct DeliveryRate {
    marks: ArrayVec<Mark, MARKS>,
    /// Bytes sent since the last mark.
    unmarked_bytes: u64,
    delivered_bytes: u64,
    delivered_us: u32,
    first_sent_us: u32,
    /// Until more than this is delivered, what is sent is limited by the application; 0 where it is not.
    app_limited_until: u64,
    round: u32,
    round_end_delivered: u64,
    bytes_per_second: MaxFilter,
}

impl DeliveryRate {
    pub(super) fn new(at: Timestamp, delivered_bytes: u64) -> Self {
        Self {
            marks: ArrayVec::new(),
            unmarked_bytes: 0,
            delivered_bytes,
            delivered_us: low_us(at),
            first_sent_us: low_us(at),
            app_limited_until: 0,
            round: 0,
            round_end_delivered: delivered_bytes,
            bytes_per_second: MaxFilter::default(),
        }
    }

    /// Largest rate of the last round trips, in bytes per second.
    pub(super) fn max(&self) -> Option<f64> {
        self.bytes_per_second.max()
    }

    /// The round trip under way ends with what is delivered now.
    pub(super) fn start_round(&mut self) {
        self.round_end_delivered = self.delivered_bytes;
    }

    /// With `in_network` bytes outstanding the sender has no more to send: until they are delivered, rates are its own
    /// (`tcp_rate_check_app_limited`).
    pub(super) fn limit_by_application(&mut self, in_network: u64) {
        self.app_limited_until = self.delivered_bytes.saturating_add(in_network).max(1);
    }

    /// A packet was sent.
    pub(super) fn on_sent(&mut self, at: Timestamp, sent: &Departure) {
        if sent.idle {
            self.delivered_us = low_us(at);
            self.first_sent_us = low_us(at);
        }
        let app_limited = self.app_limited_until > 0;
        let spacing = sent.flight_bytes / MARKS_PER_FLIGHT;
        let due =
            self.marks.last().is_none_or(|last| self.unmarked_bytes >= spacing || last.app_limited != app_limited);
        // With no room the newest packets go unmarked until acknowledgements make some.
        if due && !self.marks.is_full() {
            self.marks.push(Mark {
                sent_us: low_us(at),
                delivered_bytes: low_half(self.delivered_bytes),
                delivered_us: self.delivered_us,
                first_sent_us: self.first_sent_us,
                app_limited,
            });
            self.unmarked_bytes = 0;
        }
        self.unmarked_bytes = self.unmarked_bytes.saturating_add(sent.bytes);
    }

    /// An acknowledgement. A rate over less than `shortest` is a clump of acknowledgements, not the path's.
    pub(super) fn on_ack(&mut self, delivery: &Delivery, shortest: Micros) -> Turn {
        self.delivered_bytes = delivery.delivered_bytes;
        if self.delivered_bytes > self.app_limited_until {
            self.app_limited_until = 0;
        }
        if delivery.newly_bytes > 0 {
            self.delivered_us = low_us(delivery.at);
        }
        let Some(newest) = delivery.newest else { return Turn::default() };
        let sent_us = low_us(newest.sent_at);
        let before = self.marks.iter().take_while(|mark| since(mark.sent_us, sent_us) < 1 << 31).count();
        let Some(last) = before.checked_sub(1) else { return Turn::default() };
        self.marks.drain(..last);
        let Some(mark) = self.marks.first().copied() else { return Turn::default() };
        self.first_sent_us = sent_us;
        let delivered = since(mark.delivered_bytes, low_half(self.delivered_bytes));
        let new_round = self.delivered_bytes.saturating_sub(u64::from(delivered)) >= self.round_end_delivered;
        if new_round {
            self.round = self.round.saturating_add(1);
            self.start_round();
        }
        let time_us = since(mark.delivered_us, low_us(delivery.at)).max(since(mark.first_sent_us, sent_us));
        if time_us > 0 && u64::from(time_us) >= shortest.0 {
            let rate = f64::from(delivered) * 1e6 / f64::from(time_us);
            if !mark.app_limited || self.max().is_none_or(|max| rate >= max) {
                self.bytes_per_second.add(self.round, RATE_ROUNDS, rate);
            }
        }
        Turn { new_round, app_limited: mark.app_limited }
    }
}

/// From `earlier` to `later`, in their unit.
fn since(earlier: u32, later: u32) -> u32 {
    later.wrapping_sub(earlier)
}

fn low_us(at: Timestamp) -> u32 {
    low_half(at.0 / 1_000)
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn low_half(number: u64) -> u32 {
    number as u32
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
        };
        rate.on_sent(ms(at), &sent);
    }

    fn ack(rate: &mut DeliveryRate, at: u64, sent: u64, delivered_bytes: u64) -> Turn {
        let delivery = Delivery {
            at: ms(at),
            newest: Some(Newest { sent_at: ms(sent), again: false }),
            delivered_bytes,
            newly_bytes: 1_000,
            pipe_bytes: 0,
            reaction: Micros(0),
            mss: 1_000,
            recovering: false,
            timed_out: false,
            lost_bytes: 0,
        };
        rate.on_ack(&delivery, Micros(10_000))
    }

    fn per_ms(rate: &DeliveryRate) -> u64 {
        rate.max().map_or(0, |rate| whole(rate / 1e3))
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate")]
    fn whole(number: f64) -> u64 {
        number as u64
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
        assert_eq!(per_ms(&rate), 100, "ten segments took 90 ms to send, and 100 ms until they were acknowledged");
        // Of ten that take 90 ms half are acknowledged in one clump, and the rest with one more 40 ms later.
        send(&mut rate, 110, true);
        for n in 1..10 {
            send(&mut rate, 110 + n * 10, false);
        }
        ack(&mut rate, 210, 150, 15_000);
        send(&mut rate, 211, false);
        ack(&mut rate, 250, 211, 21_000);
        assert_eq!(per_ms(&rate), 100, "six segments in 40 ms, but sent in 61");
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
        assert_eq!(per_ms(&rate), 100);
    }
}
