//! What the connections to a network deliver together: the rate of its path, where they fill it.
//!
//! The largest rate of the last five to ten minutes outlasts a crowd: with the least round trip it is what the empty path holds, which no
//! window of a crowd shows.

use crate::types::Delivered;
use spand_proto::units::{Micros, Timestamp, Window};

/// Nanoseconds of a bin, over which a rate is taken: acknowledgements in bunches raise none.
const BIN_NS: u64 = 1_000_000_000;
/// Bins that still take bytes: round trips are flushed about once a second.
const BINS: u32 = 3;
/// Bins of a span. The largest rate is of the one under way and of the one before.
const SPAN: u32 = 300;

/// The rates of one network.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    /// Number of the newest bin since 1970.
    newest: u32,
    /// Bytes of the newest bins, each at its number modulo theirs.
    bins: [u32; BINS as usize],
    /// The most of a bin of the span under way, and of the span before.
    most: [u32; 2],
}

impl Delivery {
    /// Takes what was delivered until `at`, as spread evenly over its time.
    pub(crate) fn add(&mut self, at: Timestamp, delivered: Delivered) {
        let Delivered { since, bytes } = delivered;
        let last = bin_of(at);
        if bytes == 0 || self.newest.saturating_sub(last) >= BINS {
            return;
        }
        self.turn(last);
        let (first, span_ns) = (bin_of(since), at.0.saturating_sub(since.0));
        let oldest = self.newest.saturating_sub(BINS - 1);
        for bin in first.max(oldest)..=last {
            let begin_ns = u64::from(bin) * BIN_NS;
            let overlap_ns = at.0.min(begin_ns + BIN_NS).saturating_sub(since.0.max(begin_ns));
            let part = if span_ns == 0 { bytes } else { share_of(bytes, overlap_ns, span_ns) };
            if let Some(sum) = self.bins.get_mut((bin % BINS) as usize) {
                *sum = sum.saturating_add(u32::try_from(part).unwrap_or(u32::MAX));
                self.most[0] = self.most[0].max(*sum);
            }
        }
    }

    /// What the empty path holds at this least round trip, as far as its senders filled it.
    pub(crate) fn bdp(&self, now: Timestamp, rtt_min: Option<Micros>) -> Option<Window> {
        let most = match (bin_of(now) / SPAN).saturating_sub(self.newest / SPAN) {
            0 => self.most[0].max(self.most[1]),
            1 => self.most[0],
            _ => 0,
        };
        let bytes = u64::from(most).saturating_mul(rtt_min?.0) / Micros::from_secs(1).0;
        (bytes > 0).then(|| Window::from_bytes(bytes as f64)).flatten()
    }

    /// Makes room for bins up to this one.
    fn turn(&mut self, last: u32) {
        if last <= self.newest {
            return;
        }
        match last / SPAN - self.newest / SPAN {
            0 => {}
            1 => self.most = [0, self.most[0]],
            _ => self.most = [0; 2],
        }
        let gone = last - self.newest;
        for bin in (self.newest + 1..=last).rev().take(BINS.min(gone) as usize) {
            if let Some(sum) = self.bins.get_mut((bin % BINS) as usize) {
                *sum = 0;
            }
        }
        self.newest = last;
    }
}

fn bin_of(at: Timestamp) -> u32 {
    u32::try_from(at.0 / BIN_NS).unwrap_or(u32::MAX - 1)
}

fn share_of(bytes: u64, part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(part) / u128::from(whole.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp(600_000_000_000 + ms * 1_000_000)
    }

    /// Bytes a second, since the round trip is one.
    fn rate(delivery: &Delivery, ms: u64) -> u64 {
        delivery.bdp(at(ms), Some(Micros::from_secs(1))).map_or(0, |window| window.half_bytes() / 2)
    }

    #[test]
    fn connections_add_up_over_the_time_in_which_they_delivered() {
        let mut delivery = Delivery::default();
        // Two seconds of 1,000 bytes each, reported late, and within the second of them one more connection.
        delivery.add(at(2_000), Delivered { since: at(0), bytes: 2_000 });
        delivery.add(at(1_900), Delivered { since: at(1_400), bytes: 500 });
        assert_eq!(rate(&delivery, 3_000), 1_500);
        assert_eq!(delivery.bdp(at(3_000), Some(Micros::from_millis(50))).map(Window::half_bytes), Some(150));
    }

    #[test]
    fn the_largest_rate_holds_for_the_span_under_way_and_the_next() {
        let mut delivery = Delivery::default();
        delivery.add(at(1_000), Delivered { since: at(0), bytes: 9_000 });
        delivery.add(at(310_000), Delivered { since: at(309_000), bytes: 1_000 });
        assert_eq!(rate(&delivery, 310_000), 9_000);
        delivery.add(at(610_000), Delivered { since: at(609_000), bytes: 2_000 });
        assert_eq!(rate(&delivery, 610_000), 2_000);
        assert_eq!((rate(&delivery, 1_190_000), rate(&delivery, 1_210_000)), (2_000, 0));
    }

    #[test]
    fn what_comes_too_late_for_its_bin_counts_nowhere() {
        let mut delivery = Delivery::default();
        delivery.add(at(10_000), Delivered { since: at(9_000), bytes: 1_000 });
        delivery.add(at(5_000), Delivered { since: at(4_000), bytes: 80_000 });
        delivery.add(at(10_000), Delivered { since: at(0), bytes: 10_000 });
        assert_eq!(rate(&delivery, 10_000), 2_000);
        let mut at_once = Delivery::default();
        at_once.add(at(500), Delivered { since: at(500), bytes: 700 });
        assert_eq!(rate(&at_once, 500), 700);
    }
}
