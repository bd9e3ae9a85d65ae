//! Loss detection by time (RACK, RFC 8985 section 6, as in Linux's `tcp_recovery.c`): a segment is lost if it was sent long
//! enough before another one that has arrived.

use spand_proto::units::{Micros, Timestamp};

use super::segment::Outstanding;
use super::{Mark, Scoreboard};
use crate::flow::maybe::MaybeMicros;
use crate::flow::rtt::round_trip;

/// SACKed segments that end the wait for reordering, while none was ever seen.
const DUP_THRESH: usize = 3;
/// Longest time by which a tap's order is taken to differ from the sender's: 5 ms.
const LATE_UNIT_US: u64 = 32;
const LATE_MOST: u64 = 5_000 / LATE_UNIT_US;

/// The segment sent last among those that have arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rack {
    sent: Timestamp,
    end: u64,
    /// It was a retransmission.
    again: bool,
    /// `rack.rtt_us`: round trip of the segment processed last with an acknowledgement, the newest or not
    /// (`tcp_rack_advance`).
    rtt: MaybeMicros,
    /// It is of a segment that this acknowledgement covers cumulatively, which the sender processes after the SACK blocks.
    cumulative: bool,
    /// `tp->rack.reord`: an original arrived after one sent behind it.
    reordered: bool,
    /// The longest time by which a segment passed the tap after one sent behind it, in units of [`LATE_UNIT_US`].
    late: u8,
}

/// Round-trip times of the path, and whether the sender is in recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathTimes {
    /// Smallest round-trip time.
    pub(crate) min_rtt: Option<Micros>,
    /// Smoothed round-trip time.
    pub(crate) srtt: Option<Micros>,
    /// A loss is being repaired.
    pub(crate) recovering: bool,
}

impl Rack {
    /// A new acknowledgement.
    #[inline]
    pub(super) fn begin_ack(&mut self) {
        self.cumulative = false;
    }

    /// `segment` is acknowledged cumulatively at `at`; `sacked_to` is the highest byte SACKed before.
    #[inline]
    pub(super) fn acknowledged(
        &mut self,
        segment: &Outstanding,
        at: Timestamp,
        sacked_to: u64,
        min_rtt: Option<Micros>,
    ) {
        if let Some(rtt) = self.arrived(segment, at, sacked_to, min_rtt) {
            (self.rtt, self.cumulative) = (MaybeMicros::some(rtt), true);
        }
    }

    /// `segment` is SACKed at `at`.
    #[inline]
    pub(super) fn sacked(&mut self, segment: &Outstanding, at: Timestamp, sacked_to: u64, min_rtt: Option<Micros>) {
        if let Some(rtt) = self.arrived(segment, at, sacked_to, min_rtt).filter(|_| !self.cumulative) {
            self.rtt = MaybeMicros::some(rtt);
        }
    }

    /// Returns its round trip.
    #[inline]
    fn arrived(
        &mut self,
        segment: &Outstanding,
        at: Timestamp,
        sacked_to: u64,
        min_rtt: Option<Micros>,
    ) -> Option<Micros> {
        if segment.marks.has(Mark::Unseen) {
            return None;
        }
        let again = segment.transmissions > 1;
        self.reordered |= !again && segment.end < sacked_to;
        // Shorter than the path allows: an earlier transmission arrived.
        let rtt = round_trip(segment.sent_at, at).filter(|rtt| !again || min_rtt.is_none_or(|least| *rtt >= least))?;
        if (segment.sent_at, segment.end) > (self.sent, self.end) {
            (self.sent, self.end, self.again) = (segment.sent_at, segment.end, again);
        }
        Some(rtt)
    }

    /// Whether it was sent after `segment`, as far as the tap shows their order.
    fn is_after(&self, segment: &Outstanding) -> bool {
        (segment.sent_at.after(Micros(u64::from(self.late) * LATE_UNIT_US)), segment.end) < (self.sent, self.end)
    }

    fn reordering_window(&self, path: &PathTimes, sacked_segments: usize) -> Micros {
        if !self.reordered && (path.recovering || sacked_segments >= DUP_THRESH) {
            return Micros(0);
        }
        let quarter = Micros(path.min_rtt.unwrap_or_default().0 / 4);
        path.srtt.map_or(quarter, |srtt| quarter.min(srtt))
    }
}

impl Scoreboard {
    /// A segment passed the tap so long after one sent behind it.
    pub(crate) fn note_late(&mut self, by: Micros) {
        let late = by.0.div_ceil(LATE_UNIT_US).min(LATE_MOST);
        self.rack.late = self.rack.late.max(u8::try_from(late).unwrap_or(u8::MAX));
    }

    /// The segment sent last among those that have arrived: send time, end, and whether it was a retransmission.
    pub(crate) fn newest_arrived(&self) -> (Timestamp, u64, bool) {
        (self.rack.sent, self.rack.end, self.rack.again)
    }

    /// Marks as lost what was sent before a segment that has arrived by `at`, by more than the reordering window; lost
    /// retransmissions, too. Returns whether there was one of these.
    #[inline]
    pub(crate) fn mark_lost_by_time(&mut self, at: Timestamp, path: &PathTimes) -> bool {
        let all = self.repairs().repeats_unsettled_since <= self.rack.sent;
        let from = if all { 0 } else { self.first_after(self.settled_to) };
        if !all && self.segments.get(from).is_none_or(|first| is_first(first) && !self.rack.is_after(first)) {
            return false;
        }
        self.walk_unsettled(from, all, at, path)
    }

    /// Walks the window from the segment numbered `from`; with `all`, past segments in order of sending, too.
    fn walk_unsettled(&mut self, from: usize, all: bool, at: Timestamp, path: &PathTimes) -> bool {
        let rack = self.rack;
        let sacked_segments = self.segments.iter().rev().filter(|segment| segment.marks.has(Mark::Sacked));
        let sacked_segments =
            if path.recovering || self.sacked() == 0 { 0 } else { sacked_segments.take(DUP_THRESH).count() };
        let reordering_window = rack.reordering_window(path, sacked_segments);
        let overdue = Micros(rack.rtt.get().unwrap_or_default().0.saturating_add(reordering_window.0));
        let mut settled_to = None;
        let repeats_before = self.repairs().repeats_unsettled_since;
        let mut repeats = if all { Timestamp(u64::MAX) } else { repeats_before };
        let retransmitted_before = self.repairs().retransmitted;
        for segment in self.segments.range_mut(from..) {
            let sent_before = rack.is_after(segment);
            if !sent_before && is_first(segment) {
                // First transmissions are in order of time.
                settled_to = settled_to.or(Some(segment.start));
                if !all {
                    break;
                }
                continue;
            }
            let waiting = segment.marks.has(Mark::Lost) && !segment.marks.has(Mark::Retransmitted);
            if segment.marks.has(Mark::Sacked) || waiting {
                continue;
            }
            if !sent_before || at.since(segment.sent_at) < overdue {
                if is_first(segment) {
                    settled_to = settled_to.or(Some(segment.start));
                } else {
                    repeats = repeats.min(segment.sent_at);
                }
                continue;
            }
            if segment.marks.has(Mark::Retransmitted) {
                segment.marks.clear(Mark::Retransmitted);
                let repairs = self.repairs.get_or_insert_default();
                repairs.retransmitted = repairs.retransmitted.saturating_sub(segment.len());
                repairs.ever_lost += segment.len();
            }
            if !segment.marks.has(Mark::Lost) {
                segment.marks.set(Mark::Lost);
                let repairs = self.repairs.get_or_insert_default();
                repairs.lost += segment.len();
                repairs.ever_lost += segment.len();
            }
        }
        self.settled_to = settled_to.unwrap_or(self.nxt);
        if repeats != repeats_before {
            self.repairs_mut().repeats_unsettled_since = repeats;
        }
        self.repairs().retransmitted < retransmitted_before
    }
}

/// Sent once, as far as seen.
fn is_first(segment: &Outstanding) -> bool {
    segment.transmissions == 1
}

#[cfg(test)]
mod tests;
