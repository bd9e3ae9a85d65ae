//! The folder's own account: `README.md`, a section for every case, and `figures.csv`, what was measured when it was written.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::judge::{Figure, Verdict};
use super::keep::{AllRecorded, Recorded};
use super::list::{Case, List, folder};

/// What stands above the cases.
const INTRODUCTION: &str = include_str!("introduction.md");

/// One line of `figures.csv`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Measured {
    /// Name of the case.
    pub case: String,
    /// Name of the figure.
    pub figure: String,
    /// Samples behind it.
    pub count: u64,
    /// Its error.
    pub error: f64,
    /// What its class allows.
    pub bound: f64,
}

/// What was measured when the folder was last written.
pub fn read_figures() -> Result<Vec<Measured>> {
    let file = folder().join("figures.csv");
    let mut csv = csv::Reader::from_path(&file).with_context(|| format!("cannot read {}", file.display()))?;
    csv.deserialize().collect::<Result<_, _>>().with_context(|| format!("{} holds no figures", file.display()))
}

/// Writes both files.
pub fn write(list: &List, recorded: &AllRecorded, verdicts: &[Verdict]) -> Result<()> {
    let mut csv = csv::Writer::from_path(folder().join("figures.csv"))?;
    let mut page = INTRODUCTION.to_owned();
    for (case, verdict) in list.cases.iter().zip(verdicts) {
        for Figure { name, count, error, bound } in &verdict.figures {
            let (case, figure) = (case.name.clone(), name.clone());
            csv.serialize(Measured { case, figure, count: *count, error: rounded(*error), bound: rounded(*bound) })?;
        }
        let recorded = recorded.get(&case.name).with_context(|| format!("{} was never recorded", case.name))?;
        section(&mut page, case, recorded, verdict)?;
    }
    csv.flush()?;
    let file = folder().join("README.md");
    std::fs::write(&file, page).with_context(|| format!("cannot write {}", file.display()))
}

fn section(page: &mut String, case: &Case, recorded: &Recorded, verdict: &Verdict) -> Result<()> {
    let differs: Vec<String> = case.differs.iter().map(|(factor, level)| format!("{factor} {level}")).collect();
    let facts: Vec<String> = verdict.facts.iter().map(|(fact, count)| format!("{fact} {count}")).collect();
    let health = &recorded.health;
    writeln!(page, "\n## {}\n\n{}\n", case.name, case.shows)?;
    writeln!(page, "- Differs: {}", differs.join(", "))?;
    writeln!(page, "- The kernel's account: {}", facts.join(", "))?;
    if let Some(release) = &recorded.kernel {
        writeln!(page, "- Kernel: {release} of Debian's {}, in a guest", case.kernel.as_deref().unwrap_or("?"))?;
    }
    writeln!(
        page,
        "- Recorded: {} packets, the path late by {:.0} µs on average and {:.1} ms at most, {} of {} over 1 ms",
        health.captured, health.late_mean_us, health.late_max_ms, health.late_1ms, health.delivered
    )?;
    for miss in &case.misses {
        let errors: Vec<String> =
            miss.errors.iter().map(|(figure, error)| format!("{figure} {}", figure_text(*error))).collect();
        writeln!(page, "- **Known miss**: {}. {}", errors.join(", "), miss.reason)?;
    }
    Ok(())
}

fn figure_text(error: f64) -> String {
    if error >= 1.0 && error.fract() == 0.0 { format!("{error}") } else { format!("{:.1} %", error * 100.0) }
}

fn rounded(value: f64) -> f64 {
    (value * 1e5).round() / 1e5
}
