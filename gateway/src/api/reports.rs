//! What hosts report about their own connections: taken once each, and counted.
//!
//! Does not feed estimates: those come from the wire alone, where the control group is seen too. Losses in advised first
//! flights hold advice back (`publisher::retreat`).

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Instant;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use spand_proto::contract::HostName;
use spand_proto::push::PauseState;
use spand_proto::report::{Arm, ConnectionReport, PushCount, Report, ReportReceipt};
use spand_proto::start::RefusalReason;
use spand_proto::units::{Micros, Timestamp};

use super::benefit::Benefit;
use crate::publisher::{FirstFlight, Published};

/// First flights of transfers that ended longer ago say nothing of the advice that is in force.
const RETREAT_SPAN: Micros = Micros::from_secs(60);

/// Takes reports.
#[derive(Debug)]
pub(super) struct Reports {
    /// What each host reported. Nobody else's certificate can report in its name.
    hosts: Mutex<BTreeMap<Host, Heard>>,
    limit: NonZeroUsize,
    benefit: Benefit,
    measures: ReportMeasures,
}

/// The names of the certificate, where there is one, and the name that the host gives itself.
type Host = (Option<String>, HostName);

/// Agents told apart under one name of a host: several may run on it, and each is another one after a restart.
const AGENTS: usize = 8;

#[derive(Debug, Default)]
struct Heard {
    /// When each agent started, by its host's clock, and its newest batch; the one heard last at the end. A start only tells agents
    /// apart: that clock may have been stepped back since.
    agents: Vec<(Timestamp, u64)>,
    tally: HostTally,
    paused: Option<HostPause>,
}

/// Whether advice is paused on a host, as it said last.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct HostPause {
    pub(super) paused: bool,
    /// When that ends by itself.
    pub(super) until: Option<Timestamp>,
}

impl HostPause {
    fn of(state: PauseState, now: Timestamp) -> Self {
        match state {
            PauseState::Active => Self { paused: false, until: None },
            PauseState::Paused { remaining } => {
                Self { paused: true, until: remaining.map(|remaining| now.after(remaining)) }
            }
        }
    }
}

/// What a host reported since the gateway started, or since it was forgotten at the limit.
#[derive(Clone, Debug)]
pub(super) struct HostTally {
    pub(super) heard: Instant,
    /// Transfers reported.
    pub(super) transfers: u64,
    /// Those that started on advice.
    pub(super) applied: u64,
    /// Those that were held out.
    pub(super) control: u64,
    /// Those that lost a segment of an advised first flight.
    pub(super) first_flight_losses: u64,
    /// Those that met a pause of advice on the host.
    pub(super) paused: u64,
    /// Those that the start function refused.
    pub(super) refused: BTreeMap<RefusalReason, u64>,
    pub(super) pushes: PushCount,
}

/// What is counted of reports. Clones share the same numbers.
#[derive(Clone, Debug)]
pub(super) struct ReportMeasures {
    pub(super) batches: Counter,
    pub(super) batches_repeated: Counter,
    pub(super) connections: Family<ConnectionLabels, Counter>,
    pub(super) connections_ignored: Counter,
    pub(super) hosts_forgotten: Counter,
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
    pub(super) fn new(limit: NonZeroUsize) -> Self {
        Self { hosts: Mutex::default(), limit, benefit: Benefit::new(limit), measures: ReportMeasures::default() }
    }

    pub(super) fn measures(&self) -> &ReportMeasures {
        &self.measures
    }

    /// What the reports say of advice.
    pub(super) fn benefit(&self) -> &Benefit {
        &self.benefit
    }

    /// What a host reported.
    pub(super) fn tally(&self, certificate: Option<String>, host: HostName) -> Option<HostTally> {
        let hosts = self.hosts.lock();
        hosts.get(&(certificate, host)).filter(|heard| !heard.agents.is_empty()).map(|heard| heard.tally.clone())
    }

    /// Whether advice is paused on a host; `None` where it did not say.
    pub(super) fn paused(&self, certificate: Option<String>, host: HostName) -> Option<HostPause> {
        self.hosts.lock().get(&(certificate, host))?.paused
    }

    /// A host subscribed, and said this.
    pub(super) fn on_subscription(
        &self,
        certificate: Option<String>,
        host: &HostName,
        pause: Option<PauseState>,
        now: Timestamp,
    ) {
        let host = (certificate, host.clone());
        let mut hosts = self.hosts.lock();
        if pause.is_none() && !hosts.contains_key(&host) {
            return;
        }
        self.make_room(&mut hosts, &host);
        let heard = hosts.entry(host).or_default();
        heard.paused = pause.map(|pause| HostPause::of(pause, now));
        if heard.agents.is_empty() {
            // By this it is judged who is forgotten first.
            heard.tally.heard = Instant::now();
        }
    }

    /// Takes a batch; one already seen is ignored as a whole, a connection to a network unknown here on its own.
    pub(super) fn take(&self, certificate: Option<String>, report: &Report, published: &Published) -> ReportReceipt {
        let count = u32::try_from(report.connections.len()).unwrap_or(u32::MAX);
        self.measures.batches.inc();
        if !self.is_new(certificate, report, published.now()) {
            self.measures.batches_repeated.inc();
            return ReportReceipt { accepted: 0, ignored: count };
        }
        self.count_pushes(&report.pushes);
        let mut accepted = 0;
        for connection in &report.connections {
            let fresh = connection.ended_ago <= published.config().max_age;
            let network = published.lookup(connection.remote.ip()).map(|view| view.network);
            if let Some(network) = network.filter(|_| fresh) {
                accepted += 1;
                published.talked(connection.host.ip(), network);
                self.benefit.take(&report.host_name, connection);
                if let Some(flight) = first_flight(connection, published.now()) {
                    published.first_flight(network, &flight);
                }
                self.measures.connections.get_or_create(&labels(connection)).inc();
            } else {
                self.measures.connections_ignored.inc();
            }
        }
        ReportReceipt { accepted, ignored: count - accepted }
    }

    fn is_new(&self, certificate: Option<String>, report: &Report, now: Timestamp) -> bool {
        let host = (certificate, report.host_name.clone());
        let mut hosts = self.hosts.lock();
        self.make_room(&mut hosts, &host);
        let heard = hosts.entry(host).or_default();
        let is_new = heard.take(report);
        if let Some(pause) = report.pause.filter(|_| is_new) {
            heard.paused = Some(HostPause::of(pause, now));
        }
        is_new
    }

    fn make_room(&self, hosts: &mut BTreeMap<Host, Heard>, host: &Host) {
        if !hosts.contains_key(host) && hosts.len() >= self.limit.get() {
            let quietest = hosts.iter().min_by_key(|(_, heard)| heard.tally.heard).map(|(name, _)| name.clone());
            if let Some(name) = quietest {
                hosts.remove(&name);
                self.measures.hosts_forgotten.inc();
            }
        }
    }

    fn count_pushes(&self, pushes: &PushCount) {
        let PushCount { received, in_time, late, unmatched } = *pushes;
        let outcomes = [("received", received), ("in_time", in_time), ("late", late), ("unmatched", unmatched)];
        for (outcome, count) in outcomes {
            self.measures.pushes.get_or_create(&PushLabels { outcome }).inc_by(count);
        }
    }
}

impl Heard {
    /// Takes a batch; returns whether it is one that was not taken before.
    fn take(&mut self, report: &Report) -> bool {
        let known = self.agents.iter().position(|(started, _)| *started == report.agent_started);
        if known.and_then(|agent| self.agents.get(agent)).is_some_and(|(_, newest)| *newest >= report.batch) {
            return false;
        }
        // Without room the one that was silent for longest goes.
        if let Some(agent) = known.or((self.agents.len() >= AGENTS).then_some(0)) {
            self.agents.remove(agent);
        }
        self.agents.push((report.agent_started, report.batch));
        self.tally.take(report);
        true
    }
}

impl HostTally {
    fn take(&mut self, report: &Report) {
        self.heard = Instant::now();
        for connection in &report.connections {
            let advised = connection.advised.is_some();
            self.transfers += 1;
            self.applied += u64::from(advised);
            self.paused += u64::from(connection.paused);
            self.control += u64::from(connection.arm == Some(Arm::Control));
            self.first_flight_losses += u64::from(advised && connection.first_flight_loss == Some(true));
            if let Some(reason) = connection.refusal {
                *self.refused.entry(reason).or_default() += 1;
            }
        }
        let PushCount { received, in_time, late, unmatched } = report.pushes;
        let more = [received, in_time, late, unmatched];
        let pushes = &mut self.pushes;
        let counts = [&mut pushes.received, &mut pushes.in_time, &mut pushes.late, &mut pushes.unmatched];
        counts.into_iter().zip(more).for_each(|(count, more)| *count = count.saturating_add(more));
    }
}

impl Default for HostTally {
    fn default() -> Self {
        Self {
            heard: Instant::now(),
            transfers: 0,
            applied: 0,
            control: 0,
            paused: 0,
            first_flight_losses: 0,
            refused: BTreeMap::new(),
            pushes: PushCount::default(),
        }
    }
}

impl Default for ReportMeasures {
    fn default() -> Self {
        let measures = Self {
            batches: Counter::default(),
            batches_repeated: Counter::default(),
            connections: Family::default(),
            connections_ignored: Counter::default(),
            hosts_forgotten: Counter::default(),
            pushes: Family::default(),
        };
        // There from the start at zero, so that the first one is seen as a rise.
        for arm in ["advised", "control", "none"] {
            for first_flight_loss in ["yes", "no", "unknown"] {
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
    let took = |duration: Micros| now.before(Micros(connection.ended_ago.0.saturating_add(duration.0)));
    (connection.ended_ago <= RETREAT_SPAN).then_some(FirstFlight {
        ends: [connection.host, connection.remote],
        lost,
        began: connection.duration.map(took),
        advised,
        acknowledged: connection.acknowledged,
    })
}

fn labels(connection: &ConnectionReport) -> ConnectionLabels {
    let arm = match connection.arm {
        Some(Arm::Advised) => "advised",
        Some(Arm::Control) => "control",
        None => "none",
    };
    let first_flight_loss = match connection.first_flight_loss {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    ConnectionLabels { arm, first_flight_loss }
}
