//! Tables of crowds: one kind of sender on each of several equal paths, or two kinds on one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::cells::arms;
use super::starts;
use super::starts::Finding;
use super::tables::{Summary, percent, size, with_interval};
use crate::benefit::result::{Measured, RunResult};
use crate::benefit::scenario::{MIX, beside};
use crate::benefit::statistics::Mean;
use crate::plot::Bar;

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

/// Transfers of one kind in one case; of every second client alone where what they are compared with are only those.
#[derive(Clone, Copy, Debug)]
struct Group<'a> {
    arm: &'a str,
    odd: bool,
}

impl Group<'_> {
    fn has(self, one: &Measured) -> bool {
        one.arm == self.arm && (!self.odd || !one.client.is_multiple_of(2))
    }

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
fn change(results: &[&RunResult], of: Of, ours: Group<'_>, other: Group<'_>) -> Option<Mean> {
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
pub(super) fn write(text: &mut String, results: &[&RunResult]) -> Summary {
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

/// One kind of sender on each path, against the host's congestion control from ten.
fn wholes(text: &mut String, results: &[&RunResult], case: &str, arms: &BTreeSet<String>) -> Summary {
    let mut summary = Summary::default();
    let whole = |arm| Group { arm, odd: false };
    let plain = if arms.contains("cubic") { "cubic" } else { "bbr" };
    let base = whole(plain);
    let columns: Vec<String> = kinds().map(Of::words).collect();
    writeln!(
        text,
        "\nChange against `{plain}` (mean of parts of the time with its 95 % interval), and its own mean in ms (time over bound: \
         relative to the bound, all sizes together):\n\n| all senders | {} | sent again |\n|{}",
        columns.join(" | "),
        " --- |".repeat(columns.len() + 2)
    )
    .ok();
    let own: Vec<String> = kinds()
        .map(|of| match (of, base.mean(results, of)) {
            (_, None) => "-".to_owned(),
            (Of::OverBound, Some(mean)) => percent(mean),
            (Of::Size(_), Some(mean)) => format!("{mean:.0}"),
        })
        .collect();
    let row = |arm: &str, cells: &[String], again: f64| {
        format!("| {arm} | {} | {:.1} % |\n", cells.join(" | "), again * 100.0)
    };
    *text += &row(plain, &own, base.again(results));
    for arm in arms.iter().map(String::as_str).filter(|arm| *arm != plain) {
        let ours = whole(arm);
        let changes: Vec<(Of, Option<Mean>)> = kinds().map(|of| (of, change(results, of, ours, base))).collect();
        let cells: Vec<String> = changes.iter().map(|(_, by)| by.map_or("-".to_owned(), with_interval)).collect();
        *text += &row(arm, &cells, ours.again(results));
        if arm != "product" {
            continue;
        }
        for (of, by) in changes.into_iter().filter_map(|(of, by)| Some((of, by?))) {
            let target = match of {
                Of::Size(_) => starts::CROWD_WORSE_MOST,
                Of::OverBound => starts::CROWD_OVER_BOUND,
            };
            summary.judge(format!("crowd, {case}: {}", of.words()), by, target);
        }
        let (again, most) = (ours.again(results), base.again(results));
        summary.findings.push(Finding {
            what: format!("crowd, {case}: sent again"),
            found: format!("{:.1} %", again * 100.0),
            target: format!("{:.1} % or less", most * 100.0),
            beyond: again - most,
        });
    }
    summary
}

/// Advised transfers and their neighbours on one path, beside the same neighbours among their own kind.
fn halves(text: &mut String, results: &[&RunResult], case: &str, other: &str) -> Summary {
    let mut summary = Summary::default();
    let (advised, neighbours) = (beside("product", other), beside(other, "product"));
    let (advised, neighbours) = (Group { arm: &advised, odd: false }, Group { arm: &neighbours, odd: false });
    let among_own = Group { arm: other, odd: true };
    writeln!(
        text,
        "\nHalf of the clients are served on advice, the other half by `{other}` without (changes are means of parts of the time \
         with their 95 % interval):\n\n| size | all {other} (ms) | half {other} | change | advised beside them | change against \
         these |\n| --- | --- | --- | --- | --- | --- |"
    )
    .ok();
    for of in kinds() {
        let mean = |group: Group<'_>| match (of, group.mean(results, of)) {
            (_, None) => "-".to_owned(),
            (Of::OverBound, Some(mean)) => percent(mean),
            (Of::Size(_), Some(mean)) => format!("{mean:.0}"),
        };
        let by = [change(results, of, neighbours, among_own), change(results, of, advised, neighbours)];
        let [beside, against] = by.map(|by| by.map_or("-".to_owned(), with_interval));
        writeln!(
            text,
            "| {} | {} | {} | {beside} | {} | {against} |",
            of.words(),
            mean(among_own),
            mean(neighbours),
            mean(advised)
        )
        .ok();
        let [Some(beside), Some(against)] = by else { continue };
        let what = format!("{case}, {}", of.words());
        summary.judge(format!("{what}: advised against {other} beside them"), against, starts::CROWD_WORSE_MOST);
        summary.judge(format!("{what}: {other} beside advised ones"), beside, starts::CROWD_NEIGHBOURS_OFF);
    }
    summary
}

impl Summary {
    /// Holds a change against the most that it may be.
    fn judge(&mut self, what: String, by: Mean, most: f64) {
        let half = by.half_width.unwrap_or(0.0);
        self.bars.push(Bar { label: what.clone(), value: by.value, half, mark: Some(most) });
        self.findings.push(Finding {
            what,
            found: with_interval(by),
            target: format!("{} or less", percent(most)),
            beyond: by.value - most,
        });
    }
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
        let summary = write(&mut text, &[&one]);
        assert!(
            text.contains("| cubic | - | - | 100 | - |") && text.contains("| fixed16 | - | - | -10.0 % |"),
            "{text}"
        );
        let missed: Vec<&str> =
            summary.findings.iter().filter(|found| found.is_missed()).map(|found| found.what.as_str()).collect();
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
        let summary = write(&mut text, &[&one]);
        assert!(text.contains("| 100 KB | 100 | 110 | +10.0 % | 80 | -27.3 % |"), "{text}");
        assert!(summary.findings.iter().any(|found| found.is_missed() && found.what.contains("beside advised")));
    }
}
