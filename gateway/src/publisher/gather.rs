//! Changes on their way to subscribers: gathered for a few milliseconds, then put once, for all into a bounded ring, or
//! marked as dirty for the subscribers that they concern ([`super::advertise`]).
//!
//! Subscribers read the ring and their dirty networks on their own timers ([`super::subscription`]); nothing here wakes them.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use spand_core::memory::listed;
use spand_core::service::ServiceSize;
use spand_proto::network::Network;
use tokio::sync::Notify;
use tokio::sync::broadcast::{Receiver, Sender};

use super::change::{Broadcast, Change};
use super::subscribers::SubscribeError;

/// Changes waiting to be sent, and the ring that carries them.
#[derive(Debug)]
pub(super) struct Gather {
    pending: Mutex<Pending>,
    changed: Notify,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Pending {
    changes: Vec<Change>,
    replaced: bool,
}

#[derive(Debug)]
struct Ring {
    /// `None` once the gateway stops.
    sender: Option<Sender<Broadcast>>,
    /// Changes sent since the start.
    sent: u64,
}

/// Changes that may wait. At the limit they are dropped and every subscriber is resynchronised instead.
const PENDING_LIMIT: usize = 65_536;

impl Gather {
    pub(super) fn new(backlog_batches: NonZeroUsize) -> Self {
        let ring = Ring { sender: Some(Sender::new(backlog_batches.get())), sent: 0 };
        Self { pending: Mutex::default(), changed: Notify::new(), ring: Mutex::new(ring) }
    }

    /// Bytes of changes that wait, and of N batches in the ring.
    pub(super) const fn bytes(ring: usize) -> usize {
        2 * listed::<Change>(PENDING_LIMIT) + ring.saturating_mul(size_of::<Change>())
    }

    pub(super) fn estimate(&self, network: Network) {
        self.add(Change::Estimate(network));
    }

    pub(super) fn withdrawn(&self, network: Network) {
        self.add(Change::Withdrawn(network));
    }

    pub(super) fn service(&self, size: ServiceSize) {
        self.add(Change::Service(size));
    }

    /// Everything sent so far is void; waiting changes are part of the new state.
    pub(super) fn replaced(&self) {
        *self.pending.lock() = Pending { changes: Vec::new(), replaced: true };
        self.changed.notify_one();
    }

    fn add(&self, change: Change) {
        let mut pending = self.pending.lock();
        if pending.changes.len() >= PENDING_LIMIT {
            *pending = Pending { changes: Vec::new(), replaced: true };
        }
        pending.changes.push(change);
        let first = pending.changes.len() == 1;
        drop(pending);
        if first {
            self.changed.notify_one();
        }
    }

    /// A receiver of all changes from now on, and the number of the first of them.
    pub(super) fn listen(&self) -> Result<(Receiver<Broadcast>, u64), SubscribeError> {
        let ring = self.ring.lock();
        let sender = ring.sender.as_ref().ok_or(SubscribeError::Closed)?;
        Ok((sender.subscribe(), ring.sent))
    }

    /// Whether the gateway stops.
    pub(super) fn is_closed(&self) -> bool {
        self.ring.lock().sender.is_none()
    }

    /// Waits for changes and `interval` longer. Returns them, and whether everything sent before is void; `None` once closed.
    pub(super) async fn gathered(&self, interval: Duration) -> Option<(Vec<Change>, bool)> {
        self.changed.notified().await;
        tokio::time::sleep(interval).await;
        let Pending { changes, replaced } = std::mem::take(&mut *self.pending.lock());
        (!self.is_closed()).then_some((changes, replaced))
    }

    /// Signals to all subscribers that the state was replaced.
    pub(super) fn send_replaced(&self) {
        if let Some(sender) = &self.ring.lock().sender {
            send(sender, Broadcast::Replaced);
        }
    }

    /// Sends changes to all subscribers.
    pub(super) fn send(&self, changes: &[Change]) {
        let mut ring = self.ring.lock();
        let Ring { sender: Some(sender), sent } = &mut *ring else { return };
        if !changes.is_empty() {
            send(sender, Broadcast::Changes { first: *sent, changes: Arc::from(changes) });
            *sent += changes.len() as u64;
        }
    }

    pub(super) fn close(&self) {
        self.ring.lock().sender = None;
        self.changed.notify_one();
    }
}

fn send(sender: &Sender<Broadcast>, broadcast: Broadcast) {
    // An error only means that there is no subscriber.
    drop(sender.send(broadcast));
}
