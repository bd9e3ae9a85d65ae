//! The pace as the packets show it. BBR sends in bursts, each as long after the one before as that takes at its pace, whatever
//! comes back: most of these gaps tell its rate to a few percent (`tcp_update_skb_after_send`).
//!
//! Its gain cycle changes the pace for a round trip or so; a pace that holds for longer is the rate that it goes by.

use spand_proto::units::{Micros, Timestamp};

use super::rate;

/// What leaves within this time after the packet before it is of the same burst: bursts are a millisecond apart at least.
const BURST: Micros = Micros(250);
/// Two gaps tell the same pace within this part.
const SAME_PART: u32 = 32;
/// Gaps in a row that make another pace, and in all that make one telling.
const ANEW: u8 = 3;
const TELLING: u8 = 12;
/// The gain cycle holds a gain other than one for a smallest round trip (`bbr_is_next_cycle_phase`), here with this part of it to spare.
const SPARE_PART: u64 = 2;

/// Gaps that tell the same pace.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    rate: u32,
    gaps: u8,
    since: Timestamp,
    last: Timestamp,
}

/// Follows the gaps between bursts.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    burst_began: Timestamp,
    burst_bytes: u64,
    last_sent: Timestamp,
    /// The pace of late, and another one that may follow it.
    now: Run,
    next: Run,
    /// After the last packet nothing but its pace held it back.
    free: bool,
}

impl Run {
    fn take(&mut self, at: Timestamp, rate: u32) -> bool {
        if self.gaps == 0 || !same(rate, self.rate, SAME_PART) {
            return false;
        }
        let smoothed = (u64::from(self.rate) * 7 + u64::from(rate)) / 8;
        self.rate = u32::try_from(smoothed).unwrap_or(u32::MAX);
        self.gaps = self.gaps.saturating_add(1);
        self.last = at;
        true
    }
}

impl Pace {
    /// A packet of `bytes` payload, after which nothing but its pace holds the sender back if it is `free`. Returns whether the gap
    /// before it tells the pace of late.
    pub(super) fn on_sent(&mut self, at: Timestamp, bytes: u64, mss: u32, free: bool) -> bool {
        let begins = at.since(self.last_sent) > BURST;
        self.last_sent = at;
        let was_free = std::mem::replace(&mut self.free, free);
        if !begins {
            self.burst_bytes = self.burst_bytes.saturating_add(bytes);
            return false;
        }
        let told = rate::of_paced(self.burst_bytes, mss, at.since(self.burst_began).0);
        (self.burst_began, self.burst_bytes) = (at, bytes);
        if !was_free {
            return false;
        }
        if self.now.take(at, told) {
            self.next.gaps = 0;
            return true;
        }
        if !self.next.take(at, told) {
            self.next = Run { rate: told, gaps: 1, since: at, last: at };
        } else if self.next.gaps >= ANEW {
            self.now = std::mem::take(&mut self.next);
        }
        false
    }

    /// Another gain holds: what it paced at before says nothing.
    pub(super) fn forget(&mut self) {
        (self.now, self.next) = (Run::default(), Run::default());
    }

    /// The rate that it goes by, where it held the same pace for longer than its gain cycle does.
    pub(super) fn held(&self, min_rtt: Micros) -> Option<u32> {
        let gain = min_rtt.0.saturating_add(min_rtt.0 / SPARE_PART);
        let long = self.now.last.since(self.now.since).0 >= gain;
        (self.now.gaps >= TELLING && long).then_some(self.now.rate)
    }
}

/// Whether two rates differ by less than one part in `part`.
pub(super) fn same(one: u32, other: u32, part: u32) -> bool {
    one.abs_diff(other) <= other / part
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is known of the pace after bursts of two segments of 1,000 bytes so many microseconds apart, round trips of 10 ms.
    fn held_after(gaps_us: &[u64], free: bool) -> Option<u64> {
        let mut pace = Pace::default();
        let mut at = Timestamp::from_micros(1_000_000);
        for gap_us in gaps_us {
            pace.on_sent(at, 1_000, 1_000, free);
            pace.on_sent(at.after(Micros(10)), 1_000, 1_000, free);
            at = at.after(Micros(*gap_us));
        }
        pace.on_sent(at, 1_000, 1_000, free);
        pace.held(Micros(10_000)).map(|rate| rate::paced(rate, 1_000, rate::UNIT))
    }

    fn about(rate: Option<u64>, bytes_per_second: u64) -> bool {
        rate.is_some_and(|rate| rate.abs_diff(bytes_per_second) <= bytes_per_second / 50)
    }

    #[test]
    fn a_pace_that_holds_for_longer_than_a_gain_is_the_rate() {
        // Two segments in 4 ms; now and then an acknowledgement's, or one that comes late.
        let even =
            [[4_000, 4_020, 3_990, 900, 4_000, 4_000], [6_100, 3_970, 4_000, 4_010, 4_000, 4_000]].concat().repeat(2);
        assert!(about(held_after(&even, true), 500_000), "{:?}", held_after(&even, true));
        assert_eq!(held_after(&even, false), None, "something else holds it back");
        assert_eq!(held_after(&[1_000; 14], true), None, "a round trip of it may be a gain of the cycle");
        assert!(held_after(&[1_000; 18], true).is_some());
        assert_eq!(held_after(&[4_000; 11], true), None, "few gaps may be alike by chance");
        assert_eq!(held_after(&[4_000, 3_000, 6_000, 2_000].repeat(5), true), None);
    }

    #[test]
    fn another_pace_takes_over_once_it_holds() {
        let changed = [[4_000; 16], [8_000; 16]].concat();
        assert!(about(held_after(&changed, true), 250_000), "{:?}", held_after(&changed, true));
    }
}
