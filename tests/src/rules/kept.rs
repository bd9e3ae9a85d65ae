//! The networks of the accuracy campaign under both rules, from what `accuracy --keep` kept.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use ipnet::IpNet;
use serde::Deserialize;
use spand_core::estimate::{RobustRule, Rule, SpandRule};
use spand_core::types::WindowSample;
use spand_proto::network::Network;

use crate::accuracy::compare::{estimate, view_begins_ns};
use crate::accuracy::engine;
use crate::accuracy::factors::Cell;
use crate::accuracy::truth::flows;
use crate::lab::truth::Row;
use crate::lab::truth::rules::{Reason, samples};

/// A sample's partner among the kernel's lies this close, as on the campaign's own page.
const LOSS_APART_NS: u64 = 300_000_000;
const END_APART_NS: u64 = 3_000_000_000;
/// Peaks from which on their mean says something.
const PEAKS_LEAST: usize = 10;

/// One network.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Its cell's number.
    pub number: u32,
    /// What the cell is.
    pub what: String,
    /// Flows in it.
    pub flows: String,
    /// Window samples, and those of them that losses and ends gave.
    pub samples: usize,
    /// By losses.
    pub losses: usize,
    /// By ends.
    pub ends: usize,
    /// Peaks of the kernel's windows.
    pub kernel_peaks: usize,
    spand: Option<f64>,
    robust: Option<f64>,
    same_instants: Option<f64>,
    peak_share: Option<f64>,
}

impl Kept {
    /// The plain average and the mean of the kernel's windows at the same instants.
    pub fn plain(&self) -> Option<(f64, f64)> {
        self.spand.zip(self.same_instants)
    }

    /// The robust estimate and the mean share of the kernel's peaks, where there are some.
    pub fn peaks(&self) -> Option<(f64, f64)> {
        self.robust.zip(self.peak_share.filter(|_| self.kernel_peaks >= PEAKS_LEAST))
    }
}

#[derive(Debug, Deserialize)]
struct About {
    cell: Cell,
    network: IpNet,
}

/// Reads every Reno and CUBIC cell under `root`.
pub fn read_all(root: &Path) -> Result<Vec<Kept>> {
    let folders = std::fs::read_dir(root).with_context(|| format!("cannot read {}", root.display()))?;
    let mut kept = Vec::new();
    for folder in folders {
        let folder = folder?.path();
        if folder.join("cell.json").is_file() {
            kept.extend(read(&folder).with_context(|| format!("reading {}", folder.display()))?);
        }
    }
    kept.sort_by_key(|kept| kept.number);
    Ok(kept)
}

fn read(folder: &Path) -> Result<Option<Kept>> {
    let about: About = serde_json::from_slice(&std::fs::read(folder.join("cell.json"))?)?;
    if about.cell.is("cc", "bbr") {
        return Ok(None);
    }
    let mut csv = csv::Reader::from_reader(GzDecoder::new(BufReader::new(File::open(folder.join("truth.csv.gz"))?)));
    let rows: Vec<Row> = csv.deserialize().collect::<Result<_, _>>()?;
    let since_ns = view_begins_ns(&about.cell, &rows);
    let seen = engine::replay(&folder.join("capture.pcap.gz"), &[], since_ns, None)?;
    let network = Network::new(about.network);
    let mut found: Vec<WindowSample> = Vec::new();
    let truth = flows(&rows, since_ns);
    let kernel: Vec<_> = samples(&rows).into_iter().filter(|sample| sample.time_ns >= since_ns).collect();
    let mut same = Vec::new();
    for (flow, report) in &seen.reports {
        let samples =
            report.details.iter().flat_map(|details| &details.samples).filter(|sample| sample.network == network);
        for sample in samples {
            found.push(*sample);
            if sample.reason.is_lower_bound() {
                continue;
            }
            let (reason, apart_ns) =
                if sample.reason.is_loss() { (Reason::Loss, LOSS_APART_NS) } else { (Reason::End, END_APART_NS) };
            let like = kernel.iter().filter(|kernel| kernel.flow == *flow && kernel.reason == reason);
            let partner = like
                .map(|kernel| (kernel.time_ns.abs_diff(sample.at.0), kernel.segments))
                .filter(|(apart, _)| *apart <= apart_ns)
                .min_by_key(|(apart, _)| *apart);
            // The rule takes one segment off at a loss (`docs/definitions.md`, "Samples").
            let off = if sample.reason.is_loss() { 1.0 } else { 0.0 };
            let before = || truth.get(flow).and_then(|truth| truth.window_before(sample.at.0)).map(f64::from);
            same.extend(partner.map(|(_, window)| window).or_else(|| before().map(|window| (window - off).max(1.0))));
        }
    }
    found.sort_by_key(|sample| (sample.at, sample.connection));
    let peaks: Vec<f64> =
        kernel.iter().filter(|sample| sample.reason == Reason::Loss).map(|sample| sample.segments).collect();
    let mean = |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    let mut counts: BTreeMap<bool, usize> = BTreeMap::new();
    for sample in found.iter().filter(|sample| !sample.reason.is_lower_bound()) {
        *counts.entry(sample.reason.is_loss()).or_default() += 1;
    }
    let count = |losses| counts.get(&losses).copied().unwrap_or(0);
    let share = |rule: &'static dyn Rule| estimate(network, &found, rule).map(|it| it.share.segments_f64(it.mss));
    Ok(Some(Kept {
        number: about.cell.number,
        what: about.cell.title(),
        flows: about.cell.level("flows").to_owned(),
        samples: count(true) + count(false),
        losses: count(true),
        ends: count(false),
        kernel_peaks: peaks.len(),
        spand: share(&SpandRule),
        robust: share(&RobustRule::DEFAULT),
        same_instants: mean(&same),
        peak_share: mean(&peaks),
    }))
}
