//! The budget of each network, leased to the hosts that start connections there (`docs/explain/definitions.md`, "Budget and retreat").
//!
//! A budget is what all hosts together may have granted above their defaults and not yet acknowledged. It is divided by
//! demand: connections established recently, halved every minute; where no host has any, starts seen, which can be spoofed with
//! SYNs. A host without demand has no lease, but where it is the only one it has all of every budget. A quarter of each is reserved where there are several hosts, so that a new one gets some with its first start.
//!
//! A lease counts as in use until a smaller one was sent and had time to arrive, or until the host's stream has been gone for the
//! lifetime of advice. Only the unused part is granted. Pure: takes the time and returns which leases to send.

mod gateways;
mod hosts;
mod pool;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use spand_cells::GatewayId;
use spand_core::mem::treed;
use spand_proto::network::Network;
use spand_proto::units::{Micros, Segments, Timestamp};

use self::gateways::{Borrowed, Gateways};
use self::hosts::Hosts;
use self::pool::{Budget, Pool, Standing};

pub(super) use self::gateways::Lease;
pub(super) use self::hosts::{Joined, TooManyHosts};

/// Time allowed for a smaller lease to arrive: the turns of a subscriber's stream, a slow path, a busy host.
pub(super) const NEWS: Micros = Micros::from_secs(1);
/// Interval at which a pool is divided again while a part is to be passed on, and otherwise.
const SOON: Micros = Micros::from_millis(500);
const LATER: Micros = Micros::from_secs(10);
/// Hosts' parts divided in one turn; no further pool is started beyond that, since starts wait for the lock.
const TURN_PARTS: usize = 2_048;

/// What a turn leads to.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Turned {
    /// Leases of hosts that changed and have to be sent.
    pub(super) changed: Vec<(u64, Network)>,
    /// What is to be sent to gateways.
    pub(super) lent: Vec<(GatewayId, Network, Lease)>,
    /// Gateways that are to hear that no more is held than what they lend, and since when that is so.
    pub(super) settled: Vec<(GatewayId, Network, Timestamp)>,
}

/// The parts of all hosts in all budgets.
#[derive(Debug)]
pub(super) struct Leases {
    /// Networks with demand at a time. At the limit a further one has no leases.
    limit: usize,
    /// Parts of hosts in all of them. At the limit a host has none in a further one.
    parts_limit: usize,
    parts: usize,
    hosts: Hosts,
    gateways: Gateways,
    borrowed: Borrowed,
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

    /// Bytes of what other gateways lend of N networks.
    pub(super) const fn bytes_borrowed(networks: usize) -> usize {
        Borrowed::bytes(networks)
    }

    /// `networks` with demand at a time, `parts` in them of all hosts together, and `hosts`.
    pub(super) fn new(lifetime: Micros, networks: usize, parts: usize, hosts: usize) -> Self {
        let hosts = Hosts::new(lifetime, hosts);
        let (gateways, borrowed) = (Gateways::default(), Borrowed::new(networks));
        let (pools, due) = (BTreeMap::new(), BTreeSet::new());
        Self { limit: networks, parts_limit: parts, parts: 0, hosts, gateways, borrowed, pools, due }
    }

    /// A host with these addresses, sorted, subscribed.
    pub(super) fn join(&mut self, addresses: &[IpAddr], now: Timestamp) -> Result<Joined, TooManyHosts> {
        self.hosts.join(addresses, Micros(0), now)
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
        let budget = Budget { own: budget.0, borrowed: self.borrowed.total(network, now) };
        let free = matches!(self.hosts.standing(id), Some(Standing::Free | Standing::Back(_)));
        let only = self.hosts.only_one() == Some(id);
        let pool = self.pools.entry(network).or_insert_with(|| {
            self.due.insert((now.after(SOON), network));
            Pool::new(budget, now.after(SOON))
        });
        pool.request(id, budget, now);
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

    /// Another gateway has hosts. Returns a host here that needs a new snapshot, since it was the only one.
    pub(super) fn gateway_came(&mut self, gateway: GatewayId, now: Timestamp) -> Result<Option<u64>, TooManyHosts> {
        self.gateways.came(gateway, &mut self.hosts, now)
    }

    /// It is gone, or has no hosts any more.
    pub(super) fn gateway_left(&mut self, gateway: GatewayId, now: Timestamp) {
        self.gateways.left(gateway, &mut self.hosts, now);
    }

    /// Whether it has a part of budgets.
    pub(super) fn has_gateway(&self, gateway: GatewayId) -> bool {
        self.gateways.id(gateway).is_some()
    }

    /// Those that have hosts.
    pub(super) fn gateways(&self) -> Vec<GatewayId> {
        self.gateways.all()
    }

    /// A host of another gateway is about to start a connection in a network with this budget, as [`Self::start`]. Returns what is to be
    /// sent to the gateway before the start.
    pub(super) fn start_elsewhere(
        &mut self,
        gateway: GatewayId,
        network: Network,
        budget: Segments,
        now: Timestamp,
    ) -> Option<Lease> {
        let id = self.gateways.id(gateway)?;
        let before = self.pools.get(&network).map_or(0, |pool| pool.lease(id));
        self.start(id, network, budget, now);
        let pool = self.pools.get_mut(&network)?;
        if before == 0 { pool.lent_to(id, now) } else { None }
    }

    /// A connection of a host of another gateway is established.
    pub(super) fn confirm_elsewhere(&mut self, gateway: GatewayId, network: Network, now: Timestamp) {
        if let Some(id) = self.gateways.id(gateway) {
            self.confirm(id, network, now);
        }
    }

    /// Another gateway lends this, since `sent`. Returns which gateways are to hear that no more is held than what each lends.
    pub(super) fn take_lease(
        &mut self,
        from: GatewayId,
        (network, lease): (Network, Lease),
        sent: Timestamp,
        now: Timestamp,
    ) -> Vec<(GatewayId, Timestamp)> {
        self.borrowed.take(from, (network, lease), sent, now);
        if self.pools.contains_key(&network) {
            self.moved(network, now);
            return Vec::new();
        }
        self.borrowed.settle(network, now)
    }

    /// Another gateway holds no more of a network's budget than its lease since then.
    pub(super) fn settle(&mut self, gateway: GatewayId, network: Network, as_of: Timestamp, now: Timestamp) {
        let Some(id) = self.gateways.id(gateway) else { return };
        if self.pools.get_mut(&network).is_some_and(|pool| pool.settle(id, as_of)) {
            self.moved(network, now);
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

    /// All budgets changed: they are divided again with the next turns.
    pub(super) fn all_moved(&mut self, now: Timestamp) {
        self.due = self.pools.keys().map(|network| (now, *network)).collect();
        self.pools.values_mut().for_each(|pool| pool.due = now);
    }

    /// Divides the pools that are due, `at_most` of them, and fewer where they have many hosts. `budget` is that of a network with an
    /// estimate.
    pub(super) fn turn(
        &mut self,
        now: Timestamp,
        at_most: usize,
        budget: impl Fn(Network) -> Option<Segments>,
    ) -> Turned {
        self.hosts.forget_ended(now);
        let mut turned = Turned::default();
        let mut parts = 0;
        let only = self.hosts.only_one();
        for _ in 0..at_most {
            if parts >= TURN_PARTS || !self.is_due(now) {
                break;
            }
            let Some((_, network)) = self.due.pop_first() else { break };
            let Some(pool) = self.pools.get_mut(&network) else { continue };
            // Without an estimate its withdrawal was sent, which ends the leases.
            let own = budget(network);
            let is_gateway = |id| self.gateways.is_one(id);
            if own.is_none() && !pool.is_lent(is_gateway, now) {
                self.parts -= pool.len();
                self.pools.remove(&network);
                continue;
            }
            let before = pool.len();
            parts += before;
            let borrowed = if own.is_some() { self.borrowed.total(network, now) } else { 0 };
            let budget = Budget { own: own.map_or(0, |own| own.0), borrowed };
            let mut changed = pool.divide(budget, |id| self.hosts.standing(id), is_gateway, only, now);
            self.parts -= before - pool.len();
            // To one that is gone nothing is sent again: it counts as long as what was sent before.
            let lent = pool.lent(|id| self.gateways.is_here(id), &changed, now).into_iter();
            turned.lent.extend(lent.filter_map(|(id, lease)| Some((self.gateways.gateway(id)?, network, lease))));
            changed.retain(|id| own.is_some() && !self.gateways.is_one(*id));
            turned.changed.extend(changed.iter().map(|id| (*id, network)));
            if pool.is_within(now) {
                let settled = self.borrowed.settle(network, now).into_iter();
                turned.settled.extend(settled.map(|(gateway, as_of)| (gateway, network, as_of)));
            }
            if pool.is_over(only, now) {
                self.parts -= pool.len();
                self.pools.remove(&network);
                // The only host has the plain budget from now on.
                turned.changed.extend(only.filter(|id| !self.gateways.is_one(*id)).map(|id| (id, network)));
                continue;
            }
            let is_settled = pool.is_settled(now) && !self.borrowed.is_unsettled(network);
            let later = now.after(if is_settled { LATER } else { SOON });
            pool.due = self.borrowed.ends(network, now).map_or(later, |ends| ends.min(later));
            self.due.insert((pool.due, network));
        }
        turned
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

    /// Demand for a network by connections established, of all hosts.
    #[cfg(test)]
    pub(super) fn confirmed(&self, network: Network, now: Timestamp) -> f64 {
        self.pools.get(&network).map_or(0.0, |pool| pool.confirmed(now))
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
