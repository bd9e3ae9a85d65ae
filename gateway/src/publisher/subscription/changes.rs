//! Changes in their turns: of estimates, from the ring that all subscribers share, and sizes of the host's own services.

use std::net::IpAddr;
use std::time::Duration;

use spand_core::service;
use spand_proto::push::{ResyncReason, ServiceSize, UpdateEvent};
use spand_proto::units::Micros;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::time::Instant;

use super::Subscription;
use crate::publisher::change::{Broadcast, Change};

/// Time between two turns of changes. Subscribers take theirs at different times within it, so that a start never waits
/// for all of them to be told the same news at once.
const TURN: Duration = Duration::from_millis(100);

impl Subscription {
    /// The next change in hand.
    pub(super) fn next_change(&mut self) -> Option<UpdateEvent> {
        if let Some(size) = self.sizes.next() {
            return Some(UpdateEvent::ServiceSize(self.size(&size)));
        }
        let (changes, place) = &mut self.batch;
        let own = |change: &Change| match change {
            Change::Service(size) => self.mailbox.addresses().binary_search(&size.service.ip()).is_ok(),
            Change::Estimate(_) | Change::Withdrawn(..) => true,
        };
        let next = changes.iter().skip(*place).position(own);
        *place = next.map_or(changes.len(), |skipped| *place + skipped + 1);
        let change = changes.get(place.checked_sub(1).filter(|_| next.is_some())?)?.clone();
        Some(match change {
            Change::Estimate(estimate) => UpdateEvent::Estimate(self.update(&estimate)),
            Change::Withdrawn(network, reason) => UpdateEvent::Withdrawal { network, reason },
            Change::Service(size) => UpdateEvent::ServiceSize(self.size(&size)),
        })
    }

    /// Takes a batch of changes from the ring, and waits for the next turn once there is none.
    pub(super) fn take_changes(&mut self) -> Option<()> {
        match self.changes.try_recv() {
            Ok(Broadcast::Changes { first, changes }) => {
                self.next_number = first + changes.len() as u64;
                self.batch = (changes, 0);
            }
            Ok(Broadcast::Replaced) => {
                self.published.measures().resyncs_state_replaced.inc();
                self.restart(ResyncReason::StateReplaced)?;
            }
            Err(TryRecvError::Lagged(_)) => {
                self.published.measures().resyncs_slow_reader.inc();
                self.restart(ResyncReason::SlowReader)?;
            }
            Err(TryRecvError::Empty) => {
                let next = self.turn.deadline() + TURN;
                self.turn.as_mut().reset(next.max(Instant::now()));
            }
            Err(TryRecvError::Closed) => return None,
        }
        Some(())
    }

    /// Has all sizes of the host's own services told, now and before they would run out.
    pub(super) fn tell_sizes(&mut self) {
        let of = |address: &IpAddr| self.published.services(Some(*address), None, usize::MAX);
        self.sizes = self.mailbox.addresses().iter().flat_map(of).collect::<Vec<_>>().into_iter();
        self.sizes_again = Instant::now() + Duration::from(self.published.config().retell);
    }

    fn size(&self, size: &service::ServiceSize) -> ServiceSize {
        let service::ServiceSize { service, quantile, transfers } = *size;
        // Two may be lost before it runs out, as with estimates.
        let lifetime = Micros(self.published.config().retell.0.saturating_mul(3));
        ServiceSize { service, quantile, transfers, lifetime }
    }

    /// The first turn of changes, at this subscriber's own place between two turns.
    pub(super) fn begin_turns(&mut self) {
        // Steps of the golden ratio's share spread any number of consecutive subscribers evenly.
        let place = self.id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.turn.as_mut().reset(Instant::now() + TURN.mul_f64(place as f64 / f64::from(u32::MAX)));
    }
}
