//! What `replay` prints on standard output, in one of three forms.

mod csv;
pub(crate) mod fit;
mod json;
mod summary;
mod table;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io::{self, Write};

use clap::ValueEnum;
use spand_core::counters::{Content, Ignored};
use spand_proto::units::Bytes;

use super::{FileReport, FlowRow, Format, Names, NetworkRow, Outcome, Report, State};
use crate::other_protocols::Named;
pub use fit::Width;
use json::Json;
use strum::VariantArray;

/// What to show, and how.
#[derive(Debug)]
pub struct Show {
    /// Form of the output.
    pub format: Format,
    /// Segment size to count shares in; without one it is that of the samples.
    pub mss: Option<Bytes>,
    /// With the rows of connections.
    pub flows: bool,
    /// States come on the way, so csv and table do not repeat the end.
    pub moments: bool,
    /// Order of the rows; without one, by bytes in the table and none in the other forms.
    pub sort: Option<Sort>,
    /// Room for a table.
    pub width: Width,
    /// What networks are called.
    pub names: Names,
}

/// Order of the rows, the largest first.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Sort {
    /// Payload bytes, each once.
    Bytes,
    /// Throughput while a transfer was under way.
    Throughput,
    /// Part of the packets that were retransmissions.
    Retransmitted,
    /// Networks by prefix, connections by first packet.
    None,
}

impl Show {
    fn sort(&self) -> Sort {
        self.sort.unwrap_or(if self.format == Format::Table { Sort::Bytes } else { Sort::None })
    }

    /// The networks that the window holds something of.
    fn networks(&self, state: &State) -> Vec<NetworkRow> {
        let views = state.networks.iter();
        let rows = views.map(|view| {
            let traffic = state.traffic.get(&view.network);
            NetworkRow::new(view, traffic, (state.began, state.at), self.mss).named(self.names.of(view.network))
        });
        let mut rows: Vec<_> = rows.collect();
        self.order(&mut rows);
        rows
    }

    /// Those, and at the end the ones that it holds nothing of any more.
    fn all_networks(&self, state: &State) -> Vec<NetworkRow> {
        let inside: BTreeSet<_> = state.networks.iter().map(|view| view.network).collect();
        let mut rows = self.networks(state);
        let others = state.traffic.iter().filter(|(network, _)| !inside.contains(network));
        rows.extend(others.map(|(&network, traffic)| {
            NetworkRow::outside_window(network, traffic, state.at).named(self.names.of(network))
        }));
        self.order(&mut rows);
        rows
    }

    fn flows<'a>(&self, report: &'a Report) -> Vec<FlowRow<'a>> {
        let files = inputs(report);
        let mut rows: Vec<_> = report.flows.iter().filter_map(|flow| FlowRow::new(flow, &files)).collect();
        self.order(&mut rows);
        rows
    }

    /// Stable, so that what is equal stays by prefix or first packet.
    fn order(&self, rows: &mut [impl Sized + Ordered]) {
        match self.sort() {
            Sort::Bytes => rows.sort_by_key(|row| Reverse(row.bytes())),
            Sort::Throughput => rows.sort_by_key(|row| Reverse(row.throughput_bps())),
            Sort::Retransmitted => rows.sort_by(|a, b| b.retransmitted_pct().total_cmp(&a.retransmitted_pct())),
            Sort::None => {}
        }
    }
}

/// What rows are ordered by.
trait Ordered {
    fn bytes(&self) -> u64;
    fn throughput_bps(&self) -> Option<u64>;
    /// Below 0 where it is not known.
    fn retransmitted_pct(&self) -> f64;
}

macro_rules! ordered {
    ($row:ty) => {
        impl Ordered for $row {
            fn bytes(&self) -> u64 {
                self.unique_bytes
            }

            fn throughput_bps(&self) -> Option<u64> {
                self.throughput_bps
            }

            fn retransmitted_pct(&self) -> f64 {
                self.retransmitted_pct.unwrap_or(-1.0)
            }
        }
    };
}

ordered!(NetworkRow);
ordered!(FlowRow<'_>);

/// Writes the states on the way and the report at the end.
#[derive(Debug)]
pub struct Output<W: Write> {
    writer: W,
    show: Show,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Table(table::Tables),
    Json(Json),
    Csv { header_written: bool },
}

impl<W: Write> Output<W> {
    /// An output of what `show` says.
    pub fn new(writer: W, show: Show) -> Self {
        let form = match show.format {
            Format::Table => Form::Table(table::Tables::default()),
            Format::Json => Form::Json(Json::default()),
            Format::Csv => Form::Csv { header_written: false },
        };
        Self { writer, show, form }
    }

    /// Writes the state at a moment on the way.
    pub fn state(&mut self, state: &State) -> io::Result<()> {
        match &mut self.form {
            Form::Table(tables) => tables.state(&mut self.writer, state, &self.show),
            Form::Json(json) => json.state(&mut self.writer, state, &self.show),
            Form::Csv { header_written } => {
                let first = !std::mem::replace(header_written, true);
                csv::state(&mut self.writer, state, &self.show, first)
            }
        }
    }

    /// Writes what was found by the end.
    pub fn end(&mut self, report: &Report) -> io::Result<()> {
        let show = &self.show;
        match &mut self.form {
            Form::Table(tables) => tables.end(&mut self.writer, report, show)?,
            Form::Json(json) => json.end(&mut self.writer, report, show)?,
            Form::Csv { .. } if show.flows => csv::flows(&mut self.writer, report, show)?,
            Form::Csv { header_written: false } if show.moments => csv::no_state(&mut self.writer)?,
            Form::Csv { .. } if show.moments => {}
            Form::Csv { .. } => csv::state(&mut self.writer, &report.end, show, true)?,
        }
        self.writer.flush()
    }
}

/// What was ignored, by reason, in a stable order; the files' own faults first.
pub(super) fn ignored(report: &Report) -> Vec<(&'static str, u64, &'static str)> {
    let sum = |count: fn(&FileReport) -> u64| report.files.iter().map(count).sum();
    let mut all = vec![
        ("unreadable_record", sum(|file| file.stats.unreadable), "Record: not readable as a packet."),
        (
            "unordered_record",
            sum(|file| file.stats.backwards),
            "Record: earlier than one before it; put in order within a second, beyond that late (time_backwards).",
        ),
        ("untimed_record", sum(|file| file.stats.untimed), "Record: has no time."),
        (
            "no_room_traffic",
            report.no_room_traffic,
            "Direction: beyond the limit of networks or senders of the summary.",
        ),
    ];
    all.extend(
        Ignored::VARIANTS.iter().map(|reason| (reason.name(), report.counters.ignored(*reason), reason.meaning())),
    );
    all
}

/// Which well-known protocols packets were that are neither IP nor TCP, a line each.
pub(super) fn other_protocols(report: &Report) -> Vec<String> {
    let counters = &report.counters;
    let named = Named::of(counters.frames, |reason| counters.ignored(reason), counters.other_protocols());
    named
        .iter()
        .map(|named| match named.protocol.content {
            Content::Tunnel(kind) => format!("{named}: --tunnels all,{}:{} looks into it", kind.name(), named.port()),
            _ => named.with_advice(),
        })
        .collect()
}

/// The files that were opened, in the order by which the engine numbers its inputs.
fn inputs(report: &Report) -> Vec<&FileReport> {
    report.files.iter().filter(|file| !matches!(file.outcome, Outcome::Unreadable(_))).collect()
}
