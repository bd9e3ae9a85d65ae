//! What advice does to transfers, by what hosts reported: the comparison of the contract ([`spand_proto::comparison`]) with
//! the hosts behind it.
//!
//! Hosts are counted beside transfers, with the part of the largest, since transfers of one host are not independent of each
//! other.

mod measures;

use parking_lot::Mutex;
use serde::Serialize;
use spand_proto::comparison::{ArmSummary, ClassSummary, Comparison, Difference, DifferenceSummary, Place};
use spand_proto::operator::rfc3339;
use spand_proto::report::ConnectionReport;
use spand_proto::units::{Timestamp, rounded};

pub(super) use self::measures::BenefitMeasures;
use super::reports::ByHost;

/// The experiment: the comparison, and since when it counts.
#[derive(Debug)]
pub(super) struct Benefit {
    state: Mutex<State>,
    measures: BenefitMeasures,
}

#[derive(Debug)]
struct State {
    comparison: Comparison,
    since: Timestamp,
}

impl Benefit {
    pub(super) fn new(now: Timestamp) -> Self {
        let state = State { comparison: Comparison::default(), since: now };
        Self { state: Mutex::new(state), measures: BenefitMeasures::default() }
    }

    pub(super) fn measures(&self) -> &BenefitMeasures {
        &self.measures
    }

    /// Takes a transfer. Gives where it counts, if it does.
    pub(super) fn take(&self, report: &ConnectionReport) -> Option<Place> {
        let place = self.state.lock().comparison.take(report)?;
        self.measures.observe(place, report);
        Some(place)
    }

    /// Completion time, advised less control, by class.
    pub(super) fn completion_differences(&self) -> Vec<Option<Difference>> {
        self.state.lock().comparison.completion_differences()
    }

    /// The comparison as it stands, with the hosts behind it.
    pub(super) fn document(&self, by_host: &ByHost) -> BenefitDocument {
        let (since, classes, unmeasured, transfers_paused) = {
            let State { since, comparison, .. } = &*self.state.lock();
            (*since, comparison.classes(), comparison.unmeasured(), comparison.paused())
        };
        let with_hosts = |(class, [advised, control]): (ClassSummary, [(usize, u32); 2])| ClassDocument {
            size: class.size,
            up_to_bytes: class.up_to_bytes,
            advised: ArmDocument::new(class.advised, advised),
            control: ArmDocument::new(class.control, control),
            not_compared: class.not_compared,
            difference: class.difference,
        };
        BenefitDocument {
            since: rfc3339(since),
            classes: classes.into_iter().zip(by_host.cells).map(with_hosts).collect(),
            hosts: by_host.hosts,
            transfers_beyond_hosts: by_host.beyond,
            unmeasured,
            transfers_paused,
        }
    }
}

impl ArmDocument {
    fn new(summary: ArmSummary, (hosts, most): (usize, u32)) -> Self {
        let part = (summary.transfers > 0 && hosts > 0).then(|| f64::from(most) / summary.transfers as f64);
        let largest_host_part = part.map(|part| rounded(part.min(1.0), 3));
        Self { hosts, largest_host_part, summary }
    }
}

/// The comparison in JSON; what is not known is null.
#[derive(Debug, Serialize)]
pub(super) struct BenefitDocument {
    /// RFC 3339.
    since: String,
    classes: Vec<ClassDocument>,
    hosts: usize,
    transfers_beyond_hosts: u64,
    unmeasured: u64,
    /// Transfers that met a pause of advice on their host, and are in neither arm.
    transfers_paused: u64,
}

#[derive(Debug, Serialize)]
struct ClassDocument {
    size: String,
    up_to_bytes: Option<u64>,
    advised: ArmDocument,
    control: ArmDocument,
    not_compared: u64,
    difference: DifferenceSummary,
}

#[derive(Debug, Serialize)]
struct ArmDocument {
    hosts: usize,
    largest_host_part: Option<f64>,
    #[serde(flatten)]
    summary: ArmSummary,
}

#[cfg(test)]
mod tests {
    use spand_proto::report::{Arm, Transport};
    use spand_proto::units::{Bytes, Micros};

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
            first_flight: None,
            limited_by: None,
            arm,
            advised: None,
            refusal: None,
            paused: false,
            transport: Transport::Tcp,
            loss_window: None,
            congestion_events: 0,
            ended_in_slow_start: None,
            careful_resume: None,
        }
    }

    #[test]
    fn arms_are_compared_by_size_and_a_host_that_dominates_shows() {
        let benefit = Benefit::new(Timestamp(1_800_000_000_000_000_000));
        let mut by_host = ByHost { hosts: 2, beyond: 1, ..ByHost::default() };
        by_host.cells[1] = [(2, 10), (1, 10)];
        for n in 0..10 {
            benefit.take(&report(Some(Arm::Advised), 30_000, 200 + n));
            benefit.take(&report(Some(Arm::Control), 29_000, 300 + n));
        }
        benefit.take(&report(Some(Arm::Advised), 30_300, 205));
        benefit.take(&report(Some(Arm::Advised), 30_300, 205));
        assert_eq!(benefit.take(&report(None, 30_000, 1)), None);
        benefit.take(&report(Some(Arm::Control), 12_001, 100));
        benefit.take(&ConnectionReport { duration: None, ..report(Some(Arm::Control), 30_000, 1) });
        let at_once = ConnectionReport { first_flight_loss: Some(true), ..report(Some(Arm::Advised), 30_000, 1) };
        benefit.take(&ConnectionReport { duration: None, ..at_once });
        // Whatever arm it says: one that met a pause is in none.
        benefit.take(&ConnectionReport { paused: true, ..report(Some(Arm::Control), 30_000, 1) });
        benefit.take(&ConnectionReport { paused: true, ..report(None, 30_000, 1) });
        benefit.take(&ConnectionReport { duration: None, paused: true, ..at_once });
        benefit.take(&report(Some(Arm::Control), 12_000_001, 90_000));
        let document = serde_json::to_value(benefit.document(&by_host)).unwrap();
        assert_eq!(
            (&document["hosts"], &document["transfers_beyond_hosts"], &document["unmeasured"]),
            (&2.into(), &1.into(), &1.into())
        );
        assert_eq!(document["transfers_paused"], 2, "{document}");
        assert_eq!(document["since"], "2027-01-15T08:00:00Z");
        let class = &document["classes"][1];
        assert_eq!(
            (&class["size"], &class["up_to_bytes"], &class["not_compared"]),
            (&"30kB".into(), &36_000.into(), &1.into())
        );
        let (advised, control) = (&class["advised"], &class["control"]);
        assert_eq!((&advised["transfers"], &advised["hosts"]), (&12.into(), &2.into()));
        assert_eq!(advised["largest_host_part"].as_f64(), Some(0.833));
        assert_eq!((&control["transfers"], &control["hosts"]), (&11.into(), &1.into()));
        assert_eq!(control["end_window_mean_segments"], 20.0);
        let difference = &class["difference"]["completion_ms"];
        let field = |name: &str| difference[name].as_f64().unwrap();
        assert!(field("low") < -99.0 && field("high") > -101.0 && field("high") < -97.0, "{difference}");
        assert!((difference["percent"][0].as_f64().unwrap() + 32.8).abs() < 0.1, "{difference}");
        let page = include_str!("../../../../docs/reference/api.md");
        let example = page.split("One class").nth(1).and_then(|rest| rest.split("```").nth(1)).unwrap();
        let example: serde_json::Value = serde_json::from_str(example.trim_start_matches("json")).unwrap();
        assert_eq!(&example, class, "the example of the page, {class:#}");
        let none = &document["classes"][6];
        assert_eq!((&none["control"]["transfers"], &none["up_to_bytes"]), (&1.into(), &serde_json::Value::Null));
        assert_eq!(none["difference"]["completion_ms"], serde_json::Value::Null, "one transfer says nothing");
        assert_eq!(none["advised"]["completion_mean_ms"], serde_json::Value::Null);
    }
}
