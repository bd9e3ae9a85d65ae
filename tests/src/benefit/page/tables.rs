//! A table for each question, worst rows first.

use super::cells::{Case, Side, Which, arms, cases, change, runs_of, side};
use super::starts;
use super::starts::Finding;
use crate::benefit::flight::Flights;
use crate::benefit::result::RunResult;
use crate::benefit::scenario::{Arm, Question, beside};
use crate::campaign::page::{self, list, percent, sorted, table};
use crate::campaign::statistics::Mean;

/// Times that differ by less say nothing: the lab delivers a packet in a hundred later than that.
const LATENESS_MS: f64 = 0.5;

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

/// The arms that the product is compared with, CUBIC first, then fixed windows in order.
pub(super) fn others(results: &[&RunResult]) -> Vec<String> {
    let mut others: Vec<String> = arms(results).into_iter().filter(|arm| arm != "product").collect();
    others.sort_by_key(|arm| (arm != "cubic", Arm::fixed_of(arm), arm.clone()));
    others
}

/// The product against every other arm of a question, by completion time, each in the runs that have both.
pub(super) fn against(text: &mut String, all: &[&RunResult], question: Question) -> Vec<Finding> {
    let mut findings = Vec::new();
    for other in &others(all) {
        let other = other.as_str();
        let results = &runs_of(all, "product", other);
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
            let row = format!(
                "{} | {:.1} | {} | {:.1} | {:.1} | {} | {:.1} | {:.1} | {} | {} | {:.2} → {:.2} | {:.1} → {:.1} | {} + {}",
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
            );
            rows.push((by.value - target.unwrap_or(0.0), row));
            let what = format!("{} against {other}", name(&case));
            findings.extend(target.map(|most| Finding::of_change(format!("{what}: completion time"), by, most)));
            findings.extend(further(question, other, (&what, &case), (&is, &was, by)));
        }
        let columns = format!(
            "path, size | wire's bound | {other} | median | p95 | product | median | p95 | change | target | repeats a transfer | first \
             flight | transfers"
        );
        page::add(
            text,
            &format!(
                "\nAgainst `{other}` (times in ms, mean of seeds with its 95 % interval; median and p95 over all transfers; targets with \
             their tolerance):\n\n{}",
                sorted(&columns, rows)
            ),
        );
    }
    findings
}

/// Targets besides the mean.
fn further(
    question: Question,
    other: &str,
    (what, case): (&str, &Case),
    (is, was, by): (&Side, &Side, Mean),
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if matches!((question, other), (Question::Together, "cubic") | (Question::Grid, "fixed24")) {
        let beyond = if is.p95 < was.p95 + LATENESS_MS { -1.0 } else { is.p95 / was.p95 - 1.0 };
        let (found, target) = (format!("{:.0} ms", is.p95), format!("{:.0} ms or less", was.p95));
        findings.push(Finding::new(format!("{what}: p95"), found, target, beyond));
    }
    if other == "cubic" {
        let most = starts::repeats_most(was.again);
        let (found, target) = (format!("{:.2}", is.again), format!("{most:.2} or less"));
        findings.push(Finding::new(format!("{what}: repeats a transfer"), found, target, is.again - most));
    }
    if question == Question::Together && other == "cubic" && case.case != "30 senders" {
        let beyond = if by.is_off_zero() { -1.0 } else { 0.001 };
        findings.push(Finding::new(format!("{what}: interval off zero"), with_interval(by), "off zero", beyond));
    }
    findings
}

/// What senders notice of neighbours on advice, and of neighbours that start with a fixed window or BBR.
pub(super) fn fairness(text: &mut String, results: &[&RunResult], other: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let places: Vec<String> =
        arms(results).into_iter().filter_map(|arm| Some(arm.strip_suffix(&beside("", other))?.to_owned())).collect();
    for place in places {
        let neighbours = beside(other, &place);
        let (mut rows, mut changes) = (Vec::new(), Vec::new());
        for case in cases(results, &neighbours) {
            let (mixed, alone) = (Which { arm: &neighbours, odd: true }, Which { arm: other, odd: true });
            let (Some(is), Some(was)) = (side(results, &case, mixed), side(results, &case, alone)) else { continue };
            let Some(by) = change(results, &case, mixed, alone) else { continue };
            let there = side(results, &case, Which::of(&beside(&place, other)));
            let row = format!(
                "{} | {} | {} | {} | {} | {:.2} → {:.2}",
                name(&case),
                time(&was),
                time(&is),
                with_interval(by),
                there.as_ref().map_or("-".to_owned(), time),
                was.again,
                is.again
            );
            rows.push((by.value, row));
            changes.push(by.value);
            if place == "product" {
                let what = format!("fairness, {} beside {other}", case.case);
                findings.push(Finding::of_change(what, by, starts::NEIGHBOUR_WORSE_MOST));
            }
        }
        let columns =
            format!("senders, size | all {other} | half {other} | change | {place} beside them | repeats a transfer");
        page::add(
            text,
            &format!(
                "\nEvery second sender is `{other}` without advice beside `{place}`; the same senders where all are `{other}` (times in \
             ms):\n\n{}",
                sorted(&columns, rows)
            ),
        );
        let Some(mean) = Mean::of(&changes) else { continue };
        page::add(text, &format!("\nAverage over the counts: {}.\n", percent(mean.value)));
        if place == "product" {
            let what = format!("fairness beside {other}, average over the counts of senders");
            findings.push(Finding::new(what, percent(mean.value), "within 5 %", mean.value.abs() - 0.05));
        }
    }
    findings
}

/// First flights as planned.
pub(super) fn flights(text: &mut String, results: &[&RunResult], which: &str) -> Vec<Finding> {
    const TARGET: f64 = 0.995;
    let mut sum = Flights::default();
    results.iter().filter_map(|result| result.flights.as_ref()).for_each(|flights| sum.add(flights));
    let judged = sum.connections - sum.moved;
    if judged == 0 {
        return Vec::new();
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
    let rows = [
        format!("all as planned | {} | {}", sum.right, part(sum.right, judged)),
        format!("segments before the first acknowledgement exact | {} | {}", sum.exact, part(sum.exact, judged)),
        format!(
            "median distance after the tenth within 10 % | {} of {} | {}",
            sum.spaced,
            sum.paced,
            part(sum.spaced, sum.paced)
        ),
        format!("no burst over 2 after the tenth | {} of {} | {}", sum.smooth, sum.paced, part(sum.smooth, sum.paced)),
    ];
    page::add(
        text,
        &format!(
            "\nConnections opened from the {which}: {} seen, of {} of them the agent's word changed meanwhile (they count for nothing \
         else).\n\n{}\nPlanned windows (times): {}. Segments more or fewer than planned (times): {}.{waited}\n",
            sum.connections,
            sum.moved,
            table("what | connections | part", rows),
            list(sum.windows.iter().map(|(window, times)| format!("{window} ({times})"))),
            list(sum.off.iter().map(|(off, times)| format!("{off:+} ({times})")))
        ),
    );
    let what = format!("first flights as planned, opened from the {which}, of {judged}");
    let found = f64::from(sum.right) / f64::from(judged);
    vec![Finding::new(what, part(sum.right, judged), "99.50 % or more", TARGET - found)]
}
