//! The summary above the tables.

use std::io::{self, Write};

use spand_proto::no_estimate::Reason;
use spand_proto::operator::printable;

use super::fit::{Column, Width, fitted, named, text};
use super::table::{bytes, megabits, percent, utc};
use crate::replay::{Report, SenderRow, Summary};

/// The longest name of a row.
const LONGEST_NAME: &str = "Connections";
/// Files that are named; of more, how many there are.
const FILES_NAMED: usize = 3;

const SENDER_COLUMNS: [Column; 6] = [
    Column::text("largest senders", 0),
    Column::number("bytes", 0),
    Column::number("Mbit/s", 2),
    Column::number("retx\n%", 3),
    Column::number("data\nconns", 4),
    Column::text("cong.\ncontrol", 1),
];

pub(super) fn write(writer: &mut dyn Write, report: &Report, width: Width) -> io::Result<()> {
    let summary = Summary::new(report);
    writeln!(writer, "{}\n", text(&named(rows(report, &summary, width).into_iter(), width)))?;
    if summary.largest_senders.is_empty() {
        return Ok(());
    }
    let (table, _) = fitted(&SENDER_COLUMNS, summary.largest_senders.iter().map(sender), width);
    writeln!(writer, "{}\n", text(&table))
}

fn rows(report: &Report, summary: &Summary, width: Width) -> Vec<(&'static str, String)> {
    let mut rows = vec![("Files", files(report, width))];
    let Some((first, last)) = report.span else {
        rows.push(("Packets", "none".to_owned()));
        return rows;
    };
    let (first, last) = (utc(first), utc(last));
    rows.push(("Time", format!("{first} to\n{last} ({})", duration(summary.duration_s))));
    let (packets, segments) = (summary.packets, summary.tcp_segments);
    rows.push(("Packets", format!("{packets}, {} on the wire; {segments} TCP segments", bytes(summary.wire_bytes))));
    rows.push((LONGEST_NAME, connections(summary)));
    rows.push(("Networks", networks(report, summary)));
    if summary.both_ends_followed {
        let note = "both ends of every connection are followed; --internal PREFIX, your own side (such as \
                    --internal 192.0.2.0/24), follows only its senders";
        rows.push(("Note", note.to_owned()));
    }
    rows
}

fn files(report: &Report, width: Width) -> String {
    let room = width.beside(LONGEST_NAME);
    let names: Vec<_> = report.files.iter().map(|file| folded(&file.name, room)).collect();
    let rest = names.len().saturating_sub(FILES_NAMED);
    let named = names.get(..FILES_NAMED).unwrap_or(&names).join("\n");
    if rest == 0 { named } else { format!("{named}\nand {rest} more") }
}

/// A path in lines of at most `room` characters, broken behind folders.
fn folded(path: &str, room: usize) -> String {
    let mut text = String::new();
    let mut length = 0;
    for part in printable(path).split_inclusive('/') {
        let more = part.chars().count();
        if length > 0 && length + more > room {
            text.push('\n');
            length = 0;
        }
        text.push_str(part);
        length += more;
    }
    text
}

fn connections(summary: &Summary) -> String {
    let mut text = summary.connections.to_string();
    let parts = [
        (summary.connections_midstream, "began before the capture"),
        (summary.connections_one_sided, "have only one direction in it"),
    ];
    let parts: Vec<_> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if !parts.is_empty() {
        text = format!("{text}, of which {}", parts.join(", "));
    }
    if summary.connections > 0 && summary.largest_senders.is_empty() {
        let whose = if summary.both_ends_followed { "" } else { " of a sender that is followed" };
        text = format!("{text}\nnone carried data{whose}: there is nothing to estimate from");
    }
    text
}

/// How many have an estimate, and a line for each reason why the others have none, the commonest first.
fn networks(report: &Report, summary: &Summary) -> String {
    let (with, without) = (summary.networks_with_estimate, summary.networks_without_estimate);
    let mut lines = vec![format!("{with} with an estimate, {without} without{}", if without > 0 { ":" } else { "" })];
    let mut reasons: Vec<_> = summary.no_estimate_by_reason.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    lines.extend(reasons.iter().map(|(reason, count)| format!("{count} {}", meaning(**reason, summary))));
    lines.extend(summary.no_estimate_example.iter().map(|(network, why)| format!("such as {network}: {why}")));
    if report.expired > 0 {
        let expired = report.expired;
        lines.push(format!("{expired} of them had one that expired before the end: --at and --every show it"));
    }
    lines.join("\n")
}

fn meaning(reason: Reason, summary: &Summary) -> String {
    let (samples, connections) = (summary.min_samples, summary.min_connections);
    let text = match reason {
        Reason::TooFewSamples => return format!("with fewer than {samples} window samples (--min-samples)"),
        Reason::TooFewConnections => {
            return format!("with window samples of fewer than {connections} connections (--min-connections)");
        }
        Reason::AppLimited => "with lower bounds only: the application limited the senders",
        Reason::ReceiverLimited => "with lower bounds only: the receiver's window limited the senders",
        Reason::OneSided => "with only one direction in the capture",
        Reason::Midstream => "with connections that began before the capture",
        Reason::SlowStartLoss => "with packet loss in slow start, which gives no sample",
        Reason::SlowStartEnd => "with lower bounds only: transfers ended in slow start",
        Reason::UnknownControl => "with losses of senders whose congestion control is not known",
        Reason::Timeout => "with retransmission timeouts, which give no sample",
        Reason::Unfinished => "with transfers that were not over by the end of the capture",
        Reason::Untimed => "with packet records that hold no time",
        Reason::Unordered => "with packet records out of order in time",
        Reason::OutsideWindow => "with samples older than the window, which ends with the capture (--at, --every)",
        Reason::Expired => "with samples older than the age limit",
        Reason::NothingSeen => "of which no transfer was seen",
    };
    text.to_owned()
}

fn sender(row: &SenderRow) -> [String; 6] {
    [
        row.src.to_string(),
        bytes(row.unique_bytes),
        megabits(row.throughput_bps),
        percent(row.retransmitted_pct),
        row.connections.to_string(),
        row.congestion_control.to_owned(),
    ]
}

fn duration(seconds: f64) -> String {
    let whole = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
    if whole.as_secs() < 60 {
        format!("{seconds:.3} s")
    } else {
        humantime::format_duration(std::time::Duration::from_secs(whole.as_secs())).to_string()
    }
}
