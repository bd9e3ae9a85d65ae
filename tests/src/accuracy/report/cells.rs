//! Cells one by one: those without a sample, those that count for nothing, and all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::Result;

use super::figures::TARGETS;
use super::{cc, pair, title, values};
use crate::accuracy::compare::sum;
use crate::accuracy::factors::Cell;
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
