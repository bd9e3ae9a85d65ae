//! Estimation rules held against real kernels (`make rules`): records each scenario once, gives what was recorded to every
//! rule, and makes the results page.
//!
//! Each scenario runs in a process of its own and leaves a folder, so a run can be cut at any point and go on later.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use spand_tests::ending::{arguments, exit_code};
use spand_tests::rules::record::Place;
use spand_tests::rules::scenario::Scenario;
use spand_tests::rules::series::Series;
use spand_tests::rules::{kept, page, record, scenario};

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
        run(&all, &arguments.out, arguments.seed, usize::from(arguments.lanes))?;
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
        thread::available_parallelism().map_or(0, usize::from),
        arguments.lanes,
    )
}

// Records what is missing, some scenarios side by side, each in a process of its own.

/// A scenario whose path was off is tried this often in all.
const TRIES: u32 = 2;

struct Running<'a> {
    scenario: &'a Scenario,
    child: Child,
    tries: u32,
    /// When it counts as hung.
    latest: Instant,
}

/// Records every scenario of `all` that has no sound recording under `out`.
pub(crate) fn run(all: &[Scenario], out: &Path, seed: u64, lanes: usize) -> Result<()> {
    let is_missing = |scenario: &&Scenario| fault(scenario, out, seed).is_some();
    let mut waiting: Vec<(&Scenario, u32)> = all.iter().filter(is_missing).map(|scenario| (scenario, 0)).collect();
    let seconds: u64 = waiting.iter().map(|(scenario, _)| scenario.seconds + 5).sum();
    println!("{} to record, about {} minutes", waiting.len(), seconds / 60 / lanes as u64 + 1);
    waiting.reverse();
    let mut running: Vec<Running<'_>> = Vec::new();
    loop {
        while running.len() < lanes
            && let Some((scenario, tries)) = waiting.pop()
        {
            running.push(start(scenario, out, seed, tries + 1)?);
        }
        if running.is_empty() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(200));
        for index in (0..running.len()).rev() {
            let Some(one) = running.get_mut(index) else { continue };
            if Instant::now() > one.latest {
                // Its process alone: nothing of a scenario outlives it.
                one.child.kill().context("cannot end a hung scenario")?;
            } else if one.child.try_wait().context("cannot wait for a scenario")?.is_none() {
                continue;
            }
            let mut one = running.swap_remove(index);
            let status = one.child.wait().context("cannot wait for a scenario")?;
            let fault =
                fault(one.scenario, out, seed).or((!status.success()).then(|| format!("it ended with {status}")));
            match fault {
                Some(fault) if one.tries < TRIES => {
                    println!("{} again: {fault}", one.scenario.name);
                    waiting.insert(0, (one.scenario, one.tries));
                }
                Some(fault) => println!("{}: {fault}", one.scenario.name),
                None => println!("{}: recorded", one.scenario.name),
            }
        }
    }
}

/// Why what is there of a scenario does not count; `None` where it does.
fn fault(scenario: &Scenario, out: &Path, seed: u64) -> Option<String> {
    match Place::new(out, scenario).recorded() {
        None => Some("nothing was recorded".to_owned()),
        Some(recorded) if recorded.seed != seed => Some(format!("it was recorded with seed {}", recorded.seed)),
        Some(recorded) => recorded.health.fault(),
    }
}

fn start<'a>(scenario: &'a Scenario, out: &Path, seed: u64, tries: u32) -> Result<Running<'a>> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let child = Command::new(program)
        .args(["--seed", &seed.to_string(), "--scenario", &scenario.name, "--out"])
        .arg(out)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start a scenario")?;
    Ok(Running { scenario, child, tries, latest: Instant::now() + Duration::from_secs(scenario.seconds * 2 + 240) })
}
