//! Tests that stand in for the programs: started under the name of one of them, a test is that program, so that nothing has
//! to be built before. Such a test is a program of its own (`harness = false`) with cases that run side by side.

use spand_needs::{Need, needs};
use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result, bail};

/// The product's programs.
const PROGRAMS: [&str; 2] = ["spand-gateway", "spand-agent"];

/// A name and what is tried.
pub type Case = (&'static str, fn() -> Result<()>);

/// Runs the program under whose name this process was started. None where it is the test itself.
pub fn stand_in() -> Option<ExitCode> {
    let path = std::env::args_os().next()?;
    let name = Path::new(&path).file_name().and_then(OsStr::to_str)?;
    match name {
        "spand-gateway" => Some(spand_gateway::cli::main()),
        "spand-agent" => Some(spand_agent::cli::main()),
        _ => None,
    }
}

/// The same, or else one test.
pub fn stand_in_or(test: fn() -> Result<()>) -> ExitCode {
    stand_in().unwrap_or_else(|| match test() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    })
}

/// Makes links to this test in `folder`, one for each program.
///
/// # Errors
/// Where one cannot be made.
pub fn link_programs(folder: &Path) -> Result<()> {
    let own = std::env::current_exe().context("cannot find this program")?;
    for name in PROGRAMS {
        let link = folder.join(name);
        symlink(&own, &link).with_context(|| format!("cannot make {}", link.display()))?;
    }
    Ok(())
}

/// Runs the cases, which need root, side by side, or those whose name holds the first word of the command line, and prints how each went.
pub fn run_cases(test: &str, cases: impl IntoIterator<Item = Case>) -> ExitCode {
    if !needs(Need::Root) {
        return ExitCode::SUCCESS;
    }
    run_all(test, cases)
}

/// The same for cases that do without root, or say themselves that they need it.
pub fn run_all(test: &str, cases: impl IntoIterator<Item = Case>) -> ExitCode {
    let only = std::env::args().nth(1).filter(|word| !word.starts_with('-'));
    let wanted = cases.into_iter().filter(|(name, _)| only.as_ref().is_none_or(|only| name.contains(only.as_str())));
    let running: Vec<_> = wanted.map(|(name, case)| (name, thread::spawn(case))).collect();
    let (all, mut failed) = (running.len(), 0);
    for (name, case) in running {
        match case.join().unwrap_or_else(|_| bail!("it panicked")) {
            Ok(()) => println!("{test}: {name}: as it should be"),
            Err(error) => {
                failed += 1;
                println!("{test}: {name}: FAILED: {error:#}");
            }
        }
    }
    println!("{test}: {} passed, {failed} failed", all - failed);
    ExitCode::from(u8::from(failed > 0))
}
