//! What a sender has outstanding: segments sent and not yet cumulatively acknowledged, as seen at the tap (RFC 6675).
//!
//! Keeps when each segment was last sent and whether it was SACKed, marked lost or retransmitted, and from that the bytes in
//! the network (`pipe`). Retransmissions are classified in [`super::recovery`].

mod acknowledge;
mod loss;
mod rack;
mod repairs;
mod segment;
mod send;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use spand_proto::units::Timestamp;

pub(crate) use self::acknowledge::CumulativeAck;
pub(crate) use self::rack::PathTimes;
use self::rack::Rack;
use self::repairs::Repairs;
use self::segment::Marks;
pub(crate) use self::segment::{Mark, Outstanding, Stamp};
use crate::mem::FEW_SEGMENTS;

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
    /// Below it everything sent once has arrived or is marked lost: an acknowledgement does not walk a long window again.
    settled_to: u64,
    repairs: Option<Box<Repairs>>,
}

impl Scoreboard {
    /// Bytes that it may allocate beside its segments.
    pub(crate) const BESIDE_BYTES: usize = size_of::<Repairs>();

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

    /// State of loss repair, empty if there is none.
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

    /// Bytes in the network: outstanding, less SACKed, less marked lost, plus retransmitted (RFC 6675 section 2).
    pub(crate) fn pipe(&self) -> u64 {
        let Some(repairs) = &self.repairs else { return self.flight() };
        (self.flight() + repairs.retransmitted).saturating_sub(self.arrived() + repairs.lost)
    }

    /// Bytes above the cumulative acknowledgement that the peer has received, by SACK or duplicates.
    pub(crate) fn arrived(&self) -> u64 {
        self.repairs.as_ref().map_or(0, |repairs| repairs.sacked + repairs.duplicated)
    }

    /// Bytes SACKed above the cumulative acknowledgement.
    pub(crate) fn sacked(&self) -> u64 {
        self.repairs().sacked
    }

    /// Bytes marked lost above the cumulative acknowledgement, and bytes retransmitted and not SACKed since.
    pub(crate) fn lost_and_repeated(&self) -> (u64, u64) {
        self.repairs.as_ref().map_or((0, 0), |repairs| (repairs.lost, repairs.retransmitted))
    }

    /// Bytes marked lost in the transfer under way.
    pub(crate) fn lost_since_settled(&self) -> u64 {
        self.repairs.as_ref().map_or(0, |repairs| repairs.ever_lost - repairs.settled_lost)
    }

    /// Whether something marked lost is not yet retransmitted.
    pub(crate) fn repeats_wait(&self) -> bool {
        self.repairs.as_ref().is_some_and(|repairs| repairs.lost > repairs.retransmitted)
    }

    /// Frees memory if nothing is outstanding.
    pub(crate) fn release(&mut self) {
        if self.segments.is_empty() {
            self.segments = VecDeque::new();
        }
    }

    /// A transfer is over: room for a few segments is kept for the next one.
    pub(crate) fn settle(&mut self) {
        if let Some(repairs) = &mut self.repairs {
            repairs.settled_lost = repairs.ever_lost;
        }
        if self.segments.capacity() > FEW_SEGMENTS {
            self.release();
        }
    }

    /// Frees memory: everything outstanding becomes one segment, without round trip and loss.
    pub(crate) fn merge_all(&mut self) {
        let merged = self.segments.back().copied().map(|last| {
            let mut merged = last;
            merged.start = self.segments.front().map_or(last.start, |first| first.start);
            let unseen = last.marks.has(Mark::Unseen);
            merged.marks = Marks::default();
            merged.marks.set(Mark::Untimed);
            merged.marks.set(if unseen { Mark::Unseen } else { Mark::Timeless });
            merged
        });
        self.segments = VecDeque::new();
        self.segments.reserve_exact(if merged.is_some() { FEW_SEGMENTS } else { 0 });
        self.segments.extend(merged);
        self.settled_to = self.una;
        if let Some(repairs) = &mut self.repairs {
            **repairs = Repairs { ever_lost: repairs.ever_lost, settled_lost: repairs.settled_lost, ..Repairs::NONE };
        }
    }

    /// Segments that there is room for.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.segments.capacity()
    }

    /// The last transmission of the outstanding byte at `position` and how many there were, if any was seen.
    pub(crate) fn transmissions(&self, position: u64) -> Option<(Stamp, u8)> {
        let segment = self.segments.get(self.first_after(position))?;
        let seen = segment.start <= position && !segment.marks.has(Mark::Unseen);
        seen.then_some((segment.stamp(), segment.transmissions))
    }

    /// Whether the outstanding byte at `position` is marked lost and not retransmitted since.
    pub(crate) fn awaits_repeat(&self, position: u64) -> bool {
        self.segments.get(self.first_after(position)).is_some_and(|segment| {
            segment.start <= position && segment.marks.has(Mark::Lost) && !segment.marks.has(Mark::Retransmitted)
        })
    }

    /// Of the next segments at or after `position` the one that was seen first.
    pub(crate) fn first_sent_after(&self, position: u64) -> Option<Stamp> {
        const NEXT: usize = 32;
        let next = self.segments.range(self.first_after(position)..).take(NEXT);
        let seen = next.filter(|segment| !segment.marks.has(Mark::Unseen));
        seen.map(Outstanding::stamp).min_by_key(|stamp| stamp.at)
    }

    /// Index of the first segment that ends after `position`.
    fn first_after(&self, position: u64) -> usize {
        // Most calls look for the first one, and a binary search would load memory behind it.
        match self.segments.front() {
            Some(first) if first.end <= position => self.segments.partition_point(|segment| segment.end <= position),
            _ => 0,
        }
    }

    /// Splits the segment that contains `position` there, if the limit allows; returns the index of the first segment that ends
    /// after it.
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

    /// Borders without room since the last call: the segment around one is marked as a whole or not at all.
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
