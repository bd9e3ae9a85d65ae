//! The budget of each network, leased to the hosts that start connections there (`docs/definitions.md`, "Budget and retreat").
//!
//! A budget is what all hosts together may have granted above their defaults and not yet acknowledged. It is divided by
//! demand: connections established recently, halved every minute; where no host has any, starts seen, which can be spoofed with
//! SYNs. A host without demand has no lease, but where it is the only one it has all of every budget. A quarter of each is reserved where there are several hosts, so that a new one gets some with its first start.
//!
//! A lease counts as in use until a smaller one was sent and had time to arrive, or until the host's stream has been gone for the
//! lifetime of advice. Only the unused part is granted. Pure: takes the time and returns which leases to send.

mod hosts;
mod pool;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use spand_core::memory::treed;
use spand_proto::network::Network;
use spand_proto::units::{Micros, Segments, Timestamp};

use self::hosts::Hosts;
use self::pool::{Pool, Standing};

pub(super) use self::hosts::{Joined, TooManyHosts};

/// Time allowed for a smaller lease to arrive: the turns of a subscriber's stream, a slow path, a busy host.
pub(super) const NEWS: Micros = Micros::from_secs(1);
/// Interval at which a pool is divided again while a part is to be passed on, and otherwise.
const SOON: Micros = Micros::from_millis(500);
const LATER: Micros = Micros::from_secs(10);
/// Hosts' parts divided in one turn; no further pool is started beyond that, since starts wait for the lock.
const TURN_PARTS: usize = 2_048;

/// The parts of all hosts in all budgets.
#[derive(Debug)]
pub(super) struct Leases {
    /// Networks with demand at a time. At the limit a further one has no leases.
    limit: usize,
    /// Parts of hosts in all of them. At the limit a host has none in a further one.
    parts_limit: usize,
    parts: usize,
    hosts: Hosts,
    pools: BTreeMap<Network, Pool>,
    due: BTreeSet<(Timestamp, Network)>,
}

impl Leases {
    /// Bytes taken by N networks with M parts of hosts.
    pub(super) const fn bytes(networks: usize, parts: usize) -> usize {
        // The smallest tree of a network has one node.
        Pool::parts_bytes(parts)
            + networks.saturating_mul(Pool::parts_bytes(6))
            + treed::<Network, Pool>(networks)
            + treed::<(Timestamp, Network), ()>(networks)
    }

    /// `networks` with demand at a time, `parts` in them of all hosts together, and `hosts`.
    pub(super) fn new(lifetime: Micros, networks: usize, parts: usize, hosts: usize) -> Self {
        let hosts = Hosts::new(lifetime, hosts);
        Self { limit: networks, parts_limit: parts, parts: 0, hosts, pools: BTreeMap::new(), due: BTreeSet::new() }
    }

    /// A host with these addresses, sorted, subscribed.
    pub(super) fn join(&mut self, addresses: &[IpAddr], now: Timestamp) -> Result<Joined, TooManyHosts> {
        self.hosts.join(addresses, now)
    }

    /// A stream of a host ended.
    pub(super) fn leave(&mut self, id: u64, now: Timestamp) {
        self.hosts.leave(id, now);
    }

    /// Every lease of a host was sent again.
    pub(super) fn all_advertised(&mut self, id: u64, now: Timestamp) {
        self.hosts.all_advertised(id, now);
    }

    /// The lease of each agent of a host in a network whose share is `share`.
    pub(super) fn lease(&mut self, id: u64, network: Network, share: Segments, now: Timestamp) -> Segments {
        self.hosts.forget_ended(now);
        let whole = match self.pools.get(&network) {
            Some(pool) => pool.lease(id),
            None if self.hosts.has_all(id) => share.0,
            None => 0,
        };
        Segments(whole / self.hosts.parts(id, now))
    }

    /// A host is about to start a connection in a network with this budget. `false`: there is no room for one more network, or part.
    pub(super) fn start(&mut self, id: u64, network: Network, budget: Segments, now: Timestamp) -> bool {
        self.hosts.forget_ended(now);
        let (known, has_part) = self.pools.get(&network).map_or((false, false), |pool| (true, pool.has(id)));
        if (!known && self.pools.len() >= self.limit) || (!has_part && self.parts >= self.parts_limit) {
            return false;
        }
        let free = self.hosts.standing(id) == Some(Standing::Free);
        let only = self.hosts.only_one() == Some(id);
        let pool = self.pools.entry(network).or_insert_with(|| {
            self.due.insert((now.after(SOON), network));
            Pool::new(budget.0, now.after(SOON))
        });
        pool.request(id, budget.0, now);
        self.parts += usize::from(!has_part);
        if pool.lease(id) > 0 {
            return true;
        }
        if free {
            pool.give_first(id, only, now);
        }
        self.hurry(network, now);
        true
    }

    /// A connection of a host in a network is established. Without a start that was seen it requests nothing.
    pub(super) fn confirm(&mut self, id: u64, network: Network, now: Timestamp) {
        let Some(pool) = self.pools.get_mut(&network) else { return };
        if pool.confirm(id, now) && pool.lease(id) == 0 {
            self.hurry(network, now);
        }
    }

    /// Has a pool divided soon.
    fn hurry(&mut self, network: Network, now: Timestamp) {
        let (soon, Some(pool)) = (now.after(SOON), self.pools.get_mut(&network)) else { return };
        if pool.due > soon {
            self.due.remove(&(pool.due, network));
            pool.due = soon;
            self.due.insert((soon, network));
        }
    }

    /// The estimate of a network changed: its budget is divided again with the next turn.
    pub(super) fn moved(&mut self, network: Network, now: Timestamp) {
        if let Some(pool) = self.pools.get_mut(&network) {
            self.due.remove(&(pool.due, network));
            pool.due = now;
            self.due.insert((now, network));
        }
    }

    /// Divides the pools that are due, `at_most` of them, and fewer where they have many hosts. `budget` is that of a network with an
    /// estimate. Returns the leases that changed and have to be sent.
    pub(super) fn turn(
        &mut self,
        now: Timestamp,
        at_most: usize,
        budget: impl Fn(Network) -> Option<Segments>,
    ) -> Vec<(u64, Network)> {
        self.hosts.forget_ended(now);
        let mut changed_leases = Vec::new();
        let mut parts = 0;
        let only = self.hosts.only_one();
        for _ in 0..at_most {
            if parts >= TURN_PARTS || !self.is_due(now) {
                break;
            }
            let Some((_, network)) = self.due.pop_first() else { break };
            let Some(pool) = self.pools.get_mut(&network) else { continue };
            // Without an estimate its withdrawal was sent, which ends the leases.
            let Some(budget) = budget(network) else {
                self.parts -= pool.len();
                self.pools.remove(&network);
                continue;
            };
            let before = pool.len();
            parts += before;
            let changed = pool.divide(budget.0, |id| self.hosts.standing(id), only, now);
            self.parts -= before - pool.len();
            changed_leases.extend(changed.iter().map(|id| (*id, network)));
            if pool.is_over(only, now) {
                self.parts -= pool.len();
                self.pools.remove(&network);
                // The only host has the plain budget from now on.
                changed_leases.extend(only.map(|id| (id, network)));
                continue;
            }
            pool.due = now.after(if pool.is_settled(now) { LATER } else { SOON });
            self.due.insert((pool.due, network));
        }
        changed_leases
    }

    /// Whether [`Leases::turn`] has a pool to divide.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.due.first().is_some_and(|(due, _)| *due <= now)
    }

    /// The hosts that are subscribed, or were within the lifetime of advice.
    pub(super) fn host_ids(&mut self, now: Timestamp) -> impl Iterator<Item = u64> {
        self.hosts.forget_ended(now);
        self.hosts.numbers()
    }

    /// How many those are.
    pub(super) fn host_count(&self) -> usize {
        self.hosts.len()
    }

    /// Networks with demand.
    pub(super) fn len(&self) -> usize {
        self.pools.len()
    }
}
