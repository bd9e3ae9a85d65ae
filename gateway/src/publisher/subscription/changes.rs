//! Changes: taken in turns from the ring that all subscribers share, and kept in the dirty set until the pace allows sending them.

use std::net::IpAddr;
use std::time::Duration;

use spand_core::service;
use spand_proto::push::{ResyncReason, ServiceSize};
use spand_proto::units::Micros;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::Subscription;
use crate::publisher::change::{Broadcast, Change};
use crate::publisher::dirty_set::Priority;

/// Interval at which a subscriber reads the ring. Subscribers read at different times within it, so that a start never waits for
/// all of them to process the same changes at once.
const TURN: Duration = Duration::from_millis(100);

/// The turns of a subscriber, at its own place between two turns of another.
pub(super) fn turns(id: u64) -> Interval {
    // Steps of the golden ratio's share spread any number of consecutive subscribers evenly.
    let place = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let first = Instant::now() + TURN.mul_f64(place as f64 / f64::from(u32::MAX));
    let mut turns = interval_at(first, TURN);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    turns
}

impl Subscription {
    /// Empties the ring, in every phase: a snapshot may take longer than the ring reaches back. `None` when the gateway stops.
    pub(super) fn take_changes(&mut self) -> Option<()> {
        loop {
            match self.changes.try_recv() {
                Ok(Broadcast::Changes { first, changes }) => {
                    self.next_number = first + changes.len() as u64;
                    changes.iter().for_each(|change| self.note(change));
                }
                Ok(Broadcast::Replaced) => {
                    self.published.measures().resyncs_state_replaced.inc();
                    self.restart(ResyncReason::StateReplaced)?;
                }
                Err(TryRecvError::Lagged(_)) => {
                    self.published.measures().resyncs_slow_reader.inc();
                    self.restart(ResyncReason::SlowReader)?;
                }
                Err(TryRecvError::Empty) => return Some(()),
                Err(TryRecvError::Closed) => return None,
            }
        }
    }

    fn note(&mut self, change: &Change) {
        let (network, priority) = match change {
            // It comes with a later page, which is read then.
            Change::Estimate(network) if !self.phase.has_reached(*network) => return,
            Change::Estimate(network) => (*network, Priority::Paced),
            Change::Withdrawn(network) => (*network, Priority::Now),
            Change::Service(size) => {
                if self.queue.addresses().binary_search(&size.service.ip()).is_ok() {
                    self.sizes.insert(size.service, *size);
                }
                return;
            }
        };
        if !self.queue.mark_dirty(network, priority, self.published.config().dirty_limits()) {
            self.published.measures().dirty_overflows.inc();
        }
    }

    /// Queues all sizes of the host's own services, now and before they expire.
    pub(super) fn queue_sizes(&mut self) {
        let of = |address: &IpAddr| self.published.services(Some(*address), None, usize::MAX);
        self.sizes = self.queue.addresses().iter().flat_map(of).map(|size| (size.service, size)).collect();
        self.sizes_again = Instant::now() + Duration::from(self.published.config().readvertise);
    }

    /// The next of the host's own services whose size is to be sent.
    pub(super) fn next_size(&mut self) -> Option<ServiceSize> {
        let (_, service::ServiceSize { service, quantile, transfers }) = self.sizes.pop_first()?;
        // Two may be lost before it runs out, as with estimates.
        let lifetime = Micros(self.published.config().readvertise.0.saturating_mul(3));
        Some(ServiceSize { service, quantile, transfers, lifetime })
    }
}
