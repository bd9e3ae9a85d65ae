//! One running program of the product.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::lab::namespace::Namespace;
use crate::patience::PATIENCE;
use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Lines of a log that are shown when a program fails.
const LOG_LINES: usize = 15;

/// A program that ended though nobody asked it to: why stands in its log.
#[derive(Clone, Debug)]
pub struct Ended {
    name: &'static str,
    status: ExitStatus,
    log_end: String,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ended early ({}). The end of its log:\n{}", self.name, self.status, self.log_end)
    }
}

impl Error for Ended {}

/// A running program. Dropping it stops it.
#[derive(Debug)]
pub struct Daemon {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts `program` with `arguments` in `namespace`; its output goes to a file in `folder`.
    pub fn start(
        name: &'static str,
        program: &Path,
        arguments: &[&str],
        namespace: &Namespace,
        folder: &Path,
    ) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let out = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = namespace
            .command(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("cannot run {}: build it first (make demo does)", program.display()))?;
        Ok(Self { name, child, log })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All of its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Fails with [`Ended`] where it no longer runs.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(Ended { name: self.name, status, log_end: self.log_end() }.into()),
        }
    }

    /// The last lines of its log.
    pub fn log_end(&self) -> String {
        let text = self.log();
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default().join("\n")
    }

    /// Ends it at once, as a failing machine would.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill().with_context(|| format!("cannot kill {}", self.name))?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks it to stop and waits; kills it where it does not. Returns how it went.
    pub fn stop(mut self) -> String {
        self.end()
    }

    fn end(&mut self) -> String {
        let begin = Instant::now();
        let Ok(pid) = i32::try_from(self.child.id()) else { return format!("{} has no pid", self.name) };
        if !matches!(self.child.try_wait(), Ok(None)) {
            return format!("{} had ended", self.name);
        }
        if let Err(error) = kill(Pid::from_raw(pid), Signal::SIGTERM) {
            return format!("{} cannot be stopped: {error}", self.name);
        }
        while begin.elapsed() < PATIENCE {
            if let Ok(Some(status)) = self.child.try_wait() {
                return format!("{} stopped in {:.1} s ({status})", self.name, begin.elapsed().as_secs_f64());
            }
            thread::sleep(Duration::from_millis(20));
        }
        drop(self.child.kill());
        drop(self.child.wait());
        format!("{} did not stop within {PATIENCE:?} and was killed", self.name)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}
