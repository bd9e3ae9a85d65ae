//! Means with their confidence, over seeds.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

/// A mean and half the width of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Half the interval's width (Student's t); `None` from fewer than two values.
    pub half_width: Option<f64>,
    /// Values.
    pub count: usize,
}

impl Mean {
    /// Of values that are independent of each other; `None` without any.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let value = values.iter().sum::<f64>() / count as f64;
        let half_width = (count > 1).then(|| {
            let squares: f64 = values.iter().map(|one| (one - value).powi(2)).sum();
            let deviation = (squares / (count - 1) as f64).sqrt();
            student(count - 1) * deviation / (count as f64).sqrt()
        });
        Some(Self { value, half_width, count })
    }

    /// Whether zero lies outside the interval.
    pub fn is_off_zero(&self) -> bool {
        self.half_width.is_some_and(|half| self.value.abs() > half)
    }
}

/// The 97.5 % quantile of Student's t (Abramowitz and Stegun 26.7.5 from 30 degrees of freedom on).
fn student(degrees: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    let normal = 1.959_964_f64;
    let further = || normal + (normal.powi(3) + normal) / (4.0 * degrees as f64);
    degrees.checked_sub(1).and_then(|row| TABLE.get(row).copied()).unwrap_or_else(further)
}

/// The median of some values, and the 95 % interval of it that drawing from them again and again gives (the bootstrap's percentiles).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// The median.
    pub value: f64,
    /// Both ends of the interval.
    pub between: (f64, f64),
    /// Values.
    pub count: usize,
}

impl Median {
    /// Of values that are independent of each other; `None` without any. The same values give the same interval.
    pub fn of(values: &[f64]) -> Option<Self> {
        const DRAWS: usize = 2_000;
        let value = quantile(values.iter().copied(), 0.5)?;
        let mut dice = StdRng::seed_from_u64(values.len() as u64);
        let medians: Vec<f64> = (0..DRAWS)
            .filter_map(|_| quantile(values.iter().filter_map(|_| values.choose(&mut dice).copied()), 0.5))
            .collect();
        let end = |part| quantile(medians.iter().copied(), part);
        Some(Self { value, between: (end(0.025)?, end(0.975)?), count: values.len() })
    }
}

/// Of values above zero; `None` without any.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logarithms: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (logarithms / values.len() as f64).exp())
}

/// The value below which this part of the values lies (nearest rank); `None` without any.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank among values in memory")]
pub fn quantile(values: impl IntoIterator<Item = f64>, part: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let rank = (part * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_students() {
        let mean = Mean::of(&[1.0, 2.0, 3.0]).unwrap();
        assert!((mean.value - 2.0).abs() < 1e-12 && mean.count == 3);
        // A deviation of 1, two degrees of freedom.
        assert!((mean.half_width.unwrap() - 4.303 / 3.0_f64.sqrt()).abs() < 1e-9);
        assert!(!mean.is_off_zero());
        assert!(Mean::of(&[5.0, 5.1, 5.2]).unwrap().is_off_zero());
        assert_eq!(Mean::of(&[7.0]).unwrap().half_width, None);
        assert_eq!(Mean::of(&[]), None);
        assert!((student(60) - 2.000).abs() < 0.001, "{}", student(60));
    }

    #[test]
    fn a_medians_interval_holds_it_and_repeats() {
        let values: Vec<f64> = (0..29).map(f64::from).collect();
        let median = Median::of(&values).unwrap();
        assert_eq!((median.value, median.count), (14.0, 29));
        // Order statistics of 29 values: about the 10th and the 20th.
        assert!((8.0..=11.0).contains(&median.between.0) && (17.0..=20.0).contains(&median.between.1), "{median:?}");
        assert_eq!(Median::of(&values), Some(median));
        assert_eq!(Median::of(&[2.0]).unwrap().between, (2.0, 2.0));
        assert_eq!(Median::of(&[]), None);
    }

    #[test]
    fn a_geometric_mean_is_of_factors() {
        assert!((geometric_mean(&[0.5, 2.0, 8.0]).unwrap() - 2.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[]), None);
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(values, 0.5), Some(2.0));
        assert_eq!(quantile(values, 0.95), Some(4.0));
        assert_eq!(quantile([], 0.5), None);
    }
}
