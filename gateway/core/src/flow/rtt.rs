//! A sender's round-trip time and retransmission timeout, as RFC 6298 and as Linux computes them, in whole microseconds.

use spand_proto::units::{Micros, Timestamp};

/// Timeout before the first sample (RFC 6298 section 2, rule 2.1).
pub(crate) const INITIAL_RTO: Micros = Micros(1_000_000);
/// Least allowance above the smoothed round trip: what Linux keeps for a delayed ACK (`tcp_rto_min`).
const MIN_ALLOWANCE_US: u64 = 200_000;
/// Upper bound of the timeout (RFC 6298 section 2, rule 2.5).
const MAX_RTO: Micros = Micros(60_000_000);

/// What takes longer was not waiting for the network: no stack keeps asking for this long (RFC 9293 section 3.8.3 gives
/// up after 100 s at the earliest, and BSD's longest timeout is 64 s).
pub(crate) const LONGEST_ROUND_TRIP: Micros = Micros::from_secs(120);

/// The time from `sent` to `answered`; `None` where it runs backwards (files merged with clocks apart, a damaged record) or
/// is longer than any round trip.
pub(crate) fn round_trip(sent: Timestamp, answered: Timestamp) -> Option<Micros> {
    let rtt = answered.since(sent);
    (answered >= sent && rtt <= LONGEST_ROUND_TRIP).then_some(rtt)
}

/// A time longer than this, and than this many smoothed round trips, is no round trip: the clock was set, or nobody answered.
const STEP_TIMES: u64 = 16;
const STEP_LEAST: Micros = Micros::from_secs(4);

/// Smoothed round-trip time, its variation and its minimum, in four bytes each: no round trip is longer than [`round_trip`] says.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "a raw number ends in its unit")]
pub(crate) struct RttEstimator {
    mean_us: u32,
    variation_us: u32,
    /// [`u32::MAX`] before the first sample.
    min_us: u32,
}

impl Default for RttEstimator {
    fn default() -> Self {
        Self { mean_us: 0, variation_us: 0, min_us: u32::MAX }
    }
}

impl RttEstimator {
    /// Takes a valid sample (RFC 6298 section 2, rules 2.2 and 2.3).
    pub(crate) fn add(&mut self, rtt: Micros) {
        let rtt_us = u32::try_from(rtt.0).unwrap_or(u32::MAX).min(u32::MAX - 1);
        if self.is_new() {
            *self = Self { mean_us: rtt_us, variation_us: rtt_us / 2, min_us: rtt_us };
            return;
        }
        let Self { mean_us, variation_us, min_us } = *self;
        *self = Self {
            mean_us: weigh(mean_us, 7, rtt_us),
            variation_us: weigh(variation_us, 3, mean_us.abs_diff(rtt_us)),
            min_us: min_us.min(rtt_us),
        };
    }

    /// Returns whether a sample spans a step of the clock.
    #[inline]
    pub(crate) fn is_step(&self, rtt: Micros) -> bool {
        rtt > STEP_LEAST && !self.is_new() && rtt.0 > u64::from(self.mean_us) * STEP_TIMES
    }

    fn is_new(&self) -> bool {
        self.min_us == u32::MAX
    }

    /// Smoothed round-trip time.
    pub(crate) fn smoothed(&self) -> Option<Micros> {
        (!self.is_new()).then_some(Micros(u64::from(self.mean_us)))
    }

    /// Smallest sample.
    pub(crate) fn min(&self) -> Option<Micros> {
        (!self.is_new()).then_some(Micros(u64::from(self.min_us)))
    }

    /// The retransmission timeout that a Linux sender with these samples would use.
    pub(crate) fn timeout(&self) -> Micros {
        if self.is_new() {
            return INITIAL_RTO;
        }
        let allowance_us = (u64::from(self.variation_us) * 4).max(MIN_ALLOWANCE_US);
        Micros(u64::from(self.mean_us) + allowance_us).min(MAX_RTO)
    }
}

/// `(old * weight + new) / (weight + 1)`: a gain of 1/8 or 1/4.
fn weigh(old: u32, weight: u32, new: u32) -> u32 {
    let sum = u64::from(old) * u64::from(weight) + u64::from(new);
    u32::try_from(sum / u64::from(weight + 1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_sets_and_later_ones_smooth() {
        let mut rtt = RttEstimator::default();
        assert_eq!(rtt.timeout(), INITIAL_RTO);
        rtt.add(Micros(100_000));
        assert_eq!(rtt.smoothed(), Some(Micros(100_000)));
        assert_eq!(rtt.timeout(), Micros(300_000), "four times half the sample");
        rtt.add(Micros(180_000));
        assert_eq!(rtt.smoothed(), Some(Micros(110_000)), "gain 1/8");
        assert_eq!(rtt.min(), Some(Micros(100_000)));
        assert_eq!(rtt.timeout(), Micros(110_000 + 4 * 57_500), "gain 1/4: (3 * 50 + 80) / 4 ms");
    }

    #[test]
    fn an_absurd_sample_saturates() {
        let mut rtt = RttEstimator::default();
        rtt.add(Micros(u64::MAX));
        rtt.add(Micros(u64::MAX));
        assert_eq!(rtt.timeout(), MAX_RTO);
    }
}
