//! Variants of the product's start, each against what it shall not be slower than, path by path.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::cells::{Case, Which, cases, ratios, side};
use super::tables::{name, with_interval};
use super::windows::Ratio;
use crate::benefit::result::RunResult;
use crate::benefit::scenario::Question;
use crate::campaign::page::{self, percent};
use crate::campaign::statistics::Mean;
use crate::product::StartVariant;

/// How much longer transfers may take over all paths and sizes.
const WORSE_OVER_ALL: f64 = 0.01;

/// A variant of the start held against another arm of its runs, by case.
struct Compared {
    case: Case,
    /// Time over the other's, by seed.
    ratios: BTreeMap<u64, f64>,
    /// Retransmitted segments a transfer: the variant's and the other's.
    again: (f64, f64),
}

impl Compared {
    /// By how much it takes longer.
    fn change(&self) -> Option<Mean> {
        Mean::of(&self.ratios.values().map(|ratio| ratio - 1.0).collect::<Vec<_>>())
    }

    /// The lower end of its interval; from a single seed the value.
    fn at_least(&self) -> Option<f64> {
        self.change().map(|change| change.value - change.half_width.unwrap_or(0.0))
    }
}

/// What a variant is held against: it shall not be slower.
const fn other(start: StartVariant) -> &'static str {
    match start {
        StartVariant::Plain | StartVariant::Buffer => "plain",
        // Both start with the host's own window.
        StartVariant::Threshold | StartVariant::Rfc9959 => "cubic",
    }
}

/// Writes the table of a variant.
pub(super) fn write(text: &mut String, start: StartVariant, results: &[&RunResult]) -> Vec<Finding> {
    let other = other(start);
    let mut against =
        |other| table(text, &format!("start `{}` against `{other}`", start.name()), &compared(results, other));
    if start == StartVariant::Rfc9959 {
        // This table has no target: half of a window is not expected to be as fast as the whole.
        against("plain");
    }
    let findings = against(other);
    // Without it nothing would say whether the variant was in force at all.
    writeln!(text, "\nWhat became of the connections with this start: {}.", met(results)).ok();
    findings
}

fn compared(results: &[&RunResult], other: &str) -> Vec<Compared> {
    let (ours, theirs) = (Which::of("product"), Which::of(other));
    let compared = |case: Case| {
        let (is, was) = (side(results, &case, ours)?, side(results, &case, theirs)?);
        Some(Compared { ratios: ratios(results, &case, ours, theirs), again: (is.again, was.again), case })
    };
    cases(results, "product").into_iter().filter_map(compared).collect()
}

/// The agent's counters over all runs.
fn met(results: &[&RunResult]) -> String {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, count) in results.iter().flat_map(|result| &result.met).filter(|(_, count)| **count > 0) {
        *sums.entry(name).or_default() += count;
    }
    let words: Vec<String> = sums.into_iter().map(|(name, count)| format!("`{name}` {count}")).collect();
    words.join(", ")
}

fn table(text: &mut String, what: &str, compared: &[Compared]) -> Vec<Finding> {
    let mut rows: Vec<(&Compared, Mean)> = compared.iter().filter_map(|one| Some((one, one.change()?))).collect();
    rows.sort_by(|a, b| b.1.value.total_cmp(&a.1.value));
    let all = Ratio::of_ratios(&rows.iter().map(|(one, _)| &one.ratios).collect::<Vec<_>>());
    let (Some(all), Some((worst, _))) = (all, rows.first()) else { return Vec::new() };
    let row = |(one, change): &(&Compared, Mean)| {
        let (change_text, (is, was)) = (with_interval(*change), one.again);
        format!("{} | {change_text} | {} | {was:.2} → {is:.2}", name(&one.case), change.count)
    };
    page::add(
        text,
        &format!(
            "\n### {what}\n\nChange of the completion time, worst rows first, with its 95 % interval over seeds.\n\n{}",
            page::table("path, size | change | seeds | repeats a transfer", rows.iter().map(row))
        ),
    );
    let sum = |of: fn(&Compared) -> f64| rows.iter().map(|(one, _)| of(one)).sum::<f64>();
    let (is, was) = (sum(|one| one.again.0), sum(|one| one.again.1));
    let too_long = rows.iter().filter(|(one, _)| one.at_least().is_some_and(|least| least > WORSE_MOST)).count();
    writeln!(
        text,
        "\nGeometric mean of the ratios over {} paths and sizes: {}. Wholly above {}: {too_long}. Repeats a transfer, summed over \
         these: {was:.2} → {is:.2}.",
        rows.len(),
        all.text(),
        percent(WORSE_MOST),
    )
    .ok();
    let highest = rows.iter().filter_map(|(one, _)| one.at_least()).fold(f64::NEG_INFINITY, f64::max);
    vec![
        Finding::new(
            format!("{what}: intervals wholly above {}", percent(WORSE_MOST)),
            format!("{too_long}; the worst path {}", name(&worst.case)),
            "0",
            highest - WORSE_MOST,
        ),
        Finding::new(
            format!("{what}: geometric mean"),
            all.text(),
            format!("{:.2} or less", 1.0 + WORSE_OVER_ALL),
            all.value - 1.0 - WORSE_OVER_ALL,
        ),
        Finding::new(
            format!("{what}: repeats a transfer, summed over paths and sizes"),
            format!("{is:.2}"),
            format!("{was:.2} or less"),
            is - was,
        ),
    ]
}

// The targets, and what was found beside them.

/// A figure held against its target.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) what: String,
    pub(super) found: String,
    pub(super) target: String,
    /// How far beyond the target, in the figure's unit; below zero where it is met.
    pub(super) beyond: f64,
}

impl Finding {
    pub(super) fn new(
        what: impl Into<String>,
        found: impl Into<String>,
        target: impl Into<String>,
        beyond: f64,
    ) -> Self {
        Self { what: what.into(), found: found.into(), target: target.into(), beyond }
    }

    /// Of a change that may be this at most.
    pub(super) fn of_change(what: impl Into<String>, by: Mean, most: f64) -> Self {
        Self::new(what, with_interval(by), format!("{} or less", percent(most)), by.value - most)
    }

    pub(super) fn is_missed(&self) -> bool {
        self.beyond > 0.0
    }
}

/// How much longer what shall not be worse may take.
pub(super) const WORSE_MOST: f64 = 0.02;
/// How much longer transfers beside advised ones may take than among their own kind.
pub(super) const NEIGHBOUR_WORSE_MOST: f64 = 0.12;
/// The same on paths that deliver unevenly, police or lose.
pub(super) const ROUGH_WORSE_MOST: f64 = 0.05;
/// How much longer a size may take in a crowd on advice than in one without.
pub(super) const CROWD_WORSE_MOST: f64 = 0.05;
/// Change of the time over the bound in a crowd, all sizes together.
pub(super) const CROWD_OVER_BOUND: f64 = -0.15;
/// How far neighbours of advised transfers may be from what they take among their own kind.
pub(super) const CROWD_NEIGHBOURS_OFF: f64 = 0.08;
/// How far one flow alone may be from its target.
const ALONE_OFF: f64 = 0.02;

/// Changes in per cent for one flow of 30, 50, 70 and 100 KB; ten kilobytes fit into the first ten segments of every host.
const ALONE: [(&str, [(u64, i8); 4]); 3] = [
    ("S1", [(30_000, -35), (50_000, -33), (70_000, -18), (100_000, -10)]),
    ("S2", [(30_000, -46), (50_000, -56), (70_000, -52), (100_000, -45)]),
    ("S3", [(30_000, -8), (50_000, -37), (70_000, -34), (100_000, -42)]),
];
/// The same for several senders.
const TOGETHER: [(&str, i8); 4] = [("1 senders", -34), ("6 senders", -28), ("15 senders", -28), ("30 senders", -8)];

/// Target for the change of completion time against CUBIC with ten segments, tolerance included.
pub(super) fn change(question: Question, case: &str, bytes: u64) -> Option<f64> {
    let share = |percent: i8| f64::from(percent) / 100.0;
    match question {
        Question::Alone => {
            let (_, sizes) = ALONE.iter().find(|(path, _)| *path == case)?;
            let of_size = sizes.iter().find(|(size, _)| *size == bytes);
            Some(of_size.map_or(WORSE_MOST, |(_, percent)| share(*percent) + ALONE_OFF))
        }
        Question::Together => TOGETHER.iter().find(|(senders, _)| *senders == case).map(|(_, percent)| share(*percent)),
        Question::Grid => Some(WORSE_MOST),
        Question::Rough => Some(ROUGH_WORSE_MOST),
        Question::Fairness
        | Question::Burst
        | Question::Crowd
        | Question::OnBbr
        | Question::FirstFlight
        | Question::Harm => None,
    }
}

/// Most repeated packets a transfer in one case, given the other's.
pub(super) fn repeats_most(other: f64) -> f64 {
    1.2 * other + 0.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benefit::page::testing::result;

    fn run(seed: u64, product: (f64, u32), plain: f64, cubic: f64) -> RunResult {
        let beside = [("S1", "plain", plain, 2), ("S1", "cubic", cubic, 4)];
        result("alone-pair", seed, &[&beside[..], &[("S1", "product", product.0, product.1)]].concat())
    }

    #[test]
    fn a_variant_is_held_against_the_plain_start_of_its_runs() {
        let runs = [run(1, (104.0, 3), 100.0, 300.0), run(2, (208.0, 3), 200.0, 100.0)];
        let mut text = String::new();
        let findings = write(&mut text, StartVariant::Buffer, &runs.iter().collect::<Vec<_>>());
        assert_eq!(findings.iter().filter(|finding| finding.is_missed()).count(), 3, "{findings:?}");
        assert!(text.contains("| S1, 100 KB | +4.0 % ± 0.0 | 2 | 2.00 → 3.00 |"), "{text}");
    }

    #[test]
    fn a_start_with_the_hosts_window_is_held_against_cubic() {
        let runs = [run(1, (103.0, 3), 1.0, 100.0), run(2, (98.0, 4), 1.0, 100.0)];
        let mut text = String::new();
        let findings = write(&mut text, StartVariant::Threshold, &runs.iter().collect::<Vec<_>>());
        // One seed is 3 % slower, and the interval reaches far below.
        assert!(findings.iter().all(|finding| !finding.is_missed()), "{findings:?}");
        assert!(text.contains("start `threshold` against `cubic`") && text.contains("4.00 → 3.50"), "{text}");
    }

    #[test]
    fn careful_resume_is_shown_beside_the_plain_start_and_held_against_cubic() {
        let runs = [run(1, (90.0, 3), 60.0, 100.0), run(2, (92.0, 3), 60.0, 100.0)];
        let mut text = String::new();
        let findings = write(&mut text, StartVariant::Rfc9959, &runs.iter().collect::<Vec<_>>());
        assert!(findings.len() == 3 && findings.iter().all(|finding| !finding.is_missed()), "{findings:?}");
        assert!(
            ["plain", "cubic"].iter().all(|other| text.contains(&format!("start `rfc9959` against `{other}`"))),
            "{text}"
        );
    }

    #[test]
    fn targets_are_those_of_the_cases() {
        let near = |target: Option<f64>, wanted: f64| (target.unwrap() - wanted).abs() < 1e-9;
        assert!(near(change(Question::Alone, "S2", 50_000), -0.54));
        assert!(near(change(Question::Alone, "S2", 10_000), 0.02));
        assert!(near(change(Question::Together, "30 senders", 30_000), -0.08));
        assert_eq!(change(Question::Alone, "quick", 10_000), None);
    }
}
