//! Runs what is missing, one run at a time in a process of its own: two at once would disturb each other.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use spand_tests::benefit::plan::Planned;
use spand_tests::benefit::result::{self, Learning};
use spand_tests::product::interrupt;

/// A run without a sound result is tried this often in all.
const TRIES: u32 = 2;
/// Runs until the deadline; what is left is printed. `programs`: options of this program that say what to run.
pub(crate) fn run(runs: &[Planned], out: &Path, deadline: Instant, programs: &[OsString]) -> Result<()> {
    let is_sound = |planned: &Planned| result::read(out, &planned.run).is_some_and(|result| result.fault.is_none());
    let all = runs.len();
    for (number, planned) in (1..).zip(runs) {
        for attempt in 1..=TRIES {
            let left = deadline.saturating_duration_since(Instant::now());
            if is_sound(planned) || interrupt::came() || planned.seconds() > left.as_secs_f64() {
                break;
            }
            let again = if attempt > 1 { " again" } else { "" };
            println!("[{number}/{all}] {}{again}, about {:.0} s", planned.run.name(), planned.seconds());
            start(planned, out, programs)?;
            match result::read(out, &planned.run).map(|result| result.fault) {
                None => println!("[{number}/{all}] left no result"),
                Some(Some(fault)) => println!("[{number}/{all}] counts for nothing: {fault}"),
                Some(None) => {}
            }
        }
    }
    let missing = runs.iter().filter(|planned| !is_sound(planned)).count();
    println!("{missing} of {all} runs have no sound result yet");
    Ok(())
}

/// One run in a process of its own, ended where it hangs.
fn start(planned: &Planned, out: &Path, programs: &[OsString]) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let run = &planned.run;
    let mut command = Command::new(program);
    command
        .args(["--one", &run.scenario, "--seed", &run.seed.to_string(), "--modes", run.mode.name()])
        .args(["--way", run.way.name(), "--start", run.start.name()])
        .args(programs)
        .arg("--out")
        .arg(out)
        .stdin(Stdio::null());
    if !run.stated {
        command.arg("--unstated");
    }
    if run.learning == Learning::Advised {
        command.args(["--learning", "advised"]);
    }
    let mut child = command.spawn().context("cannot start a run")?;
    let latest = Instant::now() + Duration::from_secs_f64(planned.seconds() * 3.0 + 120.0);
    let mut signalled = false;
    while child.try_wait().context("cannot wait for a run")?.is_none() {
        thread::sleep(Duration::from_millis(200));
        if interrupt::came() && !signalled {
            signalled = true;
            // It takes its lab down in order.
            kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGTERM).context("cannot stop a run")?;
        }
        if Instant::now() > latest {
            println!("it hung and was ended");
            // Its process alone: nothing of a run outlives it.
            child.kill().context("cannot end a run that hung")?;
        }
    }
    Ok(())
}
