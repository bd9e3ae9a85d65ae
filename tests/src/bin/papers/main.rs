//! The papers' experiments in the simulator that they used (`make papers`): runs what has no result yet, and makes the page.
//!
//! Each run leaves one file, so a campaign can be cut at any point and go on later.

mod lanes;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use spand_tests::papers::plan::{self, Planned};
use spand_tests::papers::row::{Row, Verdict};
use spand_tests::papers::{ns, page, rows};
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
    /// Where the tables go, as a page
    #[arg(long, default_value = "target/papers.md")]
    page: PathBuf,
    /// Only print the runs
    #[arg(long)]
    plan: bool,
    /// Only make the tables
    #[arg(long)]
    report: bool,
    /// The rows on real kernels: none exists yet
    #[arg(long)]
    kernel: bool,
    /// The program that answers the simulator; default: beside this one
    #[arg(long)]
    oracle: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if arguments.kernel {
        eprintln!("there are no rows on real kernels yet: leave --kernel out for those in the simulator");
        return Ok(ExitCode::from(USAGE));
    }
    let rows = rows::all();
    if let Some(unknown) = arguments.only.iter().find(|id| !rows.iter().any(|row| row.id == **id)) {
        let ids: Vec<&str> = rows.iter().map(|row| row.id).collect();
        eprintln!("there is no row {unknown}; rows: {}", ids.join(", "));
        return Ok(ExitCode::from(USAGE));
    }
    let is_wanted = |row: &&Row| arguments.only.is_empty() || arguments.only.iter().any(|id| row.id == *id);
    let runs: Vec<Planned<'_>> =
        rows.iter().filter(is_wanted).flat_map(|row| plan::of_row(row, arguments.quick)).collect();
    if arguments.plan {
        for planned in &runs {
            println!("{}: {}", planned.name(), planned.command().join(" "));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut failed = 0;
    if !arguments.report {
        anyhow::ensure!(ns::is_here()?, "there is no ns-2 here");
        interrupt::install()?;
        let minutes = arguments.minutes.or(arguments.quick.then_some(QUICK_MINUTES));
        let deadline = minutes.map(|minutes| Instant::now() + Duration::from_secs(minutes * 60));
        let oracle = program(arguments.oracle.as_deref(), "spand-oracle")?;
        let oracle = std::path::absolute(&oracle).context("the oracle's place")?;
        failed = lanes::run(&runs, &arguments.out, &oracle, usize::from(arguments.lanes), deadline)?;
    }
    for (id, verdict) in page::write(&arguments.page, &arguments.out, &rows)? {
        println!("{id}: {}", verdict.word().trim_matches('*'));
        let asked = arguments.only.is_empty() || arguments.only.iter().any(|only| *only == id);
        failed += usize::from(verdict == Verdict::Short && asked && !arguments.report);
    }
    println!("{} written", arguments.page.display());
    Ok(if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
