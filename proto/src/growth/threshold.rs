//! A slow-start threshold that a sender measures itself (Aron & Druschel 4.2.1): the rate of closely spaced acknowledgements times the
//! round trip, the smallest of a few.
//!
//! Whole numbers throughout, as in the agent's kernel programs. Knows nothing about windows: what to do with the threshold is the start's.

use crate::units::{Micros, Segments};

/// Acknowledgements further apart than this part of a round trip do not belong together.
const CLOSE_PART: u64 = 8;
/// Segments that a rate is taken over, at least.
const FEWEST: u32 = 2;

/// The measurement of one connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OwnThreshold {
    /// The first acknowledgement of the group.
    began: Option<Micros>,
    /// The newest.
    last: Micros,
    /// What was acknowledged after the first.
    segments: u32,
    /// The last estimation, by the time of its acknowledgement.
    estimated: Option<Micros>,
    /// The smallest so far.
    minimum: Option<Segments>,
    /// Whether one came within a tenth of the smallest.
    settled: bool,
}

impl OwnThreshold {
    /// The smallest estimation so far.
    pub const fn minimum(&self) -> Option<Segments> {
        self.minimum
    }

    /// Whether there will be no further estimation.
    pub const fn settled(&self) -> bool {
        self.settled
    }

    /// An acknowledgement of `acked` new segments at the time `at`, with the round trip as it is known. Returns the threshold where
    /// it was estimated again.
    pub fn on_ack(&mut self, at: Micros, acked: Segments, rtt: Micros) -> Option<Segments> {
        if self.settled || rtt.0 == 0 {
            return None;
        }
        let Some(began) = self.began.filter(|_| at >= self.last && at.0 - self.last.0 <= rtt.0 / CLOSE_PART) else {
            self.begin(at);
            return None;
        };
        self.last = at;
        self.segments = self.segments.saturating_add(acked.0);
        let time = at.0 - began.0;
        let soon = self.estimated.is_some_and(|estimated| at.0.saturating_sub(estimated.0) < rtt.0);
        if self.segments < FEWEST || time == 0 || soon {
            return None;
        }
        let estimate = u128::from(self.segments) * u128::from(rtt.0) / u128::from(time);
        let estimate = Segments(u32::try_from(estimate).unwrap_or(u32::MAX).max(1));
        self.begin(at);
        self.estimated = Some(at);
        let before = self.minimum;
        self.minimum = Some(before.map_or(estimate, |before| before.min(estimate)));
        self.settled =
            before.is_some_and(|before| 10 * u64::from(estimate.0.abs_diff(before.0)) <= u64::from(before.0));
        self.minimum
    }

    fn begin(&mut self, at: Micros) {
        (self.began, self.last, self.segments) = (Some(at), at, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A train of acknowledgements of one segment each, `gap` apart, from `at` on.
    fn train(own: &mut OwnThreshold, at: u64, gap: u64, acks: u64) -> Option<Segments> {
        (0..acks).filter_map(|n| own.on_ack(Micros(at + n * gap), Segments(1), Micros(580_000))).last()
    }

    #[test]
    fn the_rate_of_a_train_times_the_round_trip() {
        let mut own = OwnThreshold::default();
        // A segment each 2.73 ms over 580 ms: 212.
        assert_eq!(train(&mut own, 600_000, 2_730, 4), Some(Segments(212)));
        assert!(!own.settled());
        // Once a round trip, and the next one within a tenth ends it.
        assert_eq!(train(&mut own, 700_000, 1_000, 4), None);
        assert_eq!(train(&mut own, 1_300_000, 2_600, 4), Some(Segments(212)));
        assert!(own.settled());
        assert_eq!(train(&mut own, 2_600_000, 9_000, 9), None);
    }

    #[test]
    fn the_smallest_holds() {
        let mut own = OwnThreshold::default();
        assert_eq!(train(&mut own, 600_000, 1_000, 4), Some(Segments(580)));
        assert_eq!(train(&mut own, 1_200_000, 2_730, 4), Some(Segments(212)));
        assert_eq!(train(&mut own, 1_800_000, 2_000, 4), Some(Segments(212)));
        assert!(!own.settled(), "290 is no tenth from 212");
    }

    #[test]
    fn acknowledgements_far_apart_and_time_running_backwards_show_nothing() {
        let mut own = OwnThreshold::default();
        assert_eq!(train(&mut own, 600_000, 100_000, 20), None);
        assert_eq!(own.on_ack(Micros(5), Segments(4), Micros(580_000)), None);
        assert_eq!(own.on_ack(Micros(5), Segments(4), Micros(580_000)), None, "no time passed");
        assert_eq!(own.on_ack(Micros(u64::MAX), Segments(u32::MAX), Micros(0)), None);
        assert_eq!(own.minimum(), None);
    }
}
