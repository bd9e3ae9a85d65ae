//! Comma-separated values (RFC 4180): one table, a header, nothing else.

use std::io::{self, Write};

use csv::{ReaderBuilder, Writer, WriterBuilder};
use serde::Serialize;
use spand_proto::operator::printable;

use super::Show;
use crate::replay::{Report, State};

/// The networks of one state; `header` with the first one.
pub(super) fn state(writer: &mut dyn Write, state: &State, show: &Show, header: bool) -> io::Result<()> {
    if header {
        no_state(writer)?;
    }
    rows(writer, show.networks(state))
}

/// Only the header of the networks.
pub(super) fn no_state(writer: &mut dyn Write) -> io::Result<()> {
    let mut csv = table(writer);
    csv.write_record(NETWORK_COLUMNS)?;
    csv.flush()
}

/// The directions that carried data.
pub(super) fn flows(writer: &mut dyn Write, report: &Report, show: &Show) -> io::Result<()> {
    table(&mut *writer).write_record(FLOW_COLUMNS)?;
    rows(writer, show.flows(report))
}

fn rows(writer: &mut dyn Write, rows: impl IntoIterator<Item = impl Serialize>) -> io::Result<()> {
    let mut csv = table(writer);
    for row in rows {
        let mut one = table(Vec::new());
        one.serialize(row).map_err(into_io)?;
        let one = one.into_inner().map_err(csv::IntoInnerError::into_error)?;
        let mut fields = ReaderBuilder::new().has_headers(false).from_reader(one.as_slice());
        for record in fields.records() {
            csv.write_record(record.map_err(into_io)?.iter().map(inert))?;
        }
    }
    csv.flush()
}

/// A field that acts on no terminal and, by the apostrophe that spreadsheets take for it, is no formula there.
fn inert(field: &str) -> String {
    let text = printable(field);
    let is_formula = text.starts_with(['=', '+', '-', '@']) && text.parse::<f64>().is_err();
    if is_formula { format!("'{text}") } else { text }
}

/// The header is written apart, since a table without rows has one too.
fn table<W: Write>(writer: W) -> Writer<W> {
    WriterBuilder::new().has_headers(false).from_writer(writer)
}

fn into_io(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        _ => io::Error::other("a row cannot be written as csv"),
    }
}

/// Columns of [`crate::replay::NetworkRow`], in order.
pub(super) const NETWORK_COLUMNS: [&str; 35] = [
    "prefix",
    "wc_segments",
    "wc_bytes",
    "mss",
    "rtt_min_ms",
    "rtt_mean_ms",
    "samples",
    "connections",
    "losses",
    "age_s",
    "confidence",
    "rule",
    "lower_bounds",
    "limited_window",
    "limited_receiver",
    "limited_application",
    "no_estimate",
    "time",
    "unique_bytes",
    "throughput_bps",
    "retransmitted_pct",
    "data_connections",
    "no_sample",
    "buffer_bytes",
    "is_lower_bound",
    "out_bytes",
    "out_bps",
    "out_loss",
    "in_bytes",
    "in_bps",
    "in_loss",
    "name",
    "as_number",
    "as_organisation",
    "mark",
];

/// Columns of [`crate::replay::FlowRow`], in order.
pub(super) const FLOW_COLUMNS: [&str; 34] = [
    "file",
    "src",
    "sport",
    "dst",
    "dport",
    "pkts",
    "data_pkts",
    "payload_bytes",
    "unique_bytes",
    "retx_pkts",
    "retx_bytes",
    "synfin_retx_pkts",
    "holefill_pkts",
    "rtt_seqack_n",
    "rtt_seqack_min_ms",
    "rtt_seqack_mean_ms",
    "rtt_seqack_max_ms",
    "rtt_ts_n",
    "rtt_ts_min_ms",
    "rtt_ts_mean_ms",
    "flight_max_bytes",
    "limited_by",
    "window_samples",
    "rtt_ts_max_ms",
    "duplicate_pkts",
    "loss_events",
    "timeouts",
    "first_time",
    "last_time",
    "connection",
    "congestion_control",
    "active_s",
    "throughput_bps",
    "retransmitted_pct",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_acts_on_no_terminal_and_is_no_formula() {
        let mut written = Vec::new();
        rows(&mut written, [("=cmd()|x", "a\u{1b}[2J\u{9b}", "-0.5", "@a", "a,\"b\"")]).unwrap();
        let written = String::from_utf8(written).unwrap();
        assert_eq!(written, "'=cmd()|x,a\u{fffd}[2J\u{fffd},-0.5,'@a,\"a,\"\"b\"\"\"\n");
    }
}
