//! Results: those of the repository in one file, and a file for each run since.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::ns::Figures;
use super::plan::Planned;
use super::row::{Outcomes, Row};
use crate::campaign::kept;

/// What one run came to; in the simulator the same for the same seed, to the byte.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RunResult {
    /// The row.
    pub row: String,
    /// The setting.
    pub setting: String,
    /// Of everything random.
    pub seed: u64,
    /// What ran and its options, without the programs' places.
    pub command: Vec<String>,
    /// Checksum of the script and of what it reads in, or the version of an experiment on a kernel: a result of another counts
    /// for nothing.
    pub checksum: u32,
    /// What was read out.
    pub figures: Figures,
}

/// Where results lie.
#[derive(Debug)]
pub struct Results {
    out: PathBuf,
    kept: BTreeMap<(String, String, u64), RunResult>,
}

impl Results {
    /// Results of new runs in the folder `out`; those in the file `kept`, a line each, count too. A file that is not there has none.
    pub fn open(out: &Path, kept: &Path) -> Result<Self> {
        let text = match fs::read_to_string(kept) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", kept.display())),
        };
        let parse = |(number, line): (usize, &str)| {
            let result: RunResult = serde_json::from_str(line)
                .with_context(|| format!("{} line {} is no result: remove it", kept.display(), number + 1))?;
            Ok(((result.row.clone(), result.setting.clone(), result.seed), result))
        };
        let kept = text.lines().enumerate().map(parse).collect::<Result<_>>()?;
        Ok(Self { out: out.to_owned(), kept })
    }

    fn file(&self, row: &str, setting: &str, seed: u64) -> PathBuf {
        self.out.join(row).join(format!("{setting}-{seed}.json"))
    }

    /// The result of a run that ran as it is planned now; the newer of two.
    pub fn read(&self, planned: &Planned<'_>) -> Option<RunResult> {
        let (row, setting, seed) = (&planned.row.id, &planned.setting.name, planned.seed);
        let file = || kept::read(&self.file(row, setting, seed));
        let kept = || self.kept.get(&(row.clone(), setting.clone(), seed)).cloned();
        let (command, checksum) = (planned.command(), planned.checksum().ok());
        let is_current = |result: &RunResult| result.command == command && Some(result.checksum) == checksum;
        file().filter(is_current).or_else(|| kept().filter(is_current))
    }

    /// Writes a result, whole or not at all, and beside it the time that it took, which is another each time.
    pub fn write(&self, result: &RunResult, seconds: f64) -> Result<()> {
        let file = self.file(&result.row, &result.setting, result.seed);
        kept::whole(&file.with_extension("seconds"), format!("{seconds}\n").as_bytes())?;
        let mut text = serde_json::to_vec_pretty(result)?;
        text.push(b'\n');
        kept::whole(&file, &text)
    }

    /// Keeps every result of these rows that is there in one file, a line each, in the order of the plan.
    pub fn keep(&self, file: &Path, rows: &[Row]) -> Result<usize> {
        let mut text = Vec::new();
        let mut count = 0;
        for result in rows.iter().flat_map(|row| super::plan::of_row(row, false)).filter_map(|run| self.read(&run)) {
            serde_json::to_writer(&mut text, &result)?;
            text.push(b'\n');
            count += 1;
        }
        ensure!(!file.exists() || file.is_file(), "{} is no file to keep results in", file.display());
        kept::whole(file, &text)?;
        Ok(count)
    }

    /// Time of a run, in seconds; zero where it is unknown.
    fn seconds(&self, planned: &Planned<'_>) -> f64 {
        let file = self.file(&planned.row.id, &planned.setting.name, planned.seed).with_extension("seconds");
        fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
    }

    /// All results of a row and the time that they took, as far as that is known.
    pub fn of_row(&self, row: &Row) -> (Outcomes, f64) {
        let mut outcomes = Outcomes::default();
        let mut seconds = 0.0;
        for planned in super::plan::of_row(row, false) {
            if let Some(result) = self.read(&planned) {
                outcomes.0.entry(result.setting).or_default().insert(result.seed, result.figures);
                seconds += self.seconds(&planned);
            }
        }
        (outcomes, seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_result_counts_and_one_of_another_command_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let (out, kept) = (folder.path().join("out"), folder.path().join("kept.jsonl"));
        let rows = super::super::rows::all().unwrap();
        let row = rows.iter().find(|row| row.id == "T4").unwrap();
        let runs = super::super::plan::of_row(row, false);
        let result = |planned: &Planned<'_>, value: f64| RunResult {
            row: planned.row.id.clone(),
            setting: planned.setting.name.clone(),
            seed: planned.seed,
            command: planned.command(),
            checksum: planned.checksum().unwrap(),
            figures: Figures::from([("t".to_owned(), value)]),
        };
        let value = |results: &Results, planned| results.read(planned).map(|result| result.figures["t"]);

        let results = Results::open(&out, &kept).unwrap();
        results.write(&result(&runs[0], 1.0), 0.5).unwrap();
        results.write(&RunResult { checksum: 1, ..result(&runs[1], 2.0) }, 0.5).unwrap();
        assert_eq!((value(&results, &runs[0]), value(&results, &runs[1])), (Some(1.0), None));
        assert_eq!(results.keep(&kept, &rows).unwrap(), 1);

        let elsewhere = Results::open(&folder.path().join("other"), &kept).unwrap();
        assert_eq!(value(&elsewhere, &runs[0]), Some(1.0));
        elsewhere.write(&result(&runs[0], 3.0), 0.5).unwrap();
        assert_eq!(value(&elsewhere, &runs[0]), Some(3.0));
        fs::write(&kept, "{}\n").unwrap();
        assert!(Results::open(&out, &kept).is_err());
    }
}
