//! Runs what is missing, some runs side by side.

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use parking_lot::Mutex;
use spand_tests::papers::plan::Planned;
use spand_tests::papers::result::Results;
use spand_tests::papers::row::Programs;
use spand_tests::product::interrupt;

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
