//! Tables that fit their room: what matters least is left out first, and what is left is never cut.

use std::env;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle};
use spand_proto::operator::printable;

/// What stands where there is no value.
pub(crate) const NONE: &str = "–";
/// One line under the header, nothing else: what a person reads, `awk` can read too.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─'));
/// Blanks between two columns.
const GAP: u16 = 2;

/// Most characters of a cell: all others of its column are padded to its width.
const CELL: usize = 1_000;

/// How wide a table may be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Width(Option<u16>);

impl Width {
    /// As wide as it comes, with every column.
    pub const UNLIMITED: Self = Self(None);
    /// Where the output is not a terminal.
    const ELSEWHERE: u16 = 120;
    /// Narrower than this, lines run over the edge: addresses in pieces help nobody.
    const LEAST: u16 = 40;

    /// At most N characters a line.
    pub fn at_most(characters: u16) -> Self {
        Self(Some(characters.max(Self::LEAST)))
    }

    /// That of the terminal on standard output; elsewhere what COLUMNS says, or 120.
    pub fn of_standard_output() -> Self {
        let terminal = Table::new().width().filter(|&width| width > 0);
        let columns = || env::var("COLUMNS").ok()?.parse().ok().filter(|&width| width > 0);
        Self::at_most(terminal.or_else(columns).unwrap_or(Self::ELSEWHERE))
    }

    /// The characters beside a column of names, the longest of which this is.
    pub(crate) fn beside(self, name: &str) -> usize {
        self.0.map_or(usize::MAX, |limit| usize::from(limit.saturating_sub(GAP)).saturating_sub(name.len()))
    }

    /// The characters, where there is a limit.
    pub(crate) fn limit(self) -> Option<u16> {
        self.0
    }
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    title: &'static str,
    /// 0 stays; of the others the one with the highest number is left out first.
    rank: u8,
    text: bool,
    /// It may be broken into lines.
    breaks: bool,
}

impl Column {
    /// A column of numbers.
    pub(crate) const fn number(title: &'static str, rank: u8) -> Self {
        Self { title, rank, text: false, breaks: false }
    }

    /// A column of text.
    pub(crate) const fn text(title: &'static str, rank: u8) -> Self {
        Self { title, rank, text: true, breaks: false }
    }

    /// A column of addresses, of which two long ones need more room than there is.
    pub(crate) const fn breaking(title: &'static str) -> Self {
        Self { title, rank: 0, text: true, breaks: true }
    }

    /// A cell as wide as `least` at least.
    pub(crate) fn padded(self, cell: &str, least: usize) -> String {
        if self.text { format!("{cell:<least$}") } else { format!("{cell:>least$}") }
    }
}

/// A table of `columns`, fitted into `width`; and whether a column was left out.
pub(crate) fn fitted<const N: usize>(
    columns: &[Column; N],
    rows: impl Iterator<Item = [String; N]>,
    width: Width,
) -> (Table, bool) {
    let mut table = plain();
    table.set_header(columns.iter().map(|column| column.title));
    table.add_rows(rows.map(|cells| cells.map(|cell| inert(&cell, CELL))));
    for (place, (column, cells)) in columns.iter().zip(table.column_iter_mut()).enumerate() {
        cells.set_padding((0, if place + 1 == N { 0 } else { GAP }));
        cells.set_cell_alignment(if column.text { CellAlignment::Left } else { CellAlignment::Right });
    }
    let Some(limit) = width.limit() else { return (table, false) };
    // Where it breaks, an address of IPv4 with its port still fits into a line.
    let broken = (limit.saturating_sub(Width::LEAST) / 2).max(23);
    let needs = table.column_max_content_widths();
    let mut shown: Vec<_> = (columns.iter().zip(needs).enumerate())
        .map(|(place, (column, need))| {
            let need = if column.breaks { need.min(broken) } else { need };
            let empty = table.column_cells_iter(place).flatten().all(|cell| cell.content() == NONE);
            (place, usize::from(need + GAP), column.rank, empty && table.row_count() > 0)
        })
        .collect();
    let room = usize::from(limit + GAP);
    while shown.iter().map(|(_, need, ..)| need).sum::<usize>() > room {
        let least = shown.iter().filter(|(_, _, rank, _)| *rank > 0).max_by_key(|(_, _, rank, empty)| (*empty, *rank));
        let Some(&(least, ..)) = least else { break };
        shown.retain(|(place, ..)| *place != least);
    }
    let last = shown.last().map(|(place, ..)| *place);
    for (place, (column, cells)) in columns.iter().zip(table.column_iter_mut()).enumerate() {
        cells.set_padding((0, if last == Some(place) { 0 } else { GAP }));
        if shown.iter().all(|(shown, ..)| *shown != place) {
            cells.set_constraint(ColumnConstraint::Hidden);
        } else if !column.breaks {
            cells.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(limit);
    (table, shown.len() < N)
}

/// A text that somebody else wrote: printable, and cut where it has more than `most` characters.
pub(crate) fn inert(cell: &str, most: usize) -> String {
    let kept = cell.char_indices().nth(most).and_then(|(end, _)| cell.get(..end)).unwrap_or(cell);
    printable(kept) + if kept.len() < cell.len() { "…" } else { "" }
}

/// A table of names and what they stand for, which breaks where it must.
pub(crate) fn named(rows: impl Iterator<Item = (&'static str, String)>, width: Width) -> Table {
    let mut table = plain();
    table.add_rows(rows.map(|(name, text)| [name.to_owned(), text]));
    for (cells, gap) in table.column_iter_mut().zip([GAP, 0]) {
        cells.set_padding((0, gap));
    }
    if let Some(limit) = width.limit() {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(limit);
        if let Some(names) = table.column_mut(0) {
            names.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table
}

fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
    table
}

/// The lines, without blanks at their ends.
pub(crate) fn text(table: &Table) -> String {
    let lines = table.lines().map(|line| line.trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_behind_the_last_character_there_is_room_for() {
        assert_eq!(inert("", 0), "");
        assert_eq!(inert("≥äb", 3), "≥äb");
        assert_eq!(inert("≥äbc", 3), "≥äb…");
        assert_eq!(inert("a\u{1b}b", 2), "a\u{fffd}…");
    }
}
