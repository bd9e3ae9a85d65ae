//! Debian's ns-2 as a process.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// A run that takes longer counts as hung.
const LONGEST: Duration = Duration::from_secs(1800);

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

// What a script printed: lines of words, of which the last is `end` with the processor time.

/// The numbers read out of a run, by name.
pub type Figures = BTreeMap<String, f64>;

/// The lines of a run that came to its end.
#[derive(Debug)]
pub struct Output {
    lines: Vec<Vec<String>>,
    /// Processor time of the simulator and the oracle, in seconds.
    pub cpu_seconds: f64,
}

impl Output {
    /// Refuses what has no end: a script that was cut off has no figures.
    pub fn parse(text: &str) -> Result<Self> {
        let mut lines: Vec<Vec<String>> =
            text.lines().map(|line| line.split_ascii_whitespace().map(str::to_owned).collect()).collect();
        let end = lines.pop().context("the script printed nothing")?;
        let [name, seconds] = end.as_slice() else { anyhow::bail!("the script's output has no end") };
        ensure!(name == "end", "the script's output has no end");
        Ok(Self { cpu_seconds: seconds.parse().context("processor time at the end")?, lines })
    }

    /// The words after the name of each line with this name.
    pub fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [String]> {
        self.lines
            .iter()
            .filter_map(move |line| line.split_first().filter(|(first, _)| *first == name))
            .map(|(_, rest)| rest)
    }

    /// The words of the only line with this name.
    pub fn line(&self, name: &str) -> Result<&[String]> {
        let mut found = self.lines.iter().filter(|line| line.first().is_some_and(|first| first == name));
        let line = found.next().with_context(|| format!("the script printed no `{name}`"))?;
        ensure!(found.next().is_none(), "the script printed `{name}` twice");
        Ok(line.get(1..).unwrap_or_default())
    }
}

/// A number of a line.
pub fn number(words: &[String], index: usize) -> Result<f64> {
    let word = words.get(index).with_context(|| format!("`{}` has no word {}", words.join(" "), index + 1))?;
    let number: f64 = word.parse().with_context(|| format!("`{word}` is no number"))?;
    ensure!(number.is_finite(), "`{word}` is no finite number");
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_without_an_end_is_refused() {
        for text in ["", "transfer 1\n", "transfer 1\nend\n", "end 1\ntransfer 1\n"] {
            assert!(Output::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_figure_is_a_finite_number_of_a_line_that_is_there_once() {
        let output = Output::parse("transfer 1.5\ndrop 1\ndrop 2\nodd nan\nend 0.25\n").unwrap();
        assert!((output.cpu_seconds - 0.25).abs() < 1e-12);
        assert!((number(output.line("transfer").unwrap(), 0).unwrap() - 1.5).abs() < 1e-12);
        assert_eq!(output.lines("drop").count(), 2);
        assert!(output.line("drop").is_err() && output.line("none").is_err());
        assert!(number(output.line("odd").unwrap(), 0).is_err());
    }
}
