//! Cells one by one: those without a sample, those that count for nothing, and all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::Result;

use super::figures::TARGETS;
use super::{LOSS_BASED, Target, cc, pair, pooled, title, values};
use crate::accuracy::compare::sum;
use crate::accuracy::factors::{ALL, Cell};
use crate::accuracy::result::{CellResult, quantiles};

pub(super) fn without(text: &mut String, results: &[&CellResult]) -> Result<()> {
    writeln!(
        text,
        "\n## Cells without a sample\n\n| figure | cells without | of | because of their level |\n| --- | --- | --- | --- |"
    )?;
    for target in TARGETS {
        let asked: Vec<&CellResult> = results.iter().copied().filter(|r| target.of.contains(&cc(r))).collect();
        let without: Vec<&CellResult> = asked.iter().copied().filter(|r| values(r, target.kinds).is_empty()).collect();
        let mut works: BTreeMap<&str, usize> = BTreeMap::new();
        for result in &without {
            *works.entry(result.cell.as_ref().map_or("?", |cell: &Cell| cell.level("work"))).or_default() += 1;
        }
        let reasons: Vec<String> = works.iter().map(|(work, count)| format!("{work} {count}")).collect();
        writeln!(text, "| {} | {} | {} | {} |", target.name, without.len(), asked.len(), reasons.join(", "))?;
    }
    Ok(())
}

pub(super) fn faults(text: &mut String, results: &[CellResult]) -> Result<()> {
    let faulty: Vec<&CellResult> = results.iter().filter(|result| result.fault.is_some()).collect();
    if faulty.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "\n## Cells that count for nothing\n\n| cell | what | fault | tries | load |\n| --- | --- | --- | --- | --- |"
    )?;
    for result in faulty {
        let fault = result.fault.as_deref().unwrap_or_default();
        writeln!(text, "| {} | {fault} | {} | {:.1} |", title(result), result.tries, result.health.load)?;
    }
    Ok(())
}

pub(super) fn every_cell(text: &mut String, results: &[&CellResult]) -> Result<()> {
    writeln!(
        text,
        "\n## Every cell\n\nMedian / p95 in %; events: joined of the kernel's; control: the gateway's words for it; path: mean lateness in us, packets over 1 ms late in %, the machine's load.\n"
    )?;
    writeln!(
        text,
        "| cell | what | s | flows | window | at loss | events | control | path, load |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    )?;
    let mut sorted = results.to_vec();
    sorted.sort_by_key(|result| result.cell.as_ref().map_or(0, |cell| cell.number));
    for result in sorted {
        let found = sum(result.events.values());
        let words: BTreeSet<String> = result.flavours.iter().map(|(name, count)| format!("{name} {count}")).collect();
        writeln!(
            text,
            "| {} | {:.0} | {} | {} | {} | {} of {} | {} | {:.0}, {:.2}, {:.1} |",
            title(result),
            result.seconds,
            result.flows,
            pair(quantiles(values(result, &["window_bulk", "window_app"]))),
            pair(quantiles(values(result, &["sample_loss", "sample_ecn"]))),
            found.joined,
            found.truth,
            words.into_iter().collect::<Vec<_>>().join(", "),
            result.health.late_mean_us,
            result.health.late_1ms as f64 / result.health.delivered.max(1) as f64 * 100.0,
            result.health.load,
        )?;
    }
    Ok(())
}

// Errors by what the kernel was doing, by difficulty and by level: where to look first.

/// Errors of the window by what the kernel was doing.
pub(super) fn by_state(text: &mut String, results: &[&CellResult]) -> Result<()> {
    writeln!(
        text,
        "\n## By the sender's state\n\nWindow every 100 ms and at the last new byte, median / p95 in % (samples).\n"
    )?;
    writeln!(text, "| kernel | reno | cubic | bbr |\n| --- | --- | --- | --- |")?;
    let states = ["in_open", "in_disorder", "in_cwr", "in_recovery", "in_loss"];
    let holds = ["held_by_window", "held_by_receiver", "held_by_application", "held_by_pacing"];
    for kind in states.into_iter().chain(holds) {
        let cell = |name: &str| {
            let of = results.iter().filter(|result| cc(result) == name);
            let all: Vec<f32> = of.flat_map(|result| values(result, &[kind])).collect();
            let count = all.len();
            format!("{} ({count})", pair(quantiles(all)))
        };
        writeln!(text, "| {} | {} | {} | {} |", kind.replace('_', " "), cell("reno"), cell("cubic"), cell("bbr"))?;
    }
    Ok(())
}

/// Errors of the window in cells with one difficulty or none.
pub(super) fn by_difficulty(text: &mut String, results: &[&CellResult]) -> Result<()> {
    let mut groups: BTreeMap<String, Vec<&CellResult>> = BTreeMap::new();
    for result in results {
        let difficulties = result.cell.as_ref().map(Cell::difficulties).unwrap_or_default();
        let name = match difficulties.as_slice() {
            [] => "none".to_owned(),
            [one] => one.clone(),
            _ => continue,
        };
        groups.entry(name).or_default().push(result);
    }
    writeln!(
        text,
        "\n## By difficulty\n\nCells with one difficulty or none: window every 100 ms, and at losses; median / p95 in % (cells).\n"
    )?;
    writeln!(text, "| difficulty | reno | at loss | cubic | at loss | bbr |\n| --- | --- | --- | --- | --- | --- |")?;
    for (name, group) in &groups {
        let cell = |of: &str, kinds: &[&str]| {
            let of: Vec<_> = group.iter().filter(|result| cc(result) == of).collect();
            let all: Vec<f32> = of.iter().flat_map(|result| values(result, kinds)).collect();
            format!("{} ({})", pair(quantiles(all)), of.len())
        };
        let (window, loss) = (["window_bulk", "window_app"], ["sample_loss", "sample_ecn"]);
        let columns = [("reno", window), ("reno", loss), ("cubic", window), ("cubic", loss), ("bbr", window)]
            .map(|(of, kinds)| cell(of, &kinds));
        writeln!(text, "| {name} | {} |", columns.join(" | "))?;
    }
    Ok(())
}

/// Errors of the window by level of each factor: where to look first.
pub(super) fn by_level(text: &mut String, results: &[&CellResult]) -> Result<()> {
    writeln!(
        text,
        "\n## By level\n\nWindow every 100 ms and at losses, median / p95 in %, over all cells at a level. Reno and cubic; BBR's window beside them.\n"
    )?;
    writeln!(
        text,
        "| factor | level | cells | window | at loss | bbr: window |\n| --- | --- | --- | --- | --- | --- |"
    )?;
    for factor in &ALL {
        for (level, _) in factor.levels {
            let here: Vec<&CellResult> = results
                .iter()
                .copied()
                .filter(|r| r.cell.as_ref().is_some_and(|cell| cell.is(factor.name, level)))
                .collect();
            let of = |kinds: &'static [&'static str], of| {
                pair(quantiles(pooled(&here, &Target { name: "", kinds, of, median: 0.0, p95: 0.0, ranks: true })))
            };
            writeln!(
                text,
                "| {} | {level} | {} | {} | {} | {} |",
                factor.name,
                here.len(),
                of(&["window_bulk", "window_app"], LOSS_BASED),
                of(&["sample_loss", "sample_ecn"], LOSS_BASED),
                of(&["window_bulk", "window_app"], &["bbr"]),
            )?;
        }
    }
    Ok(())
}
