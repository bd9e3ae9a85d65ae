//! Where advice might harm: pairs of transfers, an advised and a plain one of the same case, size and turn.

use std::collections::BTreeMap;

use super::cells::{Case, cases};
use super::starts::Finding;
use super::tables::{name, others};
use crate::benefit::result::{Measured, RunResult};
use crate::campaign::page::{self, percent, table};
use crate::campaign::statistics::{Median, quantile};

/// How much longer no size may take, by the lower end of the interval.
const WORSE_MOST: f64 = 0.05;

/// A case and size of the product beside another arm.
struct Row {
    case: Case,
    /// Medians in milliseconds: the product's and the other's.
    medians: [f64; 2],
    /// Change by pairs.
    change: Median,
    /// Part of the packets that were sent again.
    again: [f64; 2],
}

impl Row {
    fn of(results: &[&RunResult], case: Case, other: &str) -> Option<Self> {
        let transfers = ["product", other].map(|arm| {
            let mut by_seed: BTreeMap<u64, Vec<&Measured>> = BTreeMap::new();
            for result in results {
                let is = |one: &&Measured| one.arm == arm && one.case == case.case && one.bytes == case.bytes;
                by_seed.entry(result.run.seed).or_default().extend(result.transfers.iter().filter(is));
            }
            by_seed
        });
        let [ours, theirs] = &transfers;
        let pairs = ours.iter().flat_map(|(seed, ours)| ours.iter().zip(theirs.get(seed).into_iter().flatten()));
        let changes: Vec<f64> = pairs.map(|(our, their)| our.completion_ms / their.completion_ms - 1.0).collect();
        let of_arm = |arm: &BTreeMap<u64, Vec<&Measured>>| {
            let all = || arm.values().flatten();
            let (again, packets) =
                all().fold((0, 0), |(again, packets), one| (again + one.again, packets + one.packets));
            let median = quantile(all().map(|one| one.completion_ms), 0.5)?;
            Some((median, f64::from(again) / f64::from(packets.max(1))))
        };
        let (ours, theirs) = (of_arm(ours)?, of_arm(theirs)?);
        Some(Self { case, medians: [ours.0, theirs.0], change: Median::of(&changes)?, again: [ours.1, theirs.1] })
    }
}

/// Writes the table of a scenario: the rows in their order.
pub(super) fn write(text: &mut String, results: &[&RunResult]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for other in others(results) {
        let mut rows = Vec::new();
        for row in cases(results, "product").into_iter().filter_map(|case| Row::of(results, case, &other)) {
            let Row { case, medians: [ours, theirs], change, again } = row;
            let (least, most) = change.between;
            let found = format!("{} ({} to {})", percent(change.value), percent(least), percent(most));
            rows.push(format!(
                "{} | {theirs:.1} | {ours:.1} | {found} | {} | {:.2} → {:.2} %",
                name(&case),
                change.count,
                again[1] * 100.0,
                again[0] * 100.0
            ));
            let target = format!("{} or less", percent(WORSE_MOST));
            let beyond = least - WORSE_MOST;
            findings.push(Finding { what: format!("{} against {other}", name(&case)), found, target, beyond });
        }
        page::add(
            text,
            &format!(
                "\nAgainst `{other}` (medians in ms; change: median over pairs with its 95 % interval by bootstrap):\n\n{}",
                table(&format!("path, size | {other} | product | change | pairs | sent again"), rows)
            ),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benefit::page::testing::result;

    #[test]
    fn transfers_of_one_turn_are_pairs_and_a_slower_product_is_named() {
        let one = result("lossy", 1, &[("p", "cubic", 100.0, 1), ("p", "product", 150.0, 2), ("p", "cubic", 200.0, 3)]);
        let two = result("lossy", 2, &[("p", "product", 130.0, 0), ("p", "cubic", 100.0, 0)]);
        let mut text = String::new();
        let findings = write(&mut text, &[&one, &two]);
        assert!(
            text.contains("| p, 100 KB | 100.0 | 130.0 | +30.0 % (+30.0 % to +50.0 %) | 2 | 1.33 → 1.00 % |"),
            "{text}"
        );
        assert!(findings.len() == 1 && findings[0].is_missed());
    }
}
