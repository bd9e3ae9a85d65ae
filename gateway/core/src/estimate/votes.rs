//! Where weighted values agree, when none of them may pull further than a bound: the location of Huber (Robust Estimation
//! of a Location Parameter, 1964), on distances relative to the location itself.

/// One value and what it says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Vote {
    /// The value.
    pub(super) value: f64,
    /// Its weight.
    pub(super) weight: f64,
}

/// Halvings of the interval between the extremes: to a part in 10^9 of it.
const HALVINGS: u32 = 30;

/// The smallest location at which the pulls balance: each value pulls by its distance as part of the location, at most by
/// `reach`. It lies between the smallest and the largest value; `None` without a vote of any weight.
///
/// Below `reach` from each other values are averaged as they are; one far off counts as one at that distance.
pub(super) fn balance(votes: &[Vote], reach: f64) -> Option<f64> {
    let values = || votes.iter().filter(|vote| vote.weight > 0.0).map(|vote| vote.value);
    let (mut low, mut high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
    if !(low > 0.0 && high.is_finite()) {
        return (low >= 0.0 && high.is_finite()).then_some(low);
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if pull(votes, middle, reach) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(high)
}

/// The sum of all pulls at `location`; falls as that rises.
fn pull(votes: &[Vote], location: f64, reach: f64) -> f64 {
    votes.iter().map(|vote| vote.weight * (vote.value / location - 1.0).clamp(-reach, reach)).sum()
}
