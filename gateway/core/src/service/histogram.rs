//! Sizes of the last while, counted in steps of an eighth of an octave.

use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};

use spand_proto::units::{Bytes, Micros, Timestamp};

use crate::hash::SeededState;

/// Steps of one octave: a quantile is at most 2^(1/8) = 9 % above the size that it stands for.
const STEPS: usize = 8;
/// The first step holds everything up to 64 bytes, the last everything from 2^40 on.
const FIRST_OCTAVE: u32 = 6;
const OCTAVES: usize = 34;
const BINS: usize = OCTAVES * STEPS + 1;

/// Counts are kept for two spans, the one under way and the one before: sizes of the last half to whole hour.
pub(super) const SPAN: Micros = Micros::from_secs(1_800);

/// Ends of the steps of an octave as parts of its beginning: 2^(n/8).
const PARTS: [f64; STEPS] = [
    1.0,
    1.090_507_732_665_257_7,
    1.189_207_115_002_721,
    1.296_839_554_651_009_6,
    std::f64::consts::SQRT_2,
    1.542_210_825_407_940_7,
    1.681_792_830_507_429,
    1.834_008_086_409_342_4,
];

type Counts = [u32; BINS];

/// Counts of sizes over a sliding while, of bounded size whatever comes.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    began: Timestamp,
    lately: Counts,
    before: Counts,
    /// The remote addresses of the current span.
    remotes: Remotes,
}

impl Histogram {
    /// Empty, from `at` on.
    pub(super) const fn new(at: Timestamp) -> Self {
        Self { began: at, lately: [0; BINS], before: [0; BINS], remotes: Remotes::new() }
    }

    /// Counts the size of a transfer to a remote address, with this weight, unless that gave as many of this span as one may: false then.
    pub(super) fn add(&mut self, at: Timestamp, remote: u32, size: Bytes, weight: u8) -> bool {
        let passed = at.since(self.began).0;
        if passed >= SPAN.0 {
            self.before = if passed < 2 * SPAN.0 { self.lately } else { [0; BINS] };
            self.lately = [0; BINS];
            self.began = at;
            self.remotes = Remotes::new();
        }
        let taken = self.remotes.takes(remote, weight);
        if let Some(count) = self.lately.get_mut(bin(size)) {
            *count = count.saturating_add(taken.into());
        }
        taken > 0
    }

    /// Sizes counted.
    pub(super) fn count(&self) -> u32 {
        self.counts().fold(0, u32::saturating_add)
    }

    /// The smallest step's end that at least three of four sizes do not exceed; `None` where there is none.
    pub(super) fn quantile(&self) -> Option<Bytes> {
        let rank = (u64::from(self.count()) * 3).div_ceil(4);
        let mut below = 0;
        let reaches = |count| {
            below += u64::from(count);
            below >= rank
        };
        let found = if rank == 0 { None } else { self.counts().position(reaches) };
        found.map(end)
    }

    fn counts(&self) -> impl Iterator<Item = u32> {
        self.lately.iter().zip(&self.before).map(|(lately, before)| lately.saturating_add(*before))
    }
}

/// The step that a size falls into: the first whose end it does not exceed.
fn bin(size: Bytes) -> usize {
    let octave = size.0.max(1).ilog2();
    let from = (octave.saturating_sub(FIRST_OCTAVE) as usize) * STEPS;
    if from >= BINS - 1 {
        return BINS - 1;
    }
    (from..=from + STEPS).find(|&bin| size <= end(bin)).unwrap_or(BINS - 1)
}

/// The largest size of a step.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 2^40, and never negative")]
fn end(bin: usize) -> Bytes {
    let (octave, step) = (FIRST_OCTAVE as usize + bin / STEPS, bin % STEPS);
    let part = PARTS.get(step).copied().unwrap_or(1.0);
    Bytes((part * (1_u64 << octave) as f64) as u64)
}

// The remote addresses that a service sent to lately, and how much of its sizes each of them gave.
//
// One client could otherwise set the usual size of a service alone. Its transfers beyond [`PER_REMOTE`] do not count until
// the next span of the histogram. Only the newest [`KEPT`] addresses are remembered: with more than that, one that was
// forgotten counts again, at most [`PER_REMOTE`] times among transfers to [`KEPT`] others.

/// Transfers of one remote address in a span: those of two spans, at most 6, are less than three quarters of the 10 that a
/// quantile takes, so that no address alone decides what three of four transfers do not exceed.
pub(super) const PER_REMOTE: u8 = 3;
/// Remote addresses remembered for each service.
pub(super) const KEPT: u8 = 64;
/// An IPv6 client has a whole /64 (RFC 6177), and each of its addresses is the same client.
const IPV6_BITS: u32 = 64;

/// The newest remote addresses of a service.
#[derive(Clone, Debug)]
pub(super) struct Remotes {
    /// A keyed hash of each; 0 in places that are not taken yet. The one address in 2^32 with that hash may count more often.
    keys: [u32; KEPT as usize],
    /// How many transfers of each counted.
    counted: [u8; KEPT as usize],
    /// The place that the next one takes: where all are taken, that of the oldest.
    next: u8,
}

impl Remotes {
    pub(super) const fn new() -> Self {
        Self { keys: [0; KEPT as usize], counted: [0; KEPT as usize], next: 0 }
    }

    /// How much a transfer with this weight counts for the address of this key: its weight, up to what is left for the address.
    pub(super) fn takes(&mut self, key: u32, weight: u8) -> u8 {
        let known = self.keys.iter().position(|known| *known == key);
        let place = known.unwrap_or_else(|| {
            let oldest = self.next;
            self.next = (oldest + 1) % KEPT;
            oldest.into()
        });
        let (Some(known), Some(counted)) = (self.keys.get_mut(place), self.counted.get_mut(place)) else { return 0 };
        if *known != key {
            (*known, *counted) = (key, 0);
        }
        let taken = weight.min(PER_REMOTE.saturating_sub(*counted));
        *counted += taken;
        taken
    }
}

/// The key of a remote address: without the seed no other address with the same key can be found.
pub(super) fn key_of(remote: IpAddr, state: SeededState) -> u32 {
    let client = match remote {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> (128 - IPV6_BITS) << (128 - IPV6_BITS)))
        }
        v4 @ IpAddr::V4(_) => v4,
    };
    u32::try_from(state.hash_one(client) >> 32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(sizes: &[u64]) -> Histogram {
        let mut histogram = Histogram::new(Timestamp(0));
        for (size, remote) in sizes.iter().zip(0..) {
            assert!(histogram.add(Timestamp(0), remote, Bytes(*size), 1));
        }
        histogram
    }

    #[test]
    fn nothing_has_no_quantile_and_the_largest_size_there_is_has_one() {
        assert_eq!(filled(&[]).quantile(), None);
        assert_eq!(filled(&[u64::MAX]).quantile(), Some(Bytes(1 << 40)));
        assert_eq!(filled(&[0, 1]).quantile(), Some(Bytes(64)));
    }

    #[test]
    fn the_steps_are_eighths_of_an_octave() {
        for bin in 0..BINS {
            let end_of_it = 2f64.powf(f64::from(FIRST_OCTAVE) + bin as f64 / STEPS as f64).floor();
            assert_eq!((end(bin).0 as f64).to_bits(), end_of_it.to_bits(), "{bin}");
        }
    }

    #[test]
    fn what_is_older_than_two_spans_is_forgotten() {
        let at = |spans: u64| Timestamp(0).after(Micros(spans * SPAN.0));
        let mut histogram = filled(&[1_000; 5]);
        histogram.add(at(1), 9, Bytes(50_000), 1);
        assert_eq!(histogram.count(), 6, "the span before counts");
        histogram.add(at(2), 9, Bytes(50_000), 1);
        assert_eq!(histogram.count(), 2);
        histogram.add(at(9), 9, Bytes(2_000), 1);
        assert_eq!(histogram.count(), 1);
    }

    proptest! {
        /// Against the sizes themselves: never below the quantile, and at most a step above it.
        #[test]
        fn a_quantile_is_that_of_the_sorted_sizes_within_a_step(
            sizes in proptest::collection::vec(prop_oneof![65u64..2_000, 65u64..100_000, 65u64..1 << 39], 1..200),
        ) {
            let quantile = filled(&sizes).quantile().unwrap().0;
            let mut sorted = sizes;
            sorted.sort_unstable();
            let exact = sorted[(sorted.len() * 3).div_ceil(4) - 1];
            prop_assert!(quantile >= exact, "{quantile} < {exact}");
            prop_assert!(quantile as f64 <= exact as f64 * 2f64.powf(1.0 / STEPS as f64) + 1.0, "{quantile} > {exact}");
        }
    }

    #[test]
    fn an_address_counts_a_few_times_and_again_when_it_was_forgotten() {
        let mut remotes = Remotes::new();
        let taken = |remotes: &mut Remotes| (0..50).map(|_| remotes.takes(1_000, 1)).sum::<u8>();
        assert_eq!(taken(&mut remotes), 3);
        (1..64).for_each(|other| assert_eq!(remotes.takes(other, 1), 1));
        assert_eq!(taken(&mut remotes), 0, "63 others are remembered beside it");
        assert_eq!(remotes.takes(64, 2), 2);
        assert_eq!(remotes.takes(64, 200), 1, "three in all, whatever it stands for");
        assert_eq!(taken(&mut remotes), 3, "the 64th other took its place");
    }

    #[test]
    fn a_whole_ipv6_subnet_is_one_client() {
        let key = |address: &str| key_of(address.parse().unwrap(), SeededState(7));
        assert_eq!(key("2001:db8:0:1::1"), key("2001:db8:0:1:ffff::2"));
        assert_ne!(key("2001:db8:0:1::1"), key("2001:db8:0:2::1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
    }
}
