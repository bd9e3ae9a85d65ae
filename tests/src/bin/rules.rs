//! Estimation rules held against real kernels (`make rules`): records each scenario once, gives what was recorded to every
//! rule, and makes the results page.
//!
//! Each scenario runs in a process of its own and leaves a folder, so a run can be cut at any point and go on later.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use spand_tests::campaign;
use spand_tests::campaign::lanes::{self, Job, Limits};
use spand_tests::ending::{arguments, exit_code};
use spand_tests::rules::record::Place;
use spand_tests::rules::scenario::{self, Scenario};
use spand_tests::rules::series::Series;
use spand_tests::rules::{page, record};

const NAME: &str = "rules";
/// A scenario whose path was off is tried this often in all.
const TRIES: u32 = 2;

#[derive(Debug, Parser)]
#[command(about = "Holds estimation rules against real kernels (recording needs root)")]
struct Arguments {
    #[command(flatten)]
    campaign: campaign::Shared,
    /// Seed of paths and clients
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Scenarios side by side
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    lanes: u8,
    /// Record this one, whether or not it was recorded
    #[arg(long)]
    scenario: Option<String>,
}

fn main() -> ExitCode {
    exit_code(work())
}

fn work() -> Result<()> {
    let arguments: Arguments = arguments();
    let (all, out) = (scenario::all(), arguments.campaign.out(NAME));
    if let Some(name) = &arguments.scenario {
        let scenario = all.iter().find(|scenario| scenario.name == *name);
        let scenario = scenario.with_context(|| format!("there is no scenario {name}"))?;
        let health = record::run(scenario, arguments.seed, &Place::new(&out, scenario))?;
        println!("{}", serde_json::to_string(&health)?);
        return Ok(());
    }
    println!("seed {}, {} scenarios, recordings in {}", arguments.seed, all.len(), out.display());
    if arguments.campaign.plan {
        for scenario in &all {
            println!("{}: {}", scenario.name, scenario.words());
        }
        return Ok(());
    }
    if !arguments.campaign.report {
        run(&arguments, &all, &out)?;
    }
    let mut recorded = Vec::new();
    for scenario in &all {
        recorded.extend(Series::read(scenario, &Place::new(&out, scenario))?);
    }
    ensure!(!recorded.is_empty(), "nothing was recorded yet in {}", out.display());
    let header = format!(
        "`make rules` (seed {}, {} of {} recordings; {}): each scenario ran once on real Linux senders behind an emulated path, the \
         mirror port's packets and the kernel's windows at every segment kept. The engine's samples from those packets went to every \
         rule. The share is what the definition of a sample and the paper make of a peak: one segment less than the window at a \
         loss in congestion avoidance. What the rules are, and why the default is as it is: \
         [decision](../explain/decisions/estimate.md#the-rule-robust).\n\n`rules --report` judges the recordings again. Figures are relative.",
        arguments.seed,
        recorded.len(),
        all.len(),
        campaign::machine(arguments.lanes)
    );
    let page = arguments.campaign.page(NAME);
    page::write(&page, &header, &recorded)?;
    println!("{} of {} scenarios; {} written", recorded.len(), all.len(), page.display());
    Ok(())
}

/// Records every scenario that has no sound recording under `out`.
fn run(arguments: &Arguments, all: &[Scenario], out: &Path) -> Result<()> {
    let seed = arguments.seed.to_string();
    let is_missing = |scenario: &&Scenario| fault(scenario, out, arguments.seed).is_some();
    let job = |of: &'_ Scenario| Job {
        name: of.name.clone(),
        seconds: of.seconds as f64 + 5.0,
        of: of.clone(),
        weight: 0,
        tries: 0,
    };
    let limits = Limits {
        lanes: usize::from(arguments.lanes),
        weight: 0,
        deadline: arguments.campaign.deadline(None),
        tries: TRIES,
    };
    lanes::run(all.iter().filter(is_missing).map(job).collect(), &limits, |job| {
        let words = ["--seed", &seed, "--scenario", &job.of.name, "--out"].map(Into::into);
        let longest = Duration::from_secs(job.of.seconds * 2 + 240);
        lanes::process(&[&words[..], &[out.into()]].concat(), longest, false)?;
        match fault(&job.of, out, arguments.seed) {
            Some(fault) => bail!(fault),
            None => Ok(format!("{}: recorded", job.of.name)),
        }
    })?;
    Ok(())
}

/// Why what is there of a scenario does not count; `None` where it does.
fn fault(scenario: &Scenario, out: &Path, seed: u64) -> Option<String> {
    match Place::new(out, scenario).recorded() {
        None => Some("nothing was recorded".to_owned()),
        Some(recorded) if recorded.seed != seed => Some(format!("it was recorded with seed {}", recorded.seed)),
        Some(recorded) => recorded.health.fault(),
    }
}
