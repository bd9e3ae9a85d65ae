//! Which runs there are, and one run.

use std::time::Instant;

use anyhow::{Context, Result};

use super::ns;
use super::result::RunResult;
use super::row::{Programs, Row, Setting, Way};

/// A setting of a row with a seed.
#[derive(Clone, Copy)]
pub struct Planned<'a> {
    /// Its row.
    pub row: &'a Row,
    /// Its setting.
    pub setting: &'a Setting,
    /// Its seed.
    pub seed: u64,
}

impl Planned<'_> {
    /// What runs and its options, without the programs' places.
    pub fn command(&self) -> Vec<String> {
        let what = self.script().map_or("kernel", String::as_str);
        let options = self.setting.options.iter().map(|(name, value)| format!("{name}={value}"));
        let seed = (self.row.seeds > 1).then(|| format!("seed={}", self.seed));
        std::iter::once(what.to_owned()).chain(options).chain(seed).collect()
    }

    fn script(&self) -> Option<&String> {
        match &self.row.way {
            Way::Simulated { script, .. } => Some(self.setting.script.as_ref().unwrap_or(script)),
            Way::Kernel { .. } => None,
        }
    }

    /// Of the script and what it reads in; on a kernel the version of the experiment.
    pub fn checksum(&self) -> Result<u32> {
        let script = match &self.row.way {
            Way::Simulated { script, .. } => self.setting.script.as_ref().unwrap_or(script),
            Way::Kernel { version, .. } => return Ok(*version),
        };
        let mut checksum = flate2::Crc::new();
        for text in texts(script)? {
            checksum.update(text.as_bytes());
        }
        Ok(checksum.sum())
    }

    /// For lines of progress.
    pub fn name(&self) -> String {
        let seed = if self.row.seeds > 1 { format!(", seed {}", self.seed) } else { String::new() };
        format!("{} {}{seed}", self.row.id, self.setting.name)
    }

    /// Runs it: its result, and the processor time of the simulation or the time on the kernel in seconds.
    pub fn run(&self, programs: &Programs) -> Result<(RunResult, f64)> {
        let command = self.command();
        let (figures, seconds) = match &self.row.way {
            Way::Simulated { script, read } => {
                let oracle = format!("oracle={}", programs.oracle.display());
                let words: Vec<String> = command.iter().skip(1).cloned().chain([oracle]).collect();
                let script = self.setting.script.as_ref().unwrap_or(script);
                let output = ns::run(&ns::scripts().join(script), &words)?;
                (read.figures(&output), output.cpu_seconds)
            }
            Way::Kernel { run, .. } => {
                let begin = Instant::now();
                (run(self.setting, self.seed, programs), begin.elapsed().as_secs_f64())
            }
        };
        let figures = figures.with_context(|| self.name())?;
        let (row, setting) = (self.row.id.clone(), self.setting.name.clone());
        let checksum = self.checksum()?;
        Ok((RunResult { row, setting, seed: self.seed, command, checksum, figures }, seconds))
    }
}

/// How a script names a file beside it that it reads in.
const BESIDE: &str = "[file join [file dirname [info script]] ";

/// A script's text, and after it those that it reads in, each once.
fn texts(script: &str) -> Result<Vec<String>> {
    let mut names = vec![script.to_owned()];
    let mut texts = Vec::new();
    while let Some(name) = names.get(texts.len()) {
        let file = ns::scripts().join(name);
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        for named in text.split(BESIDE).skip(1).filter_map(|rest| rest.split_once(']')) {
            if !names.iter().any(|name| name == named.0) {
                names.push(named.0.to_owned());
            }
        }
        texts.push(text);
    }
    Ok(texts)
}

/// The runs of a row, seed by seed, so that a campaign that is cut short has some of every setting.
pub fn of_row(row: &Row, quick: bool) -> Vec<Planned<'_>> {
    let seeds = if quick { row.quick_seeds } else { row.seeds };
    let settings = || row.settings.iter().filter(|setting| setting.quick || !quick);
    (1..=seeds).flat_map(|seed| settings().map(move |setting| Planned { row, setting, seed })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_covers_what_a_script_reads_in_and_what_that_does() {
        let begins = |script| -> Vec<String> {
            texts(script)
                .unwrap()
                .iter()
                .filter_map(|text| text.lines().next())
                .map(|line| line[..10].to_owned())
                .collect()
        };
        assert_eq!(begins("yu.tcl"), ["# A server", "# What eve"]);
        assert_eq!(begins("yu-losses.tcl"), ["# yu.tcl f", "# A server", "# What eve"]);
        assert!(texts("none.tcl").is_err());
    }
}
