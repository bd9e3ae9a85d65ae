//! Numbers of one arm, mean and spread, and the difference of the means of two arms with its interval.

use serde::{Deserialize, Serialize};

use crate::units::rounded;

/// Numbers of which only count, mean and spread are kept (Welford's sums, which do not cancel).
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// How many.
    pub count: u64,
    mean: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
}

impl Tally {
    /// Takes one.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        let off = value - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (value - self.mean);
    }

    /// The mean of several taken together.
    pub(super) fn mean_of_all<'a>(tallies: impl Iterator<Item = &'a Self> + Clone) -> Option<f64> {
        let all: u64 = tallies.clone().map(|tally| tally.count).sum();
        (all > 0).then(|| tallies.map(|tally| tally.mean * (tally.count as f64 / all as f64)).sum())
    }

    /// Variance of the mean: the sample's variance over its count.
    fn error(&self) -> f64 {
        self.squares / (self.count as f64 - 1.0) / self.count as f64
    }
}

/// How far the mean of one arm lies above that of another, over the strata in which both can be compared.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Difference {
    /// The difference of the means.
    pub mean: f64,
    /// Lower end of its confidence interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// All three in percent of the second mean; absent where that is 0.
    pub percent: Option<[f64; 3]>,
}

/// The point of the normal distribution at the end of an interval of 95 %.
pub const NORMAL_95: f64 = 1.959_964;
/// The same, of 99 %.
pub const NORMAL_99: f64 = 2.575_829;

/// Fewer in an arm say nothing of a spread.
const LEAST: u64 = 5;

impl Difference {
    /// How far the mean of the first of each pair lies above that of the second, by post-stratification (Neyman 1934; Holt and Smith
    /// 1979): the difference within each stratum, weighted by the part of both arms that lies in it, so that what sizes each arm
    /// happened to get makes none. The interval is Welch's, for unequal variances, with the freedom of the weighted sum (Welch,
    /// Satterthwaite), of the level that `normal` stands for ([`NORMAL_95`], [`NORMAL_99`]). Strata with fewer than five in an arm are left out.
    /// `None` where that is all.
    pub fn of<'a>(strata: impl Iterator<Item = [&'a Tally; 2]> + Clone, normal: f64) -> Option<Self> {
        let compared = strata.filter(|arms| is_comparable(*arms));
        let all: u64 = compared.clone().map(|[a, b]| a.count + b.count).sum();
        if all == 0 {
            return None;
        }
        let (mut mean, mut base, mut error, mut by_freedom) = (0.0, 0.0, 0.0, 0.0);
        for [a, b] in compared {
            let weight = (a.count + b.count) as f64 / all as f64;
            mean += weight * (a.mean - b.mean);
            base += weight * b.mean;
            for arm in [a, b] {
                let own = weight.powi(2) * arm.error();
                error += own;
                by_freedom += own.powi(2) / (arm.count as f64 - 1.0);
            }
        }
        // Arms without spread leave no doubt: any freedom does.
        let half = if error > 0.0 { student(normal, error.powi(2) / by_freedom) * error.sqrt() } else { 0.0 };
        let all = [mean, mean - half, mean + half];
        let percent = (base > 0.0).then(|| all.map(|value| rounded(value / base * 100.0, 3)));
        let [mean, low, high] = all.map(|value| rounded(value, 3));
        Some(Self { mean, low, high, percent })
    }
}

/// Whether both arms of a stratum have enough.
pub(super) fn is_comparable([a, b]: [&Tally; 2]) -> bool {
    a.count >= LEAST && b.count >= LEAST
}

/// The point of Student's distribution, expanded around `z`, that of the normal one (Abramowitz and Stegun 26.7.5): of intervals of
/// 95 % within 0.2 %, of 99 % within 1 %, from four degrees of freedom on, the fewest here.
fn student(z: f64, freedom: f64) -> f64 {
    let terms = [
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
        (79.0 * z.powi(9) + 776.0 * z.powi(7) + 1_482.0 * z.powi(5) - 1_920.0 * z.powi(3) - 945.0 * z) / 92_160.0,
    ];
    z + (1..).zip(terms).map(|(power, term)| term / freedom.powi(power)).sum::<f64>()
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

    fn of(a: &Tally, b: &Tally) -> Option<Difference> {
        Difference::of(std::iter::once([a, b]), NORMAL_95)
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 0.002 * b.abs()
    }

    #[test]
    fn students_points_are_those_of_the_tables() {
        for (freedom, point) in [(4.0, 2.776), (5.0, 2.571), (10.0, 2.228), (30.0, 2.042), (1e9, 1.960)] {
            assert!(near(student(NORMAL_95, freedom), point), "{freedom}: {}", student(NORMAL_95, freedom));
        }
        for (freedom, point) in [(4.0, 4.604), (5.0, 4.032), (10.0, 3.169), (30.0, 2.750), (1e9, 2.576)] {
            let found = student(NORMAL_99, freedom);
            assert!((found - point).abs() < 0.01 * point, "{freedom}: {found}");
        }
    }

    #[test]
    fn a_difference_has_welchs_interval() {
        // Means 10 and 15, variances 2.5 and 10, error 2.5, 5.88 degrees of freedom (by hand).
        let (a, b) = (tally(&[8.0, 9.0, 10.0, 11.0, 12.0]), tally(&[11.0, 13.0, 15.0, 17.0, 19.0]));
        let difference = of(&a, &b).unwrap();
        assert!(near(difference.mean, -5.0));
        assert!(near(difference.high - difference.mean, 2.459 * 2.5f64.sqrt()), "{difference:?}");
        assert!(near(difference.mean - difference.low, 2.459 * 2.5f64.sqrt()));
        assert!(near(difference.percent.unwrap()[0], -33.333));
        assert_eq!(of(&tally(&[1.0; 4]), &b), None, "four are too few");
        let strict = Difference::of(std::iter::once([&a, &b]), NORMAL_99).unwrap();
        // Between 5 and 6 degrees of freedom.
        let half = (strict.mean - strict.low) / 2.5f64.sqrt();
        assert!(strict.high - strict.mean > 3.707 * 2.5f64.sqrt() && half > 3.707 && half < 4.032, "{strict:?}");
        let same = of(&tally(&[0.0; 5]), &tally(&[0.0; 9])).unwrap();
        assert_eq!((same.low, same.high, same.percent), (0.0, 0.0, None));
    }

    #[test]
    fn a_large_offset_does_not_eat_the_spread() {
        let far: Vec<f64> = (0..1_000).map(|n| 1e9 + f64::from(n % 2)).collect();
        assert!(near(tally(&far).squares, 250.0));
    }

    #[test]
    fn strata_weigh_what_both_arms_have_in_them_and_those_with_too_few_are_left_out() {
        // Equal within each stratum, but the first arm has more of the small ones: no difference.
        let (small, large) = ([8.0, 9.0, 10.0, 11.0, 12.0], [98.0, 99.0, 100.0, 101.0, 102.0]);
        let [few, many, few_large, many_large] =
            [tally(&small), tally(&small.repeat(4)), tally(&large), tally(&large.repeat(4))];
        let mixed = [[&many, &few], [&few_large, &many_large]];
        let equal = Difference::of(mixed.into_iter(), NORMAL_95).unwrap();
        assert!(equal.mean.abs() < 1e-9 && equal.low < 0.0 && equal.high > 0.0, "{equal:?}");
        let slower = tally(&[18.0, 19.0, 20.0, 21.0, 22.0]);
        // 10 more in 10 of 35, none in 25 of 35 (by hand): 2.857; of 10 * 10 / 35 + 100 * 25 / 35.
        let difference = Difference::of([[&slower, &few], [&few_large, &many_large]].into_iter(), NORMAL_95).unwrap();
        assert!(near(difference.mean, 2.857) && near(difference.percent.unwrap()[0], 3.846), "{difference:?}");
        // Variances of 2.5 in fives and 2.105 in twenty, at weights of 2/7 and 5/7: 0.3905, and 8.84 degrees of freedom.
        assert!((difference.high - difference.mean - 2.268 * 0.390_5_f64.sqrt()).abs() < 0.01, "{difference:?}");
        let four = tally(&[1.0; 4]);
        assert_eq!(Difference::of([[&four, &many], [&many, &few]].into_iter(), NORMAL_95), of(&many, &few));
    }
}
