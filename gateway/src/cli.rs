//! The command line.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use spand_capture::check_filter;
use spand_proto::operator::{Failure, USAGE};
use spand_proto::units::counted;

use crate::api::{Access, password_line};
use crate::config::{Config, DEFAULT_PATH, EngineOptions, Memory, renamed_warnings};
use crate::names::Names;
use crate::{ask, cert, doctor, password, replay};

/// The performance gateway: watches mirrored traffic and advises hosts how to start TCP connections.
///
/// Exit codes: 0 done; 1 the environment is at fault (a file or interface that cannot be read, a port in use, no gateway, a missing
/// privilege); 2 `doctor` found something at fault; 64 the command line or the configuration is.
#[derive(Debug, Parser)]
#[command(name = "spand-gateway", version, propagate_version = true)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Read capture files and print what a gateway would have known
    Replay(replay::Arguments),
    /// Capture live, estimate, answer queries and push until stopped
    Run {
        /// The configuration
        #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
        config: PathBuf,
    },
    /// Print a line for the file of passwords (admin.passwords); the password is read from standard input
    Password {
        /// Whose password it is
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Make certificates for gateway and agents with a certificate authority of your own, and revoke them
    Cert {
        /// What to make
        #[command(subcommand)]
        command: cert::Command,
    },
    /// Check a configuration and print what is in force, defaults included
    CheckConfig {
        /// The configuration
        #[arg(value_name = "FILE", default_value = DEFAULT_PATH)]
        config: PathBuf,
    },
    /// Look for the usual faults of gateway, host and mirror port, and say what to do; changes nothing
    Doctor(doctor::Arguments),
    /// Print the completions of a shell for this program; its packages install those of bash, zsh and fish
    Completions {
        /// The shell
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Ask a running gateway
    #[command(flatten)]
    Ask(ask::Command),
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
    match cli.command {
        Command::Replay(arguments) => replay::run(arguments),
        Command::Run { config } => crate::run::run(&runnable(&config)?, &config),
        Command::Password { name } => password_of(&name),
        Command::Cert { command } => cert::run(&command),
        Command::CheckConfig { config } => check(&config),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "spand-gateway", &mut text);
            print(&String::from_utf8_lossy(&text), "the completions")
        }
        Command::Ask(command) => ask::run(&command),
    }
}

/// A configuration with which `run` can start.
fn runnable(path: &Path) -> Result<Config, Failure> {
    let config = Config::load(path)?;
    config.check_runnable().map_err(|message| Failure::Usage(format!("{}: {message}", path.display())))?;
    Ok(config)
}

/// Reads a password and prints its line.
fn password_of(name: &str) -> Result<(), Failure> {
    let line = password_line(name, &password::read()?)?;
    writeln!(io::stdout().lock(), "{line}")
        .map_err(|error| Failure::Environment(format!("cannot print the line: {error}")))
}

fn check(path: &Path) -> Result<(), Failure> {
    let config = runnable(path)?;
    let engine = config.engine(EngineOptions::default())?;
    Access::open(&config)?;
    check_filter(&config.capture.filter).map_err(|error| Failure::Usage(format!("capture.filter: {error}")))?;
    let (_, nameless) = Names::load_readable(&config.names)?;
    let warnings = renamed_warnings(path).into_iter().chain(config.traffic.wide_tunnels()).chain(nameless);
    for warning in warnings.chain(config.exposed_secrets()) {
        eprintln!("warning: {warning}");
    }
    let text = toml::to_string(&config)
        .map_err(|error| Failure::Environment(format!("cannot print the configuration: {error}")))?;
    let memory = Memory::of(&config, &engine).comment();
    let networks = match engine.prefixes.len() {
        0 => "networks are /24 and /48, since no list of prefixes (traffic.prefix_list) is in force".to_owned(),
        count => format!("the list of prefixes (traffic.prefix_list) has {}", counted(count, "prefix", "prefixes")),
    };
    print(&format!("# {} is valid; {networks}. In force:\n{memory}\n{text}", path.display()), "the configuration")
}

fn print(text: &str, what: &str) -> Result<(), Failure> {
    match writeln!(io::stdout().lock(), "{}", text.trim_end()) {
        // The reader closed the pipe, as in `check-config | head`.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Environment(format!("cannot print {what}: {error}")))
        }
        _ => Ok(()),
    }
}
