//! The NATS server's program, for what shows nothing without one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// `SPAND_NATS_SERVER`, or what `scripts/nats-server` fetches.
///
/// # Errors
/// Where neither is to be had.
pub fn required_program() -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/nats-server");
    let asked = Command::new(&script)
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("cannot run {}", script.display()))?;
    if !asked.status.success() {
        let why = String::from_utf8_lossy(&asked.stderr);
        bail!(
            "there is no nats-server: install python3-pip, with which scripts/nats-server fetches one, or name one in SPAND_NATS_SERVER ({})",
            why.lines().last().unwrap_or("it says nothing")
        );
    }
    let program = PathBuf::from(String::from_utf8(asked.stdout)?.trim_end());
    ensure!(program.is_file(), "SPAND_NATS_SERVER names {}, and there is no such file", program.display());
    Ok(program)
}
