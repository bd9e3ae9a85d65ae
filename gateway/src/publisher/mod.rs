//! The published state: the engine's results as its readers see them.
//!
//! The engine's thread writes it in batches ([`Published::apply`]); API tasks read it and subscribe to it. Starts go to
//! their host's queue at once, on the engine's thread, by a short lock. Changes of estimates are gathered for a few
//! milliseconds and sent to all subscribers through one bounded ring of shared batches. So the engine's cost does not
//! grow with the number of subscribers. A slow one costs no memory: it falls out of the ring and is resynchronised.
//!
//! Independent of packets, sockets, gRPC and JSON; never computes an estimate. No lock here is held across IO or
//! an await.

mod adoption;
mod advertise;
mod batch;
mod budgets;
mod change;
mod clock;
mod cluster;
mod config;
mod destinations;
mod dirty_set;
mod gather;
mod insight;
mod leases;
mod measure;
mod memory;
mod networks;
mod outbound;
mod pace;
mod read;
mod retreat;
mod services;
mod state;
mod status;
mod subscribers;
mod subscription;
#[cfg(test)]
mod tests;
mod write;

use std::hash::RandomState;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use spand_core::networks::reported::ReportedConnection;
use tokio::sync::Notify;

use self::cluster::Cluster;
use self::insight::Insight;
use self::outbound::Outbound;
use self::pace::Pace;
use self::state::State;

pub use self::adoption::NotAdoptedLabel;
pub use self::batch::Batch;
pub use self::clock::{MonotonicClock, PacketClock};
pub(crate) use self::cluster::bytes_of_others;
pub use self::config::{PublisherConfig, ToHosts};
pub use self::insight::{Entry, Kind, NetworkHistory, PushedStart, Sample, SubscriberView, Traffic, TrafficPoint};
pub use self::insight::{Trend, TrendPoint};
pub use self::measure::{FlightLabels, Measures, ReloadLabels};
pub(crate) use self::memory::PublisherNeed;
pub use self::pace::Client;
pub(crate) use self::retreat::{FirstFlight, Transfer};
pub use self::status::{CaptureStatus, EngineStatus, Part, Readiness};
pub use self::subscribers::{SubscribeError, Subscriber};
pub use self::subscription::Subscription;

/// A handle to the published state; clones share it.
#[derive(Clone, Debug)]
pub struct Published {
    shared: Arc<Shared>,
}

struct Shared {
    config: PublisherConfig,
    clock: Box<dyn PacketClock>,
    /// Locked before `state`, where both are held.
    outbound: Mutex<Outbound>,
    state: RwLock<State>,
    /// Changes wait in `outbound`, or the gateway stops.
    changed: Notify,
    cluster: Cluster,
    /// Distinguishes the hosts that report.
    hosts: RandomState,
    /// Passes the report of a QUIC connection to the engine of its network, where there is room for it.
    to_engines: OnceLock<Box<dyn Fn(ReportedConnection) -> bool + Send + Sync>>,
    pace: Pace,
    /// One for each engine.
    engines: RwLock<Vec<EngineStatus>>,
    captures: RwLock<Vec<CaptureStatus>>,
    readiness: Readiness,
    measures: Measures,
    /// Its locks are taken last.
    insight: Insight,
}

impl Published {
    /// An empty state. Nothing is sent to subscribers before [`Published::run`] runs.
    pub fn new(config: PublisherConfig, clock: impl PacketClock) -> Self {
        let measures = Measures::default();
        let shared = Shared {
            outbound: Mutex::new(Outbound::new(&config)),
            state: RwLock::new(State::new(&config)),
            changed: Notify::new(),
            cluster: Cluster::default(),
            insight: Insight::new(&config),
            config,
            clock: Box::new(clock),
            hosts: RandomState::new(),
            to_engines: OnceLock::new(),
            pace: Pace::new(measures.pace_unused.clone()),
            engines: RwLock::default(),
            captures: RwLock::default(),
            readiness: Readiness::default(),
            measures,
        };
        Self { shared: Arc::new(shared) }
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

    /// Advertises gathered changes to subscribers, and divides budgets among them, until [`Published::close`]. Run it once, as a task.
    pub async fn run(self) {
        tokio::select! {
            () = self.advertise_changes() => {}
            () = self.divide() => {}
            () = self.watch() => {}
            () = self.shared.pace.run() => {}
        }
    }

    /// Ends every subscription and refuses new ones.
    pub fn close(&self) {
        self.shared.outbound.lock().gather.close();
        self.shared.changed.notify_one();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}
