//! The tap whose samples lie far from what all other taps saw. A gateway that was taken over sends what it likes.

use smallvec::SmallVec;
use spand_core::window::bucket::Contribution;

use crate::gateway::TapId;

/// Fewest contributions of all other taps by which a tap is judged.
const ENOUGH: u32 = 12;
/// A tap is an outlier if its mean is this many times that of all others, or that mean is this many times the tap's.
const FACTOR: f64 = 1.5;
/// A tap that weighs less than this part of all others is no outlier: it moves a share by an eighth at most.
const WEIGHT: f64 = 0.25;
/// The means of an outlier and of all others are more standard errors apart than this: windows of one path scatter by themselves.
const ERRORS: f64 = 6.0;
/// Other taps that have to have seen the network: of two that differ nobody knows which is right.
const WITNESSES: usize = 2;
/// Samples of one contribution that count, as under the rule `robust`.
const PER_CONTRIBUTION: u32 = 12;

/// A tap that lies off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlier {
    /// Which.
    pub tap: TapId,
    /// The mean of its samples, as a multiple of that of all others.
    pub factor: f64,
    /// Whether its cells of this network do not count: several other taps agree.
    pub is_left_out: bool,
}

/// What one tap saw, or several.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    contributions: u32,
    weight: f64,
    bytes: f64,
    /// Sums of the contributions' means, and of their squares.
    means: f64,
    squares: f64,
}

impl Sum {
    fn with(self, other: Self) -> Self {
        Self {
            contributions: self.contributions.saturating_add(other.contributions),
            weight: self.weight + other.weight,
            bytes: self.bytes + other.bytes,
            means: self.means + other.means,
            squares: self.squares + other.squares,
        }
    }

    fn without(self, other: Self) -> Self {
        Self {
            contributions: self.contributions.saturating_sub(other.contributions),
            weight: self.weight - other.weight,
            bytes: self.bytes - other.bytes,
            means: self.means - other.means,
            squares: self.squares - other.squares,
        }
    }

    fn mean(self) -> f64 {
        self.bytes / self.weight
    }

    /// Sum of the squared distances of means from their own mean.
    fn scatter(self) -> f64 {
        (self.squares - self.means * self.means / f64::from(self.contributions)).max(0.0)
    }

    /// How many standard errors both means are apart.
    fn errors_from(self, other: Self) -> f64 {
        let [own, others] = [self, other].map(|sum| f64::from(sum.contributions));
        let variance = (self.scatter() + other.scatter()) / (own + others - 2.0).max(1.0);
        (self.mean() - other.mean()).abs() / (variance * (1.0 / own + 1.0 / others)).sqrt()
    }
}

/// The tap that lies furthest off, if one does; the same at every gateway that has the same cells.
///
/// Of two taps that differ it is not `own`.
pub(crate) fn outlier<'a>(own: TapId, parts: impl Iterator<Item = (TapId, &'a Contribution)>) -> Option<Outlier> {
    let mut taps = SmallVec::<[(TapId, Sum); 8]>::new();
    for (tap, part) in parts.filter(|(_, part)| part.samples > 0) {
        let (weight, mean) = (f64::from(part.samples.min(PER_CONTRIBUTION)), part.sum_bytes / f64::from(part.samples));
        let sum = Sum { contributions: 1, weight, bytes: weight * mean, means: mean, squares: mean * mean };
        match taps.iter_mut().find(|(known, _)| *known == tap) {
            Some((_, known)) => *known = known.with(sum),
            None => taps.push((tap, sum)),
        }
    }
    if taps.len() < 2 {
        return None;
    }
    let are_several = taps.len() > WITNESSES;
    let all = taps.iter().fold(Sum::default(), |all, (_, sum)| all.with(*sum));
    let factors = taps.iter().filter(|(tap, _)| are_several || *tap != own).filter_map(|(tap, sum)| {
        let others = all.without(*sum);
        let is_judged = others.contributions >= ENOUGH && sum.weight > WEIGHT * others.weight;
        let factor = sum.mean() / others.mean();
        let is_off = is_judged && !is_near(factor) && sum.errors_from(others) > ERRORS;
        is_off.then_some((*tap, factor))
    });
    let (tap, factor) = factors.max_by(|one, next| distance(one.1).total_cmp(&distance(next.1)))?;
    Some(Outlier { tap, factor, is_left_out: are_several })
}

fn distance(factor: f64) -> f64 {
    factor.ln().abs()
}

/// Whether two values with this ratio agree.
pub(crate) fn is_near(factor: f64) -> bool {
    (FACTOR.recip()..=FACTOR).contains(&factor)
}
