//! JSON: one object, written as it comes, one line per row so that two outputs can be compared by line.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value, json};
use spand_proto::units::Bytes;

use super::{ignored, inputs};
use crate::replay::row::seconds;
use crate::replay::{FileReport, FlowRow, NetworkRow, Report, State};

/// What has been written so far.
#[derive(Debug, Default)]
pub(super) struct Json {
    states: u64,
}

impl Json {
    /// One element of `states`.
    pub(super) fn state(&mut self, writer: &mut dyn Write, state: &State, mss: Option<Bytes>) -> io::Result<()> {
        writer.write_all(if self.states == 0 { b"{\"states\":[\n" } else { b",\n" })?;
        self.states += 1;
        write!(writer, "{{\"time\":\"{}\",\"networks\":", seconds(state.at))?;
        array(writer, networks(state, mss))?;
        writer.write_all(b"}")
    }

    /// The rest of the object.
    pub(super) fn end(
        &mut self,
        writer: &mut dyn Write,
        report: &Report,
        mss: Option<Bytes>,
        flows: bool,
        moments: bool,
    ) -> io::Result<()> {
        writer.write_all(match (self.states, moments) {
            (0, false) => b"{\"networks\":".as_slice(),
            (0, true) => b"{\"states\":[],\n\"networks\":",
            _ => b"\n],\n\"networks\":",
        })?;
        array(writer, networks(&report.end, mss))?;
        if flows {
            writer.write_all(b",\n\"flows\":")?;
            let files = inputs(report);
            array(writer, report.flows.iter().map(|flow| FlowRow::new(flow, &files)))?;
        }
        writer.write_all(b",\n\"ignored\":")?;
        serde_json::to_writer(&mut *writer, &object(&ignored(report)))?;
        writer.write_all(b",\n\"counters\":")?;
        serde_json::to_writer(&mut *writer, &object(&report.counters.named()))?;
        writer.write_all(b",\n\"files\":")?;
        array(writer, report.files.iter().map(file))?;
        let (first, last) = report.span.unzip();
        let rest = json!({ "first_time": first.map(seconds), "last_time": last.map(seconds), "expired": report.gone });
        let rest = rest.to_string();
        writeln!(writer, ",\n{}", rest.strip_prefix('{').unwrap_or(&rest))
    }
}

fn networks(state: &State, mss: Option<Bytes>) -> impl Iterator<Item = NetworkRow> {
    state.networks.iter().map(move |view| NetworkRow::new(view, state.at, mss))
}

fn array(writer: &mut dyn Write, rows: impl Iterator<Item = impl Serialize>) -> io::Result<()> {
    let mut separator = "[\n";
    for row in rows {
        writer.write_all(separator.as_bytes())?;
        serde_json::to_writer(&mut *writer, &row)?;
        separator = ",\n";
    }
    writer.write_all(if separator == "[\n" { b"[]" } else { b"\n]" })
}

fn object(counts: &[(&'static str, u64)]) -> Map<String, Value> {
    counts.iter().map(|&(name, count)| (name.to_owned(), Value::from(count))).collect()
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
