//! Which share of the connections an engine follows, where it cannot follow all.
//!
//! Shed by connection and not by packet: what is followed is seen whole, so what is known of it stays right. Which ones is
//! selected by the hash of the tuple: the same for both directions, and a connection followed at a smaller share is also followed at
//! a larger one.

use spand_proto::units::{Micros, Timestamp};

/// A share of all connections, in 256ths; never none.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct SampleRate(u16);

impl SampleRate {
    /// Every connection.
    pub const ALL: Self = Self(256);
    /// One in 256.
    pub const LEAST: Self = Self(1);

    /// `parts` of 256, at least one and at most all.
    pub fn of_256(parts: u16) -> Self {
        Self(parts).clamp(Self::LEAST, Self::ALL)
    }

    /// How many of 256.
    pub fn parts(self) -> u16 {
        self.0
    }

    /// As a share from above 0 to 1.
    pub fn share(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ALL.0)
    }

    /// How many there are in total if this many are followed.
    pub(crate) fn scale(self, followed: u32) -> u32 {
        u32::try_from((u64::from(followed) * u64::from(Self::ALL.0)).div_ceil(u64::from(self.0))).unwrap_or(u32::MAX)
    }

    /// Whether it has the connection with this hash.
    pub(crate) fn has(self, hash: u64) -> bool {
        // The table takes its places from the lowest and the highest bits.
        (hash >> 32) & 0xff < u64::from(self.0)
    }
}

/// What share was followed lately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentSampleRate {
    now: SampleRate,
    /// The smallest share since `until`'s window began, and until when it was less than all.
    least: SampleRate,
    until: Timestamp,
}

impl RecentSampleRate {
    pub(crate) fn new() -> Self {
        Self { now: SampleRate::ALL, least: SampleRate::ALL, until: Timestamp(0) }
    }

    pub(crate) fn now(&self) -> SampleRate {
        self.now
    }

    /// From `at` on `kept` are followed.
    pub(crate) fn set(&mut self, kept: SampleRate, at: Timestamp, window: Micros) {
        self.least = self.within(at, window).min(kept);
        self.now = kept;
        self.until = at;
    }

    /// The smallest share followed at any time in the `window` before `now`.
    pub(crate) fn within(&self, now: Timestamp, window: Micros) -> SampleRate {
        let over = self.now == SampleRate::ALL && now.since(self.until) > window;
        if over { SampleRate::ALL } else { self.least }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_remembered_for_the_window() {
        let at = |s: u64| Timestamp(s * 1_000_000_000);
        let window = Micros::from_secs(300);
        let mut lately = RecentSampleRate::new();
        assert_eq!(lately.within(at(0), window), SampleRate::ALL);
        lately.set(SampleRate::of_256(64), at(100), window);
        lately.set(SampleRate::of_256(128), at(110), window);
        assert_eq!((lately.now(), lately.within(at(9_000), window)), (SampleRate::of_256(128), SampleRate::of_256(64)));
        lately.set(SampleRate::ALL, at(9_000), window);
        assert_eq!(lately.within(at(9_300), window), SampleRate::of_256(64));
        assert_eq!(lately.within(at(9_301), window), SampleRate::ALL);
        lately.set(SampleRate::of_256(200), at(9_400), window);
        assert_eq!(lately.within(at(9_400), window), SampleRate::of_256(200), "what was before is forgotten");
    }

    #[test]
    fn a_larger_share_has_what_a_smaller_one_has() {
        let hashes = (0..10_000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut had = 0;
        for hash in hashes {
            assert!(SampleRate::ALL.has(hash));
            assert!(!SampleRate::of_256(64).has(hash) || SampleRate::of_256(65).has(hash));
            had += u32::from(SampleRate::of_256(64).has(hash));
        }
        assert!((2_200..2_800).contains(&had), "{had} of 10,000");
        assert_eq!(
            (SampleRate::of_256(100).scale(3), SampleRate::LEAST.scale(u32::MAX), SampleRate::ALL.scale(7)),
            (8, u32::MAX, 7)
        );
        assert_eq!((SampleRate::of_256(0), SampleRate::of_256(1_000)), (SampleRate::LEAST, SampleRate::ALL));
    }
}
