//! How the state is written: batches of an engine, starts, reports of hosts.

use std::collections::HashSet;
use std::hash::BuildHasher;

use spand_cells::Notice;
use spand_core::event::{Event, StartImminent};
use spand_core::networks::Withdrawal;
use spand_core::networks::reported::ReportedConnection;
use spand_core::networks::view::NetworkView;
use spand_core::service::ServiceSize;
use spand_core::shard::Partition;
use spand_proto::network::Network;
use spand_proto::push::WithdrawalReason;
use spand_proto::report::ConnectionReport;

use super::change::{Change, not_published, withdrawal_reason};
use super::insight::Kind;
use super::measure::{FAILURE, FlightLabels, ReloadLabels, SUCCESS};
use super::networks::{Judged, Put};
use super::retreat::{FirstFlight, Transfer, Verdict};
use super::services::Services;
use super::state::{Advertised, State};
use super::status::EngineStatus;
use super::{Batch, Client, Published};

/// Networks changed under one hold of the lock, so that readers wait well under a millisecond.
const APPLY_CHUNK: usize = 256;

impl Published {
    /// Takes a batch from the engine. Returns the starts that reached a subscriber, for the engine's push ledger
    /// (`Engine::note_advised`). A network's and a service's batches come from one thread each.
    pub fn apply(&self, batch: Batch) -> Vec<StartImminent> {
        let Batch { polled, events, trends, samples, engine } = batch;
        let mut pushed = Vec::new();
        let mut changes = Vec::with_capacity(events.len());
        for event in events {
            match event {
                Event::StartImminent(start) => pushed.extend(self.push_start(start).then_some(start)),
                Event::Established(connection) => self.established(&connection),
                Event::DirectionEnded(_) | Event::TransferEnded(_) => {}
                change => changes.push(change),
            }
        }
        let mut changes = changes.into_iter().peekable();
        while changes.peek().is_some() {
            let mut advertised = Advertised::default();
            let mut state = self.shared.state.write();
            for change in changes.by_ref().take(APPLY_CHUNK) {
                self.change(&mut state, change, &mut advertised);
            }
            drop(state);
            self.shared.insight.changed();
            self.send_out(advertised);
        }
        self.shared.insight.trends(trends);
        self.shared.insight.samples(&samples);
        if let Some(engine) = engine {
            let mut engines = self.shared.engines.write();
            if engines.len() <= engine.shard {
                engines.resize(engine.shard + 1, EngineStatus::default());
            }
            let shard = engine.shard;
            engines[shard] = engine;
            let total = EngineStatus::total(&engines);
            drop(engines);
            self.shared.insight.engine(self.now(), &total, &self.shared.captures.read());
        }
        self.measures().apply_seconds.observe(polled.elapsed().as_secs_f64());
        pushed
    }

    /// Hands one start to the host it is for, now, or to the gateway that its host is subscribed at. Whether a subscriber got it, as far
    /// as is known here: only then is the connection advised.
    pub fn push_start(&self, start: StartImminent) -> bool {
        match self.push_start_here(start) {
            Some(is_pushed) => is_pushed,
            None if self.hand_on(&start) => true,
            None => {
                self.measures().starts_no_subscriber.inc();
                false
            }
        }
    }

    /// Whether a subscriber got it; `None` where the host is not subscribed here.
    pub(super) fn push_start_here(&self, start: StartImminent) -> Option<bool> {
        let (measures, config, now) = (self.measures(), &self.shared.config, self.now());
        let mut outbound = self.shared.outbound.lock();
        let host_ids = outbound.subscribers.host_ids(start.host);
        if host_ids.is_empty() {
            return None;
        }
        let mut state = self.shared.state.write();
        let start = StartImminent { network: state.networks.narrowed(start.network, start.remote), ..start };
        let estimate = state.estimate(start.network, now, config);
        if estimate.is_some()
            && let Some(budget) = state.networks.budget(start.network)
        {
            // So that the host has its part before the start is pushed.
            for host_id in &host_ids {
                let has_room = state.leases.start(*host_id, start.network, budget, now);
                measures.leases_no_room.inc_by((!has_room).into());
            }
        }
        drop(state);
        if self.shared.sends_only_in_use() {
            let uses: Vec<_> = host_ids.iter().map(|host_id| (*host_id, start.network)).collect();
            self.count_uses(&outbound.record_uses(&uses, estimate.is_some(), now));
        }
        let Some(estimate) = estimate else {
            drop(outbound);
            measures.starts_no_estimate.inc();
            return Some(false);
        };
        let pushed = outbound.subscribers.push(start, &estimate, config);
        drop(outbound);
        if pushed.subscribers > 0 {
            self.shared.insight.pushed(&start, pushed.subscribers);
        }
        measures.starts_pushed.inc_by(pushed.subscribers as u64);
        measures.starts_overflowed.inc_by(pushed.overflowed as u64);
        measures.start_queued_seconds.observe(self.now().since(start.at).as_secs_f64());
        Some(pushed.subscribers > 0)
    }

    /// Replaces the state of the networks that are an engine's `own`, and of the services where it keeps them, after events of
    /// it were lost. Every subscriber is resynchronised, and people are shown that it happened.
    pub fn replace(&self, views: Vec<NetworkView>, own: impl Fn(Network) -> bool, sizes: Option<Vec<ServiceSize>>) {
        self.fill(views, own, sizes);
        self.shared.insight.note(self.now(), Kind::Part, "state_replaced", String::new());
    }

    /// The configuration was read again: whether it came into force, and which keys changed or why it did not.
    pub(crate) fn configuration_read(&self, in_force: bool, what: String) {
        let result = if in_force { SUCCESS } else { FAILURE };
        let measures = self.measures();
        measures.config_reloads.get_or_create(&ReloadLabels { result }).inc();
        measures.config_last_reload_successful.set(in_force.into());
        let name = if in_force { "configuration_reloaded" } else { "configuration_refused" };
        self.shared.insight.note(self.now(), Kind::Part, name, what);
    }

    /// What another gateway saw of networks lies far from what all others did.
    pub(crate) fn outlier_found(&self, what: String) {
        self.shared.insight.note(self.now(), Kind::Part, "gateway_outlier", what);
    }

    /// Other prefixes make networks from now on: hosts read the reason `administrator` for those that they no longer make.
    pub(crate) fn made_by(&self, partition: Partition) {
        self.shared.state.write().made_by = Some(partition);
    }

    /// Takes what the store held, at the start.
    pub(crate) fn restore(&self, views: Vec<NetworkView>) {
        self.fill(views, |_| true, None);
    }

    fn fill(&self, views: Vec<NetworkView>, own: impl Fn(Network) -> bool, sizes: Option<Vec<ServiceSize>>) {
        if let Some(sizes) = sizes {
            let mut services = Services::default();
            for size in sizes {
                services.put(size, self.shared.config.change);
            }
            self.shared.state.write().services = services;
        }
        let kept: HashSet<Network> = views.iter().map(|view| view.network).collect();
        let mut gone = self.shared.state.read().networks.all();
        gone.retain(|network| own(*network) && !kept.contains(network));
        let now = self.now();
        // A snapshot follows, so that nothing of it is gathered.
        for gone in gone.chunks(APPLY_CHUNK) {
            let mut state = self.shared.state.write();
            for network in gone {
                if state.networks.remove(*network) != Put::Silent {
                    state.withdrawn.note(*network, now);
                }
            }
            state.networks.take_of_clients();
        }
        let mut views = views.into_iter().peekable();
        while views.peek().is_some() {
            let mut state = self.shared.state.write();
            for view in views.by_ref().take(APPLY_CHUNK) {
                state.networks.put(view, now, &self.shared.config);
            }
            state.networks.take_of_clients();
        }
        self.shared.insight.changed();
        self.shared.outbound.lock().gather.replaced();
        self.shared.changed.notify_one();
    }

    /// Where reports of QUIC connections go from now on. Once.
    pub(crate) fn pass_reports_to(&self, engines: impl Fn(ReportedConnection) -> bool + Send + Sync + 'static) {
        drop(self.shared.to_engines.set(Box::new(engines)));
    }

    /// A client's number: names are of any length, and their hash is enough to distinguish clients.
    pub(crate) fn reporter(&self, client: &Client) -> u64 {
        self.shared.hosts.hash_one(client)
    }

    /// Passes a client's reports of QUIC connections to the engines of their networks: whether there was room for each, in order.
    pub(crate) fn pass_reports<'a>(
        &'a self,
        client: &Client,
        reports: impl Iterator<Item = &'a ConnectionReport> + 'a,
    ) -> impl Iterator<Item = bool> + 'a {
        let (reporter, arrived) = (self.reporter(client), self.now());
        let engines = self.shared.to_engines.get();
        reports.map(move |report| {
            let reported = ReportedConnection { reporter, arrived, report: *report };
            engines.is_some_and(|engines| engines(reported))
        })
    }

    /// Takes a client's reports of advised first flights; the consequences are advertised at once. A few, since each lock is held for all of
    /// them.
    pub(crate) fn first_flights(&self, client: &Client, flights: &[(Network, FirstFlight)]) {
        if flights.is_empty() {
            return;
        }
        let now = self.now();
        let reporter = self.reporter(client);
        let (mut verdicts, mut uses, mut advertised) = (Vec::new(), Vec::new(), Advertised::default());
        let mut held_back = Vec::new();
        let mut state = self.shared.state.write();
        for (network, flight) in flights {
            let judged = state.networks.first_flight((*network, reporter), flight, now, &self.shared.config);
            let Some(Judged { verdict, about, changes, has_displaced }) = judged else { continue };
            state.advertise(changes, WithdrawalReason::Retreat, now, &mut advertised);
            if matches!(verdict, Verdict::Halved | Verdict::Withdrawn) {
                held_back.extend(state.networks.held_back(about));
            }
            verdicts.push((about, verdict, has_displaced));
            let [host, remote] = flight.ends.map(|end| end.ip());
            let own = state.networks.narrowed(*network, remote);
            uses.extend((own != *network).then_some((host, own)));
        }
        drop(state);
        for held_back in held_back {
            self.notify(None, Notice::HeldBack(held_back));
        }
        for (about, verdict, has_displaced) in verdicts {
            self.shared.insight.first_flight(now, about, verdict);
            self.measures().first_flights.get_or_create(&FlightLabels { verdict: verdict.name() }).inc();
            self.measures().addresses_displaced.inc_by(has_displaced.into());
        }
        self.send_out(advertised);
        // Other hosts get an address' own advice with their next starts there.
        uses.sort_unstable();
        uses.dedup();
        self.used_destinations(&uses);
    }

    /// Takes reports of transfers with an arm: where a network's advice makes them slower, it is taken back. A few, as above.
    pub(crate) fn transfers(&self, transfers: &[(Network, Transfer)]) {
        if transfers.is_empty() {
            return;
        }
        let now = self.now();
        let (mut slower, mut advertised) = (Vec::new(), Advertised::default());
        let mut state = self.shared.state.write();
        for (network, transfer) in transfers {
            let judged = state.networks.transfer(*network, transfer, now, &self.shared.config);
            let Some(Judged { verdict, changes, .. }) = judged else { continue };
            state.advertise(changes, WithdrawalReason::Retreat, now, &mut advertised);
            slower.push((*network, verdict, state.networks.held_back(*network)));
        }
        drop(state);
        for (network, verdict, held_back) in slower {
            held_back.map(|held_back| self.notify(None, Notice::HeldBack(held_back)));
            let what = if verdict == Verdict::Withdrawn { "slower_withdrawn" } else { "slower" };
            self.shared.insight.note(now, Kind::Retreat, what, network.to_string());
            self.measures().retreats_slower.inc();
        }
        self.send_out(advertised);
    }

    /// Lets retreats end that time alone ends.
    pub(super) fn pass_retreats(&self) {
        let now = self.now();
        while self.shared.state.read().networks.is_due(now) {
            let mut advertised = Advertised::default();
            let mut state = self.shared.state.write();
            let passed = state.networks.pass(now, APPLY_CHUNK, &self.shared.config);
            let over: Vec<String> = passed.iter().map(|(network, _)| network.to_string()).collect();
            state.advertise(passed, WithdrawalReason::Retreat, now, &mut advertised);
            drop(state);
            for network in over {
                self.shared.insight.note(now, Kind::Retreat, "over", network);
            }
            self.send_out(advertised);
        }
    }

    /// Applies a change from the engine; takes down what follows for hosts.
    fn change(&self, state: &mut State, change: Event, advertised: &mut Advertised) {
        let (config, now) = (&self.shared.config, self.now());
        let (network, put, reason) = match change {
            Event::Estimate(estimate) => {
                (estimate.network, state.networks.put_estimate(*estimate, now, config), WithdrawalReason::Expired)
            }
            Event::Network(view) => {
                let reason = view.why_not.map_or(WithdrawalReason::Expired, not_published);
                (view.network, state.networks.put(*view, now, config), reason)
            }
            Event::Withdrawn { network, reason: reason @ (Withdrawal::Evicted | Withdrawal::Administrator) } => {
                self.shared.insight.forget(network);
                (network, state.networks.remove(network), withdrawal_reason(reason))
            }
            Event::Withdrawn { network, reason } => {
                (network, state.networks.withdraw(network, reason, config), withdrawal_reason(reason))
            }
            Event::ServiceSize(size) => {
                if state.services.put(size, config.change) {
                    self.measures().service_sizes.inc();
                    advertised.changes.push(Change::Service(size));
                }
                return;
            }
            Event::ServiceForgotten(service) => return state.services.remove(service),
            // Not of the state.
            Event::StartImminent(_) | Event::Established(_) | Event::DirectionEnded(_) | Event::TransferEnded(_) => {
                return;
            }
        };
        let of_clients = state.networks.take_of_clients();
        state.advertise([(network, put)].into_iter().chain(of_clients), reason, now, advertised);
    }

    /// Queues changes for subscribers, and takes them down for people.
    pub(super) fn send_out(&self, advertised: Advertised) {
        let Advertised { changes, withdrawn, estimates, ends } = advertised;
        if changes.is_empty() {
            return;
        }
        let mut outbound = self.shared.outbound.lock();
        for change in changes {
            outbound.gather.add(change);
        }
        drop(outbound);
        self.shared.changed.notify_one();
        let now = self.now();
        for (network, reason) in withdrawn {
            self.shared.insight.withdrawn(now, network, reason);
        }
        self.measures().estimates.inc_by(estimates);
        self.measures().withdrawals.inc_by(ends);
        self.shared.insight.changed();
    }
}
