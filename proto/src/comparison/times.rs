//! Times of one arm, counted in steps for their median.

use super::NORMAL_95;

/// Steps of an octave.
const STEPS: usize = 8;
/// From 1 µs to 2^36 µs, 19 hours.
const BINS: usize = 36 * STEPS;

/// How far an end of its interval may lie from a median that is shown.
const WIDEST: f64 = 0.2;

/// Times in steps of an eighth of an octave.
#[derive(Clone, Debug)]
pub(super) struct Times([u32; BINS]);

impl Default for Times {
    fn default() -> Self {
        Self([0; BINS])
    }
}

impl Times {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a logarithm of at least 1")]
    pub(super) fn add(&mut self, us: u64) {
        let step = ((us.max(1) as f64).log2() * STEPS as f64) as usize;
        if let Some(count) = self.0.get_mut(step.min(BINS - 1)) {
            *count = count.saturating_add(1);
        }
    }

    /// The median in microseconds, as the middle of its step: at most 5 % off. `None` where the order statistics that
    /// enclose it with 95 % confidence lie more than 20 % away from it: where few times, or times of two kinds, make it jump.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at least 0, and at most the count")]
    pub(super) fn median_us(&self) -> Option<f64> {
        let all: u64 = self.0.iter().copied().map(u64::from).sum();
        // The number of times below the median is binomial, with a standard deviation of √n / 2.
        let lower = ((all as f64 - NORMAL_95 * (all as f64).sqrt()) / 2.0).max(0.0) as u64;
        if lower == 0 {
            return None;
        }
        let [low, median, high] = [lower, all.div_ceil(2), all + 1 - lower].map(|rank| self.at(rank));
        let (low, median, high) = (low?, median?, high?);
        (low >= median * (1.0 - WIDEST) && high <= median * (1.0 + WIDEST)).then_some(median)
    }

    /// The time of a rank from 1, as the middle of its step.
    fn at(&self, rank: u64) -> Option<f64> {
        let mut reached = 0;
        let step = self.0.iter().position(|count| {
            reached += u64::from(*count);
            reached >= rank
        })?;
        Some(2f64.powf((step as f64 + 0.5) / STEPS as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(ms: impl IntoIterator<Item = u64>) -> Times {
        let mut times = Times::default();
        ms.into_iter().for_each(|ms| times.add(ms * 1_000));
        times
    }

    #[test]
    fn a_median_is_within_a_step() {
        assert_eq!(Times::default().median_us(), None);
        let mut times = times(1..=999);
        let median = times.median_us().unwrap();
        assert!((median - 500_000.0).abs() < 25_000.0, "{median}");
        times.add(0);
        times.add(u64::MAX);
    }

    #[test]
    fn a_median_that_might_as_well_be_another_is_not_shown() {
        assert_eq!(times([300; 7]).median_us(), None, "seven enclose nothing with 95 % confidence");
        assert!(times([300; 8]).median_us().is_some());
        // Two sizes in one class, about half of each: the next few transfers decide which of both it is.
        let of_two = |slow| times(std::iter::repeat_n(1_300, slow).chain([600; 100]));
        assert_eq!([of_two(95).median_us(), of_two(105).median_us()], [None, None]);
        assert!(of_two(60).median_us().is_some());
        assert_eq!(times((1..=20).map(|n| n * 100)).median_us(), None, "spread wide, and few");
    }
}
