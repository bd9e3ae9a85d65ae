//! A table for each question, worst rows first.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::cells::{Case, Side, Which, arms, cases, change, pooled_median, runs_of, side};
use super::starts;
use super::starts::Finding;
use crate::benefit::flight::Flights;
use crate::benefit::result::RunResult;
use crate::benefit::scenario::{Arm, Question, beside};
use crate::benefit::statistics::Mean;
use crate::plot::Bar;

/// What a question's table gives besides its text.
#[derive(Debug, Default)]
pub(super) struct Summary {
    pub(super) findings: Vec<Finding>,
    pub(super) bars: Vec<Bar>,
}

/// Times that differ by less say nothing: the lab delivers a packet in a hundred later than that.
const LATENESS_MS: f64 = 0.5;

struct Row {
    /// Rows with the largest come first.
    order: f64,
    text: String,
}

pub(super) fn percent(value: f64) -> String {
    format!("{:+.1} %", value * 100.0)
}

pub(super) fn with_interval(mean: Mean) -> String {
    match mean.half_width {
        Some(half) => format!("{} ± {:.1}", percent(mean.value), half * 100.0),
        None => percent(mean.value),
    }
}

fn time(side: &Side) -> String {
    let half = side.mean.half_width.map(|half| format!(" ± {half:.1}")).unwrap_or_default();
    format!("{:.1}{half}", side.mean.value)
}

pub(super) fn size(bytes: u64) -> String {
    if bytes >= 1_000_000 { format!("{} MB", bytes / 1_000_000) } else { format!("{} KB", bytes / 1_000) }
}

pub(super) fn name(case: &Case) -> String {
    format!("{}, {}", case.case, size(case.bytes))
}

fn print(text: &mut String, mut rows: Vec<Row>) {
    rows.sort_by(|a, b| b.order.total_cmp(&a.order));
    for row in rows {
        *text += &row.text;
    }
}

/// The arms that the product is compared with, CUBIC first, then fixed windows in order.
pub(super) fn others(results: &[&RunResult]) -> Vec<String> {
    let mut others: Vec<String> = arms(results).into_iter().filter(|arm| arm != "product").collect();
    others.sort_by_key(|arm| (arm != "cubic", Arm::fixed_of(arm), arm.clone()));
    others
}

/// The product against every other arm of a question, by completion time, each in the runs that have both.
pub(super) fn against(text: &mut String, all: &[&RunResult], question: Question) -> Summary {
    let mut summary = Summary::default();
    for other in &others(all) {
        let other = other.as_str();
        let results = &runs_of(all, "product", other);
        writeln!(
            text,
            "\nAgainst `{other}` (times in ms, mean of seeds with its 95 % interval; median and p95 over all \
             transfers; targets with their tolerance):\n\n| path, size | wire's bound | {other} | median | p95 | product | \
             median | p95 | change | target | repeats a transfer | first flight | transfers |\n| --- | --- | --- | --- | --- | \
             --- | --- | --- | --- | --- | --- | --- | --- |"
        )
        .ok();
        let mut rows = Vec::new();
        for case in cases(results, "product") {
            let (ours, theirs) = (Which::of("product"), Which::of(other));
            let (Some(is), Some(was)) = (side(results, &case, ours), side(results, &case, theirs)) else { continue };
            let Some(by) = change(results, &case, ours, theirs) else { continue };
            let target = match (other, question) {
                ("cubic", _) => starts::change(question, &case.case, case.bytes),
                ("bbr", Question::Together | Question::OnBbr) => Some(starts::WORSE_MOST),
                _ => None,
            };
            rows.push(Row {
                order: by.value - target.unwrap_or(0.0),
                text: format!(
                    "| {} | {:.1} | {} | {:.1} | {:.1} | {} | {:.1} | {:.1} | {} | {} | {:.2} → {:.2} | {:.1} → {:.1} | {} + {} |\n",
                    name(&case),
                    is.bound_ms,
                    time(&was),
                    was.median,
                    was.p95,
                    time(&is),
                    is.median,
                    is.p95,
                    with_interval(by),
                    target.map_or("-".to_owned(), |target| format!("{} or less", percent(target))),
                    was.again,
                    is.again,
                    was.first_flight,
                    is.first_flight,
                    was.transfers,
                    is.transfers
                ),
            });
            let what = format!("{} against {other}", name(&case));
            if let Some(target) = target {
                summary.findings.push(Finding {
                    what: format!("{what}: completion time"),
                    found: with_interval(by),
                    target: format!("{} or less", percent(target)),
                    beyond: by.value - target,
                });
            }
            further(&mut summary, question, other, (&what, &case), (&is, &was, by));
            if other == "cubic" {
                let label = name(&case);
                summary.bars.push(Bar { label, value: by.value, half: by.half_width.unwrap_or(0.0), mark: target });
            }
        }
        print(text, rows);
    }
    if question == Question::Grid {
        pooled(text, all, &mut summary);
    }
    summary
}

/// Targets besides the mean.
fn further(
    summary: &mut Summary,
    question: Question,
    other: &str,
    (what, case): (&str, &Case),
    (is, was, by): (&Side, &Side, Mean),
) {
    let tail = matches!((question, other), (Question::Together, "cubic") | (Question::Grid, "fixed24"));
    if tail {
        summary.findings.push(Finding {
            what: format!("{what}: p95"),
            found: format!("{:.0} ms", is.p95),
            target: format!("{:.0} ms or less", was.p95),
            beyond: if is.p95 < was.p95 + LATENESS_MS { -1.0 } else { is.p95 / was.p95 - 1.0 },
        });
    }
    if other == "cubic" && question != Question::Fairness {
        let most = starts::repeats_most(was.again);
        summary.findings.push(Finding {
            what: format!("{what}: repeats a transfer"),
            found: format!("{:.2}", is.again),
            target: format!("{most:.2} or less"),
            beyond: is.again - most,
        });
    }
    if question == Question::Together && other == "cubic" && case.case != "30 senders" {
        summary.findings.push(Finding {
            what: format!("{what}: interval off zero"),
            found: with_interval(by),
            target: "off zero".to_owned(),
            beyond: if by.is_off_zero() { -1.0 } else { 0.001 },
        });
    }
}

fn pooled(text: &mut String, results: &[&RunResult], summary: &mut Summary) {
    const BYTES: u64 = 200_000;
    const TARGET: f64 = -0.25;
    for other in others(results) {
        let results = runs_of(results, "product", &other);
        let Some((by, ours, theirs)) = pooled_median(&results, BYTES, "product", &other) else { continue };
        writeln!(
            text,
            "\n{} over all paths of this table, median: {other} {theirs:.0} ms, product {ours:.0} ms, {}.",
            size(BYTES),
            percent(by)
        )
        .ok();
        if other == "cubic" {
            summary.findings.push(Finding {
                what: format!("grid, {} pooled median", size(BYTES)),
                found: percent(by),
                target: format!("{} or less", percent(TARGET)),
                beyond: by - TARGET,
            });
        }
    }
}

/// What senders notice of neighbours on advice, and of neighbours that start with a fixed window or BBR.
pub(super) fn fairness(text: &mut String, results: &[&RunResult], other: &str) -> Summary {
    let mut summary = Summary::default();
    let places: Vec<String> =
        arms(results).into_iter().filter_map(|arm| Some(arm.strip_suffix(&beside("", other))?.to_owned())).collect();
    for place in places {
        let neighbours = beside(other, &place);
        writeln!(
            text,
            "\nEvery second sender is `{other}` without advice beside `{place}`; the same senders where all are `{other}` \
             (times in ms):\n\n| senders, size | all {other} | half {other} | change | {place} beside them | repeats a \
             transfer |\n| --- | --- | --- | --- | --- | --- |"
        )
        .ok();
        let mut rows = Vec::new();
        let mut changes = Vec::new();
        for case in cases(results, &neighbours) {
            let (mixed, alone) = (Which { arm: &neighbours, odd: true }, Which { arm: other, odd: true });
            let (Some(is), Some(was)) = (side(results, &case, mixed), side(results, &case, alone)) else { continue };
            let Some(by) = change(results, &case, mixed, alone) else { continue };
            let there = side(results, &case, Which::of(&beside(&place, other)));
            rows.push(Row {
                order: by.value,
                text: format!(
                    "| {} | {} | {} | {} | {} | {:.2} → {:.2} |\n",
                    name(&case),
                    time(&was),
                    time(&is),
                    with_interval(by),
                    there.as_ref().map_or("-".to_owned(), time),
                    was.again,
                    is.again
                ),
            });
            changes.push(by.value);
            if place != "product" {
                continue;
            }
            let (label, half) = (name(&case), by.half_width.unwrap_or(0.0));
            summary.bars.push(Bar { label, value: by.value, half, mark: Some(starts::NEIGHBOUR_WORSE_MOST) });
            summary.findings.push(Finding {
                what: format!("fairness, {} beside {other}", case.case),
                found: with_interval(by),
                target: format!("{} or less", percent(starts::NEIGHBOUR_WORSE_MOST)),
                beyond: by.value - starts::NEIGHBOUR_WORSE_MOST,
            });
        }
        print(text, rows);
        let Some(mean) = Mean::of(&changes) else { continue };
        writeln!(text, "\nAverage over the counts: {}.", percent(mean.value)).ok();
        if place == "product" {
            summary.findings.push(Finding {
                what: format!("fairness beside {other}, average over the counts of senders"),
                found: percent(mean.value),
                target: "within 5 %".to_owned(),
                beyond: mean.value.abs() - 0.05,
            });
        }
    }
    summary
}

/// Losses of many starts at once.
pub(super) fn burst(text: &mut String, results: &[&RunResult]) -> Summary {
    let mut summary = Summary::default();
    let mut all: Vec<&str> =
        results.iter().flat_map(|result| &result.carried).map(|carried| carried.case.as_str()).collect();
    all.sort_unstable();
    all.dedup();
    text.push_str(
        "\nPackets lost at the full queue:\n\n| burst | arm | cubic | arm's | ratio |\n| --- | --- | --- | --- | --- |\n",
    );
    let mut others: Vec<String> = others(results).into_iter().filter(|arm| arm != "cubic").collect();
    others.insert(0, "product".to_owned());
    for (case, arm) in all.iter().flat_map(|case| others.iter().map(move |arm| (case, arm))) {
        let runs = runs_of(results, "cubic", arm);
        let loss = |arm: &str| {
            let mut seeds: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
            for result in &runs {
                let seed = seeds.entry(result.run.seed).or_default();
                for carried in result.carried.iter().filter(|carried| carried.case == **case && carried.arm == arm) {
                    *seed = (seed.0 + carried.dropped, seed.1 + carried.dropped + carried.delivered);
                }
            }
            let of_it: Vec<f64> = seeds.values().map(|(lost, all)| *lost as f64 / (*all).max(1) as f64).collect();
            Mean::of(&of_it)
        };
        let (Some(was), Some(is)) = (loss("cubic"), loss(arm)) else { continue };
        let loss = |mean| with_interval(mean).trim_start_matches('+').to_owned();
        let (was_text, is_text) = (loss(was), loss(is));
        writeln!(text, "| {case} | {arm} | {was_text} | {is_text} | {:.2} |", is.value / was.value).ok();
        if arm == "product" {
            summary.findings.push(Finding {
                what: format!("{case}: packets lost"),
                found: is_text,
                target: format!("{was_text} or less"),
                beyond: is.value - was.value,
            });
        }
    }
    summary
}

/// First flights as planned.
pub(super) fn flights(text: &mut String, results: &[&RunResult], which: &str) -> Summary {
    const TARGET: f64 = 0.995;
    let mut summary = Summary::default();
    let mut sum = Flights::default();
    results.iter().filter_map(|result| result.flights.as_ref()).for_each(|flights| sum.add(flights));
    let judged = sum.connections - sum.moved;
    if judged == 0 {
        return summary;
    }
    let part = |count: u32, of: u32| format!("{:.2} %", f64::from(count) / f64::from(of.max(1)) * 100.0);
    let waited = if sum.held == 0 {
        String::new()
    } else {
        format!(
            " In {} of them all but the odd last segment of the window had left, which Linux keeps for the acknowledgement that lets \
             a second one go with it (tcp_tso_should_defer).",
            sum.held
        )
    };
    writeln!(
        text,
        "\nConnections opened from the {which}: {} seen, of {} of them the agent's word changed meanwhile (they count for \
         nothing else).\n\n| what | connections | part |\n| --- | --- | --- |\n| all as planned | {} | {} |\n| segments \
         before the first acknowledgement exact | {} | {} |\n| median distance after the tenth within 10 % | {} of {} | {} \
         |\n| no burst over 2 after the tenth | {} of {} | {} |\n\nPlanned windows (times): {}. Segments more or fewer than \
         planned (times): {}.{waited}",
        sum.connections,
        sum.moved,
        sum.right,
        part(sum.right, judged),
        sum.exact,
        part(sum.exact, judged),
        sum.spaced,
        sum.paced,
        part(sum.spaced, sum.paced),
        sum.smooth,
        sum.paced,
        part(sum.smooth, sum.paced),
        sum.windows.iter().map(|(window, times)| format!("{window} ({times})")).collect::<Vec<_>>().join(", "),
        sum.off.iter().map(|(off, times)| format!("{off:+} ({times})")).collect::<Vec<_>>().join(", ")
    )
    .ok();
    let found = f64::from(sum.right) / f64::from(judged);
    summary.findings.push(Finding {
        what: format!("first flights as planned, opened from the {which}, of {judged}"),
        found: part(sum.right, judged),
        target: "99.50 % or more".to_owned(),
        beyond: TARGET - found,
    });
    summary
}
