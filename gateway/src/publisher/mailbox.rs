//! Subscribers, and the imminent starts that wait for each.
//!
//! Starts have their own short queue per subscriber, apart from the shared changes: they overtake whatever else a
//! subscriber has to read.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use spand_core::event::StartImminent;
use spand_proto::contract::HostName;
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::push::AgentDescription;
use spand_proto::units::Timestamp;
use tokio::sync::Notify;

use super::config::{MarkLimits, PublisherConfig, ToHosts};
use super::insight::SubscriberView;
use super::marks::{Haste, Marks};
use super::pace::Client;

/// Who subscribed. What it says itself gives no rights.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Subscriber {
    /// The host's name.
    pub host_name: Option<HostName>,
    /// The names of the certificate that it proved.
    pub certificate: Option<String>,
    /// With whose streams its own shares turns; of none but the same host's, where that is not known.
    pub client: Option<Client>,
    /// What runs there, where it says so.
    pub agent: Option<AgentDescription>,
}

/// One subscriber's place for starts, and for what else cannot wait its turn.
#[derive(Debug)]
pub(super) struct Mailbox {
    addresses: Vec<IpAddr>,
    pub(super) subscriber: Subscriber,
    since: Timestamp,
    /// Its number as a holder of leases.
    pub(super) holder: u64,
    starts: Mutex<VecDeque<(StartImminent, Arc<Estimate>)>>,
    marks: Mutex<Marks>,
    /// Marks of all subscribers.
    all_marks: Arc<AtomicUsize>,
    /// Everything changed, or more than there is room for marks.
    anew: AtomicBool,
    arrived: Notify,
}

impl Mailbox {
    /// Puts a start in. Where the oldest had to go, gives its network.
    fn put(&self, event: StartImminent, estimate: Arc<Estimate>, limit: usize) -> Option<Network> {
        let mut starts = self.starts.lock();
        let gone = if starts.len() >= limit { starts.pop_front() } else { None };
        starts.push_back((event, estimate));
        drop(starts);
        self.arrived.notify_one();
        gone.map(|(start, _)| start.network)
    }

    /// The subscriber as people see it.
    pub(super) fn view(&self) -> SubscriberView {
        SubscriberView {
            subscriber: self.subscriber.clone(),
            addresses: self.addresses.clone(),
            since: self.since,
            holder: self.holder,
            waiting_starts: self.starts.lock().len(),
        }
    }

    /// The subscriber's addresses, sorted.
    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Marks a network. `false`: there were too many, and everything is told anew.
    pub(super) fn mark(&self, network: Network, haste: Haste, limits: MarkLimits) -> bool {
        let is_tight = self.all_marks.load(Ordering::Relaxed) >= limits.all;
        let limit = if is_tight { limits.own.min(limits.part) } else { limits.own };
        let has_room = self.with_marks(|marks| marks.put(network, haste, limit));
        if !has_room {
            self.anew.store(true, Ordering::Release);
        }
        has_room
    }

    /// Does something with the marks, and keeps account of how many there are.
    fn with_marks<T>(&self, change: impl FnOnce(&mut Marks) -> T) -> T {
        let mut marks = self.marks.lock();
        let before = marks.len();
        let result = change(&mut marks);
        let now = marks.len();
        // One of the two is zero.
        self.all_marks.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
        self.all_marks.fetch_sub(before.saturating_sub(now), Ordering::Relaxed);
        result
    }

    pub(super) fn take(&self) -> Option<(StartImminent, Arc<Estimate>)> {
        self.starts.lock().pop_front()
    }

    /// A network at which to look now.
    pub(super) fn take_now(&self) -> Option<Network> {
        self.with_marks(Marks::take_now)
    }

    /// Up to `limit` networks at which to look when the pace allows.
    pub(super) fn take_paced(&self, limit: usize) -> Vec<Network> {
        self.with_marks(|marks| marks.take_paced(limit))
    }

    /// Whether everything is to be told anew.
    pub(super) fn is_anew(&self) -> bool {
        self.anew.load(Ordering::Acquire)
    }

    /// Everything is told anew from here on.
    pub(super) fn begin_anew(&self) {
        self.anew.store(false, Ordering::Release);
        self.with_marks(Marks::forget_paced);
    }

    /// Waits until something was put in since the last wait.
    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.all_marks.fetch_sub(self.marks.get_mut().len(), Ordering::Relaxed);
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
    /// No room for one more host, those included that are gone and may still use what they were told.
    #[error(
        "{0} hosts are subscribed or were within the lifetime of advice: subscribe again after that lifetime, or raise \
         publish.subscribers in the gateway's configuration"
    )]
    TooManyHosts(usize),
    /// Too many subscribers claim every address; this is the first.
    #[error(
        "{address} is claimed by {limit} subscribers already: set `addresses` in the agent's configuration to those that are the \
         host's own, or raise publish.subscribers_per_address in the gateway's"
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

/// Who is subscribed, by address.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    next_id: u64,
    mailboxes: BTreeMap<u64, Arc<Mailbox>>,
    by_address: HashMap<IpAddr, Vec<Arc<Mailbox>>>,
    /// Several where an agent reconnects before its old stream is known dead.
    by_holder: BTreeMap<u64, Vec<Arc<Mailbox>>>,
    /// Marks of all of them.
    all_marks: Arc<AtomicUsize>,
}

impl Subscribers {
    pub(super) fn len(&self) -> usize {
        self.mailboxes.len()
    }

    /// Adds a subscriber to the addresses that have room for one: those that many hosts share, as a bridge's or a service's, are no
    /// host's own. Also how many of them had none.
    pub(super) fn add(
        &mut self,
        (subscriber, since): (Subscriber, Timestamp),
        addresses: &[IpAddr],
        config: &PublisherConfig,
        join: impl FnOnce(&[IpAddr]) -> Result<u64, SubscribeError>,
    ) -> Result<(u64, Arc<Mailbox>, usize), SubscribeError> {
        let limit = config.addresses.get();
        if addresses.len() > limit {
            return Err(SubscribeError::TooManyAddresses { found: addresses.len(), limit });
        }
        if self.mailboxes.len() >= config.subscribers.get() {
            return Err(SubscribeError::Full(self.mailboxes.len()));
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
        let mailbox = Arc::new(Mailbox {
            // By all that it names: with which of them there is room must not make it another host.
            holder: join(&addresses)?,
            addresses: watched,
            subscriber,
            since,
            starts: Mutex::default(),
            marks: Mutex::default(),
            all_marks: Arc::clone(&self.all_marks),
            anew: AtomicBool::new(false),
            arrived: Notify::new(),
        });
        self.by_holder.entry(mailbox.holder).or_default().push(Arc::clone(&mailbox));
        for address in &mailbox.addresses {
            self.by_address.entry(*address).or_default().push(Arc::clone(&mailbox));
        }
        let id = self.next_id;
        self.next_id += 1;
        self.mailboxes.insert(id, Arc::clone(&mailbox));
        Ok((id, mailbox, full.len()))
    }

    /// All of them, in the order in which they came.
    pub(super) fn all(&self) -> Vec<Arc<Mailbox>> {
        self.mailboxes.values().cloned().collect()
    }

    pub(super) fn remove(&mut self, id: u64) {
        let Some(mailbox) = self.mailboxes.remove(&id) else {
            return;
        };
        if let Some(streams) = self.by_holder.get_mut(&mailbox.holder) {
            streams.retain(|stream| !Arc::ptr_eq(stream, &mailbox));
            if streams.is_empty() {
                self.by_holder.remove(&mailbox.holder);
            }
        }
        for address in &mailbox.addresses {
            if let Some(claims) = self.by_address.get_mut(address) {
                claims.retain(|claim| !Arc::ptr_eq(claim, &mailbox));
                if claims.is_empty() {
                    self.by_address.remove(address);
                }
            }
        }
    }

    /// The holders of leases that watch a host, each once.
    pub(super) fn holders(&self, host: IpAddr) -> Vec<u64> {
        let watching = self.by_address.get(&host.to_canonical()).into_iter().flatten();
        let mut holders: Vec<_> = watching.map(|mailbox| mailbox.holder).collect();
        holders.sort_unstable();
        holders.dedup();
        holders
    }

    /// Has a holder look at a network with its next turn. For how many of its streams there was no room.
    pub(super) fn mark(&self, holder: u64, network: Network, haste: Haste, limits: MarkLimits) -> u64 {
        let streams = self.by_holder.get(&holder).into_iter().flatten();
        streams.filter(|mailbox| !mailbox.mark(network, haste, limits)).count() as u64
    }

    /// Has a holder look at a network at once, before its next turn.
    pub(super) fn mark_now(&self, holder: u64, network: Network, limits: MarkLimits) -> u64 {
        let overflowed = self.mark(holder, network, Haste::Now, limits);
        for mailbox in self.by_holder.get(&holder).into_iter().flatten() {
            mailbox.arrived.notify_one();
        }
        overflowed
    }

    /// Marks of all of them.
    #[cfg(test)]
    pub(super) fn marks(&self) -> usize {
        self.all_marks.load(Ordering::Relaxed)
    }

    /// Has a holder told everything anew.
    pub(super) fn tell_anew(&self, holder: u64) {
        for mailbox in self.by_holder.get(&holder).into_iter().flatten() {
            mailbox.anew.store(true, Ordering::Release);
            mailbox.arrived.notify_one();
        }
    }

    /// Hands a start to everyone who watches its host. How many got it, and for how many the oldest had to go: its estimate at
    /// least is told, since a host may not have heard of it before.
    pub(super) fn push(&self, event: StartImminent, estimate: &Arc<Estimate>, limits: &PublisherConfig) -> Pushed {
        let mut pushed = Pushed::default();
        for mailbox in self.by_address.get(&event.host.to_canonical()).into_iter().flatten() {
            pushed.subscribers += 1;
            if let Some(gone) = mailbox.put(event, Arc::clone(estimate), limits.waiting_starts.get()) {
                pushed.overflowed += 1;
                if limits.to_hosts == ToHosts::Talking {
                    mailbox.mark(gone, Haste::Paced, limits.marks());
                }
            }
        }
        pushed
    }
}

/// What became of one start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Pushed {
    pub(super) subscribers: usize,
    pub(super) overflowed: usize,
}
