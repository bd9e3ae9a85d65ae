//! Subscribers, and the imminent starts that wait for each.
//!
//! Starts have their own short queue per subscriber, apart from the shared changes: they overtake whatever else a
//! subscriber has to read.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use spand_core::event::StartImminent;
use spand_proto::estimate::Estimate;
use tokio::sync::Notify;

use super::config::PublisherConfig;

/// One subscriber's place for starts.
#[derive(Debug)]
pub(super) struct Mailbox {
    addresses: Vec<IpAddr>,
    starts: Mutex<VecDeque<(StartImminent, Arc<Estimate>)>>,
    arrived: Notify,
}

impl Mailbox {
    /// Puts a start in. `false`: the oldest had to go.
    fn put(&self, event: StartImminent, estimate: Arc<Estimate>, limit: usize) -> bool {
        let mut starts = self.starts.lock();
        let full = starts.len() >= limit;
        if full {
            starts.pop_front();
        }
        starts.push_back((event, estimate));
        drop(starts);
        self.arrived.notify_one();
        !full
    }

    /// The subscriber's addresses, sorted.
    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    pub(super) fn take(&self) -> Option<(StartImminent, Arc<Estimate>)> {
        self.starts.lock().pop_front()
    }

    /// Waits until a start was put in since the last wait.
    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
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
    /// Too many subscribers claim an address.
    #[error("{address} is claimed by {limit} subscribers already")]
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
}

impl Subscribers {
    pub(super) fn len(&self) -> usize {
        self.mailboxes.len()
    }

    pub(super) fn add(
        &mut self,
        addresses: &[IpAddr],
        config: &PublisherConfig,
    ) -> Result<(u64, Arc<Mailbox>), SubscribeError> {
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
        let taken = |address: &IpAddr| self.by_address.get(address).is_some_and(|claims| claims.len() >= limit);
        if let Some(address) = addresses.iter().copied().find(taken) {
            return Err(SubscribeError::AddressTaken { address, limit });
        }
        let mailbox = Arc::new(Mailbox { addresses, starts: Mutex::default(), arrived: Notify::new() });
        for address in &mailbox.addresses {
            self.by_address.entry(*address).or_default().push(Arc::clone(&mailbox));
        }
        let id = self.next_id;
        self.next_id += 1;
        self.mailboxes.insert(id, Arc::clone(&mailbox));
        Ok((id, mailbox))
    }

    pub(super) fn remove(&mut self, id: u64) {
        let Some(mailbox) = self.mailboxes.remove(&id) else {
            return;
        };
        for address in &mailbox.addresses {
            if let Some(claims) = self.by_address.get_mut(address) {
                claims.retain(|claim| !Arc::ptr_eq(claim, &mailbox));
                if claims.is_empty() {
                    self.by_address.remove(address);
                }
            }
        }
    }

    /// Whether anybody watches `host`.
    pub(super) fn watches(&self, host: IpAddr) -> bool {
        self.by_address.contains_key(&host.to_canonical())
    }

    /// Hands a start to everyone who watches its host. How many got it, and for how many the oldest had to go.
    pub(super) fn push(&self, event: StartImminent, estimate: &Arc<Estimate>, limit: usize) -> Pushed {
        let mut pushed = Pushed::default();
        for mailbox in self.by_address.get(&event.host.to_canonical()).into_iter().flatten() {
            pushed.subscribers += 1;
            pushed.overflowed += usize::from(!mailbox.put(event, Arc::clone(estimate), limit));
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
