//! Shares against the kernel's own account, on recordings of one network each: a table by recording in `target/kernel-truth.tsv`, and
//! the least that must be right. Without the corpus it says so.

use std::path::Path;

use spand_core::config::{EngineConfig, FlowReports, Limits};
use spand_gateway::replay::{Moments, Options, replay};

use spand_engine_tests::corpus::Row;
use spand_proto::units::Bytes;
use spand_tests::silent::Silent;

// One recording: what the kernel did in it, and what a replay makes of it.

/// Who sends inside, in every recording.
const SERVERS: &str = "10.78.0.0/24";
/// Samples below which a network has no estimate.
const SAMPLES_LEAST: u32 = 3;
/// A share this far off is right, as part of the truth.
pub(crate) const NEAR: f64 = 0.2;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Bbr,
    LossBased,
    /// Loss-based behind a pacer.
    Paced,
}

/// One recording.
pub(crate) struct Judged {
    name: String,
    pub(crate) kind: Kind,
    losses: u32,
    ends: u32,
    bounds: u32,
    mean_window: Option<f64>,
    carried: Option<f64>,
    /// In segments.
    pub(crate) share: Option<f64>,
    at_least: bool,
    samples: String,
    named: String,
    no_estimate: String,
}

impl Judged {
    pub(crate) const HEADER: &str =
        "name\tkind\tkernel_losses\tkernel_ends\tkernel_bounds\ttruth\tshare\toff_pct\tsamples\tnamed\tno_estimate\n";

    pub(crate) fn of(row: &Row, captures: &Path) -> Self {
        let number = |column: &str| row[column].parse().unwrap_or(0);
        let kind = match (row["cc"].as_str(), row["server"].contains("pace=")) {
            ("bbr", _) => Kind::Bbr,
            (_, true) => Kind::Paced,
            _ => Kind::LossBased,
        };
        let engine = EngineConfig {
            internal: vec![SERVERS.parse().expect("a network")],
            limits: Limits::for_replay(),
            flow_reports: FlowReports::Full,
            ..EngineConfig::default()
        };
        let file = captures.join(format!("{}.pcap.zst", row["name"]));
        let report = replay(Options { files: vec![file], engine, moments: Moments::End }, &mut Silent).expect("memory");
        let network = report.end.networks.iter().max_by_key(|view| view.losses + u64::from(view.samples));
        let share = network.and_then(|view| view.estimate.as_ref()).map(|estimate| {
            let mss = estimate.mss.max(Bytes(1));
            estimate.share.bytes() / mss.0 as f64
        });
        let senders = report.flows.iter().filter_map(|flow| flow.details.as_ref().map(|details| (flow, details)));
        let (mut samples, mut named) = (Vec::new(), Vec::new());
        for (flow, details) in senders.filter(|(flow, _)| flow.source.address.to_string().starts_with("10.78.0.")) {
            named.push(flow.congestion_control.name());
            samples.extend(details.samples.iter().map(|sample| {
                format!("{}:{:.0}", sample.reason.name(), sample.window.bytes() / sample.mss.0.max(1) as f64)
            }));
        }
        named.sort_unstable();
        let counted = |name: &&str| format!("{}:{name}", named.iter().filter(|other| *other == name).count());
        let mut names = named.clone();
        names.dedup();
        Self {
            name: row["name"].clone(),
            kind,
            losses: number("kernel_losses_in_avoidance"),
            ends: number("kernel_ends_window_limited"),
            bounds: number("kernel_ends_bounds"),
            mean_window: row["kernel_mean_window_of_samples"].parse().ok(),
            carried: row["kernel_rate_times_min_rtt"].parse().ok(),
            share,
            at_least: network.and_then(|view| view.estimate.as_ref()).is_some_and(|estimate| estimate.is_lower_bound),
            samples: samples.join(" "),
            named: names.iter().map(counted).collect::<Vec<_>>().join(","),
            no_estimate: network.and_then(|view| view.why_not).map(|why| why.name().to_owned()).unwrap_or_default(),
        }
    }

    /// Whether an estimate is wanted: of BBR where neither application nor receiver held every transfer, of others where the kernel's
    /// windows give enough samples.
    pub(crate) fn is_asked(&self) -> bool {
        match self.kind {
            Kind::Bbr => self.carried.is_some() && (self.ends > 0 || self.bounds == 0),
            Kind::LossBased | Kind::Paced => self.losses + self.ends >= SAMPLES_LEAST,
        }
    }

    /// Whether the truth is free of ends, which may stand anywhere below the share.
    pub(crate) fn is_exact(&self) -> bool {
        self.kind == Kind::Bbr || self.ends == 0
    }

    fn truth(&self) -> Option<f64> {
        if self.kind == Kind::Bbr { self.carried } else { self.mean_window }
    }

    fn off(&self) -> Option<f64> {
        Some(self.share? / self.truth()? - 1.0)
    }

    pub(crate) fn is_near(&self) -> bool {
        self.off().is_some_and(|off| off.abs() <= NEAR)
    }

    pub(crate) fn line(&self) -> String {
        let figure = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
        let share = if self.at_least { ">=" } else { "" }.to_owned() + &figure(self.share);
        let off = self.off().map_or("-".to_owned(), |off| format!("{:+.0}", 100.0 * off));
        format!(
            "{}\t{:?}{}\t{}\t{}\t{}\t{}\t{}\t{off}\t{}\t{}\t{}\n",
            self.name,
            self.kind,
            if self.is_asked() { "" } else { " (not asked)" },
            self.losses,
            self.ends,
            self.bounds,
            figure(self.truth()),
            share,
            self.samples,
            self.named,
            self.no_estimate
        )
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::fs;
    use std::path::PathBuf;

    use spand_engine_tests::corpus;

    use super::{Judged, Kind};

    /// Part with an estimate, and part of these within [`NEAR`], of each kind of sender: in percent, at least.
    const LEAST: [(Kind, [u32; 2]); 3] =
        [(Kind::Bbr, [94, 88]), (Kind::LossBased, [92, 100]), (Kind::Paced, [100, 75])];

    #[test]
    fn shares_agree_with_the_kernels_windows_and_rates() {
        let Some(truth) = spand_needs::needs_corpus("truth") else { return };
        let rows = corpus::table(&truth.join("truth.tsv")).expect("a table");
        let only = std::env::var("SPAND_TRUTH_ONLY").unwrap_or_default();
        let rows = rows.iter().filter(|row| row["name"].contains(&only));
        let judged: Vec<Judged> = rows.map(|row| Judged::of(row, &truth.join("captures"))).collect();
        let table: String = judged.iter().map(Judged::line).collect();
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../kernel-truth.tsv");
        fs::write(&path, format!("{}{table}", Judged::HEADER)).expect("room on the disk");
        println!("{}{table}", Judged::HEADER);
        let mut short = String::new();
        for (kind, [estimated_least, near_least]) in LEAST {
            let of_kind: Vec<_> = judged.iter().filter(|one| one.kind == kind && one.is_asked()).collect();
            let estimated = of_kind.iter().filter(|one| one.share.is_some()).count();
            let exact: Vec<_> = of_kind.iter().filter(|one| one.is_exact() && one.share.is_some()).collect();
            let near = exact.iter().filter(|one| one.is_near()).count();
            println!("{kind:?}: {estimated} of {} with an estimate; {near} of {} near", of_kind.len(), exact.len());
            let reaches = |part: usize, of: usize, least: u32| 100 * part >= least as usize * of;
            if !reaches(estimated, of_kind.len(), estimated_least) || !reaches(near, exact.len(), near_least) {
                writeln!(short, "{kind:?} below {estimated_least} and {near_least} %").unwrap();
            }
        }
        assert!(short.is_empty() || !only.is_empty(), "{short}the table: {}", path.display());
    }
}
