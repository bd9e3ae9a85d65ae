//! Tables and plots of what the cells gave: the estimates that users get, then the worst cells.

mod cells;
mod estimates;
mod figures;
mod networks;
mod words;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::result::CellResult;

pub use figures::badness;

/// A figure with its target: median and 95th percentile of the absolute relative error.
struct Target {
    name: &'static str,
    kinds: &'static [&'static str],
    /// Congestion controls it is asked of.
    of: &'static [&'static str],
    median: f64,
    p95: f64,
    /// It counts in the order of cells: the figure is the target's own.
    ranks: bool,
}

const LOSS_BASED: &[&str] = &["reno", "cubic"];

const EVERY: &[&str] = &["reno", "cubic", "bbr"];

/// Makes the text of the results page, and writes its plots beside it (names begin with `accuracy-`).
pub fn write(page: &Path, header: &str, planned: usize, results: &[CellResult]) -> Result<()> {
    let directory = page.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let sound: Vec<&CellResult> = results.iter().filter(|result| result.fault.is_none()).collect();
    let mut text = format!("# How right the gateway is, on real kernels\n\n{header}\n\n");
    let faulty = results.len() - sound.len();
    writeln!(
        text,
        "{} of {planned} cells ran; {faulty} of them count for nothing, since their path or record was off.\n",
        results.len()
    )?;
    estimates::mixed(&mut text, &sound)?;
    estimates::estimates(&mut text, &sound)?;
    figures::worst_cells(&mut text, &sound)?;
    figures::targets(&mut text, &sound)?;
    words::events(&mut text, &sound)?;
    words::limits(&mut text, &sound)?;
    words::flavours(&mut text, &sound)?;
    words::silent_flavours(&mut text, &sound)?;
    networks::networks(&mut text, &sound)?;
    cells::by_state(&mut text, &sound)?;
    cells::by_difficulty(&mut text, &sound)?;
    cells::by_level(&mut text, &sound)?;
    networks::plots(&mut text, directory, &sound)?;
    cells::without(&mut text, &sound)?;
    cells::faults(&mut text, results)?;
    cells::every_cell(&mut text, &sound)?;
    std::fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
}

fn cc(result: &CellResult) -> &str {
    result.cell.as_ref().map_or("?", |cell| cell.level("cc"))
}

fn title(result: &CellResult) -> String {
    result.cell.as_ref().map_or_else(String::new, |cell| format!("{} | {}", cell.number, cell.title()))
}

fn pooled(results: &[&CellResult], target: &Target) -> Vec<f32> {
    let of = results.iter().filter(|result| target.of.contains(&cc(result)));
    of.flat_map(|result| values(result, target.kinds)).collect()
}

fn values(result: &CellResult, kinds: &[&str]) -> Vec<f32> {
    kinds.iter().filter_map(|kind| result.errors.get(*kind)).flat_map(|errors| errors.values.clone()).collect()
}

/// Median and 95th percentile as text.
fn pair(quantiles: Option<(f64, f64)>) -> String {
    quantiles.map_or("-".to_owned(), |(median, p95)| format!("{:.1} / {:.1}", median * 100.0, p95 * 100.0))
}

fn share(part: u64, all: u64) -> String {
    if all == 0 { "-".to_owned() } else { format!("{:.2} %", part as f64 / all as f64 * 100.0) }
}
