//! `spand-gateway doctor` and `spand-agent doctor` beside real faults: mirror ports that carry half, or twice, or the wrong
//! traffic, offloads, ports, directories, routes, congestion controls, a kernel without type information.
//!
//! A program of its own: started under the name of one of the product's programs it is that program. Each case has its own
//! network namespaces, and all run side by side.

mod host;
mod mirror;
mod proofs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use spand_tests::lab::namespace::Namespace;
use spand_tests::product::standing_in::{Case, link_programs, run_cases, stand_in};
use tempfile::TempDir;

fn main() -> ExitCode {
    stand_in().unwrap_or_else(|| {
        let cases = [mirror::CASES, host::CASES, proofs::CASES].concat();
        run_cases("doctor", cases)
    })
}

/// A folder with both programs and a configuration.
struct Folder(TempDir);

impl Folder {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        link_programs(folder.path())?;
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

/// A doctor's findings.
#[derive(Debug)]
struct Findings {
    code: Option<i32>,
    checks: Vec<Value>,
}

impl Findings {
    fn of(output: &Output) -> Result<Self> {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let document: Value =
            serde_json::from_slice(&output.stdout).with_context(|| format!("no JSON; it says: {stderr}"))?;
        let checks = document["checks"].as_array().context("no checks")?.clone();
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operate/doctor.md");
        let page = fs::read_to_string(page).context("cannot read the page of checks")?;
        for name in checks.iter().filter_map(|check| check["name"].as_str()) {
            ensure!(page.contains(&format!("| `{name}` |")), "docs/operate/doctor.md lacks {name}");
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
