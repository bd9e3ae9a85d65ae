//! Estimation rules held against real kernels (`make rules`): records each scenario once, gives what was recorded to every
//! rule, and makes the results page.
//!
//! Each scenario runs in a process of its own and leaves a folder, so a run can be cut at any point and go on later.

mod lanes;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use spand_tests::ending::{arguments, exit_code};
use spand_tests::rules::record::{self, Place};
use spand_tests::rules::series::Series;
use spand_tests::rules::{kept, page, scenario};

#[derive(Debug, Parser)]
#[command(about = "Holds estimation rules against real kernels (recording needs root)")]
struct Arguments {
    /// Where recordings go, a folder each: some hundred megabytes
    #[arg(long, default_value = "target/rules")]
    out: PathBuf,
    /// Seed of paths and clients
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Scenarios side by side
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    lanes: u8,
    /// Record this one, whether or not it was recorded
    #[arg(long)]
    scenario: Option<String>,
    /// Record nothing, only judge what there is and make the page
    #[arg(long)]
    report: bool,
    /// Also judge the networks that `accuracy --keep` kept there
    #[arg(long)]
    kept: Option<PathBuf>,
    /// Where the tables go, as a page
    #[arg(long, default_value = "target/rules.md")]
    page: PathBuf,
}

fn main() -> ExitCode {
    exit_code(work())
}

fn work() -> Result<()> {
    let arguments: Arguments = arguments();
    let all = scenario::all();
    if let Some(name) = &arguments.scenario {
        let scenario = all.iter().find(|scenario| scenario.name == *name);
        let scenario = scenario.with_context(|| format!("there is no scenario {name}"))?;
        let health = record::run(scenario, arguments.seed, &Place::new(&arguments.out, scenario))?;
        println!("{}", serde_json::to_string(&health)?);
        return Ok(());
    }
    println!("seed {}, {} scenarios, recordings in {}", arguments.seed, all.len(), arguments.out.display());
    if !arguments.report {
        lanes::run(&all, &arguments.out, arguments.seed, usize::from(arguments.lanes))?;
    }
    let mut recorded = Vec::new();
    for scenario in &all {
        recorded.extend(Series::read(scenario, &Place::new(&arguments.out, scenario))?);
    }
    ensure!(!recorded.is_empty(), "nothing was recorded yet in {}", arguments.out.display());
    let kept = arguments.kept.as_deref().map_or(Ok(Vec::new()), kept::read_all)?;
    page::write(&arguments.page, &header(&arguments, recorded.len(), all.len()), &recorded, &kept)?;
    println!("{} of {} scenarios; {} written", recorded.len(), all.len(), arguments.page.display());
    Ok(())
}

fn header(arguments: &Arguments, recorded: usize, all: usize) -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "`make rules` (seed {}, {recorded} of {all} recordings): each scenario ran once on real Linux senders ({}) behind an \
         emulated path, {} cores, {} side by side, the mirror port's packets and the kernel's windows at every segment kept. \
         The engine's samples from those packets went to every rule. The share is what the definition of a sample and the paper make of a peak: \
         one segment less than the window at a loss in congestion avoidance. What the rules are, and why the default is as it \
         is: [decision](../decisions/robust-rule.md).\n\n\
         `rules --report` judges the recordings again, `rules --kept DIRECTORY` adds the networks of an accuracy campaign \
         (`accuracy --keep DIRECTORY`). Figures are relative.",
        arguments.seed,
        kernel.trim().split('-').next().unwrap_or_default(),
        std::thread::available_parallelism().map_or(0, usize::from),
        arguments.lanes,
    )
}
