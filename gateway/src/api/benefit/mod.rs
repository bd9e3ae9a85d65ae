//! What advice does to transfers, by what hosts reported: the comparison of the contract ([`spand_proto::comparison`]) with
//! the hosts behind it.
//!
//! Hosts are counted beside transfers, with the part of the largest, since transfers of one host are not independent of each
//! other.

mod measures;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use parking_lot::Mutex;
use serde::Serialize;
use spand_proto::comparison::{ARMS, ArmSummary, CLASSES, ClassSummary, Comparison, DifferenceSummary};
use spand_proto::contract::HostName;
use spand_proto::report::ConnectionReport;

pub(super) use self::measures::BenefitMeasures;

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
    comparison: Comparison,
    hosts: BTreeMap<HostName, Counts>,
    beyond_hosts: u64,
}

/// Transfers of one host.
type Counts = [[u32; ARMS.len()]; CLASSES.len()];

impl Benefit {
    pub(super) fn new(limit: NonZeroUsize) -> Self {
        Self { state: Mutex::default(), limit: limit.get(), measures: BenefitMeasures::default() }
    }

    pub(super) fn measures(&self) -> &BenefitMeasures {
        &self.measures
    }

    /// Takes a transfer of a host.
    pub(super) fn take(&self, host: &HostName, report: &ConnectionReport) {
        let mut state = self.state.lock();
        let Some(place) = state.comparison.take(report) else { return };
        if state.hosts.len() >= self.limit && !state.hosts.contains_key(host) {
            state.beyond_hosts += 1;
        } else if let Some(count) = state
            .hosts
            .entry(host.clone())
            .or_default()
            .get_mut(place.class)
            .and_then(|counts| counts.get_mut(place.arm))
        {
            *count = count.saturating_add(1);
        }
        drop(state);
        self.measures.observe(place, report);
    }

    /// The comparison as it stands.
    pub(super) fn document(&self) -> BenefitDocument {
        let state = self.state.lock();
        let with_hosts = |(index, class): (usize, ClassSummary)| ClassDocument {
            up_to_bytes: class.up_to_bytes,
            advised: state.arm(index, 0, class.advised),
            control: state.arm(index, 1, class.control),
            difference: class.difference,
        };
        BenefitDocument {
            classes: state.comparison.classes().into_iter().enumerate().map(with_hosts).collect(),
            hosts: state.hosts.len(),
            transfers_beyond_hosts: state.beyond_hosts,
            unmeasured: state.comparison.unmeasured(),
            paused: state.comparison.paused(),
        }
    }
}

impl State {
    fn arm(&self, class: usize, arm: usize, summary: ArmSummary) -> ArmDocument {
        let of_host = |counts: &Counts| counts.get(class).and_then(|counts| counts.get(arm)).copied().unwrap_or(0);
        let by_host = || self.hosts.values().map(of_host).filter(|count| *count > 0);
        let largest = by_host().max().filter(|_| summary.transfers > 0);
        let part = largest.map(|most| f64::from(most) / summary.transfers as f64);
        ArmDocument {
            hosts: by_host().count(),
            largest_host_part: part.map(|part| (part * 1_000.0).round() / 1_000.0),
            summary,
        }
    }
}

/// The comparison in JSON; what is not known is null.
#[derive(Debug, Serialize)]
pub(super) struct BenefitDocument {
    classes: Vec<ClassDocument>,
    hosts: usize,
    transfers_beyond_hosts: u64,
    unmeasured: u64,
    /// Transfers that met a pause of advice on their host, and are in neither arm.
    paused: u64,
}

#[derive(Debug, Serialize)]
struct ClassDocument {
    up_to_bytes: Option<u64>,
    advised: ArmDocument,
    control: ArmDocument,
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
    use spand_proto::report::Arm;
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
            limited_by: None,
            arm,
            advised: None,
            refusal: None,
            paused: false,
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
        // Whatever arm it says: one that met a pause is in none.
        benefit.take(&host("a"), &ConnectionReport { paused: true, ..report(Some(Arm::Control), 30_000, 1) });
        benefit.take(&host("a"), &ConnectionReport { paused: true, ..report(None, 30_000, 1) });
        let at_once = ConnectionReport { duration: None, paused: true, ..at_once };
        benefit.take(&host("a"), &at_once);
        let document = serde_json::to_value(benefit.document()).unwrap();
        assert_eq!(document["paused"], 2, "{document}");
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
