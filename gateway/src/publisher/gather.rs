//! Changes on their way to subscribers: gathered for a few milliseconds, then put once, for all into a bounded ring, or
//! marked as dirty for the subscribers that they concern ([`super::advertise`]).
//!
//! Subscribers read the ring and their dirty networks on their own timers ([`super::subscription`]); nothing here wakes them.

use std::num::NonZeroUsize;
use std::sync::Arc;

use spand_core::mem::listed;
use tokio::sync::broadcast::{Receiver, Sender};

use super::change::{Broadcast, Change};
use super::subscribers::SubscribeError;

/// Changes waiting to be sent, and the ring that carries them.
#[derive(Debug)]
pub(super) struct Gather {
    pending: Pending,
    ring: Ring,
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
        Self { pending: Pending::default(), ring }
    }

    /// Bytes of changes that wait, and of N batches in the ring.
    pub(super) const fn bytes(ring: usize) -> usize {
        2 * listed::<Change>(PENDING_LIMIT) + ring.saturating_mul(size_of::<Change>())
    }

    /// Queues a change. At the limit everything that waits is dropped for a snapshot of the current state.
    pub(super) fn add(&mut self, change: Change) {
        if self.pending.changes.len() >= PENDING_LIMIT {
            self.replaced();
        }
        self.pending.changes.push(change);
    }

    /// Everything sent so far is void; waiting changes are part of the new state.
    pub(super) fn replaced(&mut self) {
        self.pending = Pending { changes: Vec::new(), replaced: true };
    }

    /// A receiver of all changes from now on, and the number of the first of them.
    pub(super) fn listen(&self) -> Result<(Receiver<Broadcast>, u64), SubscribeError> {
        let sender = self.ring.sender.as_ref().ok_or(SubscribeError::Closed)?;
        Ok((sender.subscribe(), self.ring.sent))
    }

    /// Whether the gateway stops.
    pub(super) fn is_closed(&self) -> bool {
        self.ring.sender.is_none()
    }

    /// What waits, and whether everything sent before is void; `None` once closed.
    pub(super) fn take(&mut self) -> Option<(Vec<Change>, bool)> {
        let Pending { changes, replaced } = std::mem::take(&mut self.pending);
        (!self.is_closed()).then_some((changes, replaced))
    }

    /// Signals to all subscribers that the state was replaced.
    pub(super) fn send_replaced(&self) {
        if let Some(sender) = &self.ring.sender {
            send(sender, Broadcast::Replaced);
        }
    }

    /// Sends changes to all subscribers.
    pub(super) fn send(&mut self, changes: &[Change]) {
        let Ring { sender: Some(sender), sent } = &mut self.ring else { return };
        if !changes.is_empty() {
            send(sender, Broadcast::Changes { first: *sent, changes: Arc::from(changes) });
            *sent += changes.len() as u64;
        }
    }

    pub(super) fn close(&mut self) {
        self.ring.sender = None;
    }
}

fn send(sender: &Sender<Broadcast>, broadcast: Broadcast) {
    // An error only means that there is no subscriber.
    drop(sender.send(broadcast));
}
