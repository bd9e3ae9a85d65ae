//! What hosts report about their own connections: taken once each, and counted.
//!
//! Of TCP they feed no estimate: those come from the wire, where the control group is seen too. Those of QUIC go to the engine of their
//! network (`spand_core::networks::reported`). Losses in advised first flights hold advice back, and so do advised transfers that are
//! slower than the control group's (`publisher::retreat`).

mod hosts;

use std::num::NonZeroUsize;
use std::time::Instant;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use spand_proto::comparison::{Difference, Place};
use spand_proto::contract::HostName;
use spand_proto::push::PauseState;
use spand_proto::report::{Arm, ConnectionReport, FirstFlightLoss, PushCount, Report, ReportReceipt, Transport};
use spand_proto::units::{Micros, Timestamp};
use tokio::task::yield_now;

pub(super) use self::hosts::{ByHost, HostTally, NameHeard};
use self::hosts::{Hosts, Taken};
use super::benefit::{Benefit, BenefitDocument, BenefitMeasures};
use crate::publisher::{Client, FirstFlight, Published, Transfer};

/// First flights of transfers that ended longer ago say nothing of the advice that is in force.
const RETREAT_SPAN: Micros = Micros::from_secs(60);

/// Connections that are taken at a time: starts wait for the same locks, and for the thread. About 50 µs.
const CHUNK: usize = 32;

/// Takes reports.
#[derive(Debug)]
pub(super) struct Reports {
    hosts: Mutex<Hosts>,
    benefit: Benefit,
    measures: ReportMeasures,
}

/// What is counted of reports. Clones share the same numbers.
#[derive(Clone, Debug)]
pub(super) struct ReportMeasures {
    pub(super) batches: Counter,
    pub(super) batches_repeated: Counter,
    pub(super) connections: Family<ConnectionLabels, Counter>,
    pub(super) connections_ignored: Counter,
    pub(super) samples_dropped: Counter,
    pub(super) hosts_forgotten: Counter,
    pub(super) names_forgotten: Counter,
    pub(super) pushes: Family<PushLabels, Counter>,
}

/// Labels of reported connections.
#[derive(Clone, Copy, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(super) struct ConnectionLabels {
    arm: &'static str,
    first_flight_loss: &'static str,
}

/// Labels of reported pushes.
#[derive(Clone, Copy, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(super) struct PushLabels {
    outcome: &'static str,
}

impl Reports {
    /// Memory in bytes of N hosts, in addition to their keys.
    pub(super) const fn bytes(hosts: usize) -> usize {
        Hosts::bytes(hosts)
    }

    pub(super) fn new(limit: NonZeroUsize, now: Timestamp) -> Self {
        Self { hosts: Mutex::new(Hosts::new(limit)), benefit: Benefit::new(now), measures: ReportMeasures::default() }
    }

    pub(super) fn measures(&self) -> &ReportMeasures {
        &self.measures
    }

    pub(super) fn benefit_measures(&self) -> &BenefitMeasures {
        self.benefit.measures()
    }

    /// What the reports say of advice.
    pub(super) fn benefit_document(&self) -> BenefitDocument {
        let by_host = self.hosts.lock().by_host();
        self.benefit.document(&by_host)
    }

    /// Completion time of advised transfers less that of the control group, by class.
    pub(super) fn completion_differences(&self) -> Vec<Option<Difference>> {
        self.benefit.completion_differences()
    }

    /// What a host reported under a name.
    pub(super) fn heard(&self, client: &Client, name: &HostName) -> Option<NameHeard> {
        self.hosts.lock().heard(client, name)
    }

    /// A host subscribed, with this state of a pause.
    pub(super) fn on_subscription(&self, client: &Client, name: &HostName, pause: Option<PauseState>, now: Timestamp) {
        let taken = self.hosts.lock().on_subscription((client, name), pause, (Instant::now(), now));
        self.count_forgotten(&taken);
    }

    /// Takes a batch; one already seen is ignored as a whole, a connection to a network unknown here on its own. Who reports is
    /// identified by its certificate, else by its address: the name that it gives itself is a label.
    ///
    /// Others run between every few connections. Dropped before its end, the batch is taken in part, and never again.
    pub(super) async fn take(&self, client: &Client, report: &Report, published: &Published) -> ReportReceipt {
        let count = u32::try_from(report.connections.len()).unwrap_or(u32::MAX);
        self.measures.batches.inc();
        let taken = self.hosts.lock().take(client, report, (Instant::now(), published.now()));
        self.count_forgotten(&taken);
        if !taken.is_new {
            self.measures.batches_repeated.inc();
            return ReportReceipt { accepted: 0, ignored: count };
        }
        self.count_pushes(&report.pushes);
        let mut accepted = 0;
        let mut places = Vec::new();
        for connections in report.connections.chunks(CHUNK) {
            accepted += self.take_some(client, connections, published, &mut places);
            yield_now().await;
        }
        self.hosts.lock().count(client, &places);
        ReportReceipt { accepted, ignored: count - accepted }
    }

    /// Takes a few connections; gives how many. Those that are compared are added to `places`.
    fn take_some(
        &self,
        client: &Client,
        connections: &[ConnectionReport],
        published: &Published,
        places: &mut Vec<Place>,
    ) -> u32 {
        let networks = published.networks_of(connections.iter().map(|connection| connection.remote.ip()));
        let now = published.now();
        let (mut talks, mut flights, mut transfers, mut accepted) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let is_quic = |connection: &&ConnectionReport| connection.transport == Transport::Quic;
        let mut passed = published.pass_reports(client, connections.iter().filter(is_quic));
        for (connection, network) in connections.iter().zip(networks) {
            let learnt = is_quic(&connection).then(|| passed.next().unwrap_or(false));
            self.measures.samples_dropped.inc_by((learnt == Some(false)).into());
            let fresh = connection.ended_ago <= published.config().max_age;
            let Some(network) = network.filter(|_| fresh) else {
                // The engine may come to know the network by it.
                accepted += u32::from(learnt == Some(true));
                self.measures.connections_ignored.inc_by((learnt != Some(true)).into());
                continue;
            };
            accepted += 1;
            talks.push((connection.host.ip(), network));
            if let Some(place) = self.benefit.take(connection) {
                places.push(place);
                // Times that an application of one host reports take no advice from other hosts.
                if !is_quic(&connection) {
                    let ends = [connection.host, connection.remote];
                    let began = began(connection, place.duration, now);
                    transfers.push((network, Transfer { ends, place, began }));
                }
            }
            let application_of = is_quic(&connection).then(|| published.reporter(client));
            let flight = first_flight(connection, now).map(|flight| FirstFlight { application_of, ..flight });
            flights.extend(flight.map(|flight| (network, flight)));
            self.measures.connections.get_or_create(&labels(connection)).inc();
        }
        talks.sort_unstable();
        talks.dedup();
        published.used_destinations(&talks);
        published.first_flights(client, &flights);
        published.transfers(&transfers);
        accepted
    }

    fn count_forgotten(&self, taken: &Taken) {
        self.measures.hosts_forgotten.inc_by(taken.hosts_forgotten);
        self.measures.names_forgotten.inc_by(taken.names_forgotten);
    }

    fn count_pushes(&self, pushes: &PushCount) {
        let PushCount { received, in_time, late, unmatched } = *pushes;
        let outcomes = [("received", received), ("in_time", in_time), ("late", late), ("unmatched", unmatched)];
        for (outcome, count) in outcomes {
            self.measures.pushes.get_or_create(&PushLabels { outcome }).inc_by(count);
        }
    }
}

impl ReportMeasures {
    /// Reported connections of an arm.
    pub(super) fn transfers(&self, arm: Arm) -> u64 {
        let count = |first_flight_loss| {
            let labels = ConnectionLabels { arm: arm_name(Some(arm)), first_flight_loss };
            self.connections.get_or_create(&labels).get()
        };
        FIRST_FLIGHT_LOSSES.map(count).iter().sum()
    }
}

impl Default for ReportMeasures {
    fn default() -> Self {
        let measures = Self {
            batches: Counter::default(),
            batches_repeated: Counter::default(),
            connections: Family::default(),
            connections_ignored: Counter::default(),
            samples_dropped: Counter::default(),
            hosts_forgotten: Counter::default(),
            names_forgotten: Counter::default(),
            pushes: Family::default(),
        };
        // There from the start at zero, so that the first one is seen as a rise.
        for arm in ["advised", "control", "none"] {
            for first_flight_loss in FIRST_FLIGHT_LOSSES {
                drop(measures.connections.get_or_create(&ConnectionLabels { arm, first_flight_loss }));
            }
        }
        for outcome in ["received", "in_time", "late", "unmatched"] {
            drop(measures.pushes.get_or_create(&PushLabels { outcome }));
        }
        measures
    }
}

/// What a connection says about advice: a first flight that was advised and judged, not longer ago than a retreat looks back.
fn first_flight(connection: &ConnectionReport, now: Timestamp) -> Option<FirstFlight> {
    let (Some(advised), Some(lost)) = (connection.advised, connection.first_flight_loss) else { return None };
    let lost = connection.first_flight.map_or(lost, FirstFlightLoss::is_most);
    (connection.ended_ago <= RETREAT_SPAN).then_some(FirstFlight {
        ends: [connection.host, connection.remote],
        lost,
        began: connection.duration.map(|duration| began(connection, duration, now)),
        advised,
        acknowledged: connection.acknowledged,
        application_of: None,
    })
}

/// When a transfer that took `duration` began.
fn began(connection: &ConnectionReport, duration: Micros, now: Timestamp) -> Timestamp {
    now.before(Micros(connection.ended_ago.0.saturating_add(duration.0)))
}

const FIRST_FLIGHT_LOSSES: [&str; 3] = ["yes", "no", "unknown"];

fn arm_name(arm: Option<Arm>) -> &'static str {
    match arm {
        Some(Arm::Advised) => "advised",
        Some(Arm::Control) => "control",
        None => "none",
    }
}

fn labels(connection: &ConnectionReport) -> ConnectionLabels {
    let arm = arm_name(connection.arm);
    let first_flight_loss = match connection.first_flight_loss {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    ConnectionLabels { arm, first_flight_loss }
}
