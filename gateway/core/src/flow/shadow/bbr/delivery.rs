//! The delivery rate, as senders estimate it (draft-cheng-iccrg-delivery-rate-estimation; `tcp_rate.c`): what was
//! delivered between the sending of a packet and its acknowledgement, over that time.
//!
//! Only some packets of a flight are followed, so a little fewer samples reach the maximum than a sender takes itself.

use arrayvec::ArrayVec;
use spand_proto::units::{Micros, Timestamp};

use super::max_filter::MaxFilter;

/// Round trips that a rate counts for.
const RATE_ROUNDS: u32 = 10;
/// Packets whose sending is remembered at a time; a flight is marked at a few less.
const MARKS: usize = 16;
const MARKS_PER_FLIGHT: u64 = 12;

/// A packet of new data as BBR sees it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Departure {
    /// Position of its end in the stream.
    pub(in super::super) nxt: u64,
    pub(in super::super) flight_bytes: u64,
    pub(in super::super) pipe_segments: u32,
    /// Nothing was outstanding before it.
    pub(in super::super) idle: bool,
    /// The application had no more after it.
    pub(in super::super) dry: bool,
}

/// An acknowledgement as BBR sees it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Delivery {
    pub(in super::super) at: Timestamp,
    /// Position in the stream up to which everything arrived or is deemed lost.
    pub(in super::super) edge: u64,
    pub(in super::super) delivered_bytes: u64,
    pub(in super::super) newly_bytes: u64,
    pub(in super::super) pipe_bytes: u64,
    pub(in super::super) rtt: Option<Micros>,
    pub(in super::super) mss: u32,
    /// Losses are being repaired; a reduction for a mark is none.
    pub(in super::super) recovering: bool,
    /// Newly deemed lost.
    pub(in super::super) lost_bytes: u64,
}

/// A packet sent, with the delivery account of that moment.
#[derive(Clone, Copy, Debug)]
struct Mark {
    nxt: u64,
    delivered_bytes: u64,
    delivered_at: Timestamp,
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
    delivered_bytes: u64,
    delivered_at: Timestamp,
    /// Packets up to this position are limited by the application; 0 where none is.
    app_limited_until: u64,
    round: u32,
    round_end_delivered: u64,
    bytes_per_second: MaxFilter,
}

impl DeliveryRate {
    pub(super) fn new(at: Timestamp, delivered_bytes: u64) -> Self {
        Self {
            marks: ArrayVec::new(),
            delivered_bytes,
            delivered_at: at,
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

    /// A packet of new data; `app_limited` where less was sent than the window allowed.
    pub(super) fn on_sent(&mut self, at: Timestamp, sent: &Departure, app_limited: bool) {
        if sent.idle {
            self.delivered_at = at;
        }
        if app_limited {
            self.app_limited_until = sent.nxt;
        }
        let spacing = sent.flight_bytes / MARKS_PER_FLIGHT;
        let due = self.marks.last().is_none_or(|last| sent.nxt >= last.nxt.saturating_add(spacing));
        // With no room the newest packets go unmarked until acknowledgements make some.
        if due && !self.marks.is_full() {
            self.marks.push(Mark {
                nxt: sent.nxt,
                delivered_bytes: self.delivered_bytes,
                delivered_at: self.delivered_at,
                app_limited: self.app_limited_until > 0,
            });
        }
    }

    /// An acknowledgement. A rate over less than `shortest` is a clump of acknowledgements, not the path's.
    pub(super) fn on_ack(&mut self, delivery: &Delivery, shortest: Micros) -> Turn {
        self.delivered_bytes = delivery.delivered_bytes;
        self.delivered_at = delivery.at;
        if delivery.edge >= self.app_limited_until {
            self.app_limited_until = 0;
        }
        let acked = self.marks.iter().take_while(|mark| mark.nxt <= delivery.edge).count();
        let Some(newest) = self.marks.drain(..acked).last() else { return Turn::default() };
        let new_round = newest.delivered_bytes >= self.round_end_delivered;
        if new_round {
            self.round = self.round.saturating_add(1);
            self.start_round();
        }
        self.sample(&newest, shortest);
        Turn { new_round, app_limited: newest.app_limited }
    }

    fn sample(&mut self, mark: &Mark, shortest: Micros) {
        let time = self.delivered_at.since(mark.delivered_at);
        if time.0 == 0 || time < shortest {
            return;
        }
        let rate = self.delivered_bytes.saturating_sub(mark.delivered_bytes) as f64 / time.as_secs_f64();
        if !mark.app_limited || self.max().is_none_or(|max| rate >= max) {
            self.bytes_per_second.add(self.round, RATE_ROUNDS, rate);
        }
    }
}
