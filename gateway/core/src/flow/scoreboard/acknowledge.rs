//! What a cumulative acknowledgement does to the scoreboard.

use spand_proto::units::{Micros, Timestamp};

use crate::flow::rtt::round_trip;

use super::{Mark, Outstanding, Scoreboard, Stamp};

/// Segments that the allocation keeps room for until the transfer ends.
const ROOM_KEPT: usize = 64;

/// What a cumulative acknowledgement did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct CumulativeAck {
    /// Bytes by which it advanced.
    pub(crate) advanced: u64,
    /// Of it, bytes that had been SACKed before.
    pub(crate) sacked_before: u64,
    /// Time since the segment that ends there was sent, if it is a valid sample.
    pub(crate) rtt: Option<Micros>,
    /// Send times of the segments sent once and not SACKed before, if no retransmitted segment was acknowledged with them.
    pub(crate) arrived: Option<Timestamp>,
    /// The last transmission of the lowest segment, if a retransmitted one was acknowledged: an echo of its timestamp
    /// measures that transmission.
    pub(crate) repeated: Option<Stamp>,
    /// The segment that ends there was sent more than once (Karn's rule).
    pub(crate) ambiguous: bool,
    /// The times do not give a round trip ([`round_trip`]).
    pub(crate) mistimed: bool,
}

impl Scoreboard {
    /// Takes a cumulative acknowledgement of everything below `ack`, seen at `at`.
    #[inline]
    pub(crate) fn acknowledge(&mut self, ack: u64, at: Timestamp, min_rtt: Option<Micros>) -> CumulativeAck {
        self.rack.begin_ack();
        if ack <= self.una { CumulativeAck::default() } else { self.advance(ack, at, min_rtt) }
    }

    fn advance(&mut self, ack: u64, at: Timestamp, min_rtt: Option<Micros>) -> CumulativeAck {
        let mut outcome = CumulativeAck { advanced: ack - self.una, ..CumulativeAck::default() };
        self.una = ack;
        self.nxt = self.nxt.max(ack);
        let head = self.segments.front().map(Outstanding::stamp);
        let (mut arrived, mut sent_once) = (None, true);
        let sacked_to = self.repairs().sacked_to;
        while let Some(segment) = self.segments.front().copied().filter(|segment| segment.end <= ack) {
            self.segments.pop_front();
            if segment.is_plain() {
                arrived = Some(segment.sent_at);
                self.rack.acknowledged(&segment, at, sacked_to, min_rtt);
            } else {
                self.forget(&segment);
                sent_once &= segment.transmissions <= 1;
                if segment.marks.has(Mark::Sacked) {
                    outcome.sacked_before += segment.len();
                } else {
                    if segment.is_timed_by_sender() {
                        arrived = Some(segment.sent_at);
                    }
                    self.rack.acknowledged(&segment, at, sacked_to, min_rtt);
                }
            }
            if segment.end == ack && !segment.marks.has(Mark::Untimed) {
                outcome.ambiguous = segment.transmissions > 1;
                // The acknowledgement of a segment sent before a lower one waited for the lower one.
                let in_order = self.acked_sent <= segment.sent_at;
                if segment.transmissions == 1 && in_order {
                    outcome.rtt = round_trip(segment.sent_at, at);
                    outcome.mistimed = outcome.rtt.is_none();
                }
            }
            self.acked_sent = self.acked_sent.max(segment.sent_at);
        }
        if let Some(part) = self.acknowledge_part_of_head(ack, &mut outcome) {
            sent_once &= part.transmissions <= 1;
            if !part.marks.has(Mark::Sacked) {
                if part.is_timed_by_sender() {
                    arrived = Some(part.sent_at);
                }
                // A packet of several segments counts as a whole (`tcp_tso_acked`).
                self.rack.acknowledged(&part, at, sacked_to, min_rtt);
            }
        }
        if sent_once {
            outcome.arrived = arrived;
        } else {
            outcome.repeated = head;
        }
        let (len, room) = (self.segments.len(), self.segments.capacity());
        if room > ROOM_KEPT && len <= room / 8 {
            self.shrink(room / 4);
        }
        outcome
    }

    /// Frees room that the present window does not need.
    #[cold]
    fn shrink(&mut self, room: usize) {
        self.segments.shrink_to(if self.segments.is_empty() { ROOM_KEPT / 2 } else { room });
    }

    fn acknowledge_part_of_head(&mut self, ack: u64, outcome: &mut CumulativeAck) -> Option<Outstanding> {
        let head = self.segments.front().copied().filter(|head| head.start < ack)?;
        self.forget(&head);
        self.acked_sent = self.acked_sent.max(head.sent_at);
        let mut rest = head;
        rest.start = ack;
        rest.marks.set(Mark::Untimed);
        if head.marks.has(Mark::Sacked) {
            outcome.sacked_before += ack - head.start;
        }
        self.remember(&rest);
        if let Some(front) = self.segments.front_mut() {
            *front = rest;
        }
        Some(head)
    }
}
