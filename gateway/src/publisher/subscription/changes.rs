//! What changed: taken in turns from the ring that all subscribers share, and kept as marks until the pace allows to tell it.

use std::net::IpAddr;
use std::time::Duration;

use spand_core::service;
use spand_proto::push::{ResyncReason, ServiceSize};
use spand_proto::units::Micros;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::Subscription;
use crate::publisher::change::{Broadcast, Change};
use crate::publisher::marks::Haste;

/// Time between two looks into the ring. Subscribers look at different times within it, so that a start never waits for all
/// of them to be told the same news at once.
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
        let (network, haste) = match change {
            // It comes with a later page, which is read then.
            Change::Estimate(network) if !self.phase.has_reached(*network) => return,
            Change::Estimate(network) => (*network, Haste::Paced),
            Change::Withdrawn(network) => (*network, Haste::Now),
            Change::Service(size) => {
                if self.mailbox.addresses().binary_search(&size.service.ip()).is_ok() {
                    self.sizes.insert(size.service, *size);
                }
                return;
            }
        };
        if !self.mailbox.mark(network, haste, self.published.config().marks()) {
            self.published.measures().marks_overflowed.inc();
        }
    }

    /// Has all sizes of the host's own services told, now and before they would run out.
    pub(super) fn tell_sizes(&mut self) {
        let of = |address: &IpAddr| self.published.services(Some(*address), None, usize::MAX);
        self.sizes = self.mailbox.addresses().iter().flat_map(of).map(|size| (size.service, size)).collect();
        self.sizes_again = Instant::now() + Duration::from(self.published.config().retell);
    }

    /// The next of the host's own services whose size is to be told.
    pub(super) fn next_size(&mut self) -> Option<ServiceSize> {
        let (_, service::ServiceSize { service, quantile, transfers }) = self.sizes.pop_first()?;
        // Two may be lost before it runs out, as with estimates.
        let lifetime = Micros(self.published.config().retell.0.saturating_mul(3));
        Some(ServiceSize { service, quantile, transfers, lifetime })
    }
}
