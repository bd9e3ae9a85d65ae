//! Runs side by side until a deadline; one that came to nothing is tried again.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{Read as _, Seek as _};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;

use crate::ending::{TOO_BUSY, TooBusy, progress};
use crate::product::interrupt;

/// A run that is to be made.
#[derive(Clone, Debug)]
pub struct Job<T> {
    /// What is run.
    pub of: T,
    /// In lines of progress.
    pub name: String,
    /// About how long it takes; 0 where nobody knows.
    pub seconds: f64,
    /// How much it takes of what [`Limits::weight`] limits.
    pub weight: u64,
    /// How often it was tried already.
    pub tries: u32,
}

/// What jobs have to keep to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Jobs side by side.
    pub lanes: usize,
    /// The weights of jobs side by side add up to this at most.
    pub weight: u64,
    /// No job ends later, if it takes as long as it says.
    pub deadline: Option<Instant>,
    /// A job is tried this often in all.
    pub tries: u32,
}

/// What is left of the jobs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Outcome {
    /// Those that were not begun, or are to be tried again.
    pub left: usize,
    /// Those that came to nothing at their last try.
    pub failed: usize,
    /// Those of them for which the machine was too busy.
    pub too_busy: usize,
}

struct State<T> {
    waiting: VecDeque<Job<T>>,
    running: usize,
    weight: u64,
    ended: usize,
    outcome: Outcome,
}

/// Makes the runs, those without a try first. `attempt` gives a line to print, or why there is no sound result.
pub fn run<T: Send>(
    jobs: Vec<Job<T>>,
    limits: &Limits,
    attempt: impl Fn(&Job<T>) -> Result<String> + Sync,
) -> Result<Outcome> {
    interrupt::install()?;
    let all = jobs.len();
    let mut waiting = VecDeque::from(jobs);
    waiting.make_contiguous().sort_by_key(|job| job.tries);
    let state = Mutex::new(State { waiting, running: 0, weight: 0, ended: 0, outcome: Outcome::default() });
    let lane = || {
        loop {
            let mut held = state.lock();
            let Some(mut job) = held.next(limits) else {
                if held.running == 0 || interrupt::came() {
                    return;
                }
                drop(held);
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            progress(&format!("{} of {all} runs; {}", held.ended, job.name));
            drop(held);
            let made = attempt(&job);
            let mut held = state.lock();
            held.running -= 1;
            held.weight -= job.weight;
            job.tries += 1;
            let again = made.is_err() && job.tries < limits.tries;
            held.ended += usize::from(!again);
            match made {
                Ok(line) if line.is_empty() => {}
                Ok(line) => println!("[{}/{all}] {line}", held.ended),
                Err(error) => {
                    println!("[{}/{all}] {}: {error:#}", held.ended, job.name);
                    if again {
                        held.waiting.push_back(job);
                    } else {
                        held.outcome.failed += 1;
                        held.outcome.too_busy += usize::from(error.downcast_ref::<TooBusy>().is_some());
                    }
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..limits.lanes {
            scope.spawn(lane);
        }
    });
    let State { waiting, outcome, .. } = state.into_inner();
    let outcome = Outcome { left: waiting.len(), ..outcome };
    if outcome.left + outcome.failed > 0 {
        println!("{} of {all} runs are left, {} failed; run this again to go on", outcome.left, outcome.failed);
    }
    Ok(outcome)
}

impl<T> State<T> {
    /// The first job that fits beside the running ones and into the time.
    fn next(&mut self, limits: &Limits) -> Option<Job<T>> {
        let left = limits.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()).as_secs_f64());
        let fits = |job: &Job<T>| {
            self.weight + job.weight <= limits.weight && left.is_none_or(|left| left > 0.0 && job.seconds <= left)
        };
        let place = self.waiting.iter().position(fits).filter(|_| !interrupt::came())?;
        let job = self.waiting.remove(place)?;
        self.running += 1;
        self.weight += job.weight;
        Some(job)
    }
}

/// Runs this program with other arguments to its end: what it printed, or nothing where it is to be `heard` meanwhile. Ends it where it
/// takes longer than `longest`, and hands on a signal that came.
pub fn process(arguments: &[OsString], longest: Duration, heard: bool) -> Result<String> {
    let mut log = tempfile::tempfile().context("cannot make a file for what a run prints")?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(arguments).stdin(Stdio::null());
    if !heard {
        command.stdout(log.try_clone()?).stderr(log.try_clone()?);
    }
    let mut child = command.spawn().context("cannot start a run")?;
    let (begin, mut signalled) = (Instant::now(), false);
    let status = loop {
        if let Some(status) = child.try_wait().context("cannot wait for a run")? {
            break status;
        }
        thread::sleep(Duration::from_millis(100));
        if interrupt::came() && !signalled {
            signalled = true;
            // It takes its lab down in order.
            kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGTERM).context("cannot stop a run")?;
        }
        if begin.elapsed() > longest {
            // Its process alone: nothing of a run outlives it.
            child.kill().context("cannot end a run that hung")?;
            child.wait().context("cannot wait for a run")?;
            return Err(TooBusy::new("the end of a run", longest).into());
        }
    };
    let mut printed = String::new();
    log.rewind()?;
    log.read_to_string(&mut printed).context("cannot read what a run printed")?;
    let printed = printed.trim().to_owned();
    match status.code() {
        Some(0) => Ok(printed),
        Some(code) if code == i32::from(TOO_BUSY) => Err(TooBusy::new("a run", begin.elapsed()).into()),
        _ => Err(anyhow!("it ended with {status}: {printed}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn job(name: &str, seconds: f64, weight: u64, tries: u32) -> Job<()> {
        Job { of: (), name: name.to_owned(), seconds, weight, tries }
    }

    const LIMITS: Limits = Limits { lanes: 3, weight: 10, deadline: None, tries: 2 };

    #[test]
    fn what_failed_is_tried_again_after_the_others_and_so_often() {
        let order = Mutex::new(Vec::new());
        let jobs = vec![job("tried", 0.0, 1, 1), job("sound", 0.0, 1, 0), job("never", 0.0, 1, 0)];
        let outcome = run(jobs, &Limits { lanes: 1, ..LIMITS }, |job| {
            order.lock().push(job.name.clone());
            match job.name.as_str() {
                "never" => Err(TooBusy::new("it", Duration::from_secs(1)).into()),
                "tried" => Err(anyhow!("off")),
                _ => Ok(String::new()),
            }
        });
        assert_eq!(outcome.unwrap(), Outcome { left: 0, failed: 2, too_busy: 1 });
        assert_eq!(order.into_inner(), ["sound", "never", "tried", "never"]);
    }

    #[test]
    fn jobs_side_by_side_keep_to_their_weight_and_none_ends_late() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut jobs: Vec<Job<()>> = (0..6).map(|_| job("half", 0.0, 5, 0)).collect();
        jobs.push(job("long", 3_600.0, 1, 0));
        let deadline = Some(Instant::now() + Duration::from_secs(600));
        let outcome = run(jobs, &Limits { deadline, ..LIMITS }, |_| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(30));
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(String::new())
        });
        assert_eq!(outcome.unwrap(), Outcome { left: 1, ..Outcome::default() });
        assert_eq!(most.into_inner(), 2);
    }
}
