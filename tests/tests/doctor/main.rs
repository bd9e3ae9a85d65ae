//! `spand-gateway doctor` and `spand-agent doctor` beside real faults: mirror ports that carry half, or twice, or the wrong
//! traffic, offloads, ports, directories, routes, congestion controls, a kernel without type information.
//!
//! A program of its own: started under the name of one of the product's programs it is that program. Each case has its own
//! network namespaces, and all run side by side.

mod host;
mod mirror;
mod proofs;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use serde_json::Value;
use spand_tests::lab::namespace::Namespace;
use tempfile::TempDir;

const PROGRAMS: [&str; 2] = ["spand-gateway", "spand-agent"];

/// A name and what is tried.
type Case = (&'static str, fn() -> Result<()>);

fn main() -> ExitCode {
    let name = std::env::args_os().next().and_then(|path| Some(Path::new(&path).file_name()?.to_owned()));
    let outcome = match name.as_ref().and_then(|name| name.to_str()) {
        Some("spand-gateway") => spand_gateway::cli::run(spand_gateway::cli::Cli::parse()),
        Some("spand-agent") => spand_agent::cli::run(spand_agent::cli::Cli::parse()),
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
        eprintln!("SKIPPED 1 test: the doctors are asked in network namespaces, which need root");
        return ExitCode::from(u8::from(std::env::var_os("SPAND_REQUIRE_ROOT").is_some()));
    }
    let all: Vec<Case> = mirror::CASES.iter().chain(host::CASES).chain(proofs::CASES).copied().collect();
    let running = all.iter().map(|(name, case)| (*name, thread::spawn(*case)));
    let mut failed = 0;
    for (name, case) in running.collect::<Vec<_>>() {
        let outcome = case.join().unwrap_or_else(|_| bail!("it panicked"));
        match outcome {
            Ok(()) => println!("doctor: {name}: as it should be"),
            Err(error) => {
                failed += 1;
                println!("doctor: {name}: FAILED: {error:#}");
            }
        }
    }
    println!("doctor: {} passed, {failed} failed", all.len() - failed);
    ExitCode::from(u8::from(failed > 0))
}

/// A folder with both programs and a configuration.
struct Folder(TempDir);

impl Folder {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let own = std::env::current_exe().context("cannot find this program")?;
        for name in PROGRAMS {
            symlink(&own, folder.path().join(name))?;
        }
        Ok(Self(folder))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.path(name), text).with_context(|| format!("cannot write {name}"))
    }

    /// A command of a program with its configuration, in `namespace`.
    fn command(&self, namespace: &Namespace, program: &str, arguments: &[&str]) -> Command {
        let config = self.path(&format!("{program}.toml"));
        let mut command = namespace.command(self.path(program));
        command.args(arguments).arg("--config").arg(config);
        command
    }

    fn doctor(&self, namespace: &Namespace, program: &str, more: &[&str]) -> Result<Findings> {
        let output = self.command(namespace, program, &[&["doctor", "--json"], more].concat()).output()?;
        Findings::of(&output)
    }
}

/// What a doctor said.
#[derive(Debug)]
struct Findings {
    code: Option<i32>,
    checks: Vec<Value>,
}

impl Findings {
    fn of(output: &Output) -> Result<Self> {
        let said = String::from_utf8_lossy(&output.stderr);
        let document: Value =
            serde_json::from_slice(&output.stdout).with_context(|| format!("no JSON; it says: {said}"))?;
        let checks = document["checks"].as_array().context("no checks")?.clone();
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/doctor.md");
        let page = fs::read_to_string(page).context("cannot read the page of checks")?;
        for name in checks.iter().filter_map(|check| check["name"].as_str()) {
            ensure!(page.contains(&format!("| `{name}` |")), "docs/doctor.md lacks {name}");
        }
        Ok(Self { code: output.status.code(), checks })
    }

    /// The check `name` came out as `verdict`; where it did not come out well it names `words` and says what to do.
    fn has(&self, name: &str, verdict: &str, words: &str) -> Result<()> {
        let named = || self.checks.iter().filter(|check| check["name"] == name);
        let found = named().find(|check| check["verdict"] == verdict);
        let Some(check) = found else { bail!("no {name} with {verdict}: {:?}", named().collect::<Vec<_>>()) };
        ensure!(check.to_string().contains(words), "{check} lacks `{words}`");
        ensure!(verdict == "ok" || check["to_do"].is_string(), "{check} does not say what to do");
        Ok(())
    }

    /// Nothing but these is at fault, and the exit code says so.
    fn faults(&self, expected: &[&str]) -> Result<()> {
        let failed = self.checks.iter().filter(|check| check["verdict"] == "fail");
        let names: Vec<&str> = failed.filter_map(|check| check["name"].as_str()).collect();
        ensure!(names == expected, "at fault are {names:?}, expected {expected:?}: {:#?}", self.checks);
        let code = if expected.is_empty() { 0 } else { 2 };
        ensure!(self.code == Some(code), "exit code {:?} instead of {code}", self.code);
        Ok(())
    }
}
