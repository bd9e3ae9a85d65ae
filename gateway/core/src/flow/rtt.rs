//! A sender's round-trip time and retransmission timeout (RFC 6298), in whole microseconds.

use spand_proto::units::{Micros, Timestamp};

/// Timeout before the first sample (RFC 6298 section 2, rule 2.1).
const INITIAL_RTO: Micros = Micros(1_000_000);
/// Least allowance above the smoothed round trip: what Linux keeps for a delayed ACK (`tcp_rto_min`).
const MIN_ALLOWANCE_US: u64 = 200_000;
/// Upper bound of the timeout (RFC 6298 section 2, rule 2.5).
const MAX_RTO: Micros = Micros(60_000_000);

/// What takes longer was not waiting for the network: no stack keeps asking for this long (RFC 9293 section 3.8.3 gives
/// up after 100 s at the earliest, and BSD's longest timeout is 64 s).
const LONGEST_ROUND_TRIP: Micros = Micros::from_secs(120);

/// The time from `sent` to `answered`; `None` where it runs backwards (files merged with clocks apart, a damaged record) or
/// is longer than any round trip.
pub(crate) fn round_trip(sent: Timestamp, answered: Timestamp) -> Option<Micros> {
    let rtt = answered.since(sent);
    (answered >= sent && rtt <= LONGEST_ROUND_TRIP).then_some(rtt)
}

/// Smoothed round-trip time, its variation and its minimum.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RttEstimator {
    state: Option<Smoothed>,
}

#[derive(Clone, Copy, Debug)]
struct Smoothed {
    mean: Micros,
    variation: Micros,
    min: Micros,
}

impl RttEstimator {
    /// Takes a valid sample (RFC 6298 section 2, rules 2.2 and 2.3).
    pub(crate) fn add(&mut self, rtt: Micros) {
        self.state = Some(match self.state {
            None => Smoothed { mean: rtt, variation: Micros(rtt.0 / 2), min: rtt },
            Some(Smoothed { mean, variation, min }) => Smoothed {
                mean: weigh(mean, 7, rtt),
                variation: weigh(variation, 3, Micros(mean.0.abs_diff(rtt.0))),
                min: min.min(rtt),
            },
        });
    }

    /// Smoothed round-trip time.
    pub(crate) fn smoothed(&self) -> Option<Micros> {
        self.state.map(|state| state.mean)
    }

    /// Smallest sample.
    pub(crate) fn min(&self) -> Option<Micros> {
        self.state.map(|state| state.min)
    }

    /// The retransmission timeout that a Linux sender with these samples would use.
    pub(crate) fn timeout(&self) -> Micros {
        self.state.map_or(INITIAL_RTO, |state| {
            let allowance_us = state.variation.0.saturating_mul(4).max(MIN_ALLOWANCE_US);
            Micros(state.mean.0.saturating_add(allowance_us)).min(MAX_RTO)
        })
    }
}

/// `(old * weight + new) / (weight + 1)`: a gain of 1/8 or 1/4.
fn weigh(old: Micros, weight: u64, new: Micros) -> Micros {
    Micros(old.0.saturating_mul(weight).saturating_add(new.0) / (weight + 1))
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
