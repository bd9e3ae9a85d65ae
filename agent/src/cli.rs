//! The command line.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use spand_proto::operator::{ConfigError, Failure};

use crate::apply::route::guard;
use crate::commands;
use crate::config::{Config, DEFAULT_PATH};
use crate::doctor;

/// The host agent: asks the performance gateway how to start TCP connections, explains its advice and applies it.
///
/// Exit codes: 0 done; 1 the environment is at fault (no gateway, no running agent, a missing privilege); 2 `doctor` found
/// something at fault; 64 the command line or the configuration is.
#[derive(Debug, Parser)]
#[command(name = "spand-agent", version, propagate_version = true, disable_help_subcommand = true)]
pub struct Cli {
    /// The configuration
    #[arg(long, global = true, value_name = "FILE", default_value = DEFAULT_PATH)]
    config: PathBuf,
    /// What to do
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Subscribe to the gateway and apply its advice until told to stop
    Run,
    /// Check a configuration and print what is in force, defaults included
    CheckConfig {
        /// The configuration, instead of the one of --config
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Ask the gateway how a transfer should start
    Query(Query),
    /// Say how the running agent is
    Status(Format),
    /// Print the running agent's numbers for Prometheus
    Metrics(Metrics),
    /// Say what the running agent decides for a destination, step by step
    Explain(Explain),
    /// Print the commands that take back what the agent changed, or run them
    Undo(Undo),
    /// Say what this host supports, changing nothing
    Probe(Format),
    /// Look for the usual faults of this host and its way to the gateway, and say what to do; changes nothing
    Doctor(Format),
    /// Remove the agent's routes when standard input ends; started by `run`
    #[command(hide = true)]
    Guard {
        #[arg(long)]
        ledger: PathBuf,
    },
}

/// How to print.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Format {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where the numbers go.
#[derive(Args, Clone, Debug)]
pub(crate) struct Metrics {
    /// Replace this file at once, for a collector that reads files; standard output unless given
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// A question for the gateway.
#[derive(Args, Debug)]
pub(crate) struct Query {
    /// Where to
    #[arg(value_name = "DEST")]
    pub(crate) destination: IpAddr,
    /// Size of the transfer
    #[arg(long, value_name = "N")]
    pub(crate) bytes: Option<NonZeroU64>,
    /// Segment size less options, in bytes; that of the estimate unless given
    #[arg(long, value_name = "BYTES")]
    pub(crate) mss: Option<NonZeroU64>,
    /// The peer's receive window, scaled, in bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) peer_window: Option<NonZeroU64>,
    /// Round trip of the connection's handshake
    #[arg(long, value_name = "MS")]
    pub(crate) handshake_ms: Option<f64>,
    /// The gateway, instead of the configured one
    #[arg(long, value_name = "URL")]
    pub(crate) gateway: Option<String>,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// A question for the running agent.
#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// Where to
    #[arg(value_name = "DEST")]
    pub(crate) destination: IpAddr,
    /// Size of the transfer
    #[arg(long, value_name = "N")]
    pub(crate) bytes: Option<NonZeroU64>,
    /// Segment size less options, in bytes; that of the estimate unless given
    #[arg(long, value_name = "BYTES")]
    pub(crate) mss: Option<NonZeroU64>,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Taking back.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Undo {
    /// Take everything back now
    #[arg(long)]
    pub(crate) run: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Runs the command that was given.
pub fn run(cli: Cli) -> Result<(), Failure> {
    spand_confine::take_up();
    let path = cli.config;
    match cli.command {
        Command::Run => crate::run::run(&Config::load(&path)?),
        Command::CheckConfig { file } => commands::check_config(file.as_deref().unwrap_or(&path)),
        Command::Query(query) => commands::query(lenient(&path)?, &query),
        Command::Status(format) => commands::status(&lenient(&path)?, format),
        Command::Metrics(Metrics { output }) => commands::metrics(&lenient(&path)?, output.as_deref()),
        Command::Explain(question) => commands::explain(&lenient(&path)?, &question),
        Command::Undo(how) => commands::undo(&lenient(&path)?, how),
        Command::Probe(format) => commands::probe(&lenient(&path)?, format),
        Command::Doctor(format) => doctor::run(&lenient(&path)?, &path, format),
        Command::Guard { ledger } => guard::run(&ledger),
    }
}

/// The configuration of a command that only looks: without a file in the usual place the defaults do.
fn lenient(path: &Path) -> Result<Config, Failure> {
    match Config::load(path) {
        Err(ConfigError::Unreadable { source, .. })
            if path == Path::new(DEFAULT_PATH) && source.kind() == std::io::ErrorKind::NotFound =>
        {
            Ok(Config::default())
        }
        loaded => Ok(loaded?),
    }
}
