//! The command line.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use spand_proto::operator::{Failure, USAGE, or_default};

use crate::apply::route::guard;
use crate::args::{Explain, Format, Pause, Query, Running, Socket, Undo};
use crate::config::{Config, DEFAULT_PATH, Place};
use crate::{commands, doctor};

/// The host agent: asks the performance gateway how to start TCP connections, explains its advice and applies it.
///
/// Exit codes: 0 done; 1 a fault of the environment (no gateway, no running agent, a missing privilege); 2 a failed check
/// of `doctor`; 64 a fault of the command line or the configuration.
#[derive(Debug, Parser)]
#[command(name = "spand-agent", version, propagate_version = true)]
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
    /// Subscribe to the gateway and apply its advice until SIGTERM or SIGINT
    Run,
    /// Check a configuration and print what is in force, defaults included
    CheckConfig {
        /// The configuration, instead of the one of --config
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Ask the gateway how a transfer should start
    Query(Query),
    /// Print the state of the running agent
    Status(Running),
    /// Print the running agent's numbers for Prometheus
    Metrics(Socket),
    /// Show what the running agent decides for a destination, step by step
    Explain(Explain),
    /// Show what the agent has changed on this host and how to undo it, or undo it
    Undo(Undo),
    /// Start no connection on advice, until `resume` or for a time
    Pause(Pause),
    /// Start connections on advice again
    Resume(Running),
    /// Show what this host supports. As root, it also loads the kernel programs and removes them
    Probe(Format),
    /// Check this host and its path to the gateway for common faults, and print what to do. If no agent runs, it also loads the kernel programs and removes them
    Doctor(Format),
    /// Print the completions of a shell for this program; its packages install those of bash, zsh and fish
    Completions {
        /// The shell
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Remove the agent's routes when standard input ends or is silent; started by `run`
    #[command(hide = true)]
    Guard {
        #[arg(long)]
        ledger: PathBuf,
        #[arg(long)]
        patience_s: u64,
    },
}

/// The whole program: reads the command line, runs the command, says why it failed, and returns the exit code.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
            // If the message cannot be written either, the exit code remains.
            _ = error.print();
            return code;
        }
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit_code()
        }
    }
}

/// Runs the command that was given.
pub fn run(cli: Cli) -> Result<(), Failure> {
    spand_confine::take_up();
    let path = cli.config;
    match cli.command {
        Command::Run => crate::run::run(&Config::load(&path)?, &path),
        Command::CheckConfig { file } => commands::check_config(file.as_deref().unwrap_or(&path)),
        Command::Query(query) => commands::query(lenient(&path)?, &query),
        Command::Status(Running { at, format }) => commands::status(&place(&path, &at).socket, format),
        Command::Metrics(at) => commands::metrics(&place(&path, &at).socket),
        Command::Explain(question) => commands::explain(&place(&path, &question.at).socket, &question),
        Command::Undo(how) => commands::undo(&place(&path, &how.at), &how),
        Command::Pause(pause) => commands::pause(&place(&path, &pause.at).socket, &pause),
        Command::Resume(Running { at, format }) => commands::resume(&place(&path, &at).socket, format),
        Command::Probe(format) => commands::probe(format),
        Command::Doctor(format) => doctor::run(&path, format),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "spand-agent", &mut text);
            commands::print_raw(&String::from_utf8_lossy(&text))
        }
        Command::Guard { ledger, patience_s } => guard::run(&ledger, Duration::from_secs(patience_s)),
    }
}

/// Where the running agent is. A configuration that cannot be used is a warning: advice must be turned off without it, too.
fn place(file: &Path, at: &Socket) -> Place {
    let (place, warning) = Place::find(file, at.socket.as_deref());
    if let Some(warning) = warning {
        // Where it cannot be printed, the command matters more.
        _ = writeln!(io::stderr().lock(), "warning: {warning}");
    }
    place
}

/// The configuration of a question to the gateway: without a file in the usual place the defaults do.
fn lenient(path: &Path) -> Result<Config, Failure> {
    let (config, _) = or_default(Config::load(path), Path::new(DEFAULT_PATH))?;
    Ok(config)
}
