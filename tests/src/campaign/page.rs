//! Pages of Markdown with their plots.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use crate::plot::Plot;

/// Begins a table of these columns, named with bars between.
pub fn head(columns: &str) -> String {
    format!("| {columns} |\n|{}\n", " --- |".repeat(columns.matches(" | ").count() + 1))
}

/// A table of these columns and rows, whose cells have bars between; nothing without a row.
pub fn table(columns: &str, rows: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut text = String::new();
    for row in rows {
        writeln!(text, "| {} |", row.as_ref()).ok();
    }
    if text.is_empty() { text } else { head(columns) + &text }
}

/// A table with the rows of the largest numbers first.
pub fn sorted(columns: &str, mut rows: Vec<(f64, String)>) -> String {
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    table(columns, rows.into_iter().map(|(_, row)| row))
}

/// Adds to a text.
pub fn add(text: &mut String, more: &str) {
    text.push_str(more);
}

/// Writes a page, and the folder that it lies in.
pub fn write(page: &Path, text: &str) -> Result<()> {
    if let Some(folder) = page.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    std::fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
}

/// Writes a plot beside a page: the reference to it.
pub fn plot(page: &Path, file: &str, what: &str, plot: &Plot) -> Result<String> {
    write(&page.with_file_name(file), &plot.svg()?)?;
    Ok(format!("\n![{what}]({file})\n"))
}

/// As `+3.0 %`.
pub fn percent(value: f64) -> String {
    format!("{:+.1} %", value * 100.0)
}

/// A number with these digits, or a dash.
pub fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

/// Texts with commas between.
pub fn list(texts: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    texts.into_iter().map(|text| text.as_ref().to_owned()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_line_for_its_columns_and_the_largest_rows_first() {
        let rows = vec![(1.0, "a | 1".to_owned()), (2.0, "b | 2".to_owned())];
        assert_eq!(sorted("what | found", rows), "| what | found |\n| --- | --- |\n| b | 2 |\n| a | 1 |\n");
        assert_eq!(table("what", Vec::<String>::new()), "");
    }
}
