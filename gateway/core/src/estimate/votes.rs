//! Where weighted values agree, when each may pull no further than a bound: the location of Huber (Robust Estimation
//! of a Location Parameter, 1964), on distances relative to the location itself.

/// One value and what it says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Vote {
    /// The value.
    pub(super) value: f64,
    /// Its weight.
    pub(super) weight: f64,
}

/// Maximum number of passes over all votes. A few suffice; where votes cancel each other out over an interval, each pass halves it.
const LOOKS: u32 = 40;
/// Convergence tolerance, relative to the location.
const CLOSE: f64 = 1e-12;

/// How hard something may pull at most, as part of the location and for each unit of weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reach {
    /// One vote.
    pub(super) vote: f64,
    /// All votes of one source together, where there are others.
    pub(super) source: f64,
}

/// The smallest location at which the pulls balance: each value pulls by its distance as part of the location, and neither
/// a vote nor a source harder than its `reach`. It lies between the smallest and the largest value; `None` without a vote
/// of any weight. `sources` says how many votes there are after each source.
///
/// Below the reach from each other values are averaged as they are; one far off counts as one at that distance. A source
/// whose values scatter about the location is bounded no further; one whose values all lie far off is.
pub(super) fn balance(votes: &[Vote], sources: &[usize], reach: Reach) -> Option<f64> {
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
    let reach = if sources.len() > 1 { reach } else { Reach { source: f64::INFINITY, ..reach } };
    let mut location = (sum / weight).clamp(low, high);
    for _ in 0..LOOKS {
        let look = look(votes, sources, location, reach);
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
    /// Where it would be none if the same votes and sources were within reach there.
    root: Option<f64>,
}

fn look(votes: &[Vote], sources: &[usize], location: f64, reach: Reach) -> Look {
    // Weight of the votes within reach, their values, and the pull that does not depend on the location.
    let (mut near, mut sum, mut fixed, mut begin) = (0.0, 0.0, 0.0, 0);
    for end in sources {
        let own = look_at_source(votes.get(begin..*end).unwrap_or_default(), location, reach.vote);
        begin = *end;
        let most = reach.source * own.weight;
        let pull = own.sum / location - own.near + own.fixed;
        if pull.abs() > most {
            fixed += most.copysign(pull);
        } else {
            (near, sum, fixed) = (near + own.near, sum + own.sum, fixed + own.fixed);
        }
    }
    let divisor = near - fixed;
    Look { pull: sum / location - divisor, root: (sum > 0.0 && divisor > 0.0).then(|| sum / divisor) }
}

/// What one source says at a location.
#[derive(Default)]
struct Own {
    weight: f64,
    near: f64,
    sum: f64,
    fixed: f64,
}

fn look_at_source(votes: &[Vote], location: f64, reach: f64) -> Own {
    let (mut own, mut beyond) = (Own::default(), 0.0);
    for vote in votes {
        own.weight += vote.weight;
        let distance = vote.value / location - 1.0;
        if distance > reach {
            beyond += vote.weight;
        } else if distance < -reach {
            beyond -= vote.weight;
        } else {
            own.near += vote.weight;
            own.sum += vote.weight * vote.value;
        }
    }
    own.fixed = if beyond == 0.0 { 0.0 } else { reach * beyond };
    own
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn votes(values: &[(f64, f64)]) -> Vec<Vote> {
        values.iter().map(|(value, weight)| Vote { value: *value, weight: *weight }).collect()
    }

    /// Where values of one source balance.
    fn at(values: &[(f64, f64)], reach: f64) -> Option<f64> {
        balance(&votes(values), &[values.len()], Reach { vote: reach, source: 0.1 })
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

    #[test]
    fn a_source_far_from_the_others_pulls_less_than_its_votes() {
        let reach = Reach { vote: 0.5, source: 0.2 };
        // Four sources at 10 and one of the same weight far off: 4 * (10 / m - 1) +- 0.2 = 0.
        for (far, off) in [(1e6, 0.2), (1.0, -0.2)] {
            let values = votes(&[(10.0, 1.0), (10.0, 1.0), (10.0, 1.0), (10.0, 1.0), (far, 0.5), (far, 0.5)]);
            let found = balance(&values, &[1, 2, 3, 4, 6], reach).unwrap();
            assert!((found - 40.0 / (4.0 - off)).abs() < 1e-9, "{far}: {found}");
        }
        // One that lies on both sides is heard in full.
        let values = votes(&[(10.0, 1.0), (10.0, 1.0), (4.0, 1.0), (14.0, 1.0)]);
        let found = balance(&values, &[1, 2, 4], reach).unwrap();
        assert!((found - 34.0 / 3.5).abs() < 1e-9, "{found}");
    }

    proptest! {
        #[test]
        fn it_is_where_no_vote_pulls_harder(
            sources in prop::collection::vec(prop::collection::vec((0.1..1e6_f64, 0.0..9.0_f64), 1..8), 1..12),
            vote in 0.01..2.0_f64,
            source in 0.01..2.0_f64,
        ) {
            let values = votes(&sources.concat());
            let ends: Vec<usize> = sources.iter().scan(0, |end, own| { *end += own.len(); Some(*end) }).collect();
            let Some(found) = balance(&values, &ends, Reach { vote, source }) else { return Ok(()) };
            let bound = if sources.len() > 1 { source } else { f64::MAX };
            let pull = |location: f64| -> f64 {
                let of = |own: &Vec<(f64, f64)>| {
                    let weight: f64 = own.iter().map(|(_, weight)| weight).sum();
                    let pull: f64 =
                        own.iter().map(|(value, weight)| weight * (value / location - 1.0).clamp(-vote, vote)).sum();
                    pull.clamp(-bound * weight, bound * weight)
                };
                sources.iter().map(of).sum()
            };
            prop_assert!(pull(found * (1.0 - 1e-6)) >= -1e-4, "{found}: {}", pull(found * (1.0 - 1e-6)));
            prop_assert!(pull(found * (1.0 + 1e-6)) <= 1e-4, "{found}: {}", pull(found * (1.0 + 1e-6)));
        }
    }
}
