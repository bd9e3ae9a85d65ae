//! What a script printed: lines of words, of which the last is `end` with the processor time.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

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
