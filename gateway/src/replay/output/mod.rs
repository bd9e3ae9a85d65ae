//! What `replay` prints on standard output, in one of three forms.

mod csv;
mod json;
mod table;

use std::io::{self, Write};

use spand_core::counters::Ignored;
use spand_proto::units::Bytes;

use super::{FileReport, Format, Outcome, Report, State};
use json::Json;
use strum::VariantArray;

/// Writes the states on the way and the report at the end.
#[derive(Debug)]
pub struct Output<W: Write> {
    writer: W,
    form: Form,
    mss: Option<Bytes>,
    flows: bool,
    /// States were asked for on the way, so csv and table do not repeat the end.
    moments: bool,
}

#[derive(Debug)]
enum Form {
    Table,
    Json(Json),
    Csv { header_written: bool },
}

impl<W: Write> Output<W> {
    /// An output in `format`; `flows`: with the rows of connections; `moments`: states come on the way.
    pub fn new(writer: W, format: Format, mss: Option<Bytes>, flows: bool, moments: bool) -> Self {
        let form = match format {
            Format::Table => Form::Table,
            Format::Json => Form::Json(Json::default()),
            Format::Csv => Form::Csv { header_written: false },
        };
        Self { writer, form, mss, flows, moments }
    }

    /// Writes the state at a moment on the way.
    pub fn state(&mut self, state: &State) -> io::Result<()> {
        match &mut self.form {
            Form::Table => table::state(&mut self.writer, state, self.mss),
            Form::Json(json) => json.state(&mut self.writer, state, self.mss),
            Form::Csv { header_written } => {
                let first = !std::mem::replace(header_written, true);
                csv::state(&mut self.writer, state, self.mss, first)
            }
        }
    }

    /// Writes what was found by the end.
    pub fn end(&mut self, report: &Report) -> io::Result<()> {
        match &mut self.form {
            Form::Table => table::end(&mut self.writer, report, self.mss, self.flows, !self.moments)?,
            Form::Json(json) => json.end(&mut self.writer, report, self.mss, self.flows, self.moments)?,
            Form::Csv { .. } if self.flows => csv::flows(&mut self.writer, report)?,
            Form::Csv { header_written: false } if self.moments => csv::no_state(&mut self.writer)?,
            Form::Csv { .. } if self.moments => {}
            Form::Csv { .. } => csv::state(&mut self.writer, &report.end, self.mss, true)?,
        }
        self.writer.flush()
    }
}

/// What was ignored, by reason, in a stable order; the files' own faults first.
pub(super) fn ignored(report: &Report) -> Vec<(&'static str, u64)> {
    let sum = |count: fn(&FileReport) -> u64| report.files.iter().map(count).sum();
    let mut all = vec![
        ("unreadable_record", sum(|file| file.stats.unreadable)),
        ("untimed_record", sum(|file| file.stats.untimed)),
    ];
    all.extend(Ignored::VARIANTS.iter().map(|reason| (reason.name(), report.counters.ignored(*reason))));
    all
}

/// The files that were opened, in the order by which the engine numbers its inputs.
pub(super) fn inputs(report: &Report) -> Vec<&FileReport> {
    report.files.iter().filter(|file| !matches!(file.outcome, Outcome::Unreadable(_))).collect()
}
