//! The page of results.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

use super::result::Results;
use super::row::{Finding, Judged, Row, Standing, Verdict};
use crate::campaign;

/// Judges every row by its results and writes the page. Returns the verdicts in the rows' order.
pub fn write(page: &Path, results: &Results, rows: &[Row]) -> Result<Vec<(String, Verdict)>> {
    let judged: Vec<(&Row, Judged, f64)> = rows
        .iter()
        .map(|row| {
            let (outcomes, seconds) = results.of_row(row);
            Ok((row, row.judge(&outcomes)?, seconds))
        })
        .collect::<Result<_>>()?;
    campaign::page::write(page, &text(&judged))?;
    Ok(judged.iter().map(|(row, judged, _)| (row.id.clone(), judged.verdict())).collect())
}

fn text(judged: &[(&Row, Judged, f64)]) -> String {
    let mut text = String::from(
        "# The papers' experiments\n\n`make papers`: T rows in Debian's ns-2, unchanged, whose senders ask `spand-oracle` (the \
         product's own code) how to grow and how to start; K rows with the product on this kernel. Intervals are Student's at 95 % over seeds; \
         changes compare the same seeds. Seeds are 1, 2, and so on. Not decided: an interval holds an edge of its band.\n\n| row | experiment | expected | source | verdict | time (s) |\n\
         | --- | --- | --- | --- | --- | --- |\n",
    );
    for (row, judged, seconds) in judged {
        let verdict = judged.verdict().word();
        writeln!(text, "| {} | {} | {} | {} | {verdict} | {seconds:.1} |", row.id, row.what, row.expected, row.source)
            .ok();
    }
    for (row, judged, _) in judged {
        writeln!(text, "\n## {}: {}\n\n| figure | expected | found | |\n| --- | --- | --- | --- |", row.id, row.what)
            .ok();
        for Finding { what, expected, found, standing } in &judged.0 {
            let found = found.as_deref().unwrap_or("no result");
            let sign = standing.map_or("", Standing::word);
            writeln!(text, "| {what} | {expected} | {found} | {sign} |").ok();
        }
    }
    text
}
