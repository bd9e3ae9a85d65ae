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

/// Most looks at all votes. A few do; where votes cancel each other out over a stretch, each halves what is left of it.
const LOOKS: u32 = 40;
/// So close is close enough, as part of the location.
const CLOSE: f64 = 1e-12;

/// The smallest location at which the pulls balance: each value pulls by its distance as part of the location, at most by
/// `reach`. It lies between the smallest and the largest value; `None` without a vote of any weight.
///
/// Below `reach` from each other values are averaged as they are; one far off counts as one at that distance.
pub(super) fn balance(votes: &[Vote], reach: f64) -> Option<f64> {
    let (mut low, mut high, mut weight, mut sum) = (f64::INFINITY, 0.0_f64, 0.0, 0.0);
    for vote in votes.iter().filter(|vote| vote.weight > 0.0) {
        (low, high) = (low.min(vote.value), high.max(vote.value));
        weight += vote.weight;
        sum += vote.weight * vote.value;
    }
    if !(weight > 0.0 && low >= 0.0 && high.is_finite()) {
        return None;
    }
    if low == 0.0 {
        // No distance is a part of nothing.
        return Some(low);
    }
    let mut location = (sum / weight).clamp(low, high);
    for _ in 0..LOOKS {
        let look = look(votes, location, reach);
        if look.root.is_some_and(|root| (root - location).abs() <= CLOSE * location) {
            return Some(location);
        }
        if look.pull > 0.0 {
            low = location;
        } else {
            high = location;
        }
        let inside = look.root.filter(|root| *root > low && *root < high);
        location = inside.unwrap_or_else(|| f64::midpoint(low, high));
    }
    Some(high)
}

/// All pulls at a location.
struct Look {
    /// Their sum, which falls as the location rises.
    pull: f64,
    /// Where it would be none if the same votes were within reach there.
    root: Option<f64>,
}

fn look(votes: &[Vote], location: f64, reach: f64) -> Look {
    let (mut near, mut sum, mut beyond) = (0.0, 0.0, 0.0);
    for vote in votes {
        let distance = vote.value / location - 1.0;
        if distance > reach {
            beyond += vote.weight;
        } else if distance < -reach {
            beyond -= vote.weight;
        } else {
            near += vote.weight;
            sum += vote.weight * vote.value;
        }
    }
    let far = if beyond == 0.0 { 0.0 } else { reach * beyond };
    let divisor = near - far;
    Look { pull: sum / location - divisor, root: (sum > 0.0 && divisor > 0.0).then(|| sum / divisor) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(values: &[(f64, f64)], reach: f64) -> Option<f64> {
        let votes: Vec<Vote> = values.iter().map(|(value, weight)| Vote { value: *value, weight: *weight }).collect();
        balance(&votes, reach)
    }

    #[test]
    fn what_is_near_is_averaged_and_what_is_far_counts_as_at_the_bound() {
        assert_eq!(at(&[], 0.5), None);
        assert_eq!(at(&[(10.0, 0.0)], 0.5), None);
        assert_eq!(at(&[(10.0, 1.0), (12.0, 1.0), (14.0, 2.0)], 0.5), Some(12.5));
        // Nine at 10 and one anywhere above: 9 * (10 / m - 1) + 0.5 = 0.
        for far in [16.0, 1e3, 1e12] {
            let found = at(&[(10.0, 9.0), (far, 1.0)], 0.5).unwrap();
            assert!((found - 90.0 / 8.5).abs() < 1e-9, "{found}");
        }
    }

    #[test]
    fn of_two_halves_that_do_not_see_each_other_the_lower_one_is_believed() {
        let found = at(&[(10.0, 1.0), (1e6, 1.0)], 0.5).unwrap();
        assert!((found - 20.0).abs() < 1e-4, "the first place where the lower half pulls no harder: {found}");
    }

    proptest! {
        #[test]
        fn it_is_where_no_vote_pulls_harder(
            values in prop::collection::vec((0.1..1e6_f64, 0.0..9.0_f64), 1..40),
            reach in 0.01..2.0_f64,
        ) {
            let Some(found) = at(&values, reach) else { return Ok(()) };
            let pull = |location: f64| -> f64 {
                values.iter().map(|(value, weight)| weight * (value / location - 1.0).clamp(-reach, reach)).sum()
            };
            prop_assert!(pull(found * (1.0 - 1e-6)) >= -1e-4, "{found}: {}", pull(found * (1.0 - 1e-6)));
            prop_assert!(pull(found * (1.0 + 1e-6)) <= 1e-4, "{found}: {}", pull(found * (1.0 + 1e-6)));
        }
    }
}
