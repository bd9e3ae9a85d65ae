//! Tables of crowds: one kind of sender on each of several equal paths, or two kinds on one.

use std::collections::{BTreeMap, BTreeSet};

use super::cells::{Which, arms};
use super::starts;
use super::starts::Finding;
use super::tables::{size, with_interval};
use crate::benefit::result::{Measured, RunResult};
use crate::benefit::scenario::{MIX, beside};
use crate::campaign::page::{self, percent, table};
use crate::campaign::statistics::Mean;

/// What is compared of a crowd's transfers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Of {
    /// Completion time of one size.
    Size(u64),
    /// Time over the wire's bound relative to the bound, all sizes together.
    OverBound,
}

impl Of {
    fn value(self, one: &Measured) -> Option<f64> {
        match self {
            Self::Size(bytes) => (one.bytes == bytes).then_some(one.completion_ms),
            Self::OverBound => Some(one.completion_ms / one.bound_ms - 1.0),
        }
    }

    fn words(self) -> String {
        match self {
            Self::Size(bytes) => size(bytes),
            Self::OverBound => "time over bound".to_owned(),
        }
    }
}

impl Which<'_> {
    /// Sums and counts by seed and part of the time.
    fn parts(self, results: &[&RunResult], of: Of) -> BTreeMap<(u64, u32), (f64, f64)> {
        let mut parts: BTreeMap<(u64, u32), (f64, f64)> = BTreeMap::new();
        for result in results {
            for one in result.transfers.iter().filter(|one| self.has(one)) {
                let Some(value) = of.value(one) else { continue };
                let part = parts.entry((result.run.seed, one.round)).or_default();
                *part = (part.0 + value, part.1 + 1.0);
            }
        }
        parts
    }

    fn mean(self, results: &[&RunResult], of: Of) -> Option<f64> {
        let (sum, count) =
            self.parts(results, of).into_values().fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
        (count > 0.0).then(|| sum / count)
    }

    /// Part of the packets that were sent again.
    fn again(self, results: &[&RunResult]) -> f64 {
        let of_it = results.iter().flat_map(|result| &result.transfers).filter(|one| self.has(one));
        let (again, packets) =
            of_it.fold((0.0, 0.0), |(again, all), one| (again + f64::from(one.again), all + f64::from(one.packets)));
        if packets > 0.0 { again / packets } else { 0.0 }
    }
}

/// Relative change from `other` to `ours`, with an interval from parts of the time: within one transfers meet the same queue.
fn change(results: &[&RunResult], of: Of, ours: Which<'_>, other: Which<'_>) -> Option<Mean> {
    let base = other.mean(results, of)?;
    let theirs = other.parts(results, of);
    let changes: Vec<f64> = ours
        .parts(results, of)
        .into_iter()
        .filter_map(|(part, (sum, count))| {
            let (other_sum, other_count) = theirs.get(&part)?;
            Some((sum / count - other_sum / other_count) / base)
        })
        .collect();
    Mean::of(&changes)
}

/// Writes the tables of a scenario.
pub(super) fn write(text: &mut String, results: &[&RunResult]) -> Vec<Finding> {
    let arms = arms(results);
    let mut cases: Vec<&str> =
        results.iter().flat_map(|result| &result.transfers).map(|one| one.case.as_str()).collect();
    cases.sort_unstable();
    cases.dedup();
    let case = cases.join(", ");
    match arms.iter().find_map(|arm| arm.strip_prefix(&beside("product", ""))) {
        Some(other) => halves(text, results, &case, other),
        None => wholes(text, results, &case, &arms),
    }
}

fn kinds() -> impl Iterator<Item = Of> {
    MIX.into_iter().map(|(bytes, _)| Of::Size(bytes)).chain([Of::OverBound])
}

fn mean(results: &[&RunResult], of: Of, which: Which<'_>) -> String {
    match (of, which.mean(results, of)) {
        (_, None) => "-".to_owned(),
        (Of::OverBound, Some(mean)) => percent(mean),
        (Of::Size(_), Some(mean)) => format!("{mean:.0}"),
    }
}

/// One kind of sender on each path, against the host's congestion control from ten.
fn wholes(text: &mut String, results: &[&RunResult], case: &str, arms: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let plain = if arms.contains("cubic") { "cubic" } else { "bbr" };
    let base = Which::of(plain);
    let row =
        |arm: &str, cells: Vec<String>, again: f64| format!("{arm} | {} | {:.1} %", cells.join(" | "), again * 100.0);
    let own = kinds().map(|of| mean(results, of, base)).collect();
    let mut rows = vec![row(plain, own, base.again(results))];
    for arm in arms.iter().map(String::as_str).filter(|arm| *arm != plain) {
        let ours = Which::of(arm);
        let changes: Vec<(Of, Option<Mean>)> = kinds().map(|of| (of, change(results, of, ours, base))).collect();
        let cells = changes.iter().map(|(_, by)| by.map_or("-".to_owned(), with_interval)).collect();
        rows.push(row(arm, cells, ours.again(results)));
        if arm != "product" {
            continue;
        }
        for (of, by) in changes.into_iter().filter_map(|(of, by)| Some((of, by?))) {
            let target = match of {
                Of::Size(_) => starts::CROWD_WORSE_MOST,
                Of::OverBound => starts::CROWD_OVER_BOUND,
            };
            findings.push(Finding::of_change(format!("crowd, {case}: {}", of.words()), by, target));
        }
        let (again, most) = (ours.again(results), base.again(results));
        let (found, target) = (format!("{:.1} %", again * 100.0), format!("{:.1} % or less", most * 100.0));
        findings.push(Finding::new(format!("crowd, {case}: sent again"), found, target, again - most));
    }
    let columns = kinds().map(Of::words).collect::<Vec<_>>().join(" | ");
    page::add(
        text,
        &format!(
            "\nChange against `{plain}` (mean of parts of the time with its 95 % interval), and its own mean in ms (time over bound: relative \
         to the bound, all sizes together):\n\n{}",
            table(&format!("all senders | {columns} | sent again"), rows)
        ),
    );
    findings
}

/// Advised transfers and their neighbours on one path, beside the same neighbours among their own kind.
fn halves(text: &mut String, results: &[&RunResult], case: &str, other: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (advised, neighbours) = (beside("product", other), beside(other, "product"));
    let (advised, neighbours) = (Which::of(&advised), Which::of(&neighbours));
    let among_own = Which { arm: other, odd: true };
    let mut rows = Vec::new();
    for of in kinds() {
        let by = [change(results, of, neighbours, among_own), change(results, of, advised, neighbours)];
        let [beside, against] = by.map(|by| by.map_or("-".to_owned(), with_interval));
        let [own, beside_them, advised] = [among_own, neighbours, advised].map(|which| mean(results, of, which));
        rows.push(format!("{} | {own} | {beside_them} | {beside} | {advised} | {against}", of.words()));
        let [Some(beside), Some(against)] = by else { continue };
        let what = format!("{case}, {}", of.words());
        let ours = format!("{what}: advised against {other} beside them");
        findings.push(Finding::of_change(ours, against, starts::CROWD_WORSE_MOST));
        let theirs = format!("{what}: {other} beside advised ones");
        findings.push(Finding::of_change(theirs, beside, starts::CROWD_NEIGHBOURS_OFF));
    }
    let columns =
        format!("size | all {other} (ms) | half {other} | change | advised beside them | change against these");
    page::add(
        text,
        &format!(
            "\nHalf of the clients are served on advice, the other half by `{other}` without (changes are means of parts of the time with \
         their 95 % interval):\n\n{}",
            table(&columns, rows)
        ),
    );
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benefit::page::testing::result;

    #[test]
    fn a_size_that_takes_longer_on_advice_is_short_of_its_target() {
        let cases = [("p", "cubic", 100.0, 5), ("p", "product", 120.0, 2), ("p", "fixed16", 90.0, 8)];
        let one = result("crowd-10-81", 1, &cases);
        let mut text = String::new();
        let findings = write(&mut text, &[&one]);
        assert!(
            text.contains("| cubic | - | - | 100 | - |") && text.contains("| fixed16 | - | - | -10.0 % |"),
            "{text}"
        );
        let missed: Vec<&str> =
            findings.iter().filter(|found| found.is_missed()).map(|found| found.what.as_str()).collect();
        assert_eq!(missed, ["crowd, p: 100 KB", "crowd, p: time over bound"]);
    }

    #[test]
    fn neighbours_are_compared_with_the_same_clients_among_their_own_kind() {
        let mut one = result(
            "crowd-10-half-cubic",
            1,
            &[
                ("p", "product beside cubic", 80.0, 0),
                ("p", "cubic beside product", 110.0, 0),
                ("p", "cubic", 100.0, 0),
                ("p", "cubic", 500.0, 0),
            ],
        );
        for (n, client) in [(1, 1), (2, 1), (3, 2)] {
            one.transfers[n].client = client;
        }
        let mut text = String::new();
        let findings = write(&mut text, &[&one]);
        assert!(text.contains("| 100 KB | 100 | 110 | +10.0 % | 80 | -27.3 % |"), "{text}");
        assert!(findings.iter().any(|found| found.is_missed() && found.what.contains("beside advised")));
    }
}
