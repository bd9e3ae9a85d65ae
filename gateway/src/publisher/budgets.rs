//! Budgets of networks, divided among the hosts that request a part.

use std::time::Duration;

use spand_cells::Notice;
use spand_core::event::Established;
use tokio::time::MissedTickBehavior;

use super::Published;
use super::cluster::lease_notice;
use super::leases::Turned;
use super::state::State;

/// Interval at which due budgets are divided; how many under one hold of the lock, and how many times that per interval: at most
/// 5,120 a second. A start waits for 64, or for fewer where many hosts have parts of them.
const LEASE_TURN: Duration = Duration::from_millis(100);
const LEASE_CHUNK: usize = 64;
const LEASE_CHUNKS: usize = 8;

impl Published {
    /// A connection of a host is established, so its start was not a spoofed SYN.
    pub fn established(&self, connection: &Established) {
        let here = self.established_here(connection);
        let covered = self.estimate(connection.network).is_some();
        let measures = self.measures();
        measures.established.inc();
        measures.established_covered.inc_by(u64::from(covered));
        measures.established_advised.inc_by(u64::from(covered && here));
        if !here {
            self.hand_on_established(connection);
        }
    }

    /// Whether the host is subscribed here.
    pub(super) fn established_here(&self, connection: &Established) -> bool {
        let host_ids = self.shared.outbound.lock().subscribers.host_ids(connection.host);
        if host_ids.is_empty() {
            return false;
        }
        let (mut state, now) = (self.shared.state.write(), self.now());
        for host_id in host_ids {
            state.leases.confirm(host_id, connection.network, now);
        }
        true
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
        let (mut state, now) = (self.shared.state.write(), self.now());
        let State { networks, leases, .. } = &mut *state;
        let turned = leases.turn(now, LEASE_CHUNK, |network| networks.budget(network));
        let more = leases.is_due(now);
        drop(state);
        let Turned { mut changed, lent, settled } = turned;
        for (gateway, network, lease) in lent {
            self.notify(Some(gateway), lease_notice(network, lease));
        }
        for (gateway, network, as_of) in settled {
            self.notify(Some(gateway), Notice::Settled { network, as_of });
        }
        if !changed.is_empty() {
            self.measures().leases_advertised.inc_by(changed.len() as u64);
            let outbound = self.shared.outbound.lock();
            if self.shared.sends_only_in_use() {
                // The withdrawal of a network that the host no longer uses ended its lease.
                changed.retain(|(host_id, network)| outbound.destinations.contains(*host_id, *network));
            }
            let overflowed = outbound.mark_dirty_now(changed);
            drop(outbound);
            self.measures().dirty_overflows.inc_by(overflowed);
        }
        more
    }
}
