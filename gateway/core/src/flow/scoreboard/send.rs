//! What a transmission does to the scoreboard.

use super::{Mark, Outstanding, Scoreboard, Stamp};

impl Scoreboard {
    /// Records a transmission of `start..end`. Above everything sent it becomes a new segment, after a placeholder for bytes
    /// never seen below it; elsewhere it marks the segments that it repeats. Returns whether the limit was reached and it was
    /// merged with its neighbour.
    pub(crate) fn send(&mut self, start: u64, end: u64, stamp: Stamp, limit: usize) -> bool {
        if start >= self.nxt {
            return self.push_new(start, end, stamp, limit);
        }
        self.send_again(start, end, stamp, limit)
    }

    /// Excludes `start..end` from round-trip times: window probes, whose answer waits for the receiver's application.
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
            self.push_back(Outstanding::unseen(seen_from, start, stamp.at), limit);
        }
        self.push_back(Outstanding::new(start, end, stamp), limit)
    }

    /// Appends the segment; at the limit the last one grows over it and can no longer be timed.
    #[inline]
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

    /// Room for a handshake or a short answer first, then for an initial window, then twice as much each time.
    #[cold]
    fn make_room(&mut self) {
        let more = match self.segments.capacity() {
            0 => 4,
            4 => 8,
            room => room,
        };
        self.segments.reserve_exact(more);
    }

    fn send_again(&mut self, start: u64, end: u64, stamp: Stamp, limit: usize) -> bool {
        let repairs = self.repairs_mut();
        repairs.repeats_unsettled_since = repairs.repeats_unsettled_since.min(stamp.at);
        if start < self.una {
            // Acknowledged already, so nothing waits for it; but segments sent before it can no longer be timed.
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
                    segment.set_stamp(stamp);
                    segment.transmissions = segment.transmissions.saturating_add(1);
                    // A retransmission of what is not marked lost is a tail loss probe, which senders do not count twice.
                    if segment.marks.has(Mark::Lost) && !segment.marks.has(Mark::Retransmitted) {
                        segment.marks.set(Mark::Retransmitted);
                        self.repairs.get_or_insert_default().retransmitted += segment.len();
                    }
                }
                index += 1;
            }
        }
        end > self.nxt && self.push_new(self.nxt, end, stamp, limit)
    }
}
