//! How the state is written: batches of an engine, starts, reports of hosts.

use std::collections::HashSet;
use std::hash::BuildHasher;

use spand_core::event::{Event, StartImminent, Withdrawal};
use spand_core::service::ServiceSize;
use spand_core::shard::Partition;
use spand_core::window::view::NetworkView;
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::push::WithdrawalReason;

use super::insight::Kind;
use super::measure::{FAILURE, FlightLabels, ReloadLabels, SUCCESS};
use super::networks::{Judged, Networks, Put};
use super::retreat::FirstFlight;
use super::services::Services;
use super::status::EngineStatus;
use super::{Batch, Client, Published, Shared, change};

/// Networks changed under one hold of the lock, so that readers wait well under a millisecond.
const APPLY_CHUNK: usize = 256;

impl Published {
    /// Takes a batch from the engine. Returns the starts that reached a subscriber, for the engine's push ledger
    /// (`Engine::note_advised`). A network's and a service's batches come from one thread each.
    pub fn apply(&self, batch: Batch) -> Vec<StartImminent> {
        let Batch { polled, events, views, gone, trends, samples, engine } = batch;
        let mut pushed = Vec::new();
        let mut changes = Vec::with_capacity(events.len() + views.len() + gone.len());
        for event in events {
            match event {
                Event::StartImminent(start) => pushed.extend(self.push_start(start).then_some(start)),
                Event::Established(connection) => self.established(&connection),
                Event::Estimate(estimate) => changes.push(State::Estimate(*estimate)),
                Event::Withdrawn { network, reason } => changes.push(State::Withdrawn(network, reason)),
                Event::ServiceSize(size) => self.put_service(size),
                Event::ServiceForgotten(service) => self.shared.services.write().remove(service),
                Event::DirectionEnded(_) | Event::TransferEnded(_) => {}
            }
        }
        changes.extend(views.into_iter().map(State::View));
        changes.extend(gone.into_iter().map(|network| State::Withdrawn(network, Withdrawal::Evicted)));
        let mut changes = changes.into_iter().peekable();
        while changes.peek().is_some() {
            self.shared.insight.changed();
            let mut networks = self.shared.networks.write();
            let mut advertised = Vec::new();
            for change in changes.by_ref().take(APPLY_CHUNK) {
                self.shared.change(&mut networks, change, &mut advertised);
            }
            drop(networks);
            let (mut leases, now) = (self.shared.leases.lock(), self.now());
            for network in advertised {
                leases.moved(network, now);
            }
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

    /// Hands one start to the host it is for, now. Whether a subscriber got it: only then is the connection advised.
    pub fn push_start(&self, start: StartImminent) -> bool {
        let measures = self.measures();
        let host_ids = self.shared.subscribers.lock().host_ids(start.host);
        if host_ids.is_empty() {
            measures.starts_no_subscriber.inc();
            return false;
        }
        let start = StartImminent { network: self.narrowed(start.network, start.remote), ..start };
        let Some(estimate) = self.estimate_for(&host_ids, start.network) else {
            measures.starts_no_estimate.inc();
            return false;
        };
        self.request_lease(&start, &host_ids);
        let pushed = self.shared.subscribers.lock().push(start, &estimate, &self.shared.config);
        if pushed.subscribers > 0 {
            self.shared.insight.pushed(&start, pushed.subscribers);
        }
        measures.starts_pushed.inc_by(pushed.subscribers as u64);
        measures.starts_overflowed.inc_by(pushed.overflowed as u64);
        measures.start_queued_seconds.observe(self.now().since(start.at).as_secs_f64());
        pushed.subscribers > 0
    }

    fn put_service(&self, size: ServiceSize) {
        if self.shared.services.write().put(size, self.shared.config.change) {
            self.measures().service_sizes.inc();
            self.shared.gather.service(size);
        }
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

    /// Other prefixes make networks from now on: hosts read the reason `administrator` for those that they no longer make.
    pub(crate) fn made_by(&self, partition: Partition) {
        *self.shared.made_by.write() = Some(partition);
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
            *self.shared.services.write() = services;
        }
        let kept: HashSet<Network> = views.iter().map(|view| view.network).collect();
        let mut gone = self.shared.networks.read().all();
        gone.retain(|network| own(*network) && !kept.contains(network));
        for gone in gone.chunks(APPLY_CHUNK) {
            let mut networks = self.shared.networks.write();
            for network in gone {
                networks.remove(*network);
            }
            // A snapshot follows.
            networks.take_of_clients();
        }
        let mut views = views.into_iter().peekable();
        while views.peek().is_some() {
            let mut networks = self.shared.networks.write();
            for view in views.by_ref().take(APPLY_CHUNK) {
                networks.put(view, &self.shared.config);
            }
            networks.take_of_clients();
        }
        self.shared.insight.changed();
        self.shared.gather.replaced();
    }

    /// Takes a client's reports of advised first flights; the consequences are advertised at once. A few, since each lock is held for all of
    /// them.
    pub(crate) fn first_flights(&self, client: &Client, flights: &[(Network, FirstFlight)]) {
        if flights.is_empty() {
            return;
        }
        let now = self.now();
        // Names are of any length: their hash is enough to distinguish clients.
        let reporter = self.shared.hosts.hash_one(client);
        let (mut verdicts, mut advertised, mut uses) = (Vec::new(), Vec::new(), Vec::new());
        let mut networks = self.shared.networks.write();
        for (network, flight) in flights {
            let judged = networks.first_flight((*network, reporter), flight, now, &self.shared.config);
            let Some(Judged { verdict, about, changes, has_displaced }) = judged else { continue };
            let gather = |(network, put)| self.shared.gather_change(network, put, WithdrawalReason::Retreat);
            advertised.extend(changes.into_iter().filter_map(gather));
            verdicts.push((about, verdict, has_displaced));
            let [host, remote] = flight.ends.map(|end| end.ip());
            let own = networks.narrowed(*network, remote);
            uses.extend((own != *network).then_some((host, own)));
        }
        drop(networks);
        for (about, verdict, has_displaced) in verdicts {
            self.shared.insight.first_flight(now, about, verdict);
            self.measures().first_flights.get_or_create(&FlightLabels { verdict: verdict.name() }).inc();
            self.measures().addresses_displaced.inc_by(has_displaced.into());
        }
        if !advertised.is_empty() {
            let mut leases = self.shared.leases.lock();
            for network in advertised {
                leases.moved(network, now);
            }
        }
        // Other hosts get an address' own advice with their next starts there.
        uses.sort_unstable();
        uses.dedup();
        self.used_destinations(&uses);
    }

    /// Lets retreats end that time alone ends.
    pub(super) fn pass_retreats(&self) {
        let now = self.now();
        while self.shared.networks.read().is_due(now) {
            let mut networks = self.shared.networks.write();
            let passed = networks.pass(now, APPLY_CHUNK, &self.shared.config);
            let advertised = passed.into_iter().filter_map(|(network, put)| {
                self.shared.insight.note(now, Kind::Retreat, "over", network.to_string());
                self.shared.gather_change(network, put, WithdrawalReason::Retreat)
            });
            let advertised: Vec<_> = advertised.collect();
            drop(networks);
            let mut leases = self.shared.leases.lock();
            for network in advertised {
                leases.moved(network, now);
            }
        }
    }
}

/// One change from the engine.
enum State {
    Estimate(Estimate),
    Withdrawn(Network, Withdrawal),
    View(NetworkView),
}

impl Shared {
    /// Applies a change; adds what is advertised to `advertised`.
    fn change(&self, networks: &mut Networks, change: State, advertised: &mut Vec<Network>) {
        let (network, put, reason) = match change {
            State::Estimate(estimate) => {
                (estimate.network, networks.put_estimate(estimate, &self.config), Withdrawal::Expired)
            }
            State::View(view) => (view.network, networks.put(view, &self.config), Withdrawal::Expired),
            State::Withdrawn(network, reason @ (Withdrawal::Evicted | Withdrawal::Administrator)) => {
                self.insight.forget(network);
                (network, networks.remove(network), reason)
            }
            State::Withdrawn(network, reason) => (network, networks.withdraw(network, reason, &self.config), reason),
        };
        let reason = change::withdrawal_reason(reason);
        advertised.extend(self.gather_change(network, put, reason));
        let of_clients = networks.take_of_clients().into_iter();
        advertised.extend(of_clients.filter_map(|(client, put)| self.gather_change(client, put, reason)));
    }

    /// Queues the change of a network for subscribers; returns the network if there is one.
    fn gather_change(&self, network: Network, put: Put, reason: WithdrawalReason) -> Option<Network> {
        match put {
            Put::Silent => return None,
            Put::Advertise => {
                self.measures.estimates.inc();
                self.gather.estimate(network);
            }
            Put::Withdraw => {
                self.measures.withdrawals.inc();
                self.insight.withdrawn(self.clock.now(), network, reason);
                self.gather.withdrawn(network);
            }
            Put::Rejoin => {
                self.measures.withdrawals.inc();
                self.gather.withdrawn(network);
            }
        }
        self.insight.changed();
        Some(network)
    }
}
