//! The real program as a test sees it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::gateway::Gateway;
use super::namespace::eventually;

/// A running agent with its folder.
pub(crate) struct Agent {
    pub(crate) folder: TempDir,
    child: Option<Child>,
}

impl Agent {
    /// A folder for an agent that does not run yet.
    pub(crate) fn stopped() -> Self {
        Self { folder: TempDir::new().unwrap(), child: None }
    }

    /// Starts an agent for `gateway` with what else stands in its configuration.
    pub(crate) fn start(gateway: &Gateway, top: &str, sections: &str) -> Self {
        let mut agent = Self::stopped();
        agent.configure(gateway, top, sections);
        agent.run();
        agent
    }

    pub(crate) fn configure(&self, gateway: &Gateway, top: &str, sections: &str) {
        let text = format!(
            "state_dir = \"state\"\n{top}\n\n[gateway]\nurl = \"{}\"\nretry_min_ms = 50\nretry_max_ms = 200\n\n\
             [holdout]\nfraction = 0.0\n\n[route]\nbatch_ms = 20\nsettle_ms = 300\nverify_s = 1\n\n{sections}",
            gateway.url()
        );
        std::fs::write(self.config(), text).unwrap();
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("agent.toml")
    }

    /// The configuration that a running agent was started with, and reads again.
    fn running(&self) -> PathBuf {
        self.folder.path().join("running.toml")
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.folder.path().join("state/ledger.jsonl")
    }

    pub(crate) fn run(&mut self) {
        self.run_by(Command::new(env!("CARGO_BIN_EXE_spand-agent")));
    }

    /// The program with these capabilities at most, as setpriv(1) of util-linux lists them.
    pub(crate) fn limited(bounding: &str, inherited: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.arg(format!("--bounding-set={bounding}")).arg(format!("--inh-caps={inherited}"));
        command.arg(env!("CARGO_BIN_EXE_spand-agent"));
        command
    }

    pub(crate) fn run_by(&mut self, mut command: Command) {
        std::fs::copy(self.config(), self.running()).unwrap();
        command.arg("--config").arg(self.running()).arg("run").stdin(Stdio::null());
        self.child = Some(command.spawn().unwrap());
    }

    /// The program with this configuration.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spand-agent"));
        command.arg("--config").arg(self.config()).args(arguments).stdin(Stdio::null());
        command
    }

    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.output(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
    }

    pub(crate) fn status(&self) -> Value {
        self.json(&["status", "--json"])
    }

    /// What becomes of a connection to this address.
    pub(crate) fn outcome(&self, address: &str) -> Value {
        self.json(&["explain", address, "--json"])["outcome"].clone()
    }

    /// What it counts of its method's events.
    pub(crate) fn counts(&self, name: &str) -> u64 {
        self.status()["method_events"][name].as_u64().unwrap_or(0)
    }

    pub(crate) fn in_force(&self) -> usize {
        self.status()["in_force"].as_array().map_or(0, Vec::len)
    }

    /// What a command prints for people, and its exit code.
    pub(crate) fn answer(&self, arguments: &[&str]) -> (String, Option<i32>) {
        printed(&self.output(arguments))
    }

    /// What a command prints that ends with 0.
    #[track_caller]
    pub(crate) fn succeeds(&self, arguments: &[&str]) -> String {
        let (text, code) = self.answer(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {text}");
        text
    }

    pub(crate) fn prints(&self, arguments: &[&str]) -> String {
        self.answer(arguments).0
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.as_ref().unwrap().id()).unwrap())
    }

    /// The supervising process.
    pub(crate) fn guard(&self) -> Pid {
        let path = format!("/proc/{0}/task/{0}/children", self.pid());
        let children = std::fs::read_to_string(path).unwrap();
        Pid::from_raw(children.split_whitespace().next().expect("a guard").parse().unwrap())
    }

    /// Puts another configuration in the place of the one that it runs with, as an editor does, and has it read; what came of it.
    /// The other commands read what it was started with.
    pub(crate) async fn reload(&self, text: &str) -> Value {
        let reloads = || self.status()["reloads"].clone();
        let times = |reloads: &Value| reloads["succeeded"].as_u64().unwrap() + reloads["failed"].as_u64().unwrap();
        let before = times(&reloads());
        let new = self.folder.path().join("new.toml");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, self.running()).unwrap();
        kill(self.pid(), Signal::SIGHUP).unwrap();
        eventually("the configuration is read again", || times(&reloads()) > before).await;
        reloads()
    }

    /// Kills it without a word, and waits for its end.
    pub(crate) fn kill(&mut self) {
        kill(self.pid(), Signal::SIGKILL).unwrap();
        self.child.take().unwrap().wait().unwrap();
    }

    /// Stops it as a service manager would; its exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        kill(self.pid(), Signal::SIGTERM).unwrap();
        self.child.take().unwrap().wait().unwrap().code()
    }

    /// Waits for it to end by itself; its exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.child.take().unwrap().wait().unwrap().code()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The test is over, one way or the other; also where it failed while the agent was made to stand still.
            for signal in [Signal::SIGTERM, Signal::SIGCONT] {
                _ = kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal);
            }
            _ = child.wait();
        }
    }
}

/// What a program printed, and its exit code.
pub(crate) fn printed(output: &Output) -> (String, Option<i32>) {
    let text = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat();
    (text, output.status.code())
}

/// Panics with the text where one of these words is not in it.
#[track_caller]
pub(crate) fn assert_has(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word} in {text}");
    }
}

/// A file's text, or nothing where there is none.
pub(crate) fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
