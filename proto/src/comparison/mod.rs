//! What advice does to transfers: the arms that were drawn, compared by size (`docs/explain/definitions.md`, "Control group"), in strata so
//! narrow that what sizes each arm happened to get makes no difference.
//!
//! By assignment: a transfer counts for the arm that was drawn, whether or not its start was advised in the end. Hosts keep
//! one of their own connections, the gateway one of all that hosts report.

mod sizes;
mod tally;
#[cfg(test)]
mod tests;
mod times;

use serde::{Deserialize, Serialize};

use crate::report::{Arm, ConnectionReport};
use crate::units::{Bytes, Micros, rounded};

use sizes::STRATA;
use tally::is_comparable;
use times::Times;

pub use sizes::{CLASS_NAMES, CLASSES};
pub use tally::{Difference, NORMAL_95, NORMAL_99, Tally};

/// The arms, in the order in which they are kept, and their names.
pub const ARMS: [(Arm, &str); 2] = [(Arm::Advised, "advised"), (Arm::Control, "control")];

/// Both arms, by size.
#[derive(Clone, Debug)]
pub struct Comparison {
    strata: Vec<[Cell; ARMS.len()]>,
    /// For medians, by class.
    times: Vec<[Times; ARMS.len()]>,
    unmeasured: u64,
    paused: u64,
}

/// One stratum and arm.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    completion_ms: Tally,
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
    /// Takes a transfer. `None` for one without an arm, which is not compared, for one that met a pause of advice, and for
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
        let (class, stratum) = sizes::place(Bytes(size))?;
        self.strata.get_mut(stratum)?.get_mut(arm)?.take(report, duration);
        self.times.get_mut(class)?.get_mut(arm)?.add(duration.0);
        Some(Place { class, arm, duration })
    }

    /// Transfers of both arms.
    pub fn transfers(&self) -> u64 {
        self.strata.iter().flatten().map(|cell| cell.completion_ms.count).sum()
    }

    /// Transfers that were not measured to their end.
    pub fn unmeasured(&self) -> u64 {
        self.unmeasured
    }

    /// Transfers that met a pause of advice, and are in neither arm.
    pub fn paused(&self) -> u64 {
        self.paused
    }

    /// Completion time in ms, advised less control, by class.
    pub fn completion_differences(&self) -> Vec<Option<Difference>> {
        let difference = |class| {
            let strata = self.strata.get(sizes::strata(class)).unwrap_or_default();
            Difference::of(strata.iter().map(|arms| arms.each_ref().map(|cell| &cell.completion_ms)), NORMAL_95)
        };
        (0..CLASSES.len()).map(difference).collect()
    }

    /// All classes as they stand.
    pub fn classes(&self) -> Vec<ClassSummary> {
        let class = |class, up_to_bytes, times: &[Times; ARMS.len()]| {
            let strata = self.strata.get(sizes::strata(class)).unwrap_or_default();
            let [advised, control] = times;
            let difference = |of: fn(&Cell) -> &Tally| {
                Difference::of(strata.iter().map(move |arms| arms.each_ref().map(of)), NORMAL_95)
            };
            let left_out = strata.iter().map(|arms| arms.each_ref().map(|cell| &cell.completion_ms));
            let left_out = left_out.filter(|arms| !is_comparable(*arms)).flatten();
            ClassSummary {
                size: CLASS_NAMES.get(class).map_or_else(String::new, |name| (*name).to_owned()),
                up_to_bytes,
                advised: ArmSummary::of(&strata.iter().map(|[advised, _]| advised), advised),
                control: ArmSummary::of(&strata.iter().map(|[_, control]| control), control),
                not_compared: left_out.map(|tally| tally.count).sum(),
                difference: DifferenceSummary {
                    completion_ms: difference(|cell| &cell.completion_ms),
                    retransmitted_segments: difference(|cell| &cell.retransmitted),
                    end_window_segments: difference(|cell| &cell.end_window),
                },
            }
        };
        CLASSES.into_iter().zip(&self.times).enumerate().map(|(n, (largest, times))| class(n, largest, times)).collect()
    }
}

impl Default for Comparison {
    fn default() -> Self {
        Self {
            strata: vec![Default::default(); STRATA],
            times: vec![Default::default(); CLASSES.len()],
            unmeasured: 0,
            paused: 0,
        }
    }
}

impl Cell {
    fn take(&mut self, report: &ConnectionReport, duration: Micros) {
        self.completion_ms.add(duration.as_millis_f64());
        self.retransmitted.add(f64::from(report.retransmitted.0));
        if let Some(segments) = report.end_window_segments() {
            self.end_window.add(segments);
        }
        self.advised += u64::from(report.advised.is_some());
        self.refused += u64::from(report.refusal.is_some());
    }
}

impl ArmSummary {
    fn of<'a>(strata: &(impl Iterator<Item = &'a Cell> + Clone), times: &Times) -> Self {
        let mean = |of: fn(&Cell) -> &Tally| Tally::mean_of_all(strata.clone().map(of)).map(|mean| rounded(mean, 3));
        Self {
            transfers: strata.clone().map(|cell| cell.completion_ms.count).sum(),
            started_on_advice: strata.clone().map(|cell| cell.advised).sum(),
            refused: strata.clone().map(|cell| cell.refused).sum(),
            completion_mean_ms: mean(|cell| &cell.completion_ms),
            completion_median_ms: times.median_us().map(|us| rounded(us / 1_000.0, 3)),
            retransmitted_mean_segments: mean(|cell| &cell.retransmitted),
            end_window_mean_segments: mean(|cell| &cell.end_window),
        }
    }
}

/// One size class; what is not known is null.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ClassSummary {
    /// Its name in [`CLASS_NAMES`].
    pub size: String,
    /// The largest size in it; null for the last.
    pub up_to_bytes: Option<u64>,
    /// Those that may be advised.
    pub advised: ArmSummary,
    /// Those held out.
    pub control: ArmSummary,
    /// Of all these, transfers of strata with fewer than five in an arm: `difference` is without them.
    pub not_compared: u64,
    /// The advised arm less the control group, like sizes with like.
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
    pub completion_mean_ms: Option<f64>,
    /// The median, at most 5 % off; null where its 95 % confidence interval reaches more than 20 % away from it.
    pub completion_median_ms: Option<f64>,
    /// Segments sent again in a transfer.
    pub retransmitted_mean_segments: Option<f64>,
    /// Congestion window at the end, in segments.
    pub end_window_mean_segments: Option<f64>,
}

/// The advised arm less the control group, with 95 % confidence intervals; null where no stratum has five in both arms.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DifferenceSummary {
    /// Of completion times in milliseconds.
    pub completion_ms: Option<Difference>,
    /// Of segments sent again.
    pub retransmitted_segments: Option<Difference>,
    /// Of windows at the end.
    pub end_window_segments: Option<Difference>,
}
