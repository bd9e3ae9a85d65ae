//! SACKed segments and lost ones (RFC 6675 sections 4 and 5).

use spand_proto::units::{Micros, Timestamp};

use super::{Mark, Scoreboard};

/// Segments that must be SACKed above one before it counts as lost (RFC 6675 section 2, `DupThresh`).
const DUP_THRESH: usize = 3;

impl Scoreboard {
    /// Takes a SACK block seen at `at`; returns the bytes not SACKed before, and adds to `arrived` those sent once.
    pub(crate) fn sack(
        &mut self,
        (left, right): (u64, u64),
        at: Timestamp,
        min_rtt: Option<Micros>,
        limit: usize,
        arrived: &mut Option<Timestamp>,
    ) -> u64 {
        let (left, right) = (left.max(self.una), right.min(self.nxt));
        let Some(left) = self.first_uncovered(left, right) else { return 0 };
        let repairs = self.repairs_mut();
        let sacked_to = repairs.sacked_to;
        repairs.sacked_to = sacked_to.max(right);
        let mut index = self.split_at(left, limit);
        let mut newly = 0;
        while let Some(segment) = self.segments.get(index).copied().filter(|segment| segment.start < right) {
            if segment.marks.has(Mark::Sacked) {
                index += 1;
                continue;
            }
            if right < segment.end {
                self.split_at(right, limit);
            }
            let Some(segment) = self.segments.get_mut(index) else { break };
            if segment.start >= left && segment.end <= right {
                let before = *segment;
                self.rack.sacked(&before, at, sacked_to, min_rtt);
                if before.is_timed_by_sender() {
                    *arrived = Some(before.sent_at);
                }
                segment.marks.set(Mark::Sacked);
                segment.marks.clear(Mark::Lost);
                segment.marks.clear(Mark::Retransmitted);
                let after = *segment;
                self.forget(&before);
                self.remember(&after);
                newly += after.len();
            }
            index += 1;
        }
        newly
    }

    /// Marks as lost what has at least three SACKed segments above it (RFC 6675 section 4, `IsLost`).
    pub(crate) fn mark_lost(&mut self) {
        let mut above = self.first_after(self.repairs().sacked_to.saturating_sub(1)) + 1;
        above = above.min(self.segments.len());
        let mut sacked_segments = 0;
        let mut bound = None;
        for segment in self.segments.range(..above).rev().filter(|segment| segment.marks.has(Mark::Sacked)) {
            sacked_segments += 1;
            if sacked_segments == DUP_THRESH {
                bound = Some(segment.start);
                break;
            }
        }
        if let Some(bound) = bound {
            self.mark_lost_up_to(bound);
        }
    }

    /// Marks everything below `end` as lost that is not SACKed: the sender retransmitted up to there.
    pub(crate) fn mark_lost_below(&mut self, end: u64) {
        self.mark_lost_up_to(end);
    }

    /// Without SACK: a duplicate acknowledgement counts one more segment of `mss` bytes as arrived (`tcp_add_reno_sack`).
    pub(crate) fn duplicate_arrived(&mut self, mss: u64) {
        let flight = self.flight();
        let repairs = self.repairs_mut();
        let most = flight.saturating_sub(repairs.sacked + repairs.lost);
        repairs.duplicated = repairs.duplicated.saturating_add(mss).min(most);
    }

    /// Without SACK: the acknowledgement advanced by `advanced` bytes. In recovery duplicates had counted all of them but one
    /// segment (`tcp_remove_reno_sacks`); otherwise all.
    pub(crate) fn forget_duplicates(&mut self, advanced: u64, mss: u64, recovering: bool) {
        let Some(repairs) = &mut self.repairs else { return };
        let counted = if recovering { advanced.saturating_sub(mss) } else { u64::MAX };
        repairs.duplicated = repairs.duplicated.saturating_sub(counted);
    }

    /// A timeout: everything not SACKed is lost and not yet retransmitted (RFC 6675 section 5.1).
    pub(crate) fn mark_all_lost(&mut self) {
        let repairs = self.repairs_mut();
        repairs.ever_lost += repairs.retransmitted;
        repairs.retransmitted = 0;
        repairs.duplicated = 0;
        for segment in &mut self.segments {
            segment.marks.clear(Mark::Retransmitted);
        }
        self.mark_lost_up_to(self.nxt);
    }

    fn mark_lost_up_to(&mut self, bound: u64) {
        let lost_below = self.repairs().lost_below;
        if bound <= lost_below {
            return;
        }
        let first = self.first_after(lost_below.max(self.una));
        let mut newly = 0;
        for segment in self.segments.range_mut(first..).take_while(|segment| segment.start < bound) {
            if !segment.marks.has(Mark::Sacked) && !segment.marks.has(Mark::Lost) {
                segment.marks.set(Mark::Lost);
                newly += segment.len();
            }
        }
        let repairs = self.repairs_mut();
        repairs.lost += newly;
        repairs.ever_lost += newly;
        repairs.lost_below = bound;
    }

    /// Blocks repeat and grow from one acknowledgement to the next: returns the first position in `left..right` that no recent
    /// block covers, so that a long block is not walked again for each segment it grows by. `None` if there is none.
    fn first_uncovered(&mut self, left: u64, right: u64) -> Option<u64> {
        if left >= right {
            return None;
        }
        let blocks = &mut self.repairs_mut().blocks;
        if let Some(block) = blocks.iter_mut().find(|block| block.0 <= left && left <= block.1) {
            let known = block.1;
            block.1 = known.max(right);
            return (known < right).then_some(known);
        }
        blocks.rotate_right(1);
        if let Some(oldest) = blocks.first_mut() {
            *oldest = (left, right);
        }
        Some(left)
    }
}
