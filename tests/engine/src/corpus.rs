//! The corpus of captures: where it lies, and its tables of reference numbers.
//!
//! It lies beside the repository (`../shared/corpus`) or where `SPAND_CORPUS` says, and is no part of it. A test that
//! needs it and does not find it checks nothing, and says so on standard error even where the runner keeps output back.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

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
