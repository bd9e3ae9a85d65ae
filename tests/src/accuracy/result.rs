//! What is kept of a cell.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::factors::Cell;
use crate::campaign::kept;
use crate::lab::path::{Counts, Emulator};

/// In place of the kernel's word for a limit: the engine's for whole flows.
pub const FLOWS_BY_ENGINE: &str = "(flows by engine)";
/// Errors kept of one kind and cell; beyond, every second one goes, again and again.
const VALUES_MOST: usize = 2_000;
/// A cell that means nothing is tried this often in all, in one call or several.
pub const TRIES_MOST: u32 = 3;
/// A path is off when more than this part of its packets were over a millisecond late, or the mean lateness is above this.
const LATE_PART_MOST: f64 = 0.01;
const LATE_MEAN_MOST_US: f64 = 300.0;

/// Whether the lab behaved as configured.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Health {
    /// Transfers that were complete.
    pub transfers: u64,
    /// Transfers that broke.
    pub failed: u64,
    /// Packets that the path delivered, both ways.
    pub delivered: u64,
    /// Packets lost at full queues.
    pub queue_drops: u64,
    /// Packets lost by chance, in outages, and for their length.
    pub other_drops: u64,
    /// Packets the emulator lost itself.
    pub emulator_drops: u64,
    /// Packets over a millisecond late.
    pub late_1ms: u64,
    /// Mean lateness in microseconds.
    pub late_mean_us: f64,
    /// Largest lateness in milliseconds.
    pub late_max_ms: f64,
    /// The emulator ran under `SCHED_FIFO`.
    pub real_time: bool,
    /// Packets at the tap.
    pub captured: u64,
    /// Packets the tap lost.
    pub tap_dropped: u64,
    /// Rows of the kernel's account that were lost.
    pub truth_lost: u64,
    /// The machine's load at the end.
    pub load: f64,
}

impl Health {
    /// Adds what a lab's paths carried and how late they were.
    pub fn add_paths(&mut self, emulator: &Emulator) {
        self.real_time = emulator.is_real_time();
        let mut late_us = self.late_mean_us * self.delivered as f64;
        for link in emulator.counters().iter().flat_map(|path| [&path.down, &path.up]) {
            self.add_counts(link.counts());
            self.emulator_drops += link.emulator_drops.load(Relaxed);
            self.late_1ms += link.late_1ms.load(Relaxed);
            late_us += link.late_sum_ns.load(Relaxed) as f64 / 1e3;
            self.late_max_ms = self.late_max_ms.max(link.late_max_ns.load(Relaxed) as f64 / 1e6);
        }
        self.late_mean_us = late_us / self.delivered.max(1) as f64;
        self.load = load();
    }

    /// Adds what a direction of a path carried.
    pub fn add_counts(&mut self, counts: Counts) {
        self.delivered += counts.delivered;
        self.queue_drops += counts.queue_drops;
        self.other_drops += counts.other_drops;
    }

    /// Why the cell means nothing and must run again; `None` where it is sound.
    pub fn fault(&self) -> Option<String> {
        if self.tap_dropped > 0 {
            Some(format!("the tap lost {} packets", self.tap_dropped))
        } else if self.truth_lost > 0 {
            Some(format!("{} rows of truth were lost", self.truth_lost))
        } else if let Some(fault) = self.path_fault() {
            Some(fault)
        } else if self.captured == 0 || self.transfers == 0 {
            Some(format!("{} transfers, {} packets captured", self.transfers, self.captured))
        } else {
            None
        }
    }

    /// Fails where the paths were not what they are set to be, as on a busy machine: what went over them is no result.
    ///
    /// # Errors
    /// With what was off.
    pub fn check_paths(emulator: &Emulator) -> Result<()> {
        let mut health = Self::default();
        health.add_paths(emulator);
        match health.path_fault() {
            Some(fault) => bail!("{fault}; run it again while the machine does nothing else"),
            None => Ok(()),
        }
    }

    /// Why what went over the paths means nothing.
    pub fn path_fault(&self) -> Option<String> {
        let late_part = self.late_1ms as f64 / self.delivered.max(1) as f64;
        if self.emulator_drops > 0 {
            Some(format!("the emulator lost {} packets", self.emulator_drops))
        } else if late_part > LATE_PART_MOST || self.late_mean_us > LATE_MEAN_MOST_US {
            Some(format!("the path was off: {:.1} % late, {:.0} us on average", late_part * 100.0, self.late_mean_us))
        } else {
            None
        }
    }
}

/// Relative errors of one kind. An error below one segment is kept as 0.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Errors {
    /// How many there were.
    pub count: u64,
    /// Those kept, signed, in order of time.
    pub values: Vec<f32>,
    /// One in this many is kept.
    #[serde(default)]
    stride: u64,
}

impl Errors {
    /// Adds one: `seen` against `truth`, in units of which one is the least that counts.
    pub fn add(&mut self, seen: f64, truth: f64) {
        let relative = if (seen - truth).abs() < 1.0 { 0.0 } else { (seen - truth) / truth.max(1.0) };
        self.add_relative(relative);
    }

    /// Adds a relative error.
    pub fn add_relative(&mut self, relative: f64) {
        self.stride = self.stride.max(1);
        if self.count.is_multiple_of(self.stride) {
            #[expect(clippy::cast_possible_truncation, reason = "a few digits are enough")]
            self.values.push(((relative * 1e5).round() / 1e5) as f32);
            if self.values.len() > VALUES_MOST {
                let kept = self.values.iter().copied().step_by(2).collect();
                self.values = kept;
                self.stride *= 2;
            }
        }
        self.count += 1;
    }
}

/// How often something was there and was seen.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Found {
    /// In the kernel's account.
    pub truth: u64,
    /// Seen by the engine.
    pub seen: u64,
    /// Both, joined.
    pub joined: u64,
}

/// A network at a cell's end, in segments.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct NetworkResult {
    /// The estimate of the rule `spand`.
    pub estimate: Option<f64>,
    /// Why there is none.
    pub why_not: Option<String>,
    /// Samples behind it.
    pub samples: u32,
    /// Mean of the kernel's windows at the same instants.
    pub same_instants: Option<f64>,
    /// Losses and ends in congestion avoidance that such an observer would have sampled.
    #[serde(default)]
    pub kernel_samples: u64,
    /// Connections that they were of.
    #[serde(default)]
    pub kernel_connections: u64,
    /// Mean of the kernel's windows at its losses.
    #[serde(default)]
    pub losses: Option<f64>,
    /// The largest lower bound by the kernel's account.
    #[serde(default)]
    pub bound: Option<f64>,
    /// Of BBR: mean over flows of the kernel's delivery rate times smallest round trip.
    #[serde(default)]
    pub carried: Option<f64>,
    /// The estimate of the default rule from the same samples, and whether it is a lower bound.
    #[serde(default)]
    pub by_default: Option<(f64, bool)>,
    /// How far that can be trusted.
    #[serde(default)]
    pub confidence: Option<f64>,
    /// Mean over addresses of what each one's connections had: at losses; with BBR, rate times smallest round trip every 100 ms.
    #[serde(default)]
    pub by_address: Option<f64>,
}

/// Everything kept of a cell.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct CellResult {
    /// The cell.
    pub cell: Option<Cell>,
    /// Wall time of the run in seconds.
    pub seconds: f64,
    /// The lab's own account.
    pub health: Health,
    /// Why it means nothing, where it does.
    pub fault: Option<String>,
    /// How often it has run.
    #[serde(default)]
    pub tries: u32,
    /// Connections of the senders.
    pub flows: u64,
    /// Errors by kind.
    pub errors: BTreeMap<String, Errors>,
    /// Window samples by kind: kernel's and engine's.
    pub samples: BTreeMap<String, Found>,
    /// Loss events by kind.
    pub events: BTreeMap<String, Found>,
    /// Congestion control found out: by the engine's word for it, in flows long enough to tell.
    pub flavours: BTreeMap<String, u64>,
    /// The same, by each flow's own packets alone.
    #[serde(default)]
    pub own_flavours: BTreeMap<String, u64>,
    /// As `flavours`, of the flows that an observer can tell: they backed off, or did not, from a window large enough, and
    /// had more to send then.
    #[serde(default)]
    pub telling_flavours: BTreeMap<String, u64>,
    /// Flows whose retransmissions were counted, and those counted as the kernel does.
    pub retransmissions: Found,
    /// What held senders: the kernel's word, then the engine's.
    pub limits: BTreeMap<String, BTreeMap<String, u64>>,
    /// The clients' network.
    pub network: NetworkResult,
}

impl CellResult {
    /// The result of a cell, where there is one. A plan that changed since has other cells under the same numbers.
    pub fn read(out: &Path, cell: &Cell) -> Option<Self> {
        kept::read(&file(out, cell.number)).filter(|result: &Self| result.cell.as_ref() == Some(cell))
    }

    /// Leaves it: whole, or not at all.
    pub fn write(&self, out: &Path) -> Result<()> {
        kept::write(&file(out, self.cell.as_ref().map_or(0, |cell| cell.number)), self)
    }

    /// Whether it means nothing, and another try may.
    pub fn is_tried_again(&self) -> bool {
        self.fault.is_some() && self.tries < TRIES_MOST
    }

    /// The errors of a kind, made where there are none yet.
    pub fn errors(&mut self, kind: &str) -> &mut Errors {
        self.errors.entry(kind.to_owned()).or_default()
    }

    /// Counts what the engine reported as a sender's limit, under the kernel's word for it.
    pub fn count_limit(&mut self, kernel: &str, engine: &str) {
        *self.limits.entry(kernel.to_owned()).or_default().entry(engine.to_owned()).or_default() += 1;
    }
}

fn file(out: &Path, number: u32) -> PathBuf {
    out.join(format!("cell-{number:03}.json"))
}

/// Median and 95th percentile of absolute errors; `None` where there is none.
pub fn quantiles(values: impl IntoIterator<Item = f32>) -> Option<(f64, f64)> {
    let mut sizes: Vec<f64> = values.into_iter().map(|value| f64::from(value.abs())).collect();
    sizes.sort_by(f64::total_cmp);
    let at = |percent: usize| sizes.get(sizes.len().saturating_sub(1) * percent / 100).copied();
    Some((at(50)?, at(95)?))
}

/// Processes that would like to run (the first number of `/proc/loadavg`): others on the machine included.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_sound_up_to_one_packet_in_a_hundred_that_is_late() {
        let of = |late_1ms, late_mean_us, emulator_drops| {
            Health { delivered: 1_000, late_1ms, late_mean_us, emulator_drops, ..Health::default() }.path_fault()
        };
        assert_eq!(of(10, 300.0, 0), None);
        assert!(of(11, 0.0, 0).is_some() && of(0, 301.0, 0).is_some() && of(0, 0.0, 1).is_some());
    }

    #[test]
    fn less_than_a_segment_is_no_error_and_long_rows_are_thinned() {
        let mut errors = Errors::default();
        errors.add(10.9, 10.0);
        errors.add(12.0, 10.0);
        assert_eq!(errors.values, [0.0, 0.2]);
        for _ in 0..10_000 {
            errors.add(5.0, 10.0);
        }
        assert_eq!(errors.count, 10_002);
        assert!(errors.values.len() <= VALUES_MOST + 1 && errors.values.len() > 1_000);
        assert_eq!(quantiles(errors.values), Some((0.5, 0.5)));
        assert_eq!(quantiles([]), None);
    }

    #[test]
    fn a_result_of_another_plan_does_not_count_and_a_refused_one_is_tried_three_times() {
        let cell = Cell::new(3, 7, &[0; super::super::factors::FACTORS]);
        let refused = |tries| CellResult { fault: Some("late".to_owned()), tries, ..CellResult::default() };
        assert!(refused(0).is_tried_again() && refused(2).is_tried_again());
        assert!(!refused(3).is_tried_again() && !CellResult::default().is_tried_again());
        let result = CellResult { cell: Some(cell.clone()), ..CellResult::default() };
        let folder = tempfile::tempdir().unwrap();
        result.write(folder.path()).unwrap();
        let is_there = |cell: &Cell| CellResult::read(folder.path(), cell).is_some();
        assert!(is_there(&cell) && !is_there(&Cell { seed: 8, ..cell.clone() }));
        let mut other = cell;
        other.levels.remove("disturbance");
        assert!(!is_there(&other), "a plan of other factors");
    }

    #[test]
    fn a_late_path_is_a_fault() {
        let sound = Health { transfers: 1, captured: 9, delivered: 1_000, ..Health::default() };
        assert_eq!(sound.fault(), None);
        assert!(Health { late_1ms: 11, ..sound }.fault().is_some());
        assert!(Health { tap_dropped: 1, ..sound }.fault().is_some());
        assert!(Health { transfers: 0, ..sound }.fault().is_some());
    }
}
