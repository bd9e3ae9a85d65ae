//! What advice does to transfers: the arms that were drawn, compared by size (definitions, "Control group").
//!
//! By assignment: a transfer counts for the arm that was drawn, whether or not its start was advised in the end. Hosts keep
//! one of their own connections, the gateway one of all that hosts report.

mod tally;

use serde::{Deserialize, Serialize};

use crate::report::{Arm, ConnectionReport};
use crate::units::{Bytes, Micros};

use tally::{Tally, Times, rounded};

pub use tally::Difference;

/// Size classes, by the largest size of each in bytes; the last has none.
pub const CLASSES: [Option<u64>; 7] =
    [Some(10_000), Some(30_000), Some(100_000), Some(300_000), Some(1_000_000), Some(10_000_000), None];
/// Their names, as labels of metrics.
pub const CLASS_NAMES: [&str; CLASSES.len()] = ["10kB", "30kB", "100kB", "300kB", "1MB", "10MB", "more"];
/// The arms, in the order in which they are kept, and their names.
pub const ARMS: [(Arm, &str); 2] = [(Arm::Advised, "advised"), (Arm::Control, "control")];

/// Both arms, by size class.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Boxed: tens of kilobytes.
    cells: Box<[[Cell; ARMS.len()]; CLASSES.len()]>,
    unmeasured: u64,
    paused: u64,
}

/// One class and arm.
#[derive(Clone, Debug, Default)]
struct Cell {
    completion_ms: Tally,
    times: Times,
    retransmitted: Tally,
    end_window: Tally,
    advised: u64,
    refused: u64,
}

/// Where a transfer was counted, as places in [`CLASSES`] and [`ARMS`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    /// Its size class.
    pub class: usize,
    /// Its arm.
    pub arm: usize,
    /// What it took.
    pub duration: Micros,
}

impl Comparison {
    /// Takes a transfer. `None` for one of no arm, which is none of the comparison, for one that met a pause of advice, and for
    /// one that was not measured to its end; the last two are counted.
    pub fn take(&mut self, report: &ConnectionReport) -> Option<Place> {
        if report.paused {
            // What is reported at once, before its end, is reported again.
            self.paused += u64::from(report.duration.is_some() || report.first_flight_loss != Some(true));
            return None;
        }
        let arm = ARMS.iter().position(|(arm, _)| Some(*arm) == report.arm)?;
        let (Some(duration), Bytes(size @ 1..)) = (report.duration, report.acknowledged) else {
            // What is reported at once is reported again at its end.
            self.unmeasured += u64::from(report.first_flight_loss != Some(true));
            return None;
        };
        let class = CLASSES.iter().position(|largest| largest.is_none_or(|largest| size <= largest))?;
        self.cells.get_mut(class)?.get_mut(arm)?.take(report, duration);
        Some(Place { class, arm, duration })
    }

    /// Transfers that were not measured to their end.
    pub fn unmeasured(&self) -> u64 {
        self.unmeasured
    }

    /// Transfers that met a pause of advice, and are in neither arm.
    pub fn paused(&self) -> u64 {
        self.paused
    }

    /// All classes as they stand.
    pub fn classes(&self) -> Vec<ClassSummary> {
        CLASSES
            .iter()
            .zip(self.cells.iter())
            .map(|(largest, [advised, control])| ClassSummary {
                up_to_bytes: *largest,
                advised: advised.summary(),
                control: control.summary(),
                difference: DifferenceSummary {
                    completion_ms: Difference::of(&advised.completion_ms, &control.completion_ms),
                    retransmitted_segments: Difference::of(&advised.retransmitted, &control.retransmitted),
                    end_window_segments: Difference::of(&advised.end_window, &control.end_window),
                },
            })
            .collect()
    }
}

impl Cell {
    fn take(&mut self, report: &ConnectionReport, duration: Micros) {
        self.completion_ms.add(duration.as_millis_f64());
        self.times.add(duration.0);
        self.retransmitted.add(f64::from(report.retransmitted.0));
        if let Some(segments) = report.end_window_segments() {
            self.end_window.add(segments);
        }
        self.advised += u64::from(report.advised.is_some());
        self.refused += u64::from(report.refusal.is_some());
    }

    fn summary(&self) -> ArmSummary {
        ArmSummary {
            transfers: self.completion_ms.count,
            started_on_advice: self.advised,
            refused: self.refused,
            completion_ms_mean: self.completion_ms.mean().map(rounded),
            completion_ms_median: self.times.median_us().map(|us| rounded(us / 1_000.0)),
            retransmitted_segments_mean: self.retransmitted.mean().map(rounded),
            end_window_segments_mean: self.end_window.mean().map(rounded),
        }
    }
}

/// One size class; what is not known is null.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ClassSummary {
    /// The largest size in it; null for the last.
    pub up_to_bytes: Option<u64>,
    /// Those that may be advised.
    pub advised: ArmSummary,
    /// Those held out.
    pub control: ArmSummary,
    /// The advised arm less the control group.
    pub difference: DifferenceSummary,
}

/// One arm of a class.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ArmSummary {
    /// Transfers.
    pub transfers: u64,
    /// Of them, those that started on advice.
    pub started_on_advice: u64,
    /// Of them, those that were refused.
    pub refused: u64,
    /// Completion time in milliseconds: the mean.
    pub completion_ms_mean: Option<f64>,
    /// The median, at most 5 % off.
    pub completion_ms_median: Option<f64>,
    /// Segments sent again in a transfer.
    pub retransmitted_segments_mean: Option<f64>,
    /// Congestion window at the end, in segments.
    pub end_window_segments_mean: Option<f64>,
}

/// The advised arm less the control group, with 95 % confidence intervals; null with fewer than five in an arm.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DifferenceSummary {
    /// Of completion times in milliseconds.
    pub completion_ms: Option<Difference>,
    /// Of segments sent again.
    pub retransmitted_segments: Option<Difference>,
    /// Of windows at the end.
    pub end_window_segments: Option<Difference>,
}
