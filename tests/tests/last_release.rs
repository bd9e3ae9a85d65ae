//! Configurations of the release before: each program accepts its example, and warns of every key and value with a new name.
//!
//! It starts itself as the programs, so that what an administrator sees is what is checked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use spand_tests::product::standing_in::{link_programs, stand_in};
use toml::{Table, Value};

fn main() -> ExitCode {
    if let Some(code) = stand_in() {
        return code;
    }
    let mut failed = false;
    for program in ["agent", "gateway"] {
        match check(program) {
            Ok(renamed) => println!("last_release: {program}: accepted, {renamed} warnings"),
            Err(error) => {
                failed = true;
                println!("last_release: {program}: FAILED: {error:#}");
            }
        }
    }
    ExitCode::from(u8::from(failed))
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Has a program check its old example, and returns the number of warnings.
fn check(program: &str) -> Result<usize> {
    let folder = tempfile::tempdir()?;
    link_programs(folder.path())?;
    let old = repository(&format!("tests/fixtures/last-release/{program}.example.toml"));
    let checked = |path: &Path| -> Result<(String, Vec<String>)> {
        let output = Command::new(folder.path().join(format!("spand-{program}")))
            .arg("check-config")
            .arg(path)
            .output()
            .context("cannot start the program")?;
        let warnings = String::from_utf8(output.stderr)?.lines().map(str::to_owned).collect();
        ensure!(output.status.success(), "{} is refused: {warnings:?}", path.display());
        Ok((String::from_utf8(output.stdout)?, warnings))
    };
    let (printed, warnings) = checked(&old)?;
    let (old, now) = (keys(&std::fs::read_to_string(&old)?)?, keys(&printed)?);
    ensure!(old.len() > 30, "only {} keys", old.len());
    for (key, value) in &old {
        let is_as_before = now.get(key).is_some_and(|now| now.as_str() == value.as_str());
        let is_warned = warnings.iter().any(|line| line.contains(key.as_str()) && line.contains(" is now "));
        ensure!(is_as_before || is_warned, "{key} has another name or value, without a warning: {warnings:?}");
    }
    // What is printed has the new names, so it is accepted without a warning.
    let new = folder.path().join("new.toml");
    std::fs::write(&new, printed)?;
    let (_, none) = checked(&new)?;
    ensure!(!none.iter().any(|line| line.contains(" is now ")), "the printed configuration has old names: {none:?}");
    Ok(warnings.len())
}

/// Every `section.key` of a configuration, with its value.
fn keys(text: &str) -> Result<BTreeMap<String, Value>> {
    let mut keys = BTreeMap::new();
    for (name, value) in text.parse::<Table>()? {
        match value {
            Value::Table(section) => {
                keys.extend(section.into_iter().map(|(key, value)| (format!("{name}.{key}"), value)));
            }
            value => {
                keys.insert(name, value);
            }
        }
    }
    Ok(keys)
}
