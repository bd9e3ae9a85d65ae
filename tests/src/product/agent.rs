//! The agent in the lab.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::daemon::Daemon;
use super::running::{utf8, write};
use super::setup::AgentSetup;
use crate::lab::namespace::Namespace;

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    daemon: Daemon,
    folder: PathBuf,
    /// How a person asks it, `{}` standing for the command.
    command: String,
}

impl Agent {
    /// Starts it in the namespace of a host; its files are in `folder`.
    pub fn start(host: &Namespace, program: &Path, setup: &AgentSetup, folder: &Path) -> Result<Self> {
        let config = folder.join("agent.toml");
        write(&config, &setup.toml())?;
        let arguments = ["run", "--config", utf8(&config)?];
        let daemon = Daemon::start("spand-agent", program, &arguments, host, folder)?;
        let command = format!("{} {{}} --config {}", program.display(), config.display());
        Ok(Self { daemon, folder: folder.to_owned(), command })
    }

    /// Where it answers questions.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("agent/control.sock")
    }

    /// Fails where it has ended.
    pub fn check(&mut self) -> Result<()> {
        self.daemon.check()
    }

    /// Prints commands to try.
    pub fn print_commands(&self) {
        for command in ["status", "explain 198.51.100.11"] {
            println!("  {}", self.command.replace("{}", command));
        }
    }

    /// Stops it, and says how that went.
    pub fn stop(self) -> String {
        self.daemon.stop()
    }
}
