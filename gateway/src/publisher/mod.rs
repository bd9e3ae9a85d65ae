//! The published state: what the engine knows, as everyone outside it sees it.
//!
//! The engine's thread writes it in batches ([`Published::apply`]); API tasks read it and subscribe to it. Starts go to
//! their host's queue at once, on the engine's thread, by a short lock. Changes of estimates are gathered for a few
//! milliseconds and told to all subscribers through one bounded ring of shared batches, so the engine's cost does not
//! grow with the number of subscribers and a slow one costs no memory: it falls out of the ring and is resynchronised.
//!
//! Knows nothing about packets, sockets, gRPC or JSON, and never decides an estimate. No lock here is held across IO or
//! an await.

mod batch;
mod change;
mod clock;
mod config;
mod gather;
mod insight;
mod leases;
mod mailbox;
mod measure;
mod networks;
mod pace;
mod retreat;
mod services;
mod status;
mod subscription;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use spand_core::event::{Event, StartImminent, Withdrawal};
use spand_core::service::ServiceSize;
use spand_core::window::view::NetworkView;
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::push::WithdrawalReason;
use spand_proto::units::{Segments, Timestamp};
use tokio::time::MissedTickBehavior;

use self::gather::Gather;
use self::insight::Insight;
use self::leases::Leases;
use self::mailbox::Subscribers;
use self::networks::{Networks, Put};
use self::pace::Pace;
use self::services::Services;

pub use self::batch::Batch;
pub use self::clock::{MonotonicClock, PacketClock};
pub use self::config::PublisherConfig;
pub use self::insight::{
    Entry, KINDS, Kind, NetworkHistory, PushedStart, Sample, SubscriberView, Traffic, TrafficPoint,
};
pub use self::insight::{Trend, TrendPoint};
pub use self::mailbox::{SubscribeError, Subscriber};
pub use self::measure::{FlightLabels, Measures};
pub(crate) use self::retreat::FirstFlight;
pub use self::status::{CaptureStatus, EngineStatus, Part, Readiness};
pub use self::subscription::Subscription;

/// A handle to the published state; clones share it.
#[derive(Clone, Debug)]
pub struct Published {
    shared: Arc<Shared>,
}

struct Shared {
    config: PublisherConfig,
    clock: Box<dyn PacketClock>,
    networks: RwLock<Networks>,
    services: RwLock<Services>,
    subscribers: Mutex<Subscribers>,
    /// Locked after `subscribers` and before `networks`, where two are held.
    leases: Mutex<Leases>,
    gather: Gather,
    pace: Pace,
    /// One for each engine.
    engines: RwLock<Vec<EngineStatus>>,
    captures: RwLock<Vec<CaptureStatus>>,
    readiness: Readiness,
    measures: Measures,
    /// Its locks are taken last.
    insight: Insight,
}

/// Networks changed under one hold of the lock, so that readers wait well under a millisecond.
const APPLY_CHUNK: usize = 256;

/// Time between two looks at budgets, and how many are divided under one hold of their lock, and at one look: 5,120 a second
/// at most, and a start waits for 64.
const LEASE_TURN: Duration = Duration::from_millis(100);
const LEASE_CHUNK: usize = 64;
const LEASE_CHUNKS: usize = 8;

impl Published {
    /// An empty state. Nothing is told to subscribers before [`Published::tell`] runs.
    pub fn new(config: PublisherConfig, clock: impl PacketClock) -> Self {
        let gather = Gather::new(config.backlog_batches);
        let leases = Leases::new(config.lifetime, config.leased_networks.get());
        let shared = Shared {
            insight: Insight::new(&config),
            config,
            leases: Mutex::new(leases),
            clock: Box::new(clock),
            networks: RwLock::new(Networks::new()),
            services: RwLock::default(),
            subscribers: Mutex::default(),
            gather,
            pace: Pace::default(),
            engines: RwLock::default(),
            captures: RwLock::default(),
            readiness: Readiness::default(),
            measures: Measures::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Takes a batch from the engine. Gives the starts that reached a subscriber, for the engine's push ledger
    /// (`Engine::note_advised`). A network's and a service's batches come from one thread each.
    pub fn apply(&self, batch: Batch) -> Vec<StartImminent> {
        let Batch { polled, events, views, gone, trends, samples, engine } = batch;
        let mut pushed = Vec::new();
        let mut changes = Vec::with_capacity(events.len() + views.len() + gone.len());
        for event in events {
            match event {
                Event::StartImminent(start) => pushed.extend(self.push_start(start).then_some(start)),
                Event::Estimate(estimate) => changes.push(State::Estimate(estimate)),
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
            let mut told = Vec::new();
            for change in changes.by_ref().take(APPLY_CHUNK) {
                told.extend(self.shared.change(&mut networks, change));
            }
            drop(networks);
            let (mut leases, now) = (self.shared.leases.lock(), self.now());
            for network in told {
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
        if !self.shared.subscribers.lock().watches(start.host) {
            measures.starts_unwatched.inc();
            return false;
        }
        let Some(estimate) = self.estimate(start.network) else {
            measures.starts_no_estimate.inc();
            return false;
        };
        self.want_lease(&start);
        let limit = self.shared.config.waiting_starts.get();
        let pushed = self.shared.subscribers.lock().push(start, &estimate, limit);
        if pushed.subscribers > 0 {
            self.shared.insight.pushed(&start, pushed.subscribers);
        }
        measures.starts_pushed.inc_by(pushed.subscribers as u64);
        measures.starts_overflowed.inc_by(pushed.overflowed as u64);
        measures.start_queued_seconds.observe(self.now().since(start.at).as_secs_f64());
        pushed.subscribers > 0
    }

    /// Takes a host's report of an advised first flight; what it leads to is told at once.
    pub(crate) fn first_flight(&self, network: Network, flight: &FirstFlight) {
        let now = self.now();
        let reported = {
            let mut networks = self.shared.networks.write();
            let reported = networks.first_flight(network, flight, now, &self.shared.config);
            reported.map(|(verdict, put)| (verdict, self.shared.tell(network, put, WithdrawalReason::Retreat)))
        };
        let Some((verdict, told)) = reported else { return };
        self.shared.insight.first_flight(now, network, verdict);
        self.measures().first_flights.get_or_create(&FlightLabels { verdict: verdict.name() }).inc();
        if told.is_some() {
            self.shared.leases.lock().moved(network, now);
        }
    }

    /// Lets retreats end that time alone ends.
    fn pass_retreats(&self) {
        let now = self.now();
        if !self.shared.networks.read().is_due(now) {
            return;
        }
        let mut networks = self.shared.networks.write();
        for (network, put) in networks.pass(now, &self.shared.config) {
            self.shared.insight.note(now, Kind::Retreat, "over", network.to_string());
            self.shared.tell(network, put, WithdrawalReason::Retreat);
        }
    }

    /// A host wants a part of a network's budget: it has it before it is told of the start.
    fn want_lease(&self, start: &StartImminent) {
        let Some(budget) = self.budget(start.network) else { return };
        let holders = self.shared.subscribers.lock().holders(start.host);
        let (mut leases, now) = (self.shared.leases.lock(), self.now());
        for holder in holders {
            if !leases.start(holder, start.network, budget, now) {
                self.measures().leases_no_room.inc();
            }
        }
    }

    /// What all hosts together may have granted above their defaults in a network and not yet acknowledged: its share for
    /// each connection that is seen there at once (definitions, "Budget").
    fn budget(&self, network: Network) -> Option<Segments> {
        let networks = self.shared.networks.read();
        let view = networks.get(network)?;
        let estimate = view.estimate.as_ref()?;
        Some(Segments(estimate.share_segments(estimate.mss).0.saturating_mul(view.parallel.max(1))))
    }

    /// Divides budgets by demand and lets retreats end, again and again.
    async fn divide(&self) {
        let mut turns = tokio::time::interval(LEASE_TURN);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            self.pass_retreats();
            for _ in 0..LEASE_CHUNKS {
                let tell = self.shared.leases.lock().turn(self.now(), LEASE_CHUNK, |network| self.budget(network));
                if tell.is_empty() {
                    break;
                }
                self.measures().leases_told.inc_by(tell.len() as u64);
                let subscribers = self.shared.subscribers.lock();
                for (holder, network) in tell {
                    subscribers.tell_lease(holder, network);
                }
            }
        }
    }

    fn put_service(&self, size: ServiceSize) {
        if self.shared.services.write().put(size, self.shared.config.change) {
            self.measures().service_sizes.inc();
            self.shared.gather.service(size);
        }
    }

    /// Replaces the state of the networks that are an engine's `own`, and of the services where it keeps them, after events of
    /// it were lost. Every subscriber is resynchronised.
    pub fn replace(&self, views: Vec<NetworkView>, own: impl Fn(Network) -> bool, sizes: Option<Vec<ServiceSize>>) {
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
        }
        let mut views = views.into_iter().peekable();
        while views.peek().is_some() {
            let mut networks = self.shared.networks.write();
            for view in views.by_ref().take(APPLY_CHUNK) {
                networks.put(view, &self.shared.config);
            }
        }
        self.shared.insight.changed();
        self.shared.insight.note(self.now(), Kind::Part, "state_replaced", String::new());
        self.shared.gather.replaced();
    }

    /// Subscribes a host that has `addresses`.
    pub fn subscribe(&self, addresses: &[IpAddr]) -> Result<Subscription, SubscribeError> {
        self.subscribe_as(Subscriber::default(), addresses)
    }

    fn subscribe_as(&self, subscriber: Subscriber, addresses: &[IpAddr]) -> Result<Subscription, SubscribeError> {
        let subscription = Subscription::begin(self, subscriber, addresses);
        match &subscription {
            Ok(_) => self.measures().subscriptions.inc(),
            Err(_) => self.measures().subscriptions_refused.inc(),
        };
        subscription
    }

    /// Tells gathered changes to subscribers, and divides budgets among them, until [`Published::close`]. Run it once, as a task.
    pub async fn tell(self) {
        tokio::select! {
            () = self.shared.gather.run(self.shared.config.gather) => {}
            () = self.divide() => {}
            () = self.watch() => {}
        }
    }

    /// Ends every subscription and refuses new ones.
    pub fn close(&self) {
        self.shared.gather.close();
    }

    /// The longest published network that contains `address`: what a host's routing table would choose among them. Where
    /// a prefix list names a longer one of which nothing is known, that is the network around it.
    pub fn lookup(&self, address: IpAddr) -> Option<Arc<NetworkView>> {
        self.shared.networks.read().longest_match(address).cloned()
    }

    /// One network.
    pub fn network(&self, network: Network) -> Option<Arc<NetworkView>> {
        self.shared.networks.read().get(network).cloned()
    }

    /// The estimate of a network that is in force now.
    pub fn estimate(&self, network: Network) -> Option<Arc<Estimate>> {
        let estimate = self.shared.networks.read().estimate(network)?;
        (estimate.age(self.now()) <= self.shared.config.max_age).then_some(estimate)
    }

    /// Up to `limit` networks in order of prefix, from the first one after `after` on.
    pub fn page(&self, after: Option<Network>, limit: usize) -> Vec<Arc<NetworkView>> {
        self.shared.networks.read().page(after, limit)
    }

    /// How large the transfers of a service are, where that is known.
    pub fn service(&self, service: SocketAddr) -> Option<ServiceSize> {
        self.shared.services.read().get(service)
    }

    /// Up to `limit` services in order of address and port, from the first one after `after` on; of one host, where
    /// `host` names it.
    pub fn services(&self, host: Option<IpAddr>, after: Option<SocketAddr>, limit: usize) -> Vec<ServiceSize> {
        self.shared.services.read().page(host, after, limit)
    }

    /// Services whose size is known.
    pub fn service_count(&self) -> usize {
        self.shared.services.read().len()
    }

    /// Networks published.
    pub fn network_count(&self) -> usize {
        self.shared.networks.read().len()
    }

    /// Networks with an estimate.
    pub fn estimate_count(&self) -> usize {
        self.shared.networks.read().estimates()
    }

    /// Networks whose budgets are divided by demand.
    pub fn leased_networks(&self) -> usize {
        self.shared.leases.lock().len()
    }

    /// Networks whose advice is held back because hosts reported losses in first flights.
    pub fn retreats(&self) -> usize {
        self.shared.networks.read().retreats()
    }

    /// Subscribers now.
    pub fn subscriber_count(&self) -> usize {
        self.shared.subscribers.lock().len()
    }

    /// The packet clock's time.
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// The settings in force.
    pub fn config(&self) -> &PublisherConfig {
        &self.shared.config
    }

    /// Counters and histograms.
    pub fn measures(&self) -> &Measures {
        &self.shared.measures
    }

    /// Which parts of the gateway work.
    pub fn readiness(&self) -> &Readiness {
        &self.shared.readiness
    }

    /// The engines' numbers, as of the last batches that brought them.
    pub fn engine(&self) -> EngineStatus {
        EngineStatus::total(&self.shared.engines.read())
    }

    /// Renews the numbers of all packet sources.
    pub fn set_captures(&self, captures: Vec<CaptureStatus>) {
        self.shared.insight.captures(self.now(), &captures);
        *self.shared.captures.write() = captures;
    }

    /// The numbers of all packet sources.
    pub fn captures(&self) -> Vec<CaptureStatus> {
        self.shared.captures.read().clone()
    }
}

/// One change as the engine gives it.
enum State {
    Estimate(Estimate),
    Withdrawn(Network, Withdrawal),
    View(NetworkView),
}

impl Shared {
    /// Takes a change; gives its network where it is told.
    fn change(&self, networks: &mut Networks, change: State) -> Option<Network> {
        let (network, put, reason) = match change {
            State::Estimate(estimate) => {
                (estimate.network, networks.put_estimate(estimate, &self.config), Withdrawal::Expired)
            }
            State::View(view) => (view.network, networks.put(view, &self.config), Withdrawal::Expired),
            State::Withdrawn(network, Withdrawal::Evicted) => {
                self.insight.forget(network);
                (network, networks.remove(network), Withdrawal::Evicted)
            }
            State::Withdrawn(network, reason) => (network, networks.withdraw(network, reason), reason),
        };
        self.tell(network, put, change::withdrawal_reason(reason))
    }

    /// Tells what became of a network, if it is worth it; gives it then.
    fn tell(&self, network: Network, put: Put, reason: WithdrawalReason) -> Option<Network> {
        match put {
            Put::Silent => return None,
            Put::Tell(estimate) => {
                self.measures.estimates.inc();
                self.gather.estimate(estimate);
            }
            Put::Withdraw => {
                self.measures.withdrawals.inc();
                self.insight.withdrawn(self.clock.now(), network, reason);
                self.gather.withdrawn(network, reason);
            }
        }
        self.insight.changed();
        Some(network)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}
