//! A program of the product that lives and does nothing, as on a machine that is too busy.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use spand_tests::lab::is_root;
use spand_tests::patience::PATIENCE_ENV;

/// The line that each program prints then.
const SENTENCE: &str = "this machine was too busy: the gateway's start did not happen within 2 s";

pub(super) fn is_named() -> Result<()> {
    if !is_root()? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let slow = folder.path().join("slow");
    fs::write(&slow, "#!/bin/sh\nexec sleep 60\n")?;
    fs::set_permissions(&slow, Permissions::from_mode(0o700))?;
    let shows = [
        (env!("CARGO_BIN_EXE_demo"), vec![]),
        (env!("CARGO_BIN_EXE_benefit"), vec!["--one", "quick"]),
        // A run in a process of its own.
        (env!("CARGO_BIN_EXE_benefit"), vec!["--scenarios", "quick", "--seeds", "1"]),
    ];
    let running = shows.map(|(program, arguments)| {
        let mut command = Command::new(program);
        command.args(&arguments).arg("--gateway").arg(&slow).current_dir(folder.path()).env(PATIENCE_ENV, "2");
        (program, arguments, command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn())
    });
    for (program, arguments, child) in running {
        let output = child?.wait_with_output()?;
        let printed = String::from_utf8_lossy(&output.stderr);
        let named = printed.lines().all(|line| line == SENTENCE) && !printed.is_empty();
        ensure!(
            output.status.code() == Some(75) && named,
            "{program} {} ended with {} and printed: {printed}",
            arguments.join(" "),
            output.status
        );
    }
    Ok(())
}
