//! The observed pace. BBR sends in bursts, spaced by their length at its pacing rate, independent of acknowledgements: most gaps
//! give its rate to a few percent (`tcp_update_skb_after_send`).
//!
//! Its gain cycle changes the pace for a round trip or so; a pace that lasts longer is its rate.

use spand_proto::units::{Micros, Timestamp};

use super::rate;

/// A packet within this time after the one before is of the same burst: bursts are a millisecond apart at least.
const BURST: Micros = Micros(250);
/// Two gaps have the same pace within this part.
const SAME_PART: u32 = 32;
/// Gaps in a row that start another pace, and gaps that establish one.
const NEW_PACE: u8 = 3;
const ESTABLISHED: u8 = 12;
/// BBR changes its pace within a gain cycle, which has eight round trips (`CYCLE_LEN`); two more are to spare.
const CYCLE_ROUNDS: u64 = 10;
/// A pace above a limit by this part is not within it.
const EXCEEDED_PART: u32 = 8;

/// Gaps of the same pace.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    rate: u32,
    gaps: u8,
    /// Time in its gaps alone.
    held_us: u64,
}

/// Tracks the gaps between bursts.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    burst_began: Timestamp,
    burst_bytes: u64,
    last_sent: Timestamp,
    /// The current pace, and another one that may follow it.
    now: Run,
    next: Run,
    /// The rate that it kept for longer than a cycle of gains; 0 without one, or after it was exceeded.
    limit: u32,
    /// After the last packet only pacing delayed the sender.
    free: bool,
}

impl Run {
    fn take(&mut self, gap: Micros, rate: u32) -> bool {
        if self.gaps == 0 || !same(rate, self.rate, SAME_PART) {
            return false;
        }
        let smoothed = (u64::from(self.rate) * 7 + u64::from(rate)) / 8;
        self.rate = u32::try_from(smoothed).unwrap_or(u32::MAX);
        self.gaps = self.gaps.saturating_add(1);
        self.held_us = self.held_us.saturating_add(gap.0);
        true
    }
}

impl Pace {
    /// A packet of `bytes` payload, after which only pacing delays the sender if it is `free`.
    pub(super) fn on_sent(&mut self, at: Timestamp, bytes: u64, mss: u32, free: bool) {
        let begins = at.since(self.last_sent) > BURST;
        self.last_sent = at;
        let was_free = std::mem::replace(&mut self.free, free);
        if !begins {
            self.burst_bytes = self.burst_bytes.saturating_add(bytes);
            return;
        }
        let gap = at.since(self.burst_began);
        let rate = rate::of_paced(self.burst_bytes, mss, gap.0);
        (self.burst_began, self.burst_bytes) = (at, bytes);
        if !was_free {
            return;
        }
        if self.now.take(gap, rate) {
            self.next.gaps = 0;
            return;
        }
        if !self.next.take(gap, rate) {
            self.next = Run { rate, gaps: 1, held_us: 0 };
        } else if self.next.gaps >= NEW_PACE {
            self.now = std::mem::take(&mut self.next);
            if self.now.rate > self.limit.saturating_add(self.limit / EXCEEDED_PART) {
                self.limit = 0;
            }
        }
    }

    /// The gain changed: the pace before does not count.
    pub(super) fn forget(&mut self) {
        (self.now, self.next) = (Run::default(), Run::default());
    }

    /// A round trip ended: whether the same pace lasted for more of them than a cycle of gains has, and was not exceeded since.
    pub(super) fn note_limit(&mut self, min_rtt: Micros) {
        if self.now.gaps >= ESTABLISHED && self.now.held_us >= min_rtt.0.saturating_mul(CYCLE_ROUNDS) {
            self.limit = self.now.rate;
        }
    }

    /// Something was lost: what it keeps from here on counts.
    pub(super) fn restart(&mut self) {
        self.now.held_us = 0;
    }

    pub(super) fn has_limit(&self) -> bool {
        self.limit > 0
    }
}

/// Whether two rates differ by less than one part in `part`.
pub(super) fn same(one: u32, other: u32, part: u32) -> bool {
    one.abs_diff(other) <= other / part
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends bursts of two segments of 1,000 bytes with these gaps, over round trips of 5 ms. Returns whether they count as a limit.
    fn limits(gaps_us: &[u64], free: bool) -> bool {
        let mut pace = Pace::default();
        let mut at = Timestamp::from_micros(1_000_000);
        for gap_us in gaps_us {
            pace.on_sent(at, 1_000, 1_000, free);
            pace.on_sent(at.after(Micros(10)), 1_000, 1_000, free);
            at = at.after(Micros(*gap_us));
            pace.note_limit(Micros(5_000));
        }
        pace.has_limit()
    }

    #[test]
    fn a_pace_that_holds_for_longer_than_a_cycle_of_gains_is_a_limit() {
        // Two segments in 4 ms; now and then one sooner, after an acknowledgement, or one late.
        let even =
            [[4_000, 4_020, 3_990, 900, 4_000, 4_000], [6_100, 3_970, 4_000, 4_010, 4_000, 4_000]].concat().repeat(2);
        assert!(limits(&even, true));
        assert!(!limits(&even, false), "something else holds it back");
        assert!(!limits(&[1_000; 40], true), "ten round trips of it may be a cycle of gains");
        assert!(limits(&[1_000; 60], true));
        assert!(!limits(&[5_000; 11], true), "few gaps may be alike by chance");
        assert!(!limits(&[4_000, 3_000, 6_000, 2_000].repeat(10), true));
    }

    #[test]
    fn a_faster_pace_shows_that_there_was_no_limit() {
        assert!(!limits(&[[4_000; 20], [3_000; 20]].concat()[..30], true));
        assert!(limits(&[[4_000; 20], [8_000; 20]].concat(), true));
    }
}
