//! Debian's ns-2 as a process.

use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::output::Output;

/// A run that takes longer counts as hung.
const LONGEST: Duration = Duration::from_secs(1800);

/// Whether the simulator is here; where it is not, says so on standard error even where the test runner keeps output back,
/// unless `SPAND_NS=required`, which makes that a fault.
pub fn is_here() -> Result<bool> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join("ns").is_file()) {
        return Ok(true);
    }
    let required = std::env::var_os("SPAND_NS").is_some_and(|value| value == "required");
    ensure!(!required, "there is no ns-2 here: `make papers` installs Debian's ns2");
    std::io::stderr().write_all(b"\nSKIPPED: not run: ns2 (make papers installs it); 1 test checked nothing\n")?;
    Ok(false)
}

/// Where the scripts lie.
pub fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("papers")
}

/// Runs a script to its end. `words`: its options, `name=value` each.
pub fn run(script: &Path, words: &[String]) -> Result<Output> {
    let mut child = Command::new("ns")
        .arg(script)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start ns (Debian's ns2)")?;
    let printed = collect(child.stdout.take().context("standard output")?);
    let complaint = collect(child.stderr.take().context("standard error")?);
    let latest = Instant::now() + LONGEST;
    let status = loop {
        if let Some(status) = child.try_wait().context("cannot wait for ns")? {
            break status;
        }
        if Instant::now() > latest {
            child.kill().context("cannot end a hung ns")?;
            child.wait().context("cannot wait for ns")?;
            bail!("{} {} did not end within {} s", script.display(), words.join(" "), LONGEST.as_secs());
        }
        thread::sleep(Duration::from_millis(5));
    };
    let (printed, complaint) = (joined(printed)?, joined(complaint)?);
    ensure!(status.success(), "{} {}: {}: {}", script.display(), words.join(" "), status, complaint.trim());
    Output::parse(&printed).with_context(|| format!("{} {}", script.display(), words.join(" ")))
}

/// Reads on the side, so that neither pipe fills while the other is read.
fn collect(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<std::io::Result<String>> {
    thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).map(|_| text)
    })
}

fn joined(text: thread::JoinHandle<std::io::Result<String>>) -> Result<String> {
    text.join().ok().context("the reader of ns broke off")?.context("cannot read what ns prints")
}
