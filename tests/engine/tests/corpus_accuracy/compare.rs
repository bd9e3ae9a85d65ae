//! Our directions beside the reference's.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use spand_core::flow::report::{DirectionDetails, DirectionReport};
use spand_core::wire::segment::Endpoint;

use crate::corpus::Row;

/// tcptrace prints tenths of a millisecond.
const TOLERANCE_MS: f64 = 0.1 + 1e-9;

/// How many of how many agree, and how many should.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) name: &'static str,
    pub(crate) agree: usize,
    pub(crate) of: usize,
    pub(crate) least_percent: f64,
}

impl Share {
    const fn new(name: &'static str, least_percent: f64) -> Self {
        Self { name, agree: 0, of: 0, least_percent }
    }

    fn count(&mut self, agrees: bool) {
        self.of += 1;
        self.agree += usize::from(agrees);
    }

    pub(crate) fn percent(&self) -> f64 {
        if self.of == 0 { 0.0 } else { 100.0 * self.agree as f64 / self.of as f64 }
    }

    pub(crate) fn is_reached(&self) -> bool {
        self.percent() >= self.least_percent
    }
}

/// A direction in which we and the reference differ.
pub(crate) struct Difference {
    file: String,
    source: Endpoint,
    destination: Endpoint,
    metric: &'static str,
    ours: String,
    theirs: String,
    class: &'static str,
}

impl Difference {
    pub(crate) fn line(&self) -> String {
        let Self { file, source, destination, metric, ours, theirs, class } = self;
        format!(
            "{file}\t{}\t{}\t{}\t{}\t{metric}\t{ours}\t{theirs}\t{class}",
            source.address, source.port, destination.address, destination.port
        )
    }
}

/// Every figure.
pub(crate) struct Figures {
    unique: Share,
    repeated: Share,
    repeated_any: Share,
    tcptrace: Share,
    tcptrace_any: Share,
    flight: Share,
    rtt_there: Share,
    rtt_min: Share,
    rtt_max: Share,
    rtt_min_five: Share,
    rtt_max_five: Share,
    rows_missing: usize,
    rows_extra: usize,
    pub(crate) differences: Vec<Difference>,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            unique: Share::new("unique bytes = interval count", 99.5),
            repeated: Share::new("repeated packets = interval count", 99.5),
            repeated_any: Share::new("  of those with any", 97.0),
            tcptrace: Share::new("repeated packets = tcptrace", 99.4),
            tcptrace_any: Share::new("  of those with any", 92.0),
            flight: Share::new("largest flight = interval count", 99.0),
            rtt_there: Share::new("RTT samples where tcptrace has", 99.0),
            rtt_min: Share::new("RTT min within 0.1 ms", 98.0),
            rtt_max: Share::new("RTT max within 0.1 ms", 95.0),
            rtt_min_five: Share::new("  min, 5 samples or more", 95.0),
            rtt_max_five: Share::new("  max, 5 samples or more", 90.0),
            rows_missing: 0,
            rows_extra: 0,
            differences: Vec::new(),
        }
    }
}

impl Figures {
    /// Compares one file's directions: the n-th of an endpoint pair with the n-th.
    pub(crate) fn compare(&mut self, file: &str, rows: &[Row], reports: &[DirectionReport]) {
        let mut ours: BTreeMap<(Endpoint, Endpoint), std::collections::VecDeque<&DirectionReport>> = BTreeMap::new();
        for report in reports {
            ours.entry((report.source, report.destination)).or_default().push_back(report);
        }
        for row in rows {
            let report = ours.get_mut(&(row.source, row.destination)).and_then(std::collections::VecDeque::pop_front);
            self.compare_row(file, row, report);
        }
        for report in ours.into_values().flatten() {
            self.rows_extra += 1;
            self.differences.push(Difference {
                file: file.to_owned(),
                source: report.source,
                destination: report.destination,
                metric: "row",
                ours: details(report).packets.to_string(),
                theirs: String::new(),
                class: "no such row there",
            });
        }
    }

    fn compare_row(&mut self, file: &str, row: &Row, report: Option<&DirectionReport>) {
        let mut note = |metric, ours: String, theirs: String, class| {
            self.differences.push(Difference {
                file: file.to_owned(),
                source: row.source,
                destination: row.destination,
                metric,
                ours,
                theirs,
                class,
            });
        };
        let Some(report) = report else {
            note("row", String::new(), row.count("pkts").unwrap_or(0).to_string(), "no such row here");
            self.rows_missing += 1;
            if row.count("data_pkts") > Some(0) {
                for share in [&mut self.unique, &mut self.repeated, &mut self.flight] {
                    share.count(false);
                }
            }
            return;
        };
        if row.count("data_pkts") > Some(0) {
            let same_packets = row.count("pkts") == Some(details(report).packets);
            let class = if same_packets { "same packets" } else { "other packets" };
            let mut exact = |share: &mut Share, metric, ours: u64, theirs: Option<u64>| {
                share.count(Some(ours) == theirs);
                if Some(ours) != theirs {
                    note(metric, ours.to_string(), theirs.map_or_else(String::new, |n| n.to_string()), class);
                }
            };
            exact(&mut self.unique, "unique_bytes", report.unique.0, row.count("unique_bytes"));
            exact(&mut self.flight, "flight_max", details(report).flight_max.0, row.count("cov_flight_max"));
            // Both references count a probe of a byte sent before as a repeat.
            let probes = details(report).probe_packets;
            let repeated = report.retransmitted_packets + details(report).synfin_retransmitted_packets + probes;
            exact(&mut self.repeated, "repeated_packets", repeated, row.repeated_packets());
            if row.repeated_packets() > Some(0) || repeated > 0 {
                self.repeated_any.count(Some(repeated) == row.repeated_packets());
            }
            if row.count("tct_pkts") == row.count("pkts") {
                let theirs = row.count("tct_retx_pkts").zip(row.count("tct_zwp")).map(|(again, probes)| again + probes);
                exact(&mut self.tcptrace, "tcptrace_repeated", repeated, theirs);
                if theirs > Some(0) || repeated > 0 {
                    self.tcptrace_any.count(Some(repeated) == theirs);
                }
            }
        }
        self.compare_rtt(file, row, report);
    }

    fn compare_rtt(&mut self, file: &str, row: &Row, report: &DirectionReport) {
        let Some(samples) = row.count("tct_rtt_n").filter(|samples| *samples > 0) else { return };
        let ours = &details(report).rtt_seqack;
        self.rtt_there.count(ours.count > 0);
        for (metric, mine, theirs) in
            [("rtt_min", ours.min, row.millis("tct_rtt_min_ms")), ("rtt_max", ours.max, row.millis("tct_rtt_max_ms"))]
        {
            let mine = mine.map(spand_proto::units::Micros::as_millis_f64);
            let near = mine.zip(theirs).is_some_and(|(mine, theirs)| (mine - theirs).abs() <= TOLERANCE_MS);
            let (share, share_five) = if metric == "rtt_min" {
                (&mut self.rtt_min, &mut self.rtt_min_five)
            } else {
                (&mut self.rtt_max, &mut self.rtt_max_five)
            };
            share.count(near);
            if samples >= 5 {
                share_five.count(near);
            }
            if !near {
                self.differences.push(Difference {
                    file: file.to_owned(),
                    source: row.source,
                    destination: row.destination,
                    metric,
                    ours: format!("{}/{}", mine.map_or_else(String::new, |ms| format!("{ms:.3}")), ours.count),
                    theirs: format!("{}/{samples}", theirs.map_or_else(String::new, |ms| format!("{ms:.1}"))),
                    class: rtt_class(row, report, samples),
                });
            }
        }
    }

    /// The figures in the order of the table.
    pub(crate) fn shares(&self) -> Vec<&Share> {
        vec![
            &self.unique,
            &self.repeated,
            &self.repeated_any,
            &self.tcptrace,
            &self.tcptrace_any,
            &self.flight,
            &self.rtt_there,
            &self.rtt_min,
            &self.rtt_max,
            &self.rtt_min_five,
            &self.rtt_max_five,
        ]
    }

    /// The table.
    pub(crate) fn write_summary(&self, text: &mut String) {
        for share in self.shares() {
            let Share { name, agree, of, least_percent } = share;
            writeln!(
                text,
                "{name:<36} {agree:>5} of {of:>5}  {:>6.2} %  (at least {least_percent} %)",
                share.percent()
            )
            .unwrap();
        }
        writeln!(text, "rows of the reference without ours: {}, ours without: {}", self.rows_missing, self.rows_extra)
            .unwrap();
    }
}

fn details(report: &DirectionReport) -> &DirectionDetails {
    report.details.as_deref().expect("the engine gives full reports")
}

/// Why two tools time differently.
fn rtt_class(row: &Row, report: &DirectionReport, samples: u64) -> &'static str {
    if row.count("tct_pkts") != row.count("pkts") {
        "tcptrace saw other packets"
    } else if details(report).rtt_seqack.count == samples {
        "as many samples, other times"
    } else if details(report).rtt_seqack.count == 0 {
        "no sample here"
    } else if details(report).duplicate_packets > 0 {
        "copies made by a mirror port"
    } else if row.count("ts_ack_unseen") > Some(0) {
        "acknowledgements of what was not captured"
    } else {
        "other samples"
    }
}
