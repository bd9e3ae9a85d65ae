//! The papers' experiments in the simulator that they used, or on this kernel (`make papers`): runs what has no result yet, and makes
//! the page.
//!
//! Each run leaves one file, so a campaign can be cut at any point and go on later.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use parking_lot::Mutex;
use spand_tests::ending::{arguments, exit_code};
use spand_tests::papers::plan::Planned;
use spand_tests::papers::result::Results;
use spand_tests::papers::row::{Programs, Row, Verdict};
use spand_tests::papers::{page, plan, plots, rows};
use spand_tests::product::{interrupt, program};

/// The exit status of a wrong command line.
const USAGE: u8 = 64;
/// What `--quick` begins within, unless `--minutes` says otherwise.
const QUICK_MINUTES: u64 = 15;

#[derive(Debug, Parser)]
#[command(about = "Repeats the papers' experiments in ns-2 with the product's own code")]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
struct Arguments {
    /// Only these rows, such as T1,T12
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Fewer seeds and settings: a quarter of an hour
    #[arg(long)]
    quick: bool,
    /// Begin no run after this
    #[arg(long)]
    minutes: Option<u64>,
    /// Runs side by side
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    lanes: u8,
    /// Where results go, one file a run
    #[arg(long, default_value = "target/papers")]
    out: PathBuf,
    /// The results of the repository, which count as well
    #[arg(long, default_value = "docs/results/papers.jsonl")]
    kept: PathBuf,
    /// Write all results there that count, and the plots beside them
    #[arg(long)]
    keep: bool,
    /// Where the tables go, as a page; its plots lie beside it
    #[arg(long, default_value = "target/papers.md")]
    page: PathBuf,
    /// Only print the runs
    #[arg(long)]
    plan: bool,
    /// Only make the tables
    #[arg(long)]
    report: bool,
    /// The rows on this kernel (root): one run at a time, for what it measures is time
    #[arg(long)]
    kernel: bool,
    /// The program that answers the simulator, and beside it the product's; default: beside this one
    #[arg(long)]
    oracle: Option<PathBuf>,
}

fn main() -> ExitCode {
    exit_code(work())
}

fn work() -> Result<ExitCode> {
    let arguments: Arguments = arguments();
    let rows = rows::all();
    if let Some(unknown) = arguments.only.iter().find(|id| !rows.iter().any(|row| row.id == **id)) {
        let ids: Vec<&str> = rows.iter().map(|row| row.id).collect();
        eprintln!("there is no row {unknown}; rows: {}", ids.join(", "));
        return Ok(ExitCode::from(USAGE));
    }
    let is_named = |row: &Row| arguments.only.iter().any(|id| row.id == *id);
    if !arguments.report && rows.iter().any(|row| is_named(row) && row.way.is_kernel() != arguments.kernel) {
        eprintln!("rows K1 to K8 run with --kernel, the others without it: name them apart");
        return Ok(ExitCode::from(USAGE));
    }
    let is_wanted =
        |row: &&Row| (arguments.only.is_empty() || is_named(row)) && row.way.is_kernel() == arguments.kernel;
    let runs: Vec<Planned<'_>> =
        rows.iter().filter(is_wanted).flat_map(|row| plan::of_row(row, arguments.quick)).collect();
    if arguments.plan {
        for planned in &runs {
            println!("{}: {}", planned.name(), planned.command().join(" "));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let results = Results::open(&arguments.out, &arguments.kept)?;
    let mut failed = 0;
    if !arguments.report {
        if arguments.kernel {
            anyhow::ensure!(nix::unistd::geteuid().is_root(), "rows on a kernel need root");
        } else {
            anyhow::ensure!(
                spand_needs::needs(spand_needs::Need::Program("ns")),
                "there is no ns-2 here: `make papers` installs it"
            );
        }
        interrupt::install()?;
        let minutes = arguments.minutes.or(arguments.quick.then_some(QUICK_MINUTES));
        let deadline = minutes.map(|minutes| Instant::now() + Duration::from_secs(minutes * 60));
        let oracle = program(arguments.oracle.as_deref(), "spand-oracle")?;
        let programs = Programs::beside(&std::path::absolute(&oracle).context("the oracle's place")?);
        let lanes = if arguments.kernel { 1 } else { usize::from(arguments.lanes) };
        failed = run(&runs, &results, &programs, lanes, deadline)?;
    }
    for (id, verdict) in page::write(&arguments.page, &results, &rows)? {
        println!("{id}: {}", verdict.word().trim_matches('*'));
        let has_run = runs.iter().any(|planned| planned.row.id == id);
        failed += usize::from(verdict == Verdict::Short && has_run && !arguments.report);
    }
    let folder = |file: &Path| file.parent().map(Path::to_owned).context("a file lies in a folder");
    plots::write(&folder(&arguments.page)?, &results, &rows)?;
    if arguments.keep {
        println!("{} results in {}", results.keep(&arguments.kept, &rows)?, arguments.kept.display());
        plots::write(&folder(&arguments.kept)?, &results, &rows)?;
    }
    println!("{} written", arguments.page.display());
    Ok(if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

// Runs what is missing, some runs side by side.

/// Runs everything of `runs` that has no result. Returns how many runs failed.
pub(crate) fn run(
    runs: &[Planned<'_>],
    results: &Results,
    programs: &Programs,
    lanes: usize,
    deadline: Option<Instant>,
) -> Result<usize> {
    let missing: Vec<&Planned<'_>> = runs.iter().filter(|planned| results.read(planned).is_none()).collect();
    println!("{} runs, {} of them to do", runs.len(), missing.len());
    let next = AtomicUsize::new(0);
    let progress = Mutex::new(Progress { done: 0, failed: 0, seconds: 0.0, all: missing.len() });
    let lane = || {
        while !interrupt::came() && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            let Some(planned) = missing.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
            let ran = planned.run(programs).and_then(|(result, seconds)| {
                results.write(&result, seconds)?;
                Ok(seconds)
            });
            progress.lock().ended(planned, ran);
        }
    };
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(lane);
        }
    });
    let progress = progress.into_inner();
    progress.close();
    let left = progress.all - progress.done;
    if left > progress.failed {
        println!("{} of {} runs were not begun; run this again to go on", left - progress.failed, progress.all);
    }
    ensure!(progress.done + progress.failed > 0 || missing.is_empty(), "no run came to its end");
    Ok(progress.failed)
}

struct Progress {
    done: usize,
    failed: usize,
    seconds: f64,
    all: usize,
}

impl Progress {
    fn ended(&mut self, planned: &Planned<'_>, ran: Result<f64>) {
        match ran {
            Ok(seconds) => {
                self.done += 1;
                self.seconds += seconds;
            }
            Err(error) => {
                self.failed += 1;
                self.close();
                eprintln!("{}: {error:#}", planned.name());
            }
        }
        let mut terminal = std::io::stdout();
        if terminal.is_terminal() {
            let percent = 100 * (self.done + self.failed) / self.all.max(1);
            write!(terminal, "\r\x1b[K{percent:3} % of {} runs; {}", self.all, planned.name()).ok();
            terminal.flush().ok();
        }
    }

    /// Leaves the line of progress behind.
    fn close(&self) {
        if std::io::stdout().is_terminal() {
            println!("\r\x1b[K{} of {} runs done, {:.0} s in all", self.done, self.all, self.seconds);
        }
    }
}
