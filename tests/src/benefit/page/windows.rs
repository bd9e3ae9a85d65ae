//! The product against each single fixed window, CUBIC and BBR, over all paths and sizes.

use std::collections::BTreeMap;

use super::cells::{Case, Which, cases, ratios, runs_of, side};
use super::tables::{name, others};
use crate::benefit::result::RunResult;
use crate::benefit::scenario::{Arm, Question, Scenario};
use crate::benefit::scenarios;
use crate::campaign::page;
use crate::campaign::statistics::{Mean, geometric_mean};
use crate::plot::{Axis, Mark, Plot, Series};

/// Classes of sizes: name, and most bytes.
const SIZES: [(&str, u64); 4] =
    [("10 to 30 KB", 30_000), ("50 to 200 KB", 200_000), ("1 MB", 1_000_000), ("10 MB", u64::MAX)];

/// The product's time over an arm's in one case, by seed.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    family: &'static str,
    question: Question,
    case: Case,
    /// Below 1: the product is faster.
    ratios: BTreeMap<u64, f64>,
    /// Retransmitted segments a transfer: the product's and the arm's.
    again: (f64, f64),
    /// Mean time over the bound that the path and a receiver's window allow: the product's and the arm's.
    over_bound: (f64, f64),
}

impl Cell {
    /// Whether one flow has its path to itself.
    const fn is_alone(&self) -> bool {
        matches!(self.question, Question::Alone | Question::Grid)
    }
}

/// A ratio with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    pub(super) value: f64,
    /// Nothing from a single seed.
    pub(super) interval: Option<(f64, f64)>,
}

impl Ratio {
    /// Geometric mean over cells, each the geometric mean of its seeds. The interval is Student's over seeds of how far a
    /// seed's cells lie, on average, from their own means: so a seed that lacks some cells counts too.
    fn of(cells: &[&Cell]) -> Option<Self> {
        Self::of_ratios(&cells.iter().map(|cell| &cell.ratios).collect::<Vec<_>>())
    }

    /// The same of the ratios by seed of each cell.
    pub(super) fn of_ratios(cells: &[&BTreeMap<u64, f64>]) -> Option<Self> {
        let mut sum = 0.0;
        let mut seeds: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for ratios in cells {
            let mean = geometric_mean(&ratios.values().copied().collect::<Vec<_>>())?.ln();
            sum += mean;
            for (seed, ratio) in *ratios {
                seeds.entry(*seed).or_default().push(ratio.ln() - mean);
            }
        }
        if cells.is_empty() {
            return None;
        }
        let mean = sum / cells.len() as f64;
        let effects: Vec<f64> = seeds.values().map(|off| off.iter().sum::<f64>() / off.len() as f64).collect();
        let half = Mean::of(&effects).and_then(|effects| effects.half_width);
        Some(Self { value: mean.exp(), interval: half.map(|half| ((mean - half).exp(), (mean + half).exp())) })
    }

    pub(super) fn text(self) -> String {
        let interval = self.interval.map(|(low, high)| format!(" ({low:.3} to {high:.3})")).unwrap_or_default();
        format!("{:.3}{interval}", self.value)
    }
}

/// The scenario of a result.
pub(super) fn scenario<'a>(all: &'a [Scenario], result: &RunResult) -> Option<&'a Scenario> {
    all.iter().find(|scenario| scenario.name() == result.run.scenario)
}

/// Every case of the product and `arm`, in the runs that have both.
fn cells(results: &[&RunResult], arm: &str) -> Vec<Cell> {
    let all = scenarios::all();
    let runs = runs_of(results, "product", arm);
    let cell = |case: Case| {
        let (ours, theirs) = (Which::of("product"), Which::of(arm));
        let ratios = ratios(&runs, &case, ours, theirs);
        let (is, was) = (side(&runs, &case, ours)?, side(&runs, &case, theirs)?);
        let has = |result: &&&RunResult| result.transfers.iter().any(|one| one.case == case.case && one.arm == arm);
        let scenario = scenario(&all, runs.iter().find(has)?)?;
        let path = scenario.sites.iter().find(|site| site.case == case.case)?.path;
        let bound_ms = path.bound_with_receiver_ms(case.bytes);
        Some(Cell {
            family: scenario.family,
            question: scenario.question,
            ratios,
            again: (is.again, was.again),
            over_bound: (is.mean.value / bound_ms, was.mean.value / bound_ms),
            case,
        })
    };
    cases(&runs, "product").into_iter().filter_map(cell).filter(|cell| !cell.ratios.is_empty()).collect()
}

/// The product against each arm over everything: geometric means, and each fixed window case by case, worst rows first.
/// Returns the plot of time over the bound, where some flow had its path to itself.
pub(super) fn write(text: &mut String, results: &[&RunResult]) -> Option<Plot> {
    let arms: Vec<(String, Vec<Cell>)> =
        others(results).into_iter().map(|arm| (arm.clone(), cells(results, &arm))).collect();
    means(text, &arms);
    let mut rows = Vec::new();
    for (arm, cells) in arms.iter().filter(|(arm, _)| Arm::fixed_of(arm).is_some()) {
        for cell in cells {
            let Some(ratio) = Ratio::of(&[cell]) else { continue };
            let window = arm.trim_start_matches("fixed");
            let ((ours, theirs), (over, their_over)) = (cell.again, cell.over_bound);
            let (name, family, text) = (name(&cell.case), cell.family, ratio.text());
            // Of a path that others fill the bound says nothing.
            let bound = if cell.is_alone() { format!("{their_over:.2} → {over:.2}") } else { "-".to_owned() };
            rows.push((
                ratio.value,
                format!("{family}: {name} | {window} | {text} | {theirs:.2} → {ours:.2} | {bound}"),
            ));
        }
    }
    if !rows.is_empty() {
        page::add(
            text,
            &format!(
                "\nThe product against each fixed window, worst rows first (time of the product over the window's, with its 95 % interval; \
             below 1 the product is faster; retransmitted segments a transfer, the window's → the product's; time over the bound of \
             path and receiver's window):\n\n{}",
                page::sorted("path, size | window | ratio | retransmissions | time over bound", rows)
            ),
        );
    }
    over_bound(&arms)
}

/// For each arm the part of all cases that end within a multiple of the bound that path and receiver's window allow.
fn over_bound(arms: &[(String, Vec<Cell>)]) -> Option<Plot> {
    let alone = |cells: &[Cell], of: fn(&Cell) -> f64| -> Vec<f64> {
        cells.iter().filter(|cell| cell.is_alone()).map(of).collect()
    };
    // CUBIC, the first of the arms, is in every run: beside it is all of the product.
    let (_, every) = arms.first()?;
    let mut lines = vec![("product".to_owned(), alone(every, |cell| cell.over_bound.0))];
    lines.extend(arms.iter().map(|(arm, cells)| (arm.clone(), alone(cells, |cell| cell.over_bound.1))));
    lines.retain(|(_, values)| !values.is_empty());
    let farthest = lines.iter().flat_map(|(_, values)| values).copied().fold(1.0, f64::max);
    let mut series = Vec::new();
    for (colour, (arm, mut values)) in lines.into_iter().enumerate() {
        values.sort_by(f64::total_cmp);
        let part = |n: usize| n as f64 / values.len() as f64 * 100.0;
        // Drawn as steps also where a line is dashed.
        let mut points = vec![(1.0, 0.0)];
        points.extend(values.iter().zip(0..).flat_map(|(value, n)| [n, n + 1].map(|n| (value.max(1.0), part(n)))));
        points.push((farthest, 100.0));
        let (name, mark) = match Arm::fixed_of(&arm) {
            Some(segments) => (format!("fixed {segments}"), Mark::Dashed),
            None => (arm, Mark::Line),
        };
        series.push(Series { name, mark, colour, points });
    }
    (!series.is_empty()).then(|| Plot {
        title: "Completion time over the bound of path and receiver's window, one flow at a time".to_owned(),
        x: Axis::new("completion time over the bound", "times").log(),
        y: Axis::new("part of all paths and sizes", "%").within(0.0, 100.0),
        series,
    })
}

/// The geometric means against each arm.
fn means(text: &mut String, arms: &[(String, Vec<Cell>)]) {
    let again = |cells: &[&Cell]| {
        let mean = |of: fn(&Cell) -> f64| cells.iter().map(|cell| of(cell)).sum::<f64>() / cells.len() as f64;
        format!("{:.2} → {:.2}", mean(|cell| cell.again.1), mean(|cell| cell.again.0))
    };
    let mut rows = Vec::new();
    for (arm, cells) in arms {
        let alone: Vec<&Cell> = cells.iter().filter(|cell| cell.is_alone()).collect();
        let Some(all) = Ratio::of(&alone) else { continue };
        let mut columns = vec![arm.clone(), alone.len().to_string(), all.text()];
        let mut least = 0;
        for (_, most) in SIZES {
            let is_of_size = |cell: &&Cell| cell.case.bytes > least && cell.case.bytes <= most;
            let of_size: Vec<&Cell> = alone.iter().copied().filter(is_of_size).collect();
            columns.push(Ratio::of(&of_size).map_or("-".to_owned(), Ratio::text));
            least = most;
        }
        for order in [|a: &f64, b: &f64| b.total_cmp(a), f64::total_cmp] {
            let one = |cell: &&Cell| Ratio::of(&[cell]).map_or(1.0, |ratio| ratio.value);
            let found = alone.iter().max_by(|a, b| order(&one(a), &one(b)));
            columns.push(found.map_or(String::new(), |cell| format!("{:.2} ({})", one(cell), name(&cell.case))));
        }
        columns.push(again(&alone));
        rows.push(columns.join(" | "));
    }
    if !rows.is_empty() {
        let sizes = SIZES.map(|(name, _)| name).join(" | ");
        page::add(
            text,
            &format!(
                "\nThe product's time over each arm's, one flow at a time: geometric means over all paths and sizes, each with its 95 % \
             interval; below 1 the product is faster. Retransmitted segments a transfer are means over the same cases.\n\n{}\n",
                page::table(&format!("against | cases | all | {sizes} | best | worst | retransmissions"), rows)
            ),
        );
    }
    let mut rows = Vec::new();
    for (arm, cells) in arms {
        for question in [Question::Together, Question::Burst] {
            let here: Vec<&Cell> = cells.iter().filter(|cell| cell.question == question).collect();
            let (Some(ratio), Some(first)) = (Ratio::of(&here), here.first()) else { continue };
            rows.push(format!("{} | {arm} | {} | {}", first.family, ratio.text(), again(&here)));
        }
    }
    if !rows.is_empty() {
        let table = page::table("scenario | against | ratio | retransmissions", rows);
        page::add(text, &format!("\nThe same where many send at once:\n\n{table}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benefit::page::testing::result;
    use crate::benefit::path::Way;

    fn near(value: f64, wanted: f64) {
        assert!((value - wanted).abs() < 1e-9, "{value}, not {wanted}");
    }

    #[test]
    fn a_window_is_compared_with_the_product_of_its_own_run() {
        let first = result("alone-16-24-32", 1, &[("S1", "product", 500.0, 0), ("S1", "fixed32", 1_000.0, 8)]);
        // This run has no window of 32: its slower product says nothing of it.
        let second = result("alone-48-64-bbr", 1, &[("S1", "product", 4_000.0, 0), ("S1", "fixed48", 2_000.0, 2)]);
        let results = [&first, &second];
        let cell = cells(&results, "fixed32").pop().unwrap();
        near(cell.ratios[&1], 0.5);
        assert_eq!((cell.again, cell.family), ((0.0, 8.0), "alone"));
        // 100 packets of 1,052 bytes at 1.6 Mbit/s, and 104 ms.
        near(cell.over_bound.1, 1_000.0 / 630.0);
        near(cells(&results, "fixed48").pop().unwrap().ratios[&1], 2.0);
    }

    #[test]
    fn a_geometric_mean_is_over_cases_and_its_interval_over_seeds() {
        let run = |seed, s1: f64, s2: f64| {
            let others = [("S1", "cubic", 100.0, 0), ("S2", "cubic", 100.0, 0)];
            let ours = [("S1", "product", s1, 0), ("S2", "product", s2, 0)];
            result("alone-16-24-32", seed, &[others, ours].concat())
        };
        let (a, b) = (run(1, 25.0, 100.0), run(2, 100.0, 400.0));
        let found = cells(&[&a, &b], "cubic");
        let ratio = Ratio::of(&found.iter().collect::<Vec<_>>()).unwrap();
        // S1: 0.25 and 1; S2: 1 and 4. The seeds' own means are 0.5 and 2.
        near(ratio.value, 1.0);
        let (low, high) = ratio.interval.unwrap();
        near(low * high, 1.0);
        near(high.ln(), 12.706 * (2.0_f64.ln() * 2.0_f64.sqrt()) / 2.0_f64.sqrt());
        assert_eq!(Ratio::of(&[]), None);
        let once = cells(&[&a], "cubic");
        assert_eq!(Ratio::of(&once.iter().collect::<Vec<_>>()).unwrap().interval, None);
    }

    #[test]
    fn a_seed_that_lacks_a_case_does_not_move_the_mean_of_the_others() {
        let whole = result(
            "alone-16-24-32",
            1,
            &[("S1", "cubic", 1.0, 0), ("S1", "product", 0.5, 0), ("S2", "cubic", 1.0, 0), ("S2", "product", 2.0, 0)],
        );
        let cut = result("alone-16-24-32", 2, &[("S1", "cubic", 1.0, 0), ("S1", "product", 0.5, 0)]);
        let found = cells(&[&whole, &cut], "cubic");
        let ratio = Ratio::of(&found.iter().collect::<Vec<_>>()).unwrap();
        near(ratio.value, 1.0);
        near(ratio.interval.unwrap().1, 1.0);
    }

    #[test]
    fn the_plot_holds_every_arm_from_its_nearest_case_to_its_farthest() {
        let times = [("S1", "product", 630.0, 0), ("S1", "cubic", 945.0, 0), ("S1", "fixed16", 1_260.0, 0)];
        let more = [("S2", "product", 1_861.0, 0), ("S2", "cubic", 9_305.0, 0), ("S2", "fixed16", 930.5, 0)];
        let run = result("alone-16-24-32", 1, &[times, more].concat());
        let plot = write(&mut String::new(), &[&run]).unwrap();
        let series = |name: &str| plot.series.iter().find(|series| series.name == name).unwrap();
        assert_eq!(plot.series.len(), 3);
        let bound = Way::reference(1_600, 202).bound_with_receiver_ms(100_000);
        let cubic = &series("cubic").points;
        // Up to a half at the nearer case, then on to the farther one.
        assert_eq!((cubic.len(), cubic[0]), (6, (1.0, 0.0)));
        near(cubic[2].0, 1.5);
        near(cubic[2].1, 50.0);
        near(cubic[3].0, 9_305.0 / bound);
        near(cubic[3].1, 50.0);
        assert!(plot.svg().unwrap().contains("fixed 16"));
    }

    #[test]
    fn worst_rows_come_first() {
        let times = [
            ("S1", "product", 500.0, 0),
            ("S1", "fixed16", 1_000.0, 0),
            ("S1", "fixed24", 250.0, 0),
            ("S2", "product", 300.0, 1),
            ("S2", "fixed16", 250.0, 3),
        ];
        let mut text = String::new();
        write(&mut text, &[&result("alone-16-24-32", 1, &times)]);
        let order = ["| alone: S1, 100 KB | 24 | 2.000 |", "| alone: S2, 100 KB | 16 | 1.200 | 3.00 → 1.00 |"];
        let last = "| alone: S1, 100 KB | 16 | 0.500 |";
        let at = |row: &str| text.find(row).unwrap_or_else(|| panic!("no {row} in\n{text}"));
        assert!(at(order[0]) < at(order[1]) && at(order[1]) < at(last), "{text}");
        // Over both paths: the root of 0.5 × 1.2.
        assert!(text.contains("| fixed16 | 2 | 0.775 |"), "{text}");
    }
}
