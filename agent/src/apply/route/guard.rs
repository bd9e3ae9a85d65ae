//! The supervising process: a child that removes the agent's routes when the agent is killed.
//!
//! It waits at one end of a pipe whose other end only the agent holds. Whatever ends the agent closes the pipe; the guard
//! then removes what the ledger lists and ends. It blocks the signals that stop a service, so that it outlives its
//! parent, and holds no other resource.

use std::io::{self, Read};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use spand_proto::operator::Failure;
use tokio::process::{Child, ChildStdin, Command};
use tracing::{error, info};

use super::cleanup::clean_up;
use super::netlink::Netlink;
use crate::ledger;

/// Attempts to clean up, and the pause between them: together well under 5 s.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// The guard as its parent sees it. Dropping it lets the guard look once more and end.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    /// Closed by the kernel when this process ends, however that comes about.
    _lifeline: Option<ChildStdin>,
}

impl Guard {
    /// Starts a guard for the ledger at `ledger`.
    pub fn spawn(ledger: &Path) -> io::Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .arg0("spand-agent")
            .arg("guard")
            .arg("--ledger")
            .arg(ledger)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // A process group of its own: Ctrl-C at a terminal is for the agent.
            .process_group(0)
            .spawn()?;
        let lifeline = child.stdin.take();
        Ok(Self { child, _lifeline: lifeline })
    }

    /// Waits until it ends, which it should not before its parent does.
    pub async fn ended(&mut self) {
        // Where it cannot be waited for it is not ours any more, which is as bad.
        _ = self.child.wait().await;
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

/// Runs as the guard: waits for the end of the parent, then cleans up.
pub fn run(ledger: &Path) -> Result<(), Failure> {
    outlive_service_signals()?;
    let mut stdin = io::stdin().lock();
    let mut byte = [0; 1];
    loop {
        match stdin.read(&mut byte) {
            // Nobody writes; only the end of the parent ends this.
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::environment)?;
    runtime.block_on(take_away(ledger))
}

async fn take_away(ledger: &Path) -> Result<(), Failure> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let recorded = ledger::read(ledger).map_err(Failure::environment)?;
        if matches!(&recorded, ledger::Recorded::Entries(entries) if entries.is_empty()) {
            // It stopped as it should.
            return Ok(());
        }
        let outcome = match Netlink::open() {
            Ok(netlink) => clean_up(&netlink, &recorded).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(done) => {
                info!(routes = done.removed.len(), "the agent ended without a clean-up: its routes are removed");
                return Ok(());
            }
            Err(error) => {
                error!(%error, "cannot remove the agent's routes yet");
                last = Some(error);
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(Failure::Environment(format!(
        "cannot remove the routes of an agent that was killed: {}; run `spand-agent undo --run`",
        last.map_or_else(String::new, |error| error.to_string())
    )))
}

/// A service manager's signals reach every process of a service; this one must stay until the agent is gone.
fn outlive_service_signals() -> Result<(), Failure> {
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
    signals.thread_block().map_err(|error| Failure::Environment(format!("cannot block signals: {error}")))
}
