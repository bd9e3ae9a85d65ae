//! What the dashboard shows beside the current state: history of networks, traffic of the last minutes, and events. Written with
//! the engine's batches; each part has its own lock, which is held briefly.
//!
//! Nothing here decides anything.

mod history;
mod limits;
mod log;
mod published;
mod traffic;
mod trend;

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use spand_core::event::StartImminent;
use spand_core::types::WindowSample;
use spand_proto::network::Network;
use spand_proto::push::WithdrawalReason;
use spand_proto::units::Timestamp;

use super::config::PublisherConfig;
use super::retreat::Verdict;
use super::subscribers::Subscriber;
use super::{CaptureStatus, EngineStatus, Part};

pub use self::history::{NetworkHistory, PushedStart, Sample};
pub use self::log::{Entry, Kind};
pub use self::published::SubscriberView;
pub use self::traffic::{Traffic, TrafficPoint};
pub use self::trend::{Trend, TrendPoint};

pub(super) use self::history::Histories;
use self::limits::Limits;
use self::log::Log;
use self::traffic::Recorder;

/// Networks taken under one hold of the lock.
const CHUNK: usize = 256;

/// Everything above.
#[derive(Debug)]
pub(super) struct Insight {
    histories: RwLock<Histories>,
    log: Mutex<Log>,
    limits: Mutex<Limits>,
    traffic: RwLock<Recorder>,
    /// Counts changes of the published networks, so that a reader can see whether to read again.
    revision: AtomicU64,
}

impl Insight {
    pub(super) fn new(config: &PublisherConfig) -> Self {
        Self {
            histories: RwLock::new(Histories::new(config.remembered_networks)),
            log: Mutex::new(Log::default()),
            limits: Mutex::new(Limits::default()),
            traffic: RwLock::new(Recorder::default()),
            revision: AtomicU64::new(0),
        }
    }

    pub(super) fn changed(&self) {
        self.revision.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    pub(super) fn trends(&self, trends: Vec<Trend>) {
        let mut trends = trends.into_iter().peekable();
        while trends.peek().is_some() {
            let mut histories = self.histories.write();
            trends.by_ref().take(CHUNK).for_each(|trend| histories.trend(trend));
        }
    }

    pub(super) fn samples(&self, samples: &[WindowSample]) {
        for samples in samples.chunks(CHUNK) {
            let mut histories = self.histories.write();
            for sample in samples {
                histories.sample(sample);
            }
        }
    }

    pub(super) fn pushed(&self, start: &StartImminent, subscribers: usize) {
        self.histories.write().pushed(start, subscribers);
    }

    pub(super) fn forget(&self, network: Network) {
        self.histories.write().forget(network);
    }

    pub(super) fn history(&self, network: Network) -> Option<NetworkHistory> {
        self.histories.read().get(network).cloned()
    }

    /// Runs `read` on the histories of several networks under one lock.
    pub(super) fn trends_of<T>(&self, networks: &[Network], read: impl Fn(Option<&Trend>) -> T) -> Vec<T> {
        let histories = self.histories.read();
        let trend = |network| histories.get(network).and_then(|history: &NetworkHistory| history.trend.as_ref());
        networks.iter().map(|network| read(trend(*network))).collect()
    }

    pub(super) fn histories_dropped(&self) -> u64 {
        self.histories.read().dropped()
    }

    pub(super) fn withdrawn(&self, at: Timestamp, network: Network, reason: WithdrawalReason) {
        self.note(at, Kind::Withdrawal, reason.name(), network.to_string());
    }

    pub(super) fn first_flight(&self, at: Timestamp, network: Network, verdict: Verdict) {
        let what = match verdict {
            Verdict::Halved | Verdict::AddressHalved => Verdict::Halved,
            Verdict::Withdrawn | Verdict::AddressWithdrawn => Verdict::Withdrawn,
            Verdict::Clean | Verdict::Random | Verdict::OneAddress | Verdict::OneHost | Verdict::Known => return,
        };
        self.note(at, Kind::Retreat, what.name(), network.to_string());
    }

    /// Something happened once.
    pub(super) fn note(&self, at: Timestamp, kind: Kind, what: &'static str, subject: String) {
        self.log.lock().add(Entry { sequence: 0, at, kind, what, subject, count: 1, by: None });
    }

    /// A host subscribed, left or was refused.
    pub(super) fn agent(&self, at: Timestamp, what: &'static str, subscriber: &Subscriber) {
        let Some(name) = &subscriber.host_name else { return };
        let (kind, subject, by) = (Kind::Agent, name.to_string(), subscriber.client.clone());
        self.log.lock().add(Entry { sequence: 0, at, kind, what, subject, count: 1, by });
    }

    /// Entries from `sequence` on, at most the newest `limit`; the next sequence; and what of them is gone already.
    pub(super) fn entries(&self, sequence: u64, limit: usize) -> (Vec<Entry>, u64, u64) {
        self.log.lock().since(sequence, limit)
    }

    pub(super) fn log_next(&self) -> u64 {
        self.log.lock().next()
    }

    pub(super) fn log_dropped(&self) -> u64 {
        self.log.lock().dropped()
    }

    /// Takes the engine's numbers; what reached a limit is noted.
    pub(super) fn engine(&self, at: Timestamp, engine: &EngineStatus, captures: &[CaptureStatus]) {
        let reached = self.limits.lock().engine(at, engine);
        self.reached(at, reached);
        self.traffic.write().take(at, engine, captures);
    }

    pub(super) fn captures(&self, at: Timestamp, captures: &[CaptureStatus]) {
        let reached = self.limits.lock().captures(at, captures);
        self.reached(at, reached);
    }

    /// Takes counts of the publisher and the API that only rise where something was refused or dropped.
    pub(super) fn counts(&self, at: Timestamp, counts: &[(&'static str, u64)]) {
        let reached = self.limits.lock().counts(at, counts);
        self.reached(at, reached);
    }

    /// Takes which parts do not work; changes are noted.
    pub(super) fn readiness(&self, at: Timestamp, not_ready: &[(Part, String)]) {
        let changes = self.limits.lock().readiness(not_ready);
        for (what, subject) in changes {
            self.note(at, Kind::Part, what, subject);
        }
    }

    fn reached(&self, at: Timestamp, reached: Vec<limits::Reached>) {
        if reached.is_empty() {
            return;
        }
        let mut log = self.log.lock();
        for limits::Reached { what, subject, count } in reached {
            log.add(Entry { sequence: 0, at, kind: Kind::Limit, what, subject, count, by: None });
        }
    }

    pub(super) fn traffic(&self, now: Timestamp) -> Traffic {
        self.traffic.read().summary(now)
    }

    pub(super) fn points(&self) -> Vec<TrafficPoint> {
        self.traffic.read().points()
    }
}
