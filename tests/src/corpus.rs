//! The corpus of captures: where it lies, and its tables of reference numbers.
//!
//! It lies beside the repository (`../shared/corpus`) or where `SPAND_CORPUS` says, and is no part of it. A test that
//! needs it and does not find it checks nothing, and says so on standard error even where the runner keeps output back.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The corpus, or `None` after a line on standard error that names where it was looked for.
pub fn directory() -> Option<PathBuf> {
    set(".")
}

/// A set of the corpus, such as `wild`, or `None` after the same line.
pub fn set(name: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    let corpus = std::env::var_os("SPAND_CORPUS").map_or_else(beside, PathBuf::from);
    let corpus = if name == "." { corpus } else { corpus.join(name) };
    if corpus.is_dir() {
        return Some(corpus);
    }
    let line = format!("\nSKIPPED: no corpus at {}; 1 test checked nothing\n", corpus.display());
    // Not eprintln, which the test runner would swallow. Where even this fails nobody is left to tell.
    let _unwritable = std::io::stderr().write_all(line.as_bytes());
    None
}

/// A row of a table, by column name.
pub type Row = BTreeMap<String, String>;

/// Reads a tab-separated table whose first line names the columns.
pub fn table(path: &Path) -> Result<Vec<Row>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().with_context(|| format!("{} is empty", path.display()))?.split('\t').collect();
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            ensure!(cells.len() == header.len(), "{}: {} cells in `{line}`", path.display(), cells.len());
            Ok(header.iter().zip(cells).map(|(name, cell)| ((*name).to_owned(), cell.to_owned())).collect())
        })
        .collect()
}
