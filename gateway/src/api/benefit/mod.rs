//! What advice does to transfers: the arms that hosts drew, compared by what they reported (definitions, "Control group").
//!
//! By assignment: a transfer counts for the arm that was drawn, whether or not its start was advised in the end. Hosts are
//! counted beside transfers, with the part of the largest, since transfers of one host are not independent of each other.

mod measures;
mod tally;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use parking_lot::Mutex;
use serde::Serialize;
use spand_proto::contract::HostName;
use spand_proto::report::{Arm, ConnectionReport};
use spand_proto::units::{Bytes, Micros};

pub(super) use self::measures::BenefitMeasures;
use self::tally::{Difference, Tally, Times, rounded};

/// Size classes, by the largest size of each in bytes; the last has none.
pub(super) const CLASSES: [Option<u64>; 7] =
    [Some(10_000), Some(30_000), Some(100_000), Some(300_000), Some(1_000_000), Some(10_000_000), None];
/// Their names, as labels of metrics.
const CLASS_NAMES: [&str; CLASSES.len()] = ["10kB", "30kB", "100kB", "300kB", "1MB", "10MB", "more"];
/// The arms, in the order in which they are kept, and their names.
const ARMS: [(Arm, &str); 2] = [(Arm::Advised, "advised"), (Arm::Control, "control")];

/// The comparison since the start of the gateway.
#[derive(Debug)]
pub(super) struct Benefit {
    state: Mutex<State>,
    /// Hosts told apart; what further ones report counts, but not as hosts.
    limit: usize,
    measures: BenefitMeasures,
}

#[derive(Debug, Default)]
struct State {
    cells: [[Cell; ARMS.len()]; CLASSES.len()],
    hosts: BTreeMap<HostName, Counts>,
    beyond_hosts: u64,
    unmeasured: u64,
}

/// Transfers of one host.
type Counts = [[u32; ARMS.len()]; CLASSES.len()];

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

impl Benefit {
    pub(super) fn new(limit: NonZeroUsize) -> Self {
        Self { state: Mutex::default(), limit: limit.get(), measures: BenefitMeasures::default() }
    }

    pub(super) fn measures(&self) -> &BenefitMeasures {
        &self.measures
    }

    /// Takes a transfer of a host. One of no arm is none of the comparison; one that was not measured to its end counts as
    /// such.
    pub(super) fn take(&self, host: &HostName, report: &ConnectionReport) {
        let Some(arm) = ARMS.iter().position(|(arm, _)| Some(*arm) == report.arm) else { return };
        let mut state = self.state.lock();
        let (Some(duration), Bytes(size @ 1..)) = (report.duration, report.acknowledged) else {
            // What is reported at once is reported again at its end.
            state.unmeasured += u64::from(report.first_flight_loss != Some(true));
            return;
        };
        let class =
            CLASSES.iter().position(|largest| largest.is_none_or(|largest| size <= largest)).unwrap_or_default();
        if let Some(cell) = state.cells.get_mut(class).and_then(|cells| cells.get_mut(arm)) {
            cell.take(report, duration);
        }
        if state.hosts.len() >= self.limit && !state.hosts.contains_key(host) {
            state.beyond_hosts += 1;
        } else if let Some(count) =
            state.hosts.entry(host.clone()).or_default().get_mut(class).and_then(|counts| counts.get_mut(arm))
        {
            *count = count.saturating_add(1);
        }
        drop(state);
        self.measures.observe(class, arm, report, duration);
    }

    /// The comparison as it stands.
    pub(super) fn document(&self) -> BenefitDocument {
        let state = self.state.lock();
        let class =
            |(index, (largest, [advised, control])): (usize, (&Option<u64>, &[Cell; ARMS.len()]))| ClassDocument {
                up_to_bytes: *largest,
                advised: state.arm(index, 0, advised),
                control: state.arm(index, 1, control),
                difference: DifferenceDocument {
                    completion_ms: Difference::of(&advised.completion_ms, &control.completion_ms),
                    retransmitted_segments: Difference::of(&advised.retransmitted, &control.retransmitted),
                    end_window_segments: Difference::of(&advised.end_window, &control.end_window),
                },
            };
        BenefitDocument {
            classes: CLASSES.iter().zip(&state.cells).enumerate().map(class).collect(),
            hosts: state.hosts.len(),
            transfers_beyond_hosts: state.beyond_hosts,
            unmeasured: state.unmeasured,
        }
    }
}

impl State {
    fn arm(&self, class: usize, arm: usize, cell: &Cell) -> ArmDocument {
        let of_host = |counts: &Counts| counts.get(class).and_then(|counts| counts.get(arm)).copied().unwrap_or(0);
        let by_host = || self.hosts.values().map(of_host).filter(|count| *count > 0);
        let transfers = cell.completion_ms.count;
        let largest = by_host().max().filter(|_| transfers > 0);
        ArmDocument {
            transfers,
            hosts: by_host().count(),
            largest_host_part: largest.map(|most| rounded(f64::from(most) / transfers as f64)),
            started_on_advice: cell.advised,
            refused: cell.refused,
            completion_ms_mean: cell.completion_ms.mean().map(rounded),
            completion_ms_median: cell.times.median_us().map(|us| rounded(us / 1_000.0)),
            retransmitted_segments_mean: cell.retransmitted.mean().map(rounded),
            end_window_segments_mean: cell.end_window.mean().map(rounded),
        }
    }
}

impl Cell {
    fn take(&mut self, report: &ConnectionReport, duration: Micros) {
        self.completion_ms.add(duration.as_millis_f64());
        self.times.add(duration.0);
        self.retransmitted.add(f64::from(report.retransmitted.0));
        if let Some(segments) = end_window_segments(report) {
            self.end_window.add(segments);
        }
        self.advised += u64::from(report.advised.is_some());
        self.refused += u64::from(report.refusal.is_some());
    }
}

fn end_window_segments(report: &ConnectionReport) -> Option<f64> {
    let (window, mss) = (report.end_window?, report.mss?);
    Some(window.0 as f64 / mss.0 as f64)
}

/// The comparison in JSON; what is not known is null.
#[derive(Debug, Serialize)]
pub(super) struct BenefitDocument {
    classes: Vec<ClassDocument>,
    hosts: usize,
    transfers_beyond_hosts: u64,
    unmeasured: u64,
}

#[derive(Debug, Serialize)]
struct ClassDocument {
    up_to_bytes: Option<u64>,
    advised: ArmDocument,
    control: ArmDocument,
    difference: DifferenceDocument,
}

#[derive(Debug, Serialize)]
struct ArmDocument {
    transfers: u64,
    hosts: usize,
    largest_host_part: Option<f64>,
    started_on_advice: u64,
    refused: u64,
    completion_ms_mean: Option<f64>,
    completion_ms_median: Option<f64>,
    retransmitted_segments_mean: Option<f64>,
    end_window_segments_mean: Option<f64>,
}

/// The advised arm less the control group.
#[derive(Debug, Serialize)]
struct DifferenceDocument {
    completion_ms: Option<Difference>,
    retransmitted_segments: Option<Difference>,
    end_window_segments: Option<Difference>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(arm: Option<Arm>, bytes: u64, ms: u64) -> ConnectionReport {
        ConnectionReport {
            host: ([10, 0, 0, 1], 443).into(),
            remote: ([192, 0, 2, 1], 50_000).into(),
            ended_ago: Micros(0),
            duration: Some(Micros::from_millis(ms)),
            end_window: Some(Bytes(30_000)),
            mss: Some(Bytes(1_500)),
            srtt: None,
            rtt_min: None,
            acknowledged: Bytes(bytes),
            retransmitted: spand_proto::units::Segments(2),
            first_flight_loss: None,
            limited_by: None,
            arm,
            advised: None,
            refusal: None,
        }
    }

    fn host(name: &str) -> HostName {
        HostName::try_from(name.to_owned()).unwrap()
    }

    #[test]
    fn arms_are_compared_by_size_and_a_host_that_dominates_shows() {
        let benefit = Benefit::new(NonZeroUsize::new(2).unwrap());
        for n in 0..10 {
            benefit.take(&host("a"), &report(Some(Arm::Advised), 30_000, 200 + n));
            benefit.take(&host("a"), &report(Some(Arm::Control), 10_001, 300 + n));
        }
        benefit.take(&host("b"), &report(Some(Arm::Advised), 30_000, 205));
        benefit.take(&host("c"), &report(Some(Arm::Advised), 30_000, 205));
        benefit.take(&host("a"), &report(None, 30_000, 1));
        benefit.take(&host("a"), &ConnectionReport { duration: None, ..report(Some(Arm::Control), 30_000, 1) });
        let at_once = ConnectionReport { first_flight_loss: Some(true), ..report(Some(Arm::Advised), 30_000, 1) };
        benefit.take(&host("a"), &ConnectionReport { duration: None, ..at_once });
        benefit.take(&host("a"), &report(Some(Arm::Control), 10_000_001, 90_000));
        let document = serde_json::to_value(benefit.document()).unwrap();
        assert_eq!(
            (&document["hosts"], &document["transfers_beyond_hosts"], &document["unmeasured"]),
            (&2.into(), &1.into(), &1.into())
        );
        let class = &document["classes"][1];
        assert_eq!(class["up_to_bytes"], 30_000);
        let (advised, control) = (&class["advised"], &class["control"]);
        assert_eq!((&advised["transfers"], &advised["hosts"]), (&12.into(), &2.into()));
        assert_eq!(advised["largest_host_part"].as_f64(), Some(0.833));
        assert_eq!(
            (&control["transfers"], &control["hosts"], &control["largest_host_part"]),
            (&10.into(), &1.into(), &1.0.into())
        );
        assert_eq!(
            (&control["completion_ms_mean"], &control["end_window_segments_mean"]),
            (&304.5.into(), &20.0.into())
        );
        let difference = &class["difference"]["completion_ms"];
        let field = |name: &str| difference[name].as_f64().unwrap();
        assert!(field("low") < -99.0 && field("high") > -101.0 && field("high") < -97.0, "{difference}");
        assert!((difference["percent"][0].as_f64().unwrap() + 32.8).abs() < 0.1, "{difference}");
        let page = include_str!("../../../../docs/api.md");
        let example = page.split("One class").nth(1).and_then(|rest| rest.split("```").nth(1)).unwrap();
        let example: serde_json::Value = serde_json::from_str(example.trim_start_matches("json")).unwrap();
        assert_eq!(&example, class, "the example of the page, {class:#}");
        let none = &document["classes"][6];
        assert_eq!((&none["control"]["transfers"], &none["up_to_bytes"]), (&1.into(), &serde_json::Value::Null));
        assert_eq!(none["difference"]["completion_ms"], serde_json::Value::Null, "one transfer says nothing");
        assert_eq!(none["advised"]["completion_ms_mean"], serde_json::Value::Null);
    }
}
