//! Budgets of networks, divided among the hosts that want a part.

use std::time::Duration;

use spand_core::event::{Established, StartImminent};
use spand_proto::network::Network;
use spand_proto::units::Segments;
use tokio::time::MissedTickBehavior;

use super::Published;

/// Time between two looks at budgets, and how many are divided under one hold of their lock, and at one look: 5,120 a second
/// at most. A start waits for 64, or for fewer where many hosts have parts of them.
const LEASE_TURN: Duration = Duration::from_millis(100);
const LEASE_CHUNK: usize = 64;
const LEASE_CHUNKS: usize = 8;

impl Published {
    /// A host wants a part of a network's budget: it has it before it is told of the start.
    pub(super) fn want_lease(&self, start: &StartImminent, holders: &[u64]) {
        let Some(budget) = self.budget(start.network) else { return };
        let (mut leases, now) = (self.shared.leases.lock(), self.now());
        for holder in holders {
            if !leases.start(*holder, start.network, budget, now) {
                self.measures().leases_no_room.inc();
            }
        }
    }

    /// A connection of a host is established: the start was no invention of somebody who sends SYNs with the addresses of others.
    pub fn established(&self, connection: &Established) {
        let holders = self.shared.subscribers.lock().holders(connection.host);
        if holders.is_empty() {
            return;
        }
        let (mut leases, now) = (self.shared.leases.lock(), self.now());
        for holder in holders {
            leases.confirm(holder, connection.network, now);
        }
    }

    /// What all hosts together may have granted above their defaults in a network and not yet acknowledged: its share for
    /// each connection that is seen there at once (`docs/definitions.md`, "Budget and retreat"), as far as the share was measured among so many: one that a few had for
    /// themselves is not what each of a crowd gets.
    pub(super) fn budget(&self, network: Network) -> Option<Segments> {
        let networks = self.shared.networks.read();
        let view = networks.get(network)?;
        let estimate = view.estimate.as_ref()?;
        let parallel = view.parallel.min(view.parallel_at_samples).max(1);
        Some(Segments(estimate.share_segments(estimate.mss).0.saturating_mul(parallel)))
    }

    /// Divides budgets by demand, and lets retreats and talks end, again and again.
    pub(super) async fn divide(&self) {
        let mut turns = tokio::time::interval(LEASE_TURN);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            self.pass_retreats();
            self.lapse_talks();
            for _ in 0..LEASE_CHUNKS {
                if !self.divide_some() {
                    break;
                }
                // Those who wait for the lock, and other tasks, go first.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Divides some that are due. Gives whether more are.
    fn divide_some(&self) -> bool {
        let (mut leases, now) = (self.shared.leases.lock(), self.now());
        let tell = leases.turn(now, LEASE_CHUNK, |network| self.budget(network));
        let more = leases.is_due(now);
        drop(leases);
        if !tell.is_empty() {
            self.measures().leases_told.inc_by(tell.len() as u64);
            self.mark_now(self.those_who_talk(tell));
        }
        more
    }
}
