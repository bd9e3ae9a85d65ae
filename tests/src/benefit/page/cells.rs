//! Results put together: one arm of one case, and two of them compared seed by seed.

use std::collections::{BTreeMap, BTreeSet};

use crate::benefit::result::{Measured, RunResult};
use crate::campaign::statistics::{Mean, geometric_mean, quantile};

/// A cell of a table.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Case {
    pub(super) case: String,
    pub(super) bytes: u64,
}

/// Which transfers of a case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Which<'a> {
    pub(super) arm: &'a str,
    /// Only those of every second client, from the second on: those that are left alone where half is not.
    pub(super) odd: bool,
}

/// One arm of a case over all seeds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    /// Mean of the seeds' means, in milliseconds.
    pub(super) mean: Mean,
    pub(super) median: f64,
    pub(super) p95: f64,
    /// Repeated packets a transfer.
    pub(super) again: f64,
    pub(super) transfers: usize,
    pub(super) first_flight: f64,
    pub(super) bound_ms: f64,
}

impl Which<'_> {
    pub(super) const fn of(arm: &str) -> Which<'_> {
        Which { arm, odd: false }
    }

    pub(super) fn has(self, transfer: &Measured) -> bool {
        transfer.arm == self.arm && (!self.odd || !transfer.client.is_multiple_of(2))
    }

    fn is(self, transfer: &Measured, case: &Case) -> bool {
        transfer.case == case.case && transfer.bytes == case.bytes && self.has(transfer)
    }
}

/// Cases in which `arm` has transfers.
pub(super) fn cases(results: &[&RunResult], arm: &str) -> Vec<Case> {
    let of_arm = results.iter().flat_map(|result| &result.transfers).filter(|transfer| transfer.arm == arm);
    let mut cases: Vec<Case> =
        of_arm.map(|transfer| Case { case: transfer.case.clone(), bytes: transfer.bytes }).collect();
    cases.sort();
    cases.dedup();
    cases
}

/// The runs in which two arms are: what is compared was measured in the same minutes.
pub(super) fn runs_of<'a>(results: &[&'a RunResult], ours: &str, other: &str) -> Vec<&'a RunResult> {
    let has = |result: &RunResult, arm: &str| result.transfers.iter().any(|transfer| transfer.arm == arm);
    results.iter().copied().filter(|result| has(result, ours) && has(result, other)).collect()
}

/// Every arm that a result has, by name.
pub(super) fn arms(results: &[&RunResult]) -> BTreeSet<String> {
    results.iter().flat_map(|result| &result.transfers).map(|transfer| transfer.arm.clone()).collect()
}

/// Transfers of a case and arm by seed.
fn by_seed<'a>(results: &[&'a RunResult], case: &Case, which: Which<'_>) -> BTreeMap<u64, Vec<&'a Measured>> {
    let mut seeds: BTreeMap<u64, Vec<&Measured>> = BTreeMap::new();
    for result in results {
        let of_it: Vec<&Measured> = result.transfers.iter().filter(|transfer| which.is(transfer, case)).collect();
        if !of_it.is_empty() {
            seeds.entry(result.run.seed).or_default().extend(of_it);
        }
    }
    seeds
}

fn mean(transfers: &[&Measured], of: fn(&Measured) -> f64) -> f64 {
    transfers.iter().map(|transfer| of(transfer)).sum::<f64>() / transfers.len().max(1) as f64
}

/// One arm of a case.
pub(super) fn side(results: &[&RunResult], case: &Case, which: Which<'_>) -> Option<Side> {
    let seeds = by_seed(results, case, which);
    let means: Vec<f64> = seeds.values().map(|transfers| mean(transfers, |transfer| transfer.completion_ms)).collect();
    let all: Vec<&Measured> = seeds.into_values().flatten().collect();
    let times = || all.iter().map(|transfer| transfer.completion_ms);
    Some(Side {
        mean: Mean::of(&means)?,
        median: quantile(times(), 0.5)?,
        p95: quantile(times(), 0.95)?,
        again: mean(&all, |transfer| f64::from(transfer.again)),
        transfers: all.len(),
        first_flight: mean(&all, |transfer| f64::from(transfer.first_flight)),
        bound_ms: all.first()?.bound_ms,
    })
}

/// Relative change of the mean completion time from `other` to `ours`: of each run that has both, and where a seed has
/// several such runs their geometric mean.
pub(super) fn change(results: &[&RunResult], case: &Case, ours: Which<'_>, other: Which<'_>) -> Option<Mean> {
    let changes: Vec<f64> = ratios(results, case, ours, other).into_values().map(|ratio| ratio - 1.0).collect();
    Mean::of(&changes)
}

/// Ratio of the mean completion times by seed.
pub(super) fn ratios(results: &[&RunResult], case: &Case, ours: Which<'_>, other: Which<'_>) -> BTreeMap<u64, f64> {
    let mut seeds: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for result in results {
        let time = |which: Which<'_>| {
            let of_it: Vec<&Measured> = result.transfers.iter().filter(|transfer| which.is(transfer, case)).collect();
            (!of_it.is_empty()).then(|| mean(&of_it, |transfer| transfer.completion_ms))
        };
        if let (Some(ours), Some(other)) = (time(ours), time(other)) {
            seeds.entry(result.run.seed).or_default().push(ours / other);
        }
    }
    seeds.into_iter().filter_map(|(seed, ratios)| Some((seed, geometric_mean(&ratios)?))).collect()
}
