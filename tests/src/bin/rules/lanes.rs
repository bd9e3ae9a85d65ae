//! Records what is missing, some scenarios side by side, each in a process of its own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use spand_tests::rules::record::Place;
use spand_tests::rules::scenario::Scenario;

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
