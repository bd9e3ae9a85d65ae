//! Budgets of networks, divided among the hosts that request a part.

use std::time::Duration;

use spand_core::event::{Established, StartImminent};
use spand_proto::network::Network;
use spand_proto::units::Segments;
use tokio::time::MissedTickBehavior;

use super::Published;

/// Interval at which due budgets are divided; how many under one hold of the lock, and how many times that per interval: at most
/// 5,120 a second. A start waits for 64, or for fewer where many hosts have parts of them.
const LEASE_TURN: Duration = Duration::from_millis(100);
const LEASE_CHUNK: usize = 64;
const LEASE_CHUNKS: usize = 8;

impl Published {
    /// Requests a part of a network's budget for hosts, so that they have it before the start is pushed.
    pub(super) fn request_lease(&self, start: &StartImminent, host_ids: &[u64]) {
        let Some(budget) = self.budget(start.network) else { return };
        let (mut leases, now) = (self.shared.leases.lock(), self.now());
        for host_id in host_ids {
            if !leases.start(*host_id, start.network, budget, now) {
                self.measures().leases_no_room.inc();
            }
        }
    }

    /// A connection of a host is established, so its start was not a spoofed SYN.
    pub fn established(&self, connection: &Established) {
        let host_ids = self.shared.subscribers.lock().host_ids(connection.host);
        if host_ids.is_empty() {
            return;
        }
        let (mut leases, now) = (self.shared.leases.lock(), self.now());
        for host_id in host_ids {
            leases.confirm(host_id, connection.network, now);
        }
    }

    /// What all hosts together may have granted above their defaults in a network and not yet acknowledged: its share for
    /// each connection that is seen there at once (`docs/definitions.md`, "Budget and retreat"), limited to the number of parallel connections during which the share was measured: a share that few connections had for
    /// themselves is not what each of a crowd gets.
    pub(super) fn budget(&self, network: Network) -> Option<Segments> {
        let networks = self.shared.networks.read();
        let view = networks.get(network)?;
        let estimate = view.estimate.as_ref()?;
        let parallel = view.parallel.min(view.parallel_at_samples).max(1);
        Some(Segments(estimate.share_segments(estimate.mss).0.saturating_mul(parallel)))
    }

    /// Periodically divides budgets by demand, ends retreats that are over and withdraws destinations that expired.
    pub(super) async fn divide(&self) {
        let mut turns = tokio::time::interval(LEASE_TURN);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            self.pass_retreats();
            self.expire_destinations();
            for _ in 0..LEASE_CHUNKS {
                if !self.divide_some() {
                    break;
                }
                // Waiters for the lock, and other tasks, run first.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Divides some budgets that are due. Returns whether more are.
    fn divide_some(&self) -> bool {
        let (mut leases, now) = (self.shared.leases.lock(), self.now());
        let changed = leases.turn(now, LEASE_CHUNK, |network| self.budget(network));
        let more = leases.is_due(now);
        drop(leases);
        if !changed.is_empty() {
            self.measures().leases_advertised.inc_by(changed.len() as u64);
            self.mark_dirty_now(self.only_in_use(changed));
        }
        more
    }
}
