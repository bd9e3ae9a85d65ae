//! How far the engine is off in one case, figure by figure, each against the bound of its class.

use std::collections::BTreeMap;

use anyhow::Result;

use super::keep::{Recorded, capture_file, read};
use super::list::{Case, List};
use crate::accuracy::compare::compare;
use crate::accuracy::engine::control;
use crate::accuracy::factors::Cell;
use crate::accuracy::result::{CellResult, FLOWS_BY_ENGINE, quantiles};
use crate::accuracy::truth::flows;
use crate::lab::truth::{CongestionState, Row, Source};

/// One measure of how right the engine is: relative errors, and parts of all, are fractions; what is counted is a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What of.
    pub name: String,
    /// Samples behind it.
    pub count: u64,
    /// The error.
    pub error: f64,
    /// What its class allows.
    pub bound: f64,
}

impl Figure {
    /// Whether it is within what its class allows.
    pub fn is_within(&self) -> bool {
        self.error <= self.bound
    }
}

/// A case replayed.
#[derive(Debug)]
pub struct Verdict {
    /// How often the kernel's account holds what a case may need.
    pub facts: BTreeMap<String, u64>,
    /// The figures, by name.
    pub figures: Vec<Figure>,
}

/// A percentile of fewer samples is their largest; a miss in one of them would be a miss of the class.
const TAIL_FROM: u64 = 5;

/// Replays a kept case.
pub fn judge(list: &List, case: &Case, recorded: &Recorded) -> Result<Verdict> {
    let cell = list.cell(case);
    let recording = read(&case.name, recorded)?;
    let result = compare(&cell, &recording, &capture_file(&case.name))?;
    Ok(Verdict { facts: facts(&recording.rows, &result), figures: figures(&cell, &result) })
}

/// What the kernel's account of a case holds: congestion events by kind, moments at which something held the sender by what
/// it was, reductions taken back (`undone`), repeats outside any recovery (`probe`: tail loss probes), transfers, and marked
/// moments.
pub fn facts(rows: &[Row], result: &CellResult) -> BTreeMap<String, u64> {
    let mut facts = BTreeMap::new();
    let mut add = |name: &str, count: u64| *facts.entry(name.to_owned()).or_default() += count;
    for (kind, found) in result.events.iter().filter(|(_, found)| found.truth > 0) {
        add(kind, found.truth);
    }
    for (held, by) in result.limits.iter().filter(|(held, _)| *held != FLOWS_BY_ENGINE) {
        add(held, by.values().sum());
    }
    add("transfers", result.health.transfers);
    for flow in flows(rows, 0).into_keys() {
        let mut before: Option<&Row> = None;
        for row in rows.iter().filter(|row| row.flow() == flow && row.source != Source::Info) {
            if !row.source.is_full() {
                continue;
            }
            if let Some(before) = before {
                let is_calm =
                    |row: &Row| matches!(row.ca_state, Some(CongestionState::Open | CongestionState::Disorder));
                let calm = is_calm(row);
                // Outside an entry into recovery only an undo (`tcp_undo_cwnd_reduction`) raises the threshold, and a
                // restart after idle time does, with nothing outstanding.
                let undone = calm && row.ssthresh > before.ssthresh && (!is_calm(before) || before.unacked > Some(0));
                add("undone", u64::from(undone));
                add("probe", u64::from(calm && row.total_retrans > before.total_retrans));
            }
            before = Some(row);
        }
    }
    facts.retain(|_, count| *count > 0);
    facts
}

fn figures(cell: &Cell, result: &CellResult) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut median_and_tail = |kind: &str, bounds: (f64, f64)| {
        let Some(errors) = result.errors.get(kind) else { return };
        let Some((median, tail)) = quantiles(errors.values.iter().copied()) else { return };
        let figure =
            |what: &str, error, bound| Figure { name: format!("{kind} {what}"), count: errors.count, error, bound };
        figures.push(figure("median", median, bounds.0));
        // Of few, the largest is no percentile, and what holes do to one is chance.
        if errors.count < TAIL_FROM {
            return;
        }
        figures.push(figure("p95", tail, bounds.1));
        if let Some(holed) = result.errors.get(&format!("{kind}_tap_loss"))
            && let Some((holed_median, _)) = quantiles(holed.values.iter().copied())
        {
            let bound = (median * 2.0).max(median + 0.02).max(bounds.0);
            let figure = figure("median with 1 % lost at the tap", holed_median, bound);
            figures.push(Figure { count: holed.count, ..figure });
        }
    };
    median_and_tail("sample_loss", (0.01, 0.04));
    median_and_tail("sample_ecn", (0.01, 0.04));
    median_and_tail("sample_end", (0.01, 0.05));
    median_and_tail("sample_end_slow_start", (0.01, 0.05));
    median_and_tail("share_bbr", (0.05, 0.15));
    median_and_tail("rtt_min", (0.05, 0.05));
    median_and_tail("rtt_mean", (0.05, 0.05));
    figures.extend(events(result));
    figures.extend(limits(result));
    figures.extend(whole(cell, result));
    figures
}

/// Every event is found, and none where there was none.
fn events(result: &CellResult) -> Vec<Figure> {
    let figure = |name: String, count, error: u64| Figure { name, count, error: error as f64, bound: 0.0 };
    let found = |(kind, found): (&String, &crate::accuracy::result::Found)| {
        if found.truth > 0 {
            figure(format!("{kind} not found"), found.truth, found.truth - found.joined)
        } else {
            figure(kind.clone(), 0, found.seen)
        }
    };
    result.events.iter().map(found).collect()
}

/// Part of the moments at which the engine names something else than the kernel. The engine has no word for pacing.
fn limits(result: &CellResult) -> Vec<Figure> {
    let mut figures = Vec::new();
    for held in ["window", "receiver", "application"] {
        let Some(by) = result.limits.get(held) else { continue };
        let count: u64 = by.values().sum();
        // The edges between two phases belong to either.
        if count < 10 {
            continue;
        }
        let part = |of: u64| of as f64 / count as f64;
        let right = by.get(held).copied().unwrap_or(0);
        figures.push(Figure {
            name: format!("limited by {held} missed"),
            count,
            error: part(count - right),
            bound: 0.05,
        });
        if held == "application" {
            let window = by.get("window").copied().unwrap_or(0);
            let name = "limited by application reported as window".to_owned();
            figures.push(Figure { name, count, error: part(window), bound: 0.01 });
        }
    }
    figures
}

/// Figures of whole flows.
fn whole(cell: &Cell, result: &CellResult) -> Vec<Figure> {
    let mut figures = Vec::new();
    let classified: u64 = result.flavours.values().sum();
    if classified > 0 {
        let right = result.flavours.get(control(cell.level("cc"))).copied().unwrap_or(0);
        let name = "flows of another congestion control".to_owned();
        figures.push(Figure { name, count: classified, error: (classified - right) as f64, bound: 0.0 });
    }
    if !cell.is("cc", "bbr")
        && let Some(losses) = result.samples.get("loss")
    {
        let mut figure = |what: &str, error: u64| {
            let name = format!("samples at losses: {what}");
            figures.push(Figure { name, count: losses.truth, error: error as f64, bound: 0.0 });
        };
        figure("missing", losses.truth - losses.joined);
        figure("of slow start or of no loss", losses.seen - losses.joined);
    }
    let counted = result.retransmissions;
    let name = "flows with another count of retransmissions".to_owned();
    figures.push(Figure { name, count: counted.truth, error: (counted.truth - counted.joined) as f64, bound: 0.0 });
    figures
}
