//! The table of shares: what the gateway makes of every capture that there is here, network by network, with the kernel's truth beside it
//! (`tests/shares.tsv`, `make shares`).
//!
//! A change of the engine is judged by it: a share may move by 5 % or a segment, words and counts by nothing that is not recorded again. No
//! recording lets a share move away from the truth: `most_off_pct` only falls.

mod inputs;
mod row;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub use self::inputs::{Input, Kind, Truth, inputs};
pub use self::row::Row;

/// A share this far off is right, as part of the truth.
pub const NEAR: f64 = 0.2;
/// A share that moves by less than this part of itself, or than this many segments, counts as unchanged.
const SAME: f64 = 0.05;
const SAME_SEGMENTS: f64 = 1.0;
/// A share may be further from the truth than its recorded minimum by this part of the truth.
const FURTHER: f64 = 0.05;

/// Where the table lies.
pub fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("shares.tsv")
}

/// A recorded table, by input and network.
pub type Table = BTreeMap<(String, String), Row>;

/// The recorded table.
///
/// # Errors
/// The file cannot be read, or a line of it has other columns.
pub fn recorded(path: &Path) -> Result<Table> {
    let mut table = csv::ReaderBuilder::new().delimiter(b'\t').from_path(path)?;
    let rows = table.deserialize::<Row>().map(|row| row.map(|row| (row.key(), row)));
    rows.collect::<Result<_, _>>().with_context(|| format!("{} cannot be read", path.display()))
}

/// Writes a table.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, table: &Table) -> Result<()> {
    let mut out = csv::WriterBuilder::new().delimiter(b'\t').from_path(path)?;
    table.values().try_for_each(|row| out.serialize(row))?;
    out.flush().with_context(|| format!("{} cannot be written", path.display()))
}

/// The rows of `inputs`.
///
/// # Errors
/// A capture cannot be replayed.
pub fn rows(inputs: &[Input], done: &(dyn Fn(usize) + Sync)) -> Result<Vec<Row>> {
    let rows = spand_engine_tests::parallel::map(inputs, done, Row::of)?;
    Ok(rows.into_iter().flatten().collect())
}

/// Lists what differs from the recorded table, one sentence for each. It leaves out captures that were not replayed.
pub fn differences(rows: &[Row], recorded: &Table) -> Vec<String> {
    let mut differences = Vec::new();
    for row in rows {
        match recorded.get(&row.key()) {
            None => differences.push(format!("{} {}: not recorded", row.input, row.network)),
            Some(before) => differences.extend(row.differs(before)),
        }
    }
    let looked_at = |input: &str| rows.iter().any(|row| row.input == input);
    let now: BTreeSet<_> = rows.iter().map(Row::key).collect();
    let gone = recorded.values().filter(|row| looked_at(&row.input) && !now.contains(&row.key()));
    differences.extend(gone.map(|row| format!("{} {}: nothing there any more", row.input, row.network)));
    differences
}

/// Records rows. They replace all rows of the same captures, and `most_off_pct` never rises.
pub fn record(table: &mut Table, rows: Vec<Row>) {
    let before = std::mem::take(table);
    let looked_at: Vec<String> = rows.iter().map(|row| row.input.clone()).collect();
    table.extend(
        before.iter().filter(|(_, row)| !looked_at.contains(&row.input)).map(|(key, row)| (key.clone(), row.clone())),
    );
    for mut row in rows {
        let ever = before.get(&row.key()).and_then(|before| before.most_off_pct);
        row.most_off_pct = row.off_pct.map(|off| ever.map_or(off.abs(), |ever| ever.min(off.abs())));
        table.insert(row.key(), row);
    }
}
