//! Results on disk: a file per run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::output::Figures;
use super::plan::Planned;
use super::row::{Outcomes, Row};

/// What one run came to; the same for the same seed, to the byte.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RunResult {
    /// The row.
    pub row: String,
    /// The setting.
    pub setting: String,
    /// Of the simulator's generator.
    pub seed: u64,
    /// The script and its options, without the oracle's place.
    pub command: Vec<String>,
    /// Checksum of the script and of what it reads in: a result of another script counts for nothing.
    pub checksum: u32,
    /// What was read out.
    pub figures: Figures,
}

fn file(out: &Path, row: &str, setting: &str, seed: u64) -> PathBuf {
    out.join(row).join(format!("{setting}-{seed}.json"))
}

/// The result of a run that ran as it is planned now.
pub fn read(out: &Path, planned: &Planned<'_>) -> Option<RunResult> {
    let text = fs::read(file(out, planned.row.id, &planned.setting.name, planned.seed)).ok()?;
    let result: RunResult = serde_json::from_slice(&text).ok()?;
    let is_current = result.command == planned.command() && Some(result.checksum) == planned.checksum().ok();
    is_current.then_some(result)
}

/// Writes a result, whole or not at all, and beside it the processor time, which is another each time.
pub fn write(out: &Path, result: &RunResult, cpu_seconds: f64) -> Result<()> {
    let file = file(out, &result.row, &result.setting, result.seed);
    let folder = file.parent().context("a result lies in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(file.with_extension("cpu"), format!("{cpu_seconds}\n"))
        .with_context(|| format!("cannot write beside {}", file.display()))?;
    let beside = file.with_extension(format!("tmp-{}", std::process::id()));
    let mut text = serde_json::to_vec_pretty(result)?;
    text.push(b'\n');
    fs::write(&beside, text).with_context(|| format!("cannot write {}", beside.display()))?;
    fs::rename(&beside, &file).with_context(|| format!("cannot write {}", file.display()))
}

/// Processor time of a run, in seconds; zero where it is unknown.
fn cpu_seconds(out: &Path, planned: &Planned<'_>) -> f64 {
    let file = file(out, planned.row.id, &planned.setting.name, planned.seed).with_extension("cpu");
    fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

/// All results of a row and the processor time that they took.
pub fn of_row(out: &Path, row: &Row) -> (Outcomes, f64) {
    let mut outcomes = Outcomes::default();
    let mut seconds = 0.0;
    for planned in super::plan::of_row(row, false) {
        if let Some(result) = read(out, &planned) {
            outcomes.0.entry(result.setting).or_default().insert(result.seed, result.figures);
            seconds += cpu_seconds(out, &planned);
        }
    }
    (outcomes, seconds)
}
