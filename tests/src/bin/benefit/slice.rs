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
use spand_tests::ending::{TOO_BUSY, TooBusy};
use spand_tests::product::interrupt;

/// A run without a sound result is tried this often in all.
const TRIES: u32 = 2;

/// Runs until the deadline; what is left is printed. `programs`: options of this program that say what to run. Returns whether a
/// run has no sound result since the machine was too busy.
pub(crate) fn run(runs: &[Planned], out: &Path, deadline: Instant, programs: &[OsString]) -> Result<bool> {
    let is_sound = |planned: &Planned| result::read(out, &planned.run).is_some_and(|result| result.fault.is_none());
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let (all, mut too_busy) = (runs.len(), false);
    for (number, planned) in (1..).zip(runs) {
        let mut was_busy = false;
        for attempt in 1..=TRIES {
            let left = deadline.saturating_duration_since(Instant::now());
            if is_sound(planned) || interrupt::came() || planned.seconds() > left.as_secs_f64() {
                break;
            }
            let again = if attempt > 1 { " again" } else { "" };
            println!("[{number}/{all}] {}{again}, about {:.0} s", planned.run.name(), planned.seconds());
            was_busy = start(planned, out, programs)?;
            match result::read(out, &planned.run).map(|result| result.fault) {
                None => println!("[{number}/{all}] left no result"),
                Some(Some(fault)) => println!("[{number}/{all}] counts for nothing: {fault}"),
                Some(None) => {}
            }
        }
        too_busy |= was_busy && !is_sound(planned);
    }
    let missing = runs.iter().filter(|planned| !is_sound(planned)).count();
    println!("{missing} of {all} runs have no sound result yet");
    Ok(too_busy)
}

/// One run in a process of its own, ended where it hangs: whether the machine was too busy for it.
fn start(planned: &Planned, out: &Path, programs: &[OsString]) -> Result<bool> {
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
    let longest = Duration::from_secs_f64(planned.seconds() * 3.0 + 120.0);
    let begin = Instant::now();
    let mut signalled = false;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for a run")? {
            return Ok(status.code() == Some(TOO_BUSY.into()));
        }
        thread::sleep(Duration::from_millis(200));
        if interrupt::came() && !signalled {
            signalled = true;
            // It takes its lab down in order.
            kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGTERM).context("cannot stop a run")?;
        }
        if begin.elapsed() > longest {
            eprintln!("{}", TooBusy::new(format!("the end of {}", planned.run.name()), longest));
            // Its process alone: nothing of a run outlives it.
            child.kill().context("cannot end a run that hung")?;
            child.wait().context("cannot wait for a run")?;
            return Ok(true);
        }
    }
}
