//! What a sender has outstanding: segments sent and not yet cumulatively acknowledged, as seen at the tap (RFC 6675).
//!
//! Keeps when each segment was last sent, whether it was SACKed, deemed lost or retransmitted, and from that how many
//! bytes are in the network (`pipe`). Judges nothing: what a retransmission means is [`super::recovery`]'s.

mod loss;
mod rack;
mod repairs;
mod segment;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use spand_proto::units::{Micros, Timestamp};

use crate::flow::rtt::round_trip;

pub(crate) use self::rack::PathTimes;
use self::rack::Rack;
use self::repairs::Repairs;
pub(crate) use self::segment::{Mark, Outstanding, Stamp};

/// A sender's outstanding segments in order of sequence.
#[derive(Clone, Debug)]
pub(crate) struct Scoreboard {
    segments: VecDeque<Outstanding>,
    /// Highest position sent, exclusive.
    nxt: u64,
    /// Highest position acknowledged.
    una: u64,
    /// The latest transmission among the acknowledged segments.
    acked_sent: Timestamp,
    rack: Rack,
    /// Below, what was sent once has arrived or is deemed lost: a long window is not walked again for every acknowledgement.
    settled_to: u64,
    repairs: Option<Box<Repairs>>,
}

/// What a cumulative acknowledgement did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct CumulativeAck {
    /// Advance in bytes.
    pub(crate) advanced: u64,
    /// Of it, bytes that had been SACKed before.
    pub(crate) sacked_before: u64,
    /// Time since the segment that ends exactly there was sent, where that is a valid sample.
    pub(crate) rtt: Option<Micros>,
    /// Of what was sent once and not SACKed before, where nothing else was acknowledged with it that was sent again.
    pub(crate) arrived: Option<Arrived>,
    /// The last transmission of the lowest segment, where one of those acknowledged was sent again: an echo of its timestamp
    /// times that.
    pub(crate) repeated: Option<Stamp>,
    /// The segment that ends there was sent more than once (Karn's rule).
    pub(crate) ambiguous: bool,
    /// The times do not make a round trip ([`round_trip`]).
    pub(crate) mistimed: bool,
}

/// When segments were sent that an acknowledgement says for the first time have arrived, in order of sequence.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Arrived {
    /// The first of them.
    pub(crate) first: Timestamp,
    /// The last.
    pub(crate) last: Timestamp,
}

impl Arrived {
    fn also(arrived: Option<Self>, sent_at: Timestamp) -> Self {
        Self { first: arrived.map_or(sent_at, |arrived| arrived.first), last: sent_at }
    }
}

/// How a segment met the scoreboard.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Placed {
    /// Before this transmission, the lowest outstanding segment it repeats was last sent so.
    pub(crate) repeats: Option<Stamp>,
    /// It had been retransmitted before.
    pub(crate) again: bool,
    /// The repeated segment had been SACKed.
    pub(crate) was_sacked: bool,
    /// The limit was reached: it was merged with its neighbour.
    pub(crate) merged: bool,
}

impl Scoreboard {
    /// Nothing outstanding at `position`.
    pub(crate) fn starting_at(position: u64) -> Self {
        Self {
            segments: VecDeque::new(),
            nxt: position,
            una: position,
            acked_sent: Timestamp(0),
            rack: Rack::default(),
            settled_to: position,
            repairs: None,
        }
    }

    /// What is to be repaired, or was.
    fn repairs(&self) -> &Repairs {
        self.repairs.as_deref().unwrap_or(const { &Repairs::NONE })
    }

    fn repairs_mut(&mut self) -> &mut Repairs {
        self.repairs.get_or_insert_default()
    }

    /// Highest position sent, exclusive (`SND.NXT`).
    pub(crate) fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Highest position acknowledged (`SND.UNA`).
    pub(crate) fn una(&self) -> u64 {
        self.una
    }

    /// Highest sequence sent less highest acknowledgement, in bytes.
    pub(crate) fn flight(&self) -> u64 {
        self.nxt.saturating_sub(self.una)
    }

    /// Bytes in the network: outstanding, less SACKed, less deemed lost, plus retransmitted (RFC 6675 section 2).
    pub(crate) fn pipe(&self) -> u64 {
        let Some(repairs) = &self.repairs else { return self.flight() };
        (self.flight() + repairs.retransmitted).saturating_sub(self.arrived() + repairs.lost)
    }

    /// Bytes that arrived above the cumulative acknowledgement, as far as the peer says.
    pub(crate) fn arrived(&self) -> u64 {
        self.repairs.as_ref().map_or(0, |repairs| repairs.sacked + repairs.duplicated)
    }

    /// Bytes SACKed above the cumulative acknowledgement.
    pub(crate) fn sacked(&self) -> u64 {
        self.repairs().sacked
    }

    /// Bytes deemed lost above the cumulative acknowledgement, and of what was sent again those not SACKed since.
    pub(crate) fn lost_and_repeated(&self) -> (u64, u64) {
        self.repairs.as_ref().map_or((0, 0), |repairs| (repairs.lost, repairs.retransmitted))
    }

    /// Bytes deemed lost so far; those sent again and lost once more count anew (`tp->lost`).
    pub(crate) fn ever_lost(&self) -> u64 {
        self.repairs.as_ref().map_or(0, |repairs| repairs.ever_lost)
    }

    /// Whether something deemed lost was not sent again yet.
    pub(crate) fn repeats_wait(&self) -> bool {
        self.repairs.as_ref().is_some_and(|repairs| repairs.lost > repairs.retransmitted)
    }

    /// Gives back memory where nothing is outstanding.
    pub(crate) fn release(&mut self) {
        if self.segments.is_empty() {
            self.segments = VecDeque::new();
        }
    }

    /// When the lowest outstanding segment was sent last.
    pub(crate) fn oldest_sent(&self) -> Option<Timestamp> {
        self.segments.front().map(|segment| segment.sent_at)
    }

    /// The last transmission of the outstanding byte at `position` and how many there were, where any was seen.
    pub(crate) fn transmissions(&self, position: u64) -> Option<(Stamp, u8)> {
        let segment = self.segments.get(self.first_after(position))?;
        let seen = segment.start <= position && !segment.marks.has(Mark::Unseen);
        seen.then_some((segment.stamp(), segment.transmissions))
    }

    /// Whether the outstanding byte at `position` counts as lost and was not sent again since it does.
    pub(crate) fn awaits_repeat(&self, position: u64) -> bool {
        self.segments.get(self.first_after(position)).is_some_and(|segment| {
            segment.start <= position && segment.marks.has(Mark::Lost) && !segment.marks.has(Mark::Retransmitted)
        })
    }

    /// The first segment at or after `position` that was seen.
    pub(crate) fn first_sent_after(&self, position: u64) -> Option<Stamp> {
        let first = self.first_after(position);
        self.segments.range(first..).find(|segment| !segment.marks.has(Mark::Unseen)).map(Outstanding::stamp)
    }

    /// Puts a transmission of `start..end` down. Above everything sent it becomes a segment of its own, after a stand-in
    /// for what was never seen below it; elsewhere it marks the segments it repeats.
    pub(crate) fn send(&mut self, start: u64, end: u64, stamp: Stamp, limit: usize) -> Placed {
        if start >= self.nxt {
            let merged = self.push_new(start, end, stamp, limit);
            return Placed { merged, ..Placed::default() };
        }
        self.send_again(start, end, stamp, limit)
    }

    /// Marks `start..end` as never to be timed: zero-window probes, whose answer waits for the receiver's application.
    pub(crate) fn forbid_timing(&mut self, start: u64, end: u64) {
        let first = self.first_after(start);
        for segment in self.segments.iter_mut().skip(first).take_while(|segment| segment.start < end) {
            segment.marks.set(Mark::Untimed);
            segment.marks.set(Mark::Timeless);
        }
    }

    fn push_new(&mut self, start: u64, end: u64, stamp: Stamp, limit: usize) -> bool {
        let seen_from = self.nxt.max(self.una);
        self.nxt = end;
        if start > seen_from {
            self.push_back(Outstanding::unseen(seen_from, start), limit);
        }
        self.push_back(Outstanding::new(start, end, stamp), limit)
    }

    /// Appends, or at the limit lets the last segment grow over it, which no longer can be timed.
    fn push_back(&mut self, segment: Outstanding, limit: usize) -> bool {
        if self.segments.len() >= limit
            && let Some(last) = self.segments.back_mut()
            && !last.marks.has(Mark::Sacked)
        {
            let added = segment.end - last.end;
            last.end = segment.end;
            last.set_stamp(segment.stamp());
            last.marks.set(Mark::Untimed);
            last.marks.set(Mark::Timeless);
            if last.marks.has(Mark::Lost) {
                self.repairs.get_or_insert_default().lost += added;
            }
            if last.marks.has(Mark::Retransmitted) {
                self.repairs.get_or_insert_default().retransmitted += added;
            }
            return true;
        }
        if self.segments.len() == self.segments.capacity() {
            self.make_room();
        }
        self.segments.push_back(segment);
        false
    }

    /// Room for a handshake or an answer of few segments at first, then for an initial window, then for twice as much.
    #[cold]
    fn make_room(&mut self) {
        let more = match self.segments.capacity() {
            0 => 4,
            4 => 8,
            room => room,
        };
        self.segments.reserve_exact(more);
    }

    fn send_again(&mut self, start: u64, end: u64, stamp: Stamp, limit: usize) -> Placed {
        let mut placed = Placed::default();
        let repairs = self.repairs_mut();
        repairs.repeats_unsettled_since = repairs.repeats_unsettled_since.min(stamp.at);
        if start < self.una {
            // Acknowledged already, so nothing waits for it; but what was sent before it can no longer be timed.
            self.acked_sent = self.acked_sent.max(stamp.at);
        }
        let from = start.max(self.una);
        if from < end {
            let mut index = self.split_at(from, limit);
            while let Some(segment) = self.segments.get(index).copied().filter(|segment| segment.start < end) {
                if end < segment.end {
                    self.split_at(end, limit);
                }
                let Some(segment) = self.segments.get_mut(index) else { break };
                if segment.marks.has(Mark::Unseen) {
                    segment.marks.clear(Mark::Unseen);
                    segment.marks.clear(Mark::Untimed);
                    segment.set_stamp(stamp);
                    segment.transmissions = 1;
                    if segment.marks.has(Mark::Lost) {
                        segment.marks.set(Mark::Retransmitted);
                        self.repairs.get_or_insert_default().retransmitted += segment.len();
                    }
                } else {
                    placed.repeats = placed.repeats.or(Some(segment.stamp()));
                    placed.again |= segment.transmissions > 1;
                    placed.was_sacked |= segment.marks.has(Mark::Sacked);
                    segment.set_stamp(stamp);
                    segment.transmissions = segment.transmissions.saturating_add(1);
                    // What is sent again without being deemed lost is a tail loss probe, which no sender counts twice.
                    if segment.marks.has(Mark::Lost) && !segment.marks.has(Mark::Retransmitted) {
                        segment.marks.set(Mark::Retransmitted);
                        self.repairs.get_or_insert_default().retransmitted += segment.len();
                    }
                }
                index += 1;
            }
        }
        if end > self.nxt {
            placed.merged = self.push_new(self.nxt, end, stamp, limit);
        }
        placed
    }

    /// Takes a cumulative acknowledgement of everything below `ack`, seen at `at`.
    #[inline]
    pub(crate) fn acknowledge(&mut self, ack: u64, at: Timestamp, min_rtt: Option<Micros>) -> CumulativeAck {
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
                arrived = Some(Arrived::also(arrived, segment.sent_at));
                self.rack.arrived(&segment, at, sacked_to, min_rtt);
            } else {
                self.forget(&segment);
                sent_once &= segment.transmissions <= 1;
                if segment.marks.has(Mark::Sacked) {
                    outcome.sacked_before += segment.len();
                } else {
                    if segment.is_timed_by_sender() {
                        arrived = Some(Arrived::also(arrived, segment.sent_at));
                    }
                    self.rack.arrived(&segment, at, sacked_to, min_rtt);
                }
            }
            if segment.end == ack && !segment.marks.has(Mark::Untimed) {
                outcome.ambiguous = segment.transmissions > 1;
                // A segment sent before a lower one waited for that one's acknowledgement, not for its own.
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
            if part.is_timed_by_sender() && !part.marks.has(Mark::Sacked) {
                arrived = Some(Arrived::also(arrived, part.sent_at));
            }
        }
        if sent_once {
            outcome.arrived = arrived;
        } else {
            outcome.repeated = head;
        }
        if self.segments.is_empty() && self.segments.capacity() > 64 {
            self.segments.shrink_to(32);
        }
        outcome
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

    /// Index of the first segment that ends after `position`.
    fn first_after(&self, position: u64) -> usize {
        // Most look for the first one, and a search by halves would fetch what lies behind it.
        match self.segments.front() {
            Some(first) if first.end <= position => self.segments.partition_point(|segment| segment.end <= position),
            _ => 0,
        }
    }

    /// Makes `position` a border between segments where it lies inside one and the limit allows; returns the index of the
    /// first segment that ends after it.
    fn split_at(&mut self, position: u64, limit: usize) -> usize {
        let index = self.first_after(position);
        let Some(segment) = self.segments.get_mut(index) else { return index };
        if segment.start >= position {
            return index;
        }
        if self.segments.len() >= limit {
            let repairs = self.repairs_mut();
            repairs.unsplit = repairs.unsplit.saturating_add(1);
            return index;
        }
        let Some(segment) = self.segments.get_mut(index) else { return index };
        let mut lower = *segment;
        segment.start = position;
        lower.end = position;
        lower.marks.set(Mark::Untimed);
        self.segments.insert(index, lower);
        index + 1
    }

    /// How many borders found no room since this was asked last: what lies around one is marked as a whole or not at all.
    pub(crate) fn take_unsplit(&mut self) -> u32 {
        self.repairs.as_mut().map_or(0, |repairs| std::mem::take(&mut repairs.unsplit))
    }

    fn forget(&mut self, segment: &Outstanding) {
        let Some(repairs) = &mut self.repairs else { return };
        let len = segment.len();
        if segment.marks.has(Mark::Sacked) {
            repairs.sacked = repairs.sacked.saturating_sub(len);
        } else if segment.marks.has(Mark::Lost) {
            repairs.lost = repairs.lost.saturating_sub(len);
        }
        if segment.marks.has(Mark::Retransmitted) {
            repairs.retransmitted = repairs.retransmitted.saturating_sub(len);
        }
    }

    fn remember(&mut self, segment: &Outstanding) {
        let Some(repairs) = &mut self.repairs else { return };
        let len = segment.len();
        if segment.marks.has(Mark::Sacked) {
            repairs.sacked += len;
        } else if segment.marks.has(Mark::Lost) {
            repairs.lost += len;
        }
        if segment.marks.has(Mark::Retransmitted) {
            repairs.retransmitted += len;
        }
    }
}
