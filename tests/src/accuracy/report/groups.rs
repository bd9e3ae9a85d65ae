//! Errors by what the kernel was doing, by difficulty and by level: where to look first.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;

use super::{LOSS_BASED, Target, cc, pair, pooled, values};
use crate::accuracy::factors::{ALL, Cell};
use crate::accuracy::result::{CellResult, quantiles};

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
