//! How right the gateway is, cell by cell (`make accuracy`): runs the cells of a covering design that have no result yet,
//! several side by side, and makes the results page.
//!
//! Each cell runs in a process of its own and leaves one file, so a run can be cut at any point and go on later.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Parser;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use spand_tests::accuracy::cell::{self, Recording};
use spand_tests::accuracy::compare::compare;
use spand_tests::accuracy::factors::{Cell, FACTORS};
use spand_tests::accuracy::plan::{Plan, mixed, plan};
use spand_tests::accuracy::report;
use spand_tests::accuracy::result::{CellResult, Health, TRIES_MOST};
use spand_tests::campaign::lanes::{self, Job, Limits};
use spand_tests::campaign::{self, kept};
use spand_tests::ending::{arguments, exit_code};
use spand_tests::product::interrupt;

const NAME: &str = "accuracy";
/// Seconds that a cell takes besides its traffic: building, and comparing.
const AROUND_S: f64 = 6.0;
/// Bottlenecks that run at one time may add up to this many bytes per second (160 Mbit/s): above, the emulators fall behind.
const RATE_MOST: u64 = 20_000_000;
const MINUTES: u64 = 55;

#[derive(Debug, Parser)]
#[command(about = "Measures the gateway's reconstruction against real kernels, cell by cell (needs root)")]
struct Arguments {
    #[command(flatten)]
    campaign: campaign::Shared,
    /// Seed of the plan: it gives the same cells again
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Cells of the plan, at least; every pair of levels meets in any case
    #[arg(long, default_value_t = 320)]
    cells: usize,
    /// Networks of several addresses with the web's traffic in place of the design, this many
    #[arg(long, value_name = "NETWORKS")]
    mixed: Option<usize>,
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
    let out = arguments.campaign.out(NAME).join(format!("{folder}-{}", arguments.seed));
    if let Some(number) = arguments.cell {
        let cell = plan.cells.get(number as usize).with_context(|| format!("the plan has no cell {number}"))?;
        return run_one(cell, &out, arguments.keep.as_deref());
    }
    print_plan(&arguments, &plan);
    if arguments.campaign.plan {
        for cell in &plan.cells {
            println!("{:>4}  {:>3.0} s  {}", cell.number, cell.numbers().seconds.unwrap_or(0.0), cell.title());
        }
        return Ok(());
    }
    let results = if let Some(kept) = &arguments.replay {
        replay_all(kept, &plan, &out, usize::from(arguments.lanes))?
    } else {
        if !arguments.campaign.report {
            run(&arguments, &plan, &out)?;
        }
        plan.cells.iter().filter_map(|cell| CellResult::read(&out, cell)).collect()
    };
    ensure!(!results.is_empty(), "no cell has a result yet in {}", out.display());
    let page = arguments.campaign.page(NAME);
    report::write(&page, &header(&arguments, &plan), plan.cells.len(), &results)?;
    println!("{} of {} cells have a result; {} written", results.len(), plan.cells.len(), page.display());
    Ok(())
}

/// Runs what has no sound result until the deadline.
fn run(arguments: &Arguments, plan: &Plan, out: &Path) -> Result<()> {
    let (name, size) = arguments.mixed.map_or(("--cells", arguments.cells), |networks| ("--mixed", networks));
    let mut common: Vec<OsString> =
        ["--seed", &arguments.seed.to_string(), name, &size.to_string(), "--out"].map(OsString::from).into();
    common.push(arguments.campaign.out(NAME).into());
    common.extend(arguments.keep.iter().flat_map(|keep| ["--keep".into(), keep.into()]));
    let job = |cell| {
        let before = CellResult::read(out, cell);
        let is_due = before.as_ref().is_none_or(CellResult::is_tried_again);
        is_due.then(|| Job {
            of: cell,
            name: format!("cell {:>3} {}", cell.number, cell.title()),
            seconds: cell.numbers().seconds.map_or(f64::INFINITY, |seconds| seconds + AROUND_S),
            weight: cell.numbers().rate.0,
            tries: before.map_or(0, |before| before.tries),
        })
    };
    let limits = Limits {
        lanes: usize::from(arguments.lanes),
        weight: RATE_MOST,
        deadline: arguments.campaign.deadline(Some(MINUTES)),
        tries: TRIES_MOST,
    };
    lanes::run(plan.cells.iter().filter_map(job).collect(), &limits, |job| {
        let own = ["--cell".into(), job.of.number.to_string().into()];
        let longest = Duration::from_secs_f64(job.seconds * 3.0 + 240.0);
        let ran = lanes::process(&[&common[..], &own].concat(), longest, false);
        // A try that failed leaves the result of the one before.
        let result = CellResult::read(out, job.of).filter(|result| ran.is_ok() && result.tries > job.tries);
        match (ran, result) {
            (Ok(line), Some(CellResult { fault: None, .. })) => Ok(line),
            (Ok(_), Some(result)) => bail!(result.fault.unwrap_or_default()),
            (ran, _) => {
                let error = ran.err().unwrap_or_else(|| anyhow!("it left no result"));
                // What was interrupted is no try.
                if !interrupt::came() {
                    let (cell, fault) = (Some(job.of.clone()), Some(format!("{error:#}")));
                    CellResult { cell, fault, tries: job.tries + 1, ..CellResult::default() }.write(out)?;
                }
                Err(error)
            }
        }
    })?;
    Ok(())
}

fn print_plan(arguments: &Arguments, plan: &Plan) {
    let seconds: f64 = plan.cells.iter().filter_map(|cell| cell.numbers().seconds).map(|run| run + AROUND_S).sum();
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
    format!(
        "`make accuracy` (seed {}, {} cells; {}): a covering design over {FACTORS} factors in which every pair of levels meets; pairs \
         that contradict each other: {impossible}. Each cell is a path, a workload and a congestion control on a real \
         Linux kernel. The kernel's own account is taken at every segment; the gateway's engine reads what a mirror port shows. \
         `accuracy --cell N` runs any cell alone.",
        arguments.seed,
        plan.cells.len(),
        campaign::machine(arguments.lanes)
    )
}

/// Runs one cell in this process and leaves its result.
fn run_one(cell: &Cell, out: &Path, keep: Option<&Path>) -> Result<()> {
    let begin = Instant::now();
    let folder = tempfile::tempdir().context("cannot make a folder for the capture")?;
    let capture = folder.path().join("capture.pcap");
    let recording = cell::run(cell, &capture).with_context(|| format!("cell {} ({})", cell.number, cell.title()))?;
    let mut result = compare(cell, &recording, &capture)?;
    result.seconds = begin.elapsed().as_secs_f64();
    result.tries = 1 + CellResult::read(out, cell).map_or(0, |before| before.tries);
    if let Some(keep) = keep {
        let folder = keep.join(format!("cell-{:03}", cell.number));
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        kept::pack(&capture, &folder.join(CAPTURE))?;
        kept::write_rows(&folder.join(TRUTH), &recording.rows)?;
        let about = About { cell: cell.clone(), network: recording.network, health: recording.health };
        kept::write(&folder.join(ABOUT), &about)?;
    }
    result.write(out)?;
    println!("{}", report::line(&result));
    Ok(())
}

// Captures and accounts of cells on disk: kept beside the results, so that a better engine can be held against them.

const CAPTURE: &str = "capture.pcap.gz";
const TRUTH: &str = "truth.csv.gz";
const ABOUT: &str = "cell.json";

/// What is kept next to the two files.
#[derive(Debug, Deserialize, Serialize)]
struct About {
    cell: Cell,
    network: ipnet::IpNet,
    health: Health,
}

/// Compares everything kept under `root` again, and gives the results.
fn replay_all(root: &Path, plan: &Plan, out: &Path, lanes: usize) -> Result<Vec<CellResult>> {
    let entries = std::fs::read_dir(root).with_context(|| format!("cannot read {}", root.display()))?;
    let folders = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|folder| folder.join(ABOUT).is_file());
    let job = |of: PathBuf| Job { name: of.display().to_string(), of, seconds: 0.0, weight: 0, tries: 0 };
    let results = Mutex::new(Vec::new());
    let limits = Limits { lanes, weight: 0, deadline: None, tries: 1 };
    let outcome = lanes::run(folders.map(job).collect(), &limits, |job| {
        let about: About = kept::read(&job.of.join(ABOUT)).context("it is not what was kept")?;
        let rows = kept::read_rows(&job.of.join(TRUTH))?;
        let recording = Recording { rows, health: about.health, network: about.network };
        let mut result = compare(&about.cell, &recording, &job.of.join(CAPTURE))?;
        // Under its number there may be a cell of another plan, whose result is not to be lost.
        if plan.cells.get(about.cell.number as usize) == Some(&about.cell) {
            let before = CellResult::read(out, &about.cell);
            (result.seconds, result.tries) = before.map_or((0.0, 1), |before| (before.seconds, before.tries));
            result.write(out)?;
        }
        let line = report::line(&result);
        results.lock().push(result);
        Ok(line)
    })?;
    ensure!(outcome.failed == 0, "{} recordings cannot be compared", outcome.failed);
    let mut results = results.into_inner();
    results.sort_by_key(|result| result.cell.as_ref().map(|cell| cell.number));
    Ok(results)
}
