//! Shares of networks with mixed traffic against the kernel's own account: a table by recording in `target/field-truth.tsv`, and the least
//! that must be right. All of these recordings were wrong once. Without the corpus it says so.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use spand_core::config::{EngineConfig, FlowReports, Limits};
use spand_gateway::replay::{Moments, Options, replay};
use spand_needs::needs_corpus;
use spand_proto::units::Bytes;
use spand_tests::silent::Silent;

/// Who sends inside.
const SERVERS: [&str; 2] = ["10.79.0.0/24", "fd79::/64"];
/// A share this far off is right, as part of the truth. A lower bound is, if it is below that.
const NEAR: f64 = 0.2;
/// Recordings with a truth that must be right.
const RIGHT_LEAST: usize = 19;
/// An estimate of more confidence than this is one to rely on. On networks that nobody chose, one in ten of these is wrong
/// (`docs/results/accuracy.md`); here at most two are: a host that paces, and short answers by BBR.
const CONFIDENT: f64 = 0.8;
const CONFIDENT_AND_WRONG: usize = 2;

/// One recording.
struct Judged {
    name: String,
    /// The kernel's windows at losses in congestion avoidance less one, or the rate of BBR times the least round trip: the mean over
    /// addresses, in segments.
    truth: Option<f64>,
    /// In segments; whether it is a lower bound; its mark; its confidence.
    share: Option<(f64, bool, &'static str, f64)>,
    samples: String,
}

impl Judged {
    const HEADER: &str = "name\ttruth\tshare\toff_pct\tright\tconfidence\tmark\tsamples\n";

    fn of(row: &BTreeMap<String, String>, folder: &Path) -> Self {
        let name = row["name"].clone();
        let truth =
            if row["cc"] == "bbr" { &row["bbr_rate_times_min_rtt_per_address"] } else { &row["mean_per_address"] };
        let engine = EngineConfig {
            internal: SERVERS.map(|prefix| prefix.parse().expect("a network")).to_vec(),
            limits: Limits::for_replay(),
            flow_reports: FlowReports::Full,
            ..EngineConfig::default()
        };
        let file = folder.join(format!("{name}.pcap.zst"));
        let report = replay(Options { files: vec![file], engine, moments: Moments::End }, &mut Silent).expect("memory");
        let network = report.end.networks.iter().max_by_key(|view| view.losses + u64::from(view.samples));
        let share = network.and_then(|view| view.estimate.as_ref()).map(|estimate| {
            let segments = estimate.share.bytes() / estimate.mss.max(Bytes(1)).0 as f64;
            let mark = estimate.mark.map_or("-", |mark| mark.name());
            (segments, estimate.is_lower_bound, mark, estimate.confidence.value())
        });
        let mut counts = BTreeMap::<&str, u32>::new();
        for details in report.flows.iter().filter_map(|flow| flow.details.as_ref()) {
            details.samples.iter().for_each(|sample| *counts.entry(sample.reason.name()).or_default() += 1);
        }
        let samples = counts.iter().map(|(reason, count)| format!("{count} {reason}"));
        Self { name, truth: truth.parse().ok(), share, samples: samples.collect::<Vec<_>>().join(", ") }
    }

    fn off(&self) -> Option<f64> {
        Some(self.share?.0 / self.truth? - 1.0)
    }

    fn is_right(&self) -> bool {
        self.off().is_some_and(|off| off.abs() <= NEAR || (off < 0.0 && self.share.is_some_and(|(_, bound, ..)| bound)))
    }

    fn line(&self) -> String {
        let figure = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
        let bound = self.share.is_some_and(|(_, bound, ..)| bound);
        format!(
            "{}\t{}\t{}{}\t{}\t{}\t{}\t{}\t{}\n",
            self.name,
            figure(self.truth),
            if bound { ">=" } else { "" },
            figure(self.share.map(|(share, ..)| share)),
            self.off().map_or("-".to_owned(), |off| format!("{:+.0}", 100.0 * off)),
            if self.truth.is_none() {
                "-"
            } else if self.is_right() {
                "yes"
            } else {
                "no"
            },
            self.share.map_or("-".to_owned(), |(.., confidence)| format!("{confidence:.2}")),
            self.share.map_or("-", |(_, _, mark, _)| mark),
            self.samples
        )
    }
}

#[test]
fn shares_of_mixed_traffic_agree_with_the_kernels_windows_and_rates() {
    let Some(folder) = needs_corpus("field-truth") else { return };
    let mut rows = csv::Reader::from_path(folder.join("truth.csv")).expect("a table");
    let judged: Vec<Judged> = rows.deserialize().map(|row| Judged::of(&row.expect("a row"), &folder)).collect();
    let table = judged.iter().fold(Judged::HEADER.to_owned(), |table, one| table + &one.line());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../field-truth.tsv");
    std::fs::write(&path, &table).expect("room on the disk");
    println!("{table}");
    let known = || judged.iter().filter(|one| one.truth.is_some());
    let right = known().filter(|one| one.is_right()).count();
    let confident = || known().filter(|one| one.share.is_some_and(|(.., confidence)| confidence > CONFIDENT));
    println!("{} have a confidence above {CONFIDENT}", confident().count());
    let wrong = confident().filter(|one| !one.is_right()).count();
    let mut short = String::new();
    if right < RIGHT_LEAST {
        writeln!(short, "{right} of {} right, {RIGHT_LEAST} wanted", known().count()).unwrap();
    }
    if wrong > CONFIDENT_AND_WRONG {
        writeln!(short, "{wrong} of {} with confidence above {CONFIDENT} wrong", confident().count()).unwrap();
    }
    assert!(short.is_empty(), "{short}the table: {}", path.display());
}
