//! Subscribers, and the imminent starts that wait for each.
//!
//! Each subscriber has a short queue of starts, apart from the shared changes: starts overtake everything else.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use spand_core::event::StartImminent;
use spand_proto::contract::{Cluster, HostName};
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::push::AgentDescription;
use spand_proto::units::Timestamp;
use tokio::sync::Notify;

use super::config::{DirtyLimits, PublisherConfig, ToHosts};
use super::dirty_set::{DirtySet, Priority};
use super::insight::SubscriberView;
use super::pace::Client;

/// Description of a subscriber. What it claims itself grants no rights.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Subscriber {
    /// The host's name.
    pub host_name: Option<HostName>,
    /// The names in the certificate that it authenticated with.
    pub certificate: Option<String>,
    /// The client whose streams share turns with this one; if unknown, those of the same host.
    pub client: Option<Client>,
    /// The agent's version and mode, where it sent them.
    pub agent: Option<AgentDescription>,
    /// The cluster whose advice the host holds.
    pub cluster: Option<Cluster>,
}

/// One subscriber's waiting starts and dirty networks.
#[derive(Debug)]
pub(super) struct SubscriberQueue {
    addresses: Vec<IpAddr>,
    pub(super) subscriber: Subscriber,
    since: Timestamp,
    /// Its host: streams with the same addresses are of one host.
    pub(super) host_id: u64,
    starts: Mutex<VecDeque<(StartImminent, Arc<Estimate>)>>,
    dirty: Mutex<DirtySet>,
    /// Dirty networks of all subscribers.
    all_dirty: Arc<AtomicUsize>,
    /// A snapshot has to be sent: the state was replaced, or the dirty set overflowed.
    needs_snapshot: AtomicBool,
    arrived: Notify,
}

impl SubscriberQueue {
    /// Queues a start. Returns the network of the oldest one where it was dropped for it.
    fn put(&self, event: StartImminent, estimate: Arc<Estimate>, limit: usize) -> Option<Network> {
        let mut starts = self.starts.lock();
        let gone = if starts.len() >= limit { starts.pop_front() } else { None };
        starts.push_back((event, estimate));
        drop(starts);
        self.arrived.notify_one();
        gone.map(|(start, _)| start.network)
    }

    /// The subscriber as it is shown.
    pub(super) fn view(&self) -> SubscriberView {
        SubscriberView {
            subscriber: self.subscriber.clone(),
            addresses: self.addresses.clone(),
            since: self.since,
            host_id: self.host_id,
            waiting_starts: self.starts.lock().len(),
        }
    }

    /// The subscriber's addresses, sorted.
    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Marks a network as dirty. `false`: there were too many, and a snapshot follows.
    pub(super) fn mark_dirty(&self, network: Network, priority: Priority, limits: DirtyLimits) -> bool {
        let is_tight = self.all_dirty.load(Ordering::Relaxed) >= limits.all;
        let limit = if is_tight { limits.own.min(limits.part) } else { limits.own };
        let has_room = self.with_dirty(|dirty| dirty.put(network, priority, limit));
        if !has_room {
            self.needs_snapshot.store(true, Ordering::Release);
        }
        has_room
    }

    /// Changes the dirty set and updates the total.
    fn with_dirty<T>(&self, change: impl FnOnce(&mut DirtySet) -> T) -> T {
        let mut dirty = self.dirty.lock();
        let before = dirty.len();
        let result = change(&mut dirty);
        let now = dirty.len();
        // One of the two is zero.
        self.all_dirty.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
        self.all_dirty.fetch_sub(before.saturating_sub(now), Ordering::Relaxed);
        result
    }

    pub(super) fn take(&self) -> Option<(StartImminent, Arc<Estimate>)> {
        self.starts.lock().pop_front()
    }

    /// A network whose state is to be sent now.
    pub(super) fn take_now(&self) -> Option<Network> {
        self.with_dirty(DirtySet::take_now)
    }

    /// Up to `limit` networks whose state is to be sent when the pace allows.
    pub(super) fn take_paced(&self, limit: usize) -> Vec<Network> {
        self.with_dirty(|dirty| dirty.take_paced(limit))
    }

    /// Whether a new snapshot is to be sent.
    pub(super) fn needs_snapshot(&self) -> bool {
        self.needs_snapshot.load(Ordering::Acquire)
    }

    /// A snapshot begins, which replaces the paced networks.
    pub(super) fn begin_snapshot(&self) {
        self.needs_snapshot.store(false, Ordering::Release);
        self.with_dirty(DirtySet::clear_paced);
    }

    /// Waits until something was put in since the last wait.
    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }
}

impl Drop for SubscriberQueue {
    fn drop(&mut self) {
        self.all_dirty.fetch_sub(self.dirty.get_mut().len(), Ordering::Relaxed);
    }
}

/// Why a subscription was refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SubscribeError {
    /// No address to watch.
    #[error("a subscription names at least one address of the host")]
    NoAddress,
    /// More addresses than one subscriber may have.
    #[error("{found} addresses are more than the {limit} that one subscription may name")]
    TooManyAddresses {
        /// Addresses named.
        found: usize,
        /// Limit.
        limit: usize,
    },
    /// No room for one more subscriber.
    #[error("there are {0} subscribers already; raise the limit in the gateway's configuration or subscribe elsewhere")]
    Full(usize),
    /// No room for one more host; hosts that are gone count until the lifetime of their advice is over.
    #[error(
        "{0} hosts are subscribed or were within the lifetime of advice: subscribe again after that lifetime, or raise \
         publish.subscribers in the gateway's configuration"
    )]
    TooManyHosts(usize),
    /// Too many subscribers claim every address; this is the first.
    #[error(
        "{address} is claimed by {limit} subscribers already: set `addresses` in the agent's configuration to those that are the \
         host's own"
    )]
    AddressTaken {
        /// The address.
        address: IpAddr,
        /// Limit.
        limit: usize,
    },
    /// The gateway stops.
    #[error("the gateway stops")]
    Closed,
}

/// The subscribers, by address.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    next_id: u64,
    queues: BTreeMap<u64, Arc<SubscriberQueue>>,
    by_address: HashMap<IpAddr, Vec<Arc<SubscriberQueue>>>,
    /// Several where an agent reconnects before its old stream is known dead.
    by_host: BTreeMap<u64, Vec<Arc<SubscriberQueue>>>,
    /// Dirty networks of all of them.
    all_dirty: Arc<AtomicUsize>,
}

impl Subscribers {
    pub(super) fn len(&self) -> usize {
        self.queues.len()
    }

    /// Adds a subscriber to those of its addresses that have room. An address that many hosts share, as a bridge's or a service's,
    /// belongs to no single host. Also returns how many addresses had no room.
    pub(super) fn add(
        &mut self,
        (subscriber, since): (Subscriber, Timestamp),
        addresses: &[IpAddr],
        config: &PublisherConfig,
        join: impl FnOnce(&[IpAddr]) -> Result<u64, SubscribeError>,
    ) -> Result<(u64, Arc<SubscriberQueue>, usize), SubscribeError> {
        let limit = config.addresses.get();
        if addresses.len() > limit {
            return Err(SubscribeError::TooManyAddresses { found: addresses.len(), limit });
        }
        if self.queues.len() >= config.subscribers.get() {
            return Err(SubscribeError::Full(self.queues.len()));
        }
        let mut addresses: Vec<IpAddr> = addresses.iter().map(IpAddr::to_canonical).collect();
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.is_empty() {
            return Err(SubscribeError::NoAddress);
        }
        let limit = config.subscribers_per_address.get();
        let free = |address: &IpAddr| self.by_address.get(address).is_none_or(|claims| claims.len() < limit);
        let (watched, full): (Vec<_>, Vec<_>) = addresses.iter().partition(|address| free(address));
        if let (true, Some(&address)) = (watched.is_empty(), full.first()) {
            return Err(SubscribeError::AddressTaken { address, limit });
        }
        let queue = Arc::new(SubscriberQueue {
            // By all addresses that it names: the host must not depend on which of them have room.
            host_id: join(&addresses)?,
            addresses: watched,
            subscriber,
            since,
            starts: Mutex::default(),
            dirty: Mutex::default(),
            all_dirty: Arc::clone(&self.all_dirty),
            needs_snapshot: AtomicBool::new(false),
            arrived: Notify::new(),
        });
        self.by_host.entry(queue.host_id).or_default().push(Arc::clone(&queue));
        for address in &queue.addresses {
            self.by_address.entry(*address).or_default().push(Arc::clone(&queue));
        }
        let id = self.next_id;
        self.next_id += 1;
        self.queues.insert(id, Arc::clone(&queue));
        Ok((id, queue, full.len()))
    }

    /// All of them, in order of subscription.
    pub(super) fn all(&self) -> Vec<Arc<SubscriberQueue>> {
        self.queues.values().cloned().collect()
    }

    pub(super) fn remove(&mut self, id: u64) {
        let Some(queue) = self.queues.remove(&id) else {
            return;
        };
        if let Some(streams) = self.by_host.get_mut(&queue.host_id) {
            streams.retain(|stream| !Arc::ptr_eq(stream, &queue));
            if streams.is_empty() {
                self.by_host.remove(&queue.host_id);
            }
        }
        for address in &queue.addresses {
            if let Some(claims) = self.by_address.get_mut(address) {
                claims.retain(|claim| !Arc::ptr_eq(claim, &queue));
                if claims.is_empty() {
                    self.by_address.remove(address);
                }
            }
        }
    }

    /// The addresses of all of them.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.by_address.keys().copied().collect()
    }

    /// Those of these addresses that no other subscriber has.
    pub(super) fn unclaimed(&self, addresses: &[IpAddr]) -> Vec<IpAddr> {
        addresses.iter().filter(|address| !self.by_address.contains_key(address)).copied().collect()
    }

    /// The hosts that subscribed for an address, each once.
    pub(super) fn host_ids(&self, address: IpAddr) -> Vec<u64> {
        let subscribed = self.by_address.get(&address.to_canonical()).into_iter().flatten();
        let mut host_ids: Vec<_> = subscribed.map(|queue| queue.host_id).collect();
        host_ids.sort_unstable();
        host_ids.dedup();
        host_ids
    }

    /// Marks a network as dirty for a host. Returns for how many of its streams there was no room.
    pub(super) fn mark_dirty(&self, host_id: u64, network: Network, priority: Priority, limits: DirtyLimits) -> u64 {
        let streams = self.by_host.get(&host_id).into_iter().flatten();
        streams.filter(|queue| !queue.mark_dirty(network, priority, limits)).count() as u64
    }

    /// Marks a network as dirty for a host and wakes its streams.
    pub(super) fn mark_dirty_now(&self, host_id: u64, network: Network, limits: DirtyLimits) -> u64 {
        let overflowed = self.mark_dirty(host_id, network, Priority::Now, limits);
        for queue in self.by_host.get(&host_id).into_iter().flatten() {
            queue.arrived.notify_one();
        }
        overflowed
    }

    /// Dirty networks of all of them.
    #[cfg(test)]
    pub(super) fn dirty(&self) -> usize {
        self.all_dirty.load(Ordering::Relaxed)
    }

    /// Requests a new snapshot for a host.
    pub(super) fn request_snapshot(&self, host_id: u64) {
        for queue in self.by_host.get(&host_id).into_iter().flatten() {
            queue.needs_snapshot.store(true, Ordering::Release);
            queue.arrived.notify_one();
        }
    }

    /// Queues a start for every subscriber of its host. Returns how many got it, and for how many the oldest start was dropped; that
    /// start's estimate is still sent, since it may be the first one of its network there.
    pub(super) fn push(&self, event: StartImminent, estimate: &Arc<Estimate>, limits: &PublisherConfig) -> Pushed {
        let mut pushed = Pushed::default();
        for queue in self.by_address.get(&event.host.to_canonical()).into_iter().flatten() {
            pushed.subscribers += 1;
            if let Some(gone) = queue.put(event, Arc::clone(estimate), limits.waiting_starts.get()) {
                pushed.overflowed += 1;
                if limits.to_hosts == ToHosts::InUse {
                    queue.mark_dirty(gone, Priority::Paced, limits.dirty_limits());
                }
            }
        }
        pushed
    }
}

/// The result of queueing one start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Pushed {
    pub(super) subscribers: usize,
    pub(super) overflowed: usize,
}
