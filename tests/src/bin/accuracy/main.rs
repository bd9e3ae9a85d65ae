//! How right the gateway is, cell by cell (`make accuracy`): runs the cells of a covering design that have no result yet,
//! several side by side, and makes the results page.
//!
//! Each cell runs in a process of its own and leaves one file, so a run can be cut at any point and go on later.

mod keep;
mod lanes;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use spand_tests::accuracy::cell;
use spand_tests::accuracy::compare::compare;
use spand_tests::accuracy::factors::Cell;
use spand_tests::accuracy::plan::{Plan, mixed, plan};
use spand_tests::accuracy::report;
use spand_tests::accuracy::result::{CellResult, quantiles};
use spand_tests::ending::{arguments, exit_code};

#[derive(Debug, Parser)]
#[command(about = "Measures the gateway's reconstruction against real kernels, cell by cell (needs root)")]
struct Arguments {
    /// Seed of the plan: it gives the same cells again
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Cells of the plan, at least; every pair of levels meets in any case
    #[arg(long, default_value_t = 320)]
    cells: usize,
    /// Networks of several addresses with the web's traffic in place of the design, this many
    #[arg(long, value_name = "NETWORKS")]
    mixed: Option<usize>,
    /// Where results go, one file a cell
    #[arg(long, default_value = "target/accuracy")]
    out: PathBuf,
    /// Begin no cell that would end later than this
    #[arg(long, default_value_t = 55)]
    minutes: u64,
    /// Cells side by side
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=8))]
    lanes: u8,
    /// Run this one cell, whether or not it has a result
    #[arg(long)]
    cell: Option<u32>,
    /// Keep each cell's capture and the kernel's account under this directory
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Make the results again from what was kept there, without running anything
    #[arg(long, conflicts_with_all = ["keep", "cell"])]
    replay: Option<PathBuf>,
    /// With --replay: every single comparison, a CSV file a cell, under this directory
    #[arg(long, requires = "replay")]
    rows: Option<PathBuf>,
    /// Where the tables go, as a page
    #[arg(long, default_value = "target/accuracy.md")]
    page: PathBuf,
    /// Only print the plan
    #[arg(long)]
    plan: bool,
    /// Only make the tables
    #[arg(long)]
    report: bool,
}

fn main() -> ExitCode {
    exit_code(work())
}

fn work() -> Result<()> {
    let arguments: Arguments = arguments();
    let (plan, folder) = match arguments.mixed {
        Some(networks) => (mixed(arguments.seed, networks), "mixed"),
        None => (plan(arguments.seed, arguments.cells), "seed"),
    };
    let out = arguments.out.join(format!("{folder}-{}", arguments.seed));
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    if let Some(number) = arguments.cell {
        let cell = plan.cells.get(number as usize).with_context(|| format!("the plan has no cell {number}"))?;
        return run_one(cell, &out, arguments.keep.as_deref());
    }
    print_plan(&arguments, &plan);
    if arguments.plan {
        for cell in &plan.cells {
            println!("{:>4}  {:>3.0} s  {}", cell.number, cell.numbers().seconds.unwrap_or(0.0), cell.title());
        }
        return Ok(());
    }
    let results = if let Some(kept) = &arguments.replay {
        keep::replay_all(kept, &plan, &out, arguments.rows.as_deref(), usize::from(arguments.lanes))?
    } else {
        if !arguments.report {
            run_missing(&arguments, &plan, &out)?;
        }
        results(&plan, &out)
    };
    ensure!(!results.is_empty(), "no cell has a result yet in {}", out.display());
    report::write(&arguments.page, &header(&arguments, &plan), plan.cells.len(), &results)?;
    println!("{} of {} cells have a result; {} written", results.len(), plan.cells.len(), arguments.page.display());
    Ok(())
}

fn run_missing(arguments: &Arguments, plan: &Plan, out: &Path) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(arguments.minutes * 60);
    lanes::run(&lanes::Slice {
        plan,
        out,
        seed: arguments.seed,
        size: arguments.mixed.map_or(("--cells", arguments.cells), |networks| ("--mixed", networks)),
        lanes: usize::from(arguments.lanes),
        deadline,
        keep: arguments.keep.as_deref(),
        base: &arguments.out,
    })
}

fn print_plan(arguments: &Arguments, plan: &Plan) {
    let seconds: f64 =
        plan.cells.iter().filter_map(|cell| cell.numbers().seconds).map(|run| run + lanes::AROUND_S).sum();
    println!(
        "seed {}: {} cells, every pair of levels within the first {}; {:.0} minutes in {} lanes",
        arguments.seed,
        plan.cells.len(),
        plan.covered_after,
        seconds / 60.0 / f64::from(arguments.lanes),
        arguments.lanes
    );
    if !plan.impossible.is_empty() {
        println!("pairs that contradict each other: {}", plan.impossible.join("; "));
    }
}

fn header(arguments: &Arguments, plan: &Plan) -> String {
    if let Some(networks) = arguments.mixed {
        return format!(
            "`make accuracy ARGS=\"--mixed {networks} --seed {}\"`: networks of three to five addresses with two keep-alive connections each, \
             answers of 15 KB to 1 MB; in every second network one of them is a long transfer.",
            arguments.seed
        );
    }
    let impossible = if plan.impossible.is_empty() { "none".to_owned() } else { plan.impossible.join("; ") };
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version = kernel.trim().split('-').next().unwrap_or_default().to_owned();
    format!(
        "`make accuracy` (seed {}, {} cells): a covering design over {} factors in which every pair of levels meets; pairs \
         that contradict each other: {impossible}. Each cell is a path, a workload and a congestion control on a real \
         Linux kernel ({version}), {} cores, {} cells side by side. The kernel's own account is taken at every segment; the \
         gateway's engine reads what a mirror port shows. `accuracy --cell N` runs any cell alone.",
        arguments.seed,
        plan.cells.len(),
        spand_tests::accuracy::factors::FACTORS,
        std::thread::available_parallelism().map_or(0, usize::from),
        arguments.lanes,
    )
}

fn results(plan: &Plan, out: &Path) -> Vec<CellResult> {
    plan.cells.iter().filter_map(|cell| lanes::result_of(out, cell)).collect()
}

/// Runs one cell in this process and leaves its result.
fn run_one(cell: &Cell, out: &Path, keep: Option<&Path>) -> Result<()> {
    let begin = Instant::now();
    let folder = tempfile::tempdir().context("cannot make a folder for the capture")?;
    let capture = folder.path().join("capture.pcap");
    let recording = cell::run(cell, &capture).with_context(|| format!("cell {} ({})", cell.number, cell.title()))?;
    let mut result = compare(cell, &recording, &capture)?;
    result.seconds = begin.elapsed().as_secs_f64();
    result.tries = 1 + lanes::result_of(out, cell).map_or(0, |before| before.tries);
    if let Some(keep) = keep {
        keep::keep(keep, cell, &recording, &capture)?;
    }
    lanes::write_result(out, cell, &result)?;
    println!("{}", line(cell, &result));
    Ok(())
}

/// A cell's result in a line.
fn line(cell: &Cell, result: &CellResult) -> String {
    let pair = |kinds: [&str; 2]| {
        let values = kinds.iter().filter_map(|kind| result.errors.get(*kind)).flat_map(|errors| errors.values.clone());
        quantiles(values).map_or("-".to_owned(), |(median, p95)| format!("{:.1}/{:.1} %", median * 100.0, p95 * 100.0))
    };
    let (times, which) = report::badness(result);
    let fault = result.fault.as_deref().map_or(String::new(), |fault| format!("  FAULT: {fault}"));
    format!(
        "cell {:>3}  {}  {:.0} s, {} flows, window {}, loss {}, {times:.1} times over ({which}){fault}",
        cell.number,
        cell.title(),
        result.seconds,
        result.flows,
        pair(["window_bulk", "window_app"]),
        pair(["sample_loss", "sample_ecn"]),
    )
}
