//! How long a packet waits in a queue between its sender and the tap, as of a shaped virtual machine or an access switch. It names no
//! congestion control.
//!
//! Such a queue spaces the packets of any window evenly, and delays answers by its length. The sender's clock in the timestamps option
//! (RFC 7323) shows it: the value is of the moment at which the packet left, in milliseconds with Linux, Windows and macOS.

use spand_proto::units::{Micros, Timestamp};

use crate::flow::sequence::low_half;

/// Microseconds of one tick.
const TICK_US: u32 = 1_000;
/// A shorter wait is rounding, or the host's own.
const QUEUED_US: u32 = 2 * TICK_US;
/// Shortest period of the least wait, which is zero by definition: clocks drift. The longest is twice this.
const PERIOD_US: u32 = 10_000_000;
/// Time from which on the ticks in it show their length.
const TICKS_SHOWN_US: u32 = 50_000;

/// The wait of a sender's packets. Only differences count, so the low halves of times are enough.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    /// A value was seen.
    began: bool,
    /// Its ticks are milliseconds.
    ticks_fit: bool,
    /// When this period began, and the value then.
    since_us: u32,
    since_value: u32,
    /// The least difference of the tap's clock and the sender's, of this period and of the one before.
    least_us: [u32; 2],
    /// Of the newest packet.
    wait_us: u32,
    /// Its value, and whether that differs from the one before.
    value: u32,
    moved: bool,
}

impl Waits {
    /// A packet with this timestamp passed the tap.
    pub(super) fn on_sent(&mut self, at: Timestamp, value: Option<u32>) {
        let Some(value) = value else {
            (self.wait_us, self.moved) = (0, true);
            return;
        };
        self.moved = std::mem::replace(&mut self.value, value) != value;
        let now_us = low_half(at.0 / 1_000);
        let off_us = now_us.wrapping_sub(value.wrapping_mul(TICK_US));
        let (us, ticks_us) =
            (now_us.wrapping_sub(self.since_us), value.wrapping_sub(self.since_value).saturating_mul(TICK_US));
        if us >= TICKS_SHOWN_US {
            self.ticks_fit = ticks_us / 2 <= us && ticks_us >= us / 2;
        }
        if !self.began || us > PERIOD_US {
            let before = if self.began && us <= 2 * PERIOD_US { self.least_us[0] } else { off_us };
            (self.began, self.since_us, self.since_value, self.least_us) = (true, now_us, value, [off_us, before]);
        }
        let [least_us, before_us] = &mut self.least_us;
        *least_us = earlier(*least_us, off_us);
        self.wait_us = off_us.wrapping_sub(earlier(*least_us, *before_us));
    }

    /// Whether the newest packet left later than the one before, as far as is seen.
    pub(super) fn moved(&self) -> bool {
        self.moved || !self.ticks_fit
    }

    /// What the newest packet waited in a queue before the tap; zero if it did not, or it is not known.
    pub(super) fn queued(&self) -> Micros {
        let shown = self.ticks_fit && self.wait_us >= QUEUED_US;
        Micros(if shown { self.wait_us.into() } else { 0 })
    }
}

/// The earlier of two low halves.
fn earlier(one: u32, other: u32) -> u32 {
    if one.wrapping_sub(other) < 1 << 31 { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last wait of packets that left every 10 ms, at `tick_us` per tick, and passed the tap as much later as `waits` has.
    fn last(tick_us: u64, waits_us: &[u64]) -> u64 {
        let mut waits = Waits::default();
        for (n, wait_us) in (0..).zip(waits_us) {
            // The value and the time wrap within the first packets.
            let left_us = u64::from(u32::MAX) - 45_300 + n * 10_000;
            let value = u32::MAX.wrapping_add(low_half(left_us / tick_us));
            waits.on_sent(Timestamp::from_micros(left_us + 70 + wait_us), Some(value));
        }
        waits.queued().0
    }

    #[test]
    fn a_queue_before_the_tap_shows_in_the_senders_clock() {
        let queue: Vec<u64> = (0..20).map(|n| n * 1_000).collect();
        assert!((18_500..=20_000).contains(&last(1_000, &queue)), "{}", last(1_000, &queue));
        assert_eq!(last(1_000, &[0; 20]), 0);
        assert_eq!(last(1_000, &[[0; 19].as_slice(), &[900]].concat()), 0, "less than its clock shows");
        assert_eq!(last(10_000, &[[0; 19].as_slice(), &[9_000]].concat()), 0, "ticks of ten milliseconds");
        assert_eq!(last(1, &queue), 0, "ticks of a microsecond");
    }

    #[test]
    fn clocks_that_drift_apart_are_no_queue_for_long() {
        let drift: Vec<u64> = (0..3_000).map(|n| n / 2).collect();
        assert_eq!(last(1_000, &drift), 0, "50 parts in a million");
        let stays = [vec![0; 10], vec![20_000; 2_500]].concat();
        assert_eq!(last(1_000, &stays), 0, "the path is as long as that");
    }
}
