//! One running program of the product.

use std::error::Error;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::asking::Api;
use super::running::{HTTP_PORT, utf8, wait, write};
use super::setup::{AgentSetup, GatewaySetup};
use crate::lab::namespace::Namespace;
use crate::patience::PATIENCE;

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

// The agent in the lab.

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

    /// Ends it at once, as a failing machine would.
    pub fn kill(self) -> Result<()> {
        self.daemon.kill()
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

// One gateway in the lab: its process, killed and started again with what it saved.

/// What gateways that share hash under: these share nothing with anyone else.
const SECRET: &str = "00112233445566778899aabbccddeeff\n";

/// A gateway, running or killed.
#[derive(Debug)]
pub struct Gateway {
    daemon: Option<Daemon>,
    api: Api,
    program: PathBuf,
    folder: PathBuf,
}

impl Gateway {
    /// Starts it and waits until it is ready. Its files are in `folder`, made where it is missing.
    pub fn start(namespace: &Namespace, program: &Path, setup: &GatewaySetup, folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        write(&folder.join("gateway.toml"), &setup.toml())?;
        if setup.sharing.is_some() {
            write(&folder.join("share.secret"), SECRET)?;
        }
        let address = SocketAddr::new(setup.management.into(), HTTP_PORT);
        let api = Api { namespace: namespace.clone(), address };
        let mut gateway = Self { daemon: None, api, program: program.to_owned(), folder: folder.to_owned() };
        gateway.run()?;
        Ok(gateway)
    }

    /// Starts it again after [`Self::kill`], and waits until it is ready.
    pub fn start_again(&mut self) -> Result<()> {
        ensure!(self.daemon.is_none(), "the gateway runs already");
        let log = self.folder.join("spand-gateway.log");
        std::fs::rename(&log, self.folder.join("spand-gateway.before.log"))?;
        self.run()
    }

    fn run(&mut self) -> Result<()> {
        let config = self.folder.join("gateway.toml");
        let arguments = ["run", "--config", utf8(&config)?];
        let daemon = Daemon::start("spand-gateway", &self.program, &arguments, &self.api.namespace, &self.folder)?;
        self.daemon = Some(daemon);
        wait("the gateway's start", PATIENCE, || {
            self.check()?;
            Ok(self.api.get("/readyz").is_ok_and(|(status, _)| status == 200).then_some(()))
        })
    }

    /// Its JSON interface.
    pub const fn api(&self) -> &Api {
        &self.api
    }

    /// Fails where it ended by itself.
    pub fn check(&mut self) -> Result<()> {
        self.daemon.as_mut().map_or(Ok(()), Daemon::check)
    }

    /// All of its log.
    pub fn log(&self) -> String {
        self.daemon.as_ref().map(Daemon::log).unwrap_or_default()
    }

    /// Ends it at once (SIGKILL): it sends and saves nothing more.
    pub fn kill(&mut self) -> Result<()> {
        self.daemon.take().map_or(Ok(()), Daemon::kill)
    }

    /// Stops it in order, and says how that went.
    pub fn stop(self) -> String {
        self.daemon.map_or_else(|| "spand-gateway was killed".to_owned(), Daemon::stop)
    }
}
