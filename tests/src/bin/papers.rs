//! The papers' experiments in the simulator that they used, or on this kernel (`make papers`): runs what has no result yet, and makes
//! the page.
//!
//! Each run leaves one file, so a campaign can be cut at any point and go on later.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use spand_needs::{Need, needs};
use spand_proto::operator::USAGE;
use spand_tests::campaign;
use spand_tests::campaign::lanes::{self, Job, Limits};
use spand_tests::ending::{arguments, exit_code};
use spand_tests::papers::plan::Planned;
use spand_tests::papers::result::Results;
use spand_tests::papers::row::{Programs, Row, Verdict};
use spand_tests::papers::{page, plan, plots, rows};
use spand_tests::product::program;

const NAME: &str = "papers";
/// What `--quick` begins within, unless `--minutes` says otherwise.
const QUICK_MINUTES: u64 = 15;

#[derive(Debug, Parser)]
#[command(about = "Repeats the papers' experiments in ns-2 with the product's own code")]
struct Arguments {
    #[command(flatten)]
    campaign: campaign::Shared,
    /// Only these rows, such as T1,T12
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Fewer seeds and settings: a quarter of an hour
    #[arg(long)]
    quick: bool,
    /// Runs side by side
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    lanes: u8,
    /// The results of the repository, which count as well
    #[arg(long, default_value = "docs/results/papers.jsonl")]
    kept: PathBuf,
    /// Write all results there that count, and the plots beside them
    #[arg(long)]
    keep: bool,
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
    let rows = rows::all()?;
    if let Some(unknown) = arguments.only.iter().find(|id| !rows.iter().any(|row| row.id == **id)) {
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_ref()).collect();
        eprintln!("there is no row {unknown}; rows: {}", ids.join(", "));
        return Ok(ExitCode::from(USAGE));
    }
    let is_named = |row: &Row| arguments.only.contains(&row.id);
    if !arguments.campaign.report && rows.iter().any(|row| is_named(row) && row.way.is_kernel() != arguments.kernel) {
        eprintln!("rows K1 to K8 run with --kernel, the others without it: name them apart");
        return Ok(ExitCode::from(USAGE));
    }
    let is_wanted =
        |row: &&Row| (arguments.only.is_empty() || is_named(row)) && row.way.is_kernel() == arguments.kernel;
    let runs: Vec<Planned<'_>> =
        rows.iter().filter(is_wanted).flat_map(|row| plan::of_row(row, arguments.quick)).collect();
    if arguments.campaign.plan {
        for planned in &runs {
            println!("{}: {}", planned.name(), planned.command().join(" "));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let results = Results::open(&arguments.campaign.out(NAME), &arguments.kept)?;
    let mut failed = if arguments.campaign.report { 0 } else { run(&arguments, &runs, &results)? };
    let page = arguments.campaign.page(NAME);
    for (id, verdict) in page::write(&page, &results, &rows)? {
        println!("{id}: {}", verdict.word().trim_matches('*'));
        let has_run = runs.iter().any(|planned| planned.row.id == id);
        failed += usize::from(verdict == Verdict::Short && has_run && !arguments.campaign.report);
    }
    let folder = |file: &Path| file.parent().map(Path::to_owned).context("a file lies in a folder");
    plots::write(&folder(&page)?, &results, &rows)?;
    if arguments.keep {
        println!("{} results in {}", results.keep(&arguments.kept, &rows)?, arguments.kept.display());
        plots::write(&folder(&arguments.kept)?, &results, &rows)?;
    }
    println!("{} written", page.display());
    Ok(if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs everything of `runs` that has no result. Returns how many runs failed.
fn run(arguments: &Arguments, runs: &[Planned<'_>], results: &Results) -> Result<usize> {
    if arguments.kernel {
        ensure!(nix::unistd::geteuid().is_root(), "rows on a kernel need root");
    } else {
        ensure!(needs(Need::Program("ns")), "there is no ns-2 here: `make papers` installs it");
    }
    let oracle = program(arguments.oracle.as_deref(), "spand-oracle")?;
    let programs = Programs::beside(&std::path::absolute(&oracle).context("the oracle's place")?);
    let limits = Limits {
        lanes: if arguments.kernel { 1 } else { usize::from(arguments.lanes) },
        weight: 0,
        deadline: arguments.campaign.deadline(arguments.quick.then_some(QUICK_MINUTES)),
        tries: 1,
    };
    let missing = runs.iter().filter(|planned| results.read(planned).is_none());
    let jobs: Vec<_> = missing.map(|of| Job { name: of.name(), of, seconds: 0.0, weight: 0, tries: 0 }).collect();
    let count = jobs.len();
    println!("{} runs, {count} of them to do", runs.len());
    let outcome = lanes::run(jobs, &limits, |job| {
        let (result, seconds) = job.of.run(&programs)?;
        results.write(&result, seconds).map(|()| String::new())
    })?;
    ensure!(outcome.left < count || count == 0, "no run came to its end");
    Ok(outcome.failed)
}
