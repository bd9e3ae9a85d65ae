//! Numbers of one arm: mean, spread, median, and the difference of two means with its interval.

use serde::{Deserialize, Serialize};

/// Numbers of which only count, mean and spread are kept (Welford's sums, which do not cancel).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) count: u64,
    mean: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
}

impl Tally {
    pub(super) fn add(&mut self, value: f64) {
        self.count += 1;
        let off = value - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (value - self.mean);
    }

    /// The mean, where there is anything.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.count > 0).then_some(self.mean)
    }

    /// Variance of the mean: the sample's variance over its count.
    fn error(&self) -> f64 {
        self.squares / (self.count as f64 - 1.0) / self.count as f64
    }
}

/// How far one mean lies above another.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Difference {
    /// The difference of the means.
    pub mean: f64,
    /// Lower end of its 95 % confidence interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// All three in percent of the second mean; absent where that is 0.
    pub percent: Option<[f64; 3]>,
}

/// Fewer in an arm say nothing of a spread.
const LEAST: u64 = 5;

impl Difference {
    /// How far the mean of `a` lies above that of `b`, by Welch's interval for unequal variances; `None` with fewer than
    /// five in an arm.
    pub(super) fn of(a: &Tally, b: &Tally) -> Option<Self> {
        if a.count < LEAST || b.count < LEAST {
            return None;
        }
        let (of_a, of_b) = (a.error(), b.error());
        let error = of_a + of_b;
        // Welch and Satterthwaite. Two arms without spread leave no doubt: any freedom does.
        let freedom = error.powi(2) / (of_a.powi(2) / (a.count as f64 - 1.0) + of_b.powi(2) / (b.count as f64 - 1.0));
        let half = if error > 0.0 { student(freedom) * error.sqrt() } else { 0.0 };
        let mean = a.mean - b.mean;
        let all = [mean, mean - half, mean + half];
        let percent = (b.mean > 0.0).then(|| all.map(|value| rounded(value / b.mean * 100.0)));
        let [mean, low, high] = all.map(rounded);
        Some(Self { mean, low, high, percent })
    }
}

/// To three places: what lies beyond is noise to a reader.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

/// The 97.5 % point of Student's distribution, expanded around the normal one (Abramowitz and Stegun 26.7.5): within 0.2 %
/// from four degrees of freedom on, the fewest here.
fn student(freedom: f64) -> f64 {
    let z = 1.959_964_f64;
    let terms = [
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
        (79.0 * z.powi(9) + 776.0 * z.powi(7) + 1_482.0 * z.powi(5) - 1_920.0 * z.powi(3) - 945.0 * z) / 92_160.0,
    ];
    z + (1..).zip(terms).map(|(power, term)| term / freedom.powi(power)).sum::<f64>()
}

/// Steps of an octave in which times are counted for their median.
const STEPS: usize = 8;
/// From 1 µs to 2^36 µs, 19 hours.
const BINS: usize = 36 * STEPS;

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

    /// The median in microseconds, as the middle of its step: at most 5 % off.
    pub(super) fn median_us(&self) -> Option<f64> {
        let all: u64 = self.0.iter().copied().map(u64::from).sum();
        let mut below = 0;
        let reaches = |count: &u32| {
            below += u64::from(*count);
            below * 2 >= all
        };
        let step = if all == 0 { None } else { self.0.iter().position(reaches) };
        step.map(|step| 2f64.powf((step as f64 + 0.5) / STEPS as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(values: &[f64]) -> Tally {
        let mut tally = Tally::default();
        for value in values {
            tally.add(*value);
        }
        tally
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 0.002 * b.abs()
    }

    #[test]
    fn students_points_are_those_of_the_tables() {
        for (freedom, point) in [(4.0, 2.776), (5.0, 2.571), (10.0, 2.228), (30.0, 2.042), (1e9, 1.960)] {
            assert!(near(student(freedom), point), "{freedom}: {}", student(freedom));
        }
    }

    #[test]
    fn a_difference_has_welchs_interval() {
        // Means 10 and 15, variances 2.5 and 10, error 2.5, 5.88 degrees of freedom (by hand).
        let (a, b) = (tally(&[8.0, 9.0, 10.0, 11.0, 12.0]), tally(&[11.0, 13.0, 15.0, 17.0, 19.0]));
        let difference = Difference::of(&a, &b).unwrap();
        assert!(near(difference.mean, -5.0));
        assert!(near(difference.high - difference.mean, 2.459 * 2.5f64.sqrt()), "{difference:?}");
        assert!(near(difference.mean - difference.low, 2.459 * 2.5f64.sqrt()));
        assert!(near(difference.percent.unwrap()[0], -33.333));
        assert_eq!(Difference::of(&tally(&[1.0; 4]), &b), None, "four are too few");
        let same = Difference::of(&tally(&[0.0; 5]), &tally(&[0.0; 9])).unwrap();
        assert_eq!((same.low, same.high, same.percent), (0.0, 0.0, None));
    }

    #[test]
    fn a_large_offset_does_not_eat_the_spread() {
        let far: Vec<f64> = (0..1_000).map(|n| 1e9 + f64::from(n % 2)).collect();
        assert!(near(tally(&far).squares, 250.0));
    }

    #[test]
    fn a_median_is_within_a_step() {
        let mut times = Times::default();
        assert_eq!(times.median_us(), None);
        (1..=999).for_each(|n| times.add(n * 1_000));
        let median = times.median_us().unwrap();
        assert!((median - 500_000.0).abs() < 25_000.0, "{median}");
        times.add(0);
        times.add(u64::MAX);
    }
}
