//! Tables for people. The width follows the content, never the terminal, so that two runs give the same bytes.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use spand_proto::units::{Bytes, Micros, Timestamp};

use super::{ignored, inputs};
use crate::replay::{FlowRow, NetworkRow, Report, State};

/// What stands where there is no value.
const NONE: &str = "–";
/// One line under the header, nothing else: what a person reads, `awk` can read too.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// The networks at one moment.
pub(super) fn state(writer: &mut dyn Write, state: &State, mss: Option<Bytes>) -> io::Result<()> {
    writeln!(writer, "Networks at {}", utc(state.at))?;
    networks(writer, state, mss)?;
    writeln!(writer)
}

/// Connections where asked for, the networks at the end, and what was ignored.
pub(super) fn end(
    writer: &mut dyn Write,
    report: &Report,
    mss: Option<Bytes>,
    with_flows: bool,
    with_networks: bool,
) -> io::Result<()> {
    if with_flows {
        writeln!(writer, "Connections, one row per direction that carried data")?;
        flows(writer, report)?;
        writeln!(writer)?;
    }
    if with_networks {
        state(writer, &report.end, mss)?;
    }
    if report.gone > 0 {
        let gone = report.gone;
        writeln!(writer, "{gone} more had an estimate that expired before the end: --at and --every show them.\n")?;
    }
    let counters = &report.counters;
    let duration = report.span.map_or(Micros(0), |(first, last)| last.since(first));
    writeln!(
        writer,
        "{} frames, {} TCP segments, {} connections in {:.3} s",
        counters.frames,
        counters.segments,
        counters.connections,
        duration.as_secs_f64()
    )?;
    let mut table = new_table(&["ignored", "count"], 1);
    for (reason, count) in ignored(report).into_iter().filter(|&(_, count)| count > 0) {
        table.add_row([reason.to_owned(), count.to_string()]);
    }
    if table.is_empty() {
        return writeln!(writer, "Nothing was ignored.");
    }
    writeln!(writer, "{}", table.trim_fmt())
}

fn networks(writer: &mut dyn Write, state: &State, mss: Option<Bytes>) -> io::Result<()> {
    if state.networks.is_empty() {
        return writeln!(writer, "none");
    }
    let columns = [
        "network",
        "Wc segments",
        "Wc bytes",
        "MSS",
        "RTT min ms",
        "RTT mean ms",
        "samples",
        "bounds",
        "connections",
        "losses",
        "limited w/r/a",
        "age s",
        "confidence",
        "note",
    ];
    let mut table = new_table(&columns, 1);
    for view in &state.networks {
        let row = NetworkRow::new(view, state.at, mss);
        table.add_row([
            row.prefix,
            cell(row.wc_segments),
            cell(row.wc_bytes),
            cell(row.mss),
            millis(row.rtt_min_ms),
            millis(row.rtt_mean_ms),
            row.samples.to_string(),
            row.lower_bounds.to_string(),
            row.connections.to_string(),
            row.losses.to_string(),
            format!("{}/{}/{}", row.limited_window, row.limited_receiver, row.limited_application),
            row.age_s.map_or(NONE.to_owned(), |age| format!("{age:.0}")),
            row.confidence.map_or(NONE.to_owned(), |confidence| format!("{confidence:.2}")),
            row.no_estimate.unwrap_or_default().replace('_', " "),
        ]);
    }
    left_align_last(&mut table);
    writeln!(writer, "{}", table.trim_fmt())
}

fn flows(writer: &mut dyn Write, report: &Report) -> io::Result<()> {
    if report.flows.is_empty() {
        return writeln!(writer, "none");
    }
    let columns = [
        "from",
        "to",
        "packets",
        "unique bytes",
        "retx packets",
        "retx bytes",
        "hole fills",
        "RTT n",
        "min ms",
        "mean ms",
        "max ms",
        "flight max",
        "samples",
        "limited by",
    ];
    let mut table = new_table(&columns, 2);
    let files = inputs(report);
    for flow in &report.flows {
        let row = FlowRow::new(flow, &files);
        table.add_row([
            endpoint(row.src, row.sport),
            endpoint(row.dst, row.dport),
            row.pkts.to_string(),
            row.unique_bytes.to_string(),
            (row.retx_pkts + row.synfin_retx_pkts).to_string(),
            row.retx_bytes.to_string(),
            row.holefill_pkts.to_string(),
            row.rtt_seqack_n.to_string(),
            millis(row.rtt_seqack_min_ms),
            millis(row.rtt_seqack_mean_ms),
            millis(row.rtt_seqack_max_ms),
            row.flight_max_bytes.to_string(),
            flow.samples.len().to_string(),
            row.limited_by.to_owned(),
        ]);
    }
    left_align_last(&mut table);
    writeln!(writer, "{}", table.trim_fmt())
}

/// A table whose first `names` columns are text; numbers after them stand right.
fn new_table(columns: &[&str], names: usize) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_content_arrangement(ContentArrangement::Disabled).force_no_tty().set_header(columns.iter().copied());
    for column in table.column_iter_mut().skip(names) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn left_align_last(table: &mut Table) {
    if let Some(column) = table.column_iter_mut().last() {
        column.set_cell_alignment(CellAlignment::Left);
    }
}

fn cell(value: Option<impl ToString>) -> String {
    value.map_or(NONE.to_owned(), |value| value.to_string())
}

fn millis(value: Option<f64>) -> String {
    value.map_or(NONE.to_owned(), |ms| format!("{ms:.3}"))
}

fn endpoint(address: std::net::IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(address, port).to_string()
}

fn utc(at: Timestamp) -> String {
    let since_epoch = std::time::Duration::from_nanos(at.0);
    humantime::format_rfc3339_micros(std::time::UNIX_EPOCH + since_epoch).to_string()
}
