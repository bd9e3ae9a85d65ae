//! JSON: one object, written as it comes, one line per row so that two outputs can be compared by line.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value};
use spand_proto::operator::rfc3339_ns;

use super::{Show, ignored};
use crate::opening::{ComparedDocument, OpeningDocument};
use crate::replay::{FileReport, NetworkRow, Report, State, Summary};

/// What has been written so far.
#[derive(Debug, Default)]
pub(super) struct Json {
    states: u64,
}

impl Json {
    /// One element of `states`.
    pub(super) fn state(&mut self, writer: &mut dyn Write, state: &State, show: &Show) -> io::Result<()> {
        writer.write_all(if self.states == 0 { b"{\"states\":[\n" } else { b",\n" })?;
        self.states += 1;
        write!(writer, "{{\"time\":\"{}\",\"networks\":", rfc3339_ns(state.at))?;
        array(writer, show.networks(state).iter().map(Network::from))?;
        writer.write_all(b"}")
    }

    /// The rest of the object.
    pub(super) fn end(&mut self, writer: &mut dyn Write, report: &Report, show: &Show) -> io::Result<()> {
        writer.write_all(match (self.states, show.moments) {
            (0, false) => b"{\"summary\":".as_slice(),
            (0, true) => b"{\"states\":[],\n\"summary\":",
            _ => b"\n],\n\"summary\":",
        })?;
        serde_json::to_writer(&mut *writer, &Summary::new(report))?;
        writer.write_all(b",\n\"networks\":")?;
        array(writer, show.networks(&report.end).iter().map(Network::from))?;
        if show.flows {
            writer.write_all(b",\n\"flows\":")?;
            array(writer, show.flows(report))?;
        }
        writer.write_all(b",\n\"ignored_by_reason\":")?;
        serde_json::to_writer(
            &mut *writer,
            &object(ignored(report).into_iter().map(|(name, count, _)| (name, count))),
        )?;
        writer.write_all(b",\n\"other_protocols\":")?;
        serde_json::to_writer(&mut *writer, &other_protocols(report))?;
        writer.write_all(b",\n\"counters\":")?;
        serde_json::to_writer(&mut *writer, &object(report.counters.named()))?;
        writer.write_all(b",\n\"files\":")?;
        array(writer, report.files.iter().map(file))?;
        writeln!(writer, ",\n\"expired\":{}}}", report.expired)
    }
}

/// Frames without IP or TCP by the well-known protocol that they hold.
fn other_protocols(report: &Report) -> Map<String, Value> {
    let counts = report.counters.other_protocols().filter(|(_, count)| *count > 0);
    counts.map(|(protocol, count)| (protocol.number.to_string(), count.into())).collect()
}

/// The columns of a row, and what is no single value.
#[derive(Serialize)]
struct Network<'a> {
    #[serde(flatten)]
    row: &'a NetworkRow,
    no_estimate_message: Option<&'a str>,
    opening: Option<&'a OpeningDocument>,
    compared: &'a [ComparedDocument],
}

impl<'a> From<&'a NetworkRow> for Network<'a> {
    fn from(row: &'a NetworkRow) -> Self {
        Self {
            row,
            no_estimate_message: row.no_estimate_message.as_deref(),
            opening: row.opening.as_ref(),
            compared: &row.compared,
        }
    }
}

fn array(writer: &mut dyn Write, rows: impl IntoIterator<Item = impl Serialize>) -> io::Result<()> {
    let mut separator = "[\n";
    for row in rows {
        writer.write_all(separator.as_bytes())?;
        serde_json::to_writer(&mut *writer, &row)?;
        separator = ",\n";
    }
    writer.write_all(if separator == "[\n" { b"[]" } else { b"\n]" })
}

fn object(counts: impl IntoIterator<Item = (&'static str, u64)>) -> Map<String, Value> {
    counts.into_iter().map(|(name, count)| (name.to_owned(), Value::from(count))).collect()
}

#[derive(Serialize)]
struct FileRow<'a> {
    file: &'a str,
    packets: u64,
    fault: Option<String>,
}

fn file(file: &FileReport) -> FileRow<'_> {
    FileRow { file: &file.name, packets: file.stats.packets, fault: file.fault() }
}
