//! Tables for people: the summary, networks, connections, and what was ignored.

use std::io::{self, Write};

use indicatif::DecimalBytes;
use spand_proto::units::Timestamp;

use super::fit::{Column, NONE, fitted, text};
use super::{Show, ignored, other_protocols, summary};
use crate::names::in_short;
use crate::opening::{ComparedDocument, OpeningDocument};
use crate::replay::{FlowRow, NetworkRow, Report, State};

/// What has been written so far.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// A table had no room for all of its columns.
    left_out: bool,
}

const NETWORK_COLUMNS: [Column; 23] = [
    Column::text("network", 0),
    Column::text("name", 4),
    Column::number("bytes", 1),
    Column::number("Mbit/s", 4),
    Column::number("retx\n%", 5),
    Column::number("share\nsegs", 2),
    Column::number("share\nbytes", 10),
    Column::number("MSS", 14),
    Column::number("RTT min\nms", 3),
    Column::number("RTT mean\nms", 9),
    Column::number("samples", 6),
    Column::number("lower\nbounds", 7),
    Column::number("data\nconns", 8),
    Column::number("sample\nconns", 15),
    Column::number("loss\nevents", 11),
    Column::number("limited\nw/r/a", 13),
    Column::number("age\ns", 16),
    Column::number("confi-\ndence", 19),
    Column::number("out\nMbit/s", 17),
    Column::number("in\nMbit/s", 12),
    Column::number("in loss\n%", 18),
    Column::text("opening\nsegs", 8),
    Column::text("no estimate\nor mark", 0),
];

const FLOW_COLUMNS: [Column; 18] = [
    Column::breaking("from"),
    Column::breaking("to"),
    Column::number("bytes", 1),
    Column::number("Mbit/s", 3),
    Column::number("retx\n%", 4),
    Column::text("cong.\ncontrol", 2),
    Column::number("RTT min\nms", 5),
    Column::number("mean\nms", 8),
    Column::number("max\nms", 11),
    Column::number("RTT\nn", 14),
    Column::number("flight max\nbytes", 10),
    Column::number("samples", 7),
    Column::number("loss\nevents", 9),
    Column::number("timeouts", 12),
    Column::number("packets", 13),
    Column::number("retx\npackets", 15),
    Column::number("hole\nfills", 16),
    Column::text("limited by", 6),
];

impl Tables {
    /// The networks at a moment on the way.
    pub(super) fn state(&mut self, writer: &mut dyn Write, state: &State, show: &Show) -> io::Result<()> {
        self.networks(writer, state.at, &show.networks(state), show)
    }

    /// The summary, the networks at the end, connections where asked for, and what was ignored. Nothing where no file gave
    /// a packet: the reason is an error or a warning.
    pub(super) fn end(&mut self, writer: &mut dyn Write, report: &Report, show: &Show) -> io::Result<()> {
        if !report.files.is_empty() && report.files.iter().all(crate::replay::FileReport::gave_nothing) {
            return Ok(());
        }
        summary::write(writer, report, show.width)?;
        if report.span.is_none() {
            return Ok(());
        }
        if !show.moments {
            self.networks(writer, report.end.at, &show.all_networks(&report.end), show)?;
        }
        if show.flows {
            writeln!(writer, "Connections, one row per direction that carried data")?;
            self.flows(writer, &show.flows(report), show)?;
        }
        let ignored = ignored(report).into_iter().filter(|&(_, count, _)| count > 0);
        let columns = [Column::text("ignored", 0), Column::number("count", 0), Column::breaking("meaning")];
        let (table, _) = fitted(
            &columns,
            ignored.map(|(reason, count, meaning)| [reason.to_owned(), count.to_string(), meaning.to_owned()]),
            show.width,
        );
        if table.is_empty() {
            writeln!(writer, "Nothing was ignored.")?;
        } else {
            writeln!(writer, "{}", text(&table))?;
        }
        for line in other_protocols(report) {
            writeln!(writer, "{line}")?;
        }
        match show.width.limit() {
            Some(limit) if self.left_out => {
                writeln!(writer, "\nSome columns do not fit {limit} characters: --wide shows all.")
            }
            _ => Ok(()),
        }
    }

    fn networks(&mut self, writer: &mut dyn Write, at: Timestamp, rows: &[NetworkRow], show: &Show) -> io::Result<()> {
        writeln!(writer, "Networks at {}", utc(at))?;
        if rows.is_empty() {
            return writeln!(writer, "none\n");
        }
        let (table, left_out) = fitted(&NETWORK_COLUMNS, rows.iter().map(network), show.width);
        self.left_out |= left_out;
        writeln!(writer, "{}\n", text(&table))
    }

    fn flows(&mut self, writer: &mut dyn Write, rows: &[FlowRow<'_>], show: &Show) -> io::Result<()> {
        if rows.is_empty() {
            return writeln!(writer, "none\n");
        }
        let (table, left_out) = fitted(&FLOW_COLUMNS, rows.iter().map(flow), show.width);
        self.left_out |= left_out;
        writeln!(writer, "{}\n", text(&table))
    }
}

fn network(row: &NetworkRow) -> [String; 23] {
    [
        row.prefix.clone(),
        row.name.as_deref().or(row.as_organisation.as_deref()).map_or(NONE.to_owned(), in_short),
        bytes(row.unique_bytes),
        megabits(row.throughput_bps),
        percent(row.retransmitted_pct),
        format!("{}{}", if row.is_lower_bound == Some(true) { "≥" } else { "" }, cell(row.wc_segments)),
        cell(row.wc_bytes),
        cell(row.mss),
        millis(row.rtt_min_ms),
        millis(row.rtt_mean_ms),
        row.samples.to_string(),
        row.lower_bounds.to_string(),
        row.data_connections.to_string(),
        row.connections.to_string(),
        row.losses.to_string(),
        format!("{}/{}/{}", row.limited_window, row.limited_receiver, row.limited_application),
        row.age_s.map_or(NONE.to_owned(), |age| format!("{age:.0}")),
        row.confidence.map_or(NONE.to_owned(), |confidence| format!("{confidence:.2}")),
        megabits(row.out_bps),
        megabits(row.in_bps),
        percent(row.in_loss.map(|part| part * 100.0)),
        openings(row),
        row.no_sample
            .or(row.no_estimate)
            .filter(|_| row.wc_segments.is_none())
            .or(row.mark)
            .unwrap_or_default()
            .replace('_', " "),
    ]
}

/// The opening in force and those compared with it, each with its rule.
fn openings(row: &NetworkRow) -> String {
    let in_force = row.opening.iter().map(OpeningDocument::in_short);
    let all: Vec<_> = in_force.chain(row.compared.iter().map(ComparedDocument::in_short)).collect();
    if all.is_empty() { NONE.to_owned() } else { all.join(", ") }
}

fn flow(row: &FlowRow<'_>) -> [String; 18] {
    let samples = if row.window_samples.is_empty() { 0 } else { row.window_samples.split(';').count() };
    [
        endpoint(row.src, row.sport),
        endpoint(row.dst, row.dport),
        bytes(row.unique_bytes),
        megabits(row.throughput_bps),
        percent(row.retransmitted_pct),
        row.congestion_control.to_owned(),
        millis(row.rtt_seqack_min_ms),
        millis(row.rtt_seqack_mean_ms),
        millis(row.rtt_seqack_max_ms),
        row.rtt_seqack_n.to_string(),
        row.flight_max_bytes.to_string(),
        samples.to_string(),
        row.loss_events.to_string(),
        row.timeouts.to_string(),
        row.pkts.to_string(),
        (row.retx_pkts + row.synfin_retx_pkts).to_string(),
        row.holefill_pkts.to_string(),
        row.limited_by.to_owned(),
    ]
}

pub(super) fn bytes(bytes: u64) -> String {
    DecimalBytes(bytes).to_string()
}

/// Three places, which a kilobit is.
pub(super) fn megabits(bits: Option<u64>) -> String {
    bits.map_or(NONE.to_owned(), |bits| format!("{:.3}", bits as f64 / 1e6))
}

pub(super) fn percent(percent: Option<f64>) -> String {
    percent.map_or(NONE.to_owned(), |percent| format!("{percent:.2}"))
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

pub(super) fn utc(at: Timestamp) -> String {
    let since_epoch = std::time::Duration::from_nanos(at.0);
    humantime::format_rfc3339_micros(std::time::UNIX_EPOCH + since_epoch).to_string()
}
