//! What the agent's commands print, beside one agent that sets routes and one with programs in the kernel.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use spand_tests::dashboard::stage::Stage;
use spand_tests::dialect::Origin;
use spand_tests::lab::namespace::Cgroup;
use spand_tests::patience::PATIENCE;
use spand_tests::product::Daemon;

use super::Walk;
use super::gateway::{ADDRESS, NETWORK};

/// An agent that runs.
struct Agent {
    /// For commands, and what the agent itself reads.
    config: String,
    running: PathBuf,
    daemon: Daemon,
}

impl Agent {
    fn start(walk: &Walk, stage: &Stage, name: &'static str, more: &str) -> Result<Self> {
        let config = walk.path(&format!("{name}.toml"));
        let text = format!(
            "mode = \"paper\"\napply = \"{name}\"\nstate_dir = \"{name}\"\nhost_name = \"{name}\"\n\n[gateway]\nurl = \"{}\"\n\n[holdout]\nfraction = \
             0.0\n\n[destinations]\ninclude = [\"{NETWORK}\"]\n{more}",
            stage.grpc()
        );
        let running = walk.path(&format!("{name}-running.toml"));
        fs::write(&config, &text)?;
        fs::write(&running, &text)?;
        let config = config.to_str().context("a path in UTF-8")?.to_owned();
        let arguments = ["run", "--config", running.to_str().context("a path in UTF-8")?];
        let daemon = Daemon::start(name, &walk.path("spand-agent"), &arguments, &walk.namespace, walk.folder.path())?;
        Ok(Self { config, running, daemon })
    }

    fn status(&self, walk: &Walk) -> Result<Value> {
        let mut status = walk.program("spand-agent");
        let output = status.args(["status", "--json", "--config", &self.config]).output()?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    fn json(&self, walk: &mut Walk, arguments: &[&str]) -> Result<Value> {
        walk.command(Origin::Other, "spand-agent", &[arguments, &["--json", "--config", &self.config]].concat())
    }

    /// Waits until a status is as it should be; that one is walked.
    fn wait(&mut self, walk: &mut Walk, what: &str, done: impl Fn(&Value) -> bool) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            self.daemon.check()?;
            if self.status(walk).is_ok_and(|status| done(&status)) {
                self.json(walk, &["status"])?;
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let explained = self.json(walk, &["explain", ADDRESS]).unwrap_or_default();
        bail!("{what}: not within {PATIENCE:?}: {explained:#}\n{}", self.daemon.log_end());
    }
}

fn has_advice(status: &Value) -> bool {
    status["in_force"].as_array().is_some_and(|networks| !networks.is_empty())
}

pub(super) fn commands(walk: &mut Walk, stage: &Stage) -> Result<()> {
    let mut agent = Agent::start(walk, stage, "route", "")?;
    agent.wait(walk, "a route is set", has_advice)?;
    agent.json(walk, &["query", ADDRESS, "--bytes", "100000", "--handshake-ms", "50"])?;
    agent.json(walk, &["query", ADDRESS])?;
    agent.json(walk, &["query", "localhost"])?;
    agent.json(walk, &["explain", ADDRESS])?;
    agent.json(walk, &["explain", "localhost"])?;
    agent.json(walk, &["probe"])?;
    agent.json(walk, &["doctor"])?;

    // Somebody else's route with the agent's signature.
    walk.namespace.ip(&["route add 203.0.113.0/24 via 198.51.100.1 proto 83 metric 21328 initcwnd 20"])?;
    agent.json(walk, &["undo"])?;
    agent.json(walk, &["pause", "--for", "1h"])?;
    agent.json(walk, &["status"])?;
    agent.json(walk, &["explain", ADDRESS])?;
    agent.json(walk, &["resume"])?;
    reload(walk, &mut agent)?;
    programs(walk, stage)?;

    // Routes that are gone while the ledger has them, and one that a killed agent left behind.
    agent.wait(walk, "the route is back", has_advice)?;
    kill_both(&agent)?;
    walk.namespace.ip(&[&format!("route del {NETWORK} proto 83 metric 21328")])?;
    agent.json(walk, &["undo"])?;
    walk.namespace.ip(&[&format!("route add {NETWORK} via 198.51.100.1 proto 83 metric 21328 initcwnd 20")])?;
    agent.json(walk, &["undo", "--run"])?;
    Ok(())
}

/// One that works, and one that cannot be used.
fn reload(walk: &mut Walk, agent: &mut Agent) -> Result<()> {
    let text = fs::read_to_string(&agent.config)?;
    let changed = text.replace("[holdout]", "[policy]\nmin_samples = 2\nlifetime_s = 50\n\n[holdout]");
    for (text, result) in [(changed, "succeeded"), ("nonsense".to_owned(), "failed"), (text, "succeeded")] {
        let count = |status: &Value| status["reloads"][result].as_u64();
        let before = agent.status(walk)?;
        fs::write(&agent.running, text)?;
        kill(pid(agent)?, Signal::SIGHUP)?;
        agent.wait(walk, "the configuration is read again", |status| count(status) > count(&before))?;
    }
    Ok(())
}

/// What an agent with programs in the kernel adds.
fn programs(walk: &mut Walk, stage: &Stage) -> Result<()> {
    let cgroup = Cgroup::make("dialect")?;
    let (name, folder) = (format!("j{}", std::process::id()), cgroup.folder().display());
    let more = format!("\n[bpf]\nname = \"{name}\"\ncgroup = \"{folder}\"\n");
    let mut agent = Agent::start(walk, stage, "bpf", &more)?;
    agent.wait(walk, "advice is in the kernel", has_advice)?;
    agent.json(walk, &["undo"])?;
    agent.json(walk, &["explain", ADDRESS, "--bytes", "100000"])?;
    Ok(())
}

fn pid(agent: &Agent) -> Result<Pid> {
    Ok(Pid::from_raw(i32::try_from(agent.daemon.pid())?))
}

/// Kills the guard, and the agent before it can start another one.
fn kill_both(agent: &Agent) -> Result<()> {
    let agent = pid(agent)?;
    let guards = fs::read_to_string(format!("/proc/{agent}/task/{agent}/children"))?;
    let guard = guards.split_whitespace().next().context("no guard")?.parse()?;
    kill(agent, Signal::SIGSTOP)?;
    kill(Pid::from_raw(guard), Signal::SIGKILL)?;
    kill(agent, Signal::SIGKILL)?;
    Ok(())
}
