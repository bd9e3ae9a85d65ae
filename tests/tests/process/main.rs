//! What the programs may still do once they run, thread by thread, and faults of the machine around a whole gateway or agent.
//!
//! A program of its own: started under the name of one of the product's programs it is that program, and as `probe` it gives
//! up what it may do and then tries. Each case has its own network namespaces, and all run side by side.

mod agent;
mod faults;
mod gateway;
mod partition;
mod probe;
mod stage;

use std::path::Path;
use std::process::ExitCode;
use std::thread;

use anyhow::{Result, bail};
use clap::Parser;

/// A name and what is tried.
type Case = (&'static str, fn() -> Result<()>);

fn main() -> ExitCode {
    let name = std::env::args_os().next().and_then(|path| Some(Path::new(&path).file_name()?.to_owned()));
    let outcome = match name.as_ref().and_then(|name| name.to_str()) {
        Some("spand-gateway") => spand_gateway::cli::run(spand_gateway::cli::Cli::parse()),
        Some("spand-agent") => spand_agent::cli::run(spand_agent::cli::Cli::parse()),
        Some("probe") => probe::run(),
        _ => return cases(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit_code()
        }
    }
}

fn cases() -> ExitCode {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED 1 test: the programs are started as root, which this is not");
        return ExitCode::from(u8::from(std::env::var_os("SPAND_REQUIRE_ROOT").is_some()));
    }
    let only = std::env::args().nth(1).filter(|word| !word.starts_with('-'));
    let all = [probe::CASES, gateway::CASES, agent::CASES, faults::CASES, partition::CASES].concat();
    let wanted = all.into_iter().filter(|(name, _)| only.as_ref().is_none_or(|only| name.contains(only.as_str())));
    let running: Vec<_> = wanted.map(|(name, case): Case| (name, thread::spawn(case))).collect();
    let (all, mut failed) = (running.len(), 0);
    for (name, case) in running {
        match case.join().unwrap_or_else(|_| bail!("it panicked")) {
            Ok(()) => println!("process: {name}: as it should be"),
            Err(error) => {
                failed += 1;
                println!("process: {name}: FAILED: {error:#}");
            }
        }
    }
    println!("process: {} passed, {failed} failed", all - failed);
    ExitCode::from(u8::from(failed > 0))
}
