//! The supervising process: a child that removes the agent's routes when the agent is killed, or does not run.
//!
//! It waits at one end of a pipe whose other end only the agent holds, and into which the agent writes as long as it runs. Whatever ends
//! the agent closes the pipe; the guard then removes what the ledger lists and ends. Where nothing was written for the lifetime of an
//! advice (the agent is stopped, or hangs), the guard removes the same and waits on. It blocks the signals that stop a service, so that
//! it outlives its parent, and holds no other resource.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
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
    lifeline: Option<ChildStdin>,
}

impl Guard {
    /// Starts a guard for the ledger at `ledger`, which removes the routes where [`Self::beat`] was not called for `patience`.
    pub fn spawn(ledger: &Path, patience: Duration) -> io::Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .arg0("spand-agent")
            .arg("guard")
            .arg("--ledger")
            .arg(ledger)
            .arg("--patience-s")
            .arg(patience.as_secs().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // A process group of its own: Ctrl-C at a terminal is for the agent.
            .process_group(0)
            .spawn()?;
        let lifeline = child.stdin.take();
        Ok(Self { child, lifeline })
    }

    /// Shows the guard that this process runs. A pipe that is full shows it, too.
    pub fn beat(&self) {
        if let Some(lifeline) = &self.lifeline {
            _ = nix::unistd::write(lifeline, &[0]);
        }
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

/// Runs as the guard: cleans up at the end of the parent, and whenever that was silent for `patience`.
pub fn run(ledger: &Path, patience: Duration) -> Result<(), Failure> {
    outlive_service_signals()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::environment)?;
    let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    let mut is_clean = false;
    loop {
        match wait(if is_clean { PollTimeout::NONE } else { patience }) {
            Parent::Runs => is_clean = false,
            Parent::Silent => {
                let cleaned = runtime.block_on(take_away(ledger, "the agent does not run"));
                is_clean = cleaned.inspect_err(|failure| error!("{failure}")).is_ok();
            }
            Parent::Gone => return runtime.block_on(take_away(ledger, "the agent ended without a clean-up")),
        }
    }
}

enum Parent {
    Runs,
    Silent,
    Gone,
}

fn wait(patience: PollTimeout) -> Parent {
    let mut stdin = io::stdin().lock();
    match poll(&mut [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)], patience) {
        Ok(0) => Parent::Silent,
        Ok(_) => match stdin.read(&mut [0; 64]) {
            Ok(0) => Parent::Gone,
            Ok(_) => Parent::Runs,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Parent::Runs,
            Err(_) => Parent::Gone,
        },
        Err(Errno::EINTR) => Parent::Runs,
        Err(_) => Parent::Gone,
    }
}

async fn take_away(ledger: &Path, why: &str) -> Result<(), Failure> {
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
                info!(routes = done.removed.len(), "{why}: its routes are removed");
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
        "{why}, and its routes cannot be removed: {}; run `spand-agent undo --run`",
        last.map_or_else(String::new, |error| error.to_string())
    )))
}

/// A service manager's signals reach every process of a service; this one must stay until the agent is gone.
fn outlive_service_signals() -> Result<(), Failure> {
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
    signals.thread_block().map_err(|error| Failure::Environment(format!("cannot block signals: {error}")))
}
