//! The budget of each network, leased to the hosts that start connections there (definitions, "Budget").
//!
//! A budget is what all hosts together may have granted above their defaults and not yet acknowledged. It is divided by
//! demand: starts seen lately, halved every minute. A host without demand has no lease, but where it is the only one it has all of
//! every budget. A quarter of each is kept back where there are several hosts, so that a new one gets some with its first start.
//!
//! What a host was told counts as held until it was told less and some time has passed for the news, or until its stream
//! has been gone for the lifetime of advice. Only what nobody holds is given. Pure: takes the time, and says whom to tell.

mod pool;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use spand_proto::network::Network;
use spand_proto::units::{Micros, Segments, Timestamp};

use self::pool::{Pool, Standing};

/// Time that is allowed for the news of a smaller lease: the turns of a subscriber's stream, a slow way, a busy host.
pub(super) const NEWS: Micros = Micros::from_secs(1);
/// Interval at which a pool is divided anew while something is to be passed on, and otherwise.
const SOON: Micros = Micros::from_millis(500);
const LATER: Micros = Micros::from_secs(10);
/// Hosts' parts divided in one turn, after which no further pool is begun: starts wait for it.
const TURN_PARTS: usize = 2_048;

/// Who has which part of which budget.
#[derive(Debug)]
pub(super) struct Leases {
    lifetime: Micros,
    /// Networks with demand at a time. At the limit a further one gives no leases.
    limit: usize,
    next_holder: u64,
    holders: BTreeMap<u64, Holder>,
    pools: BTreeMap<Network, Pool>,
    due: BTreeSet<(Timestamp, Network)>,
    sole: Option<Sole>,
    /// When the first of those that are gone is forgotten.
    next_end: Option<Timestamp>,
}

/// A subscribed host, by its addresses: an agent that reconnects is the same one.
#[derive(Debug)]
struct Holder {
    addresses: Vec<IpAddr>,
    streams: u32,
    /// When its leases end, once no stream is left.
    ends: Timestamp,
}

/// The host that was told whole budgets because it was the only one.
#[derive(Clone, Copy, Debug)]
struct Sole {
    holder: u64,
    /// When that has ended, where it is not the only one any more.
    until: Option<Timestamp>,
}

impl Leases {
    pub(super) const fn new(lifetime: Micros, limit: usize) -> Self {
        Self {
            lifetime,
            limit,
            next_holder: 0,
            holders: BTreeMap::new(),
            pools: BTreeMap::new(),
            due: BTreeSet::new(),
            sole: None,
            next_end: None,
        }
    }

    /// A host with these addresses, sorted, subscribed. Gives its number, and that of a host that has to be told everything
    /// anew: it was the only one until now.
    pub(super) fn join(&mut self, addresses: &[IpAddr], now: Timestamp) -> (u64, Option<u64>) {
        self.forget_ended(now);
        let known = self.holders.iter().find(|(_, holder)| holder.addresses == addresses).map(|(id, _)| *id);
        let id = known.unwrap_or(self.next_holder);
        if known.is_none() {
            self.next_holder += 1;
        }
        let new = || Holder { addresses: addresses.to_vec(), streams: 0, ends: now };
        self.holders.entry(id).or_insert_with(new).streams += 1;
        let only = self.only_one() == Some(id);
        match &mut self.sole {
            None if only => self.sole = Some(Sole { holder: id, until: None }),
            Some(sole) if sole.holder == id && only => sole.until = None,
            Some(Sole { holder, until: until @ None }) if *holder != id => {
                // At the latest then, whether or not it reads: renewals until now hold no longer than that.
                *until = Some(now.after(self.lifetime).after(NEWS));
                return (id, Some(*holder));
            }
            _ => {}
        }
        (id, None)
    }

    /// A stream of a host ended.
    pub(super) fn leave(&mut self, id: u64, now: Timestamp) {
        let ends = now.after(self.lifetime).after(NEWS);
        let Some(holder) = self.holders.get_mut(&id) else { return };
        holder.streams = holder.streams.saturating_sub(1);
        if holder.streams > 0 {
            return;
        }
        holder.ends = ends;
        self.next_end = Some(self.next_end.map_or(ends, |next| next.min(ends)));
        if let Some(sole) = self.sole.as_mut().filter(|sole| sole.holder == id) {
            sole.until = Some(sole.until.map_or(ends, |until| until.min(ends)));
        }
    }

    /// A host was told every lease anew.
    pub(super) fn told_anew(&mut self, id: u64, now: Timestamp) {
        if let Some(Sole { until: Some(until), .. }) = self.sole.as_mut().filter(|sole| sole.holder == id) {
            *until = (*until).min(now.after(NEWS));
        }
    }

    /// A host's lease in a network whose share is `share`.
    pub(super) fn lease(&mut self, id: u64, network: Network, share: Segments, now: Timestamp) -> Segments {
        self.forget_ended(now);
        if let Some(pool) = self.pools.get(&network) {
            return Segments(pool.lease(id));
        }
        if self.sole.is_none() && self.only_one() == Some(id) {
            self.sole = Some(Sole { holder: id, until: None });
        }
        match self.sole {
            Some(Sole { holder, until: None }) if holder == id => share,
            _ => Segments(0),
        }
    }

    /// A host is about to start a connection in a network with this budget. `false`: there is no room for one more network.
    pub(super) fn start(&mut self, id: u64, network: Network, budget: Segments, now: Timestamp) -> bool {
        self.forget_ended(now);
        if !self.pools.contains_key(&network) && self.pools.len() >= self.limit {
            return false;
        }
        let standing = self.standing(id);
        let only = self.only_one() == Some(id);
        let pool = self.pools.entry(network).or_insert_with(|| {
            self.due.insert((now.after(SOON), network));
            Pool::new(budget.0, now.after(SOON))
        });
        pool.want(id, budget.0, now);
        if pool.lease(id) > 0 {
            return true;
        }
        if standing == Standing::Free {
            pool.give_first(id, only, now);
        }
        let soon = now.after(SOON);
        if pool.due > soon {
            self.due.remove(&(pool.due, network));
            pool.due = soon;
            self.due.insert((soon, network));
        }
        true
    }

    /// The estimate of a network moved: its budget is looked at with the next turn.
    pub(super) fn moved(&mut self, network: Network, now: Timestamp) {
        if let Some(pool) = self.pools.get_mut(&network) {
            self.due.remove(&(pool.due, network));
            pool.due = now;
            self.due.insert((now, network));
        }
    }

    /// Divides the pools that are due, at most so many, and fewer where they have many hosts. `budget` gives that of a network with an estimate. Gives who is to be
    /// told of a lease that changed, and where.
    pub(super) fn turn(
        &mut self,
        now: Timestamp,
        at_most: usize,
        budget: impl Fn(Network) -> Option<Segments>,
    ) -> Vec<(u64, Network)> {
        self.forget_ended(now);
        let mut tell = Vec::new();
        if !self.is_due(now) {
            return tell;
        }
        let mut parts = 0;
        let only = self.only_one();
        let standings: BTreeMap<u64, Standing> = self.holders.keys().map(|id| (*id, self.standing(*id))).collect();
        for _ in 0..at_most {
            if parts >= TURN_PARTS || !self.is_due(now) {
                break;
            }
            let Some((_, network)) = self.due.pop_first() else { break };
            let Some(pool) = self.pools.get_mut(&network) else { continue };
            // Without an estimate hosts were told of its end, which ends the leases.
            let Some(budget) = budget(network) else {
                self.pools.remove(&network);
                continue;
            };
            parts += pool.len();
            let changed = pool.divide(budget.0, &standings, only, now);
            tell.extend(changed.iter().map(|id| (*id, network)));
            if pool.is_over(only, now) {
                self.pools.remove(&network);
                // The only host has the plain budget from now on.
                tell.extend(only.map(|id| (id, network)));
                continue;
            }
            pool.due = now.after(if pool.is_settled(now) { LATER } else { SOON });
            self.due.insert((pool.due, network));
        }
        tell
    }

    /// Whether [`Leases::turn`] has a pool to divide.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.due.first().is_some_and(|(due, _)| *due <= now)
    }

    /// The hosts that are subscribed, or were within the lifetime of advice.
    pub(super) fn holders(&mut self, now: Timestamp) -> impl Iterator<Item = u64> {
        self.forget_ended(now);
        self.holders.keys().copied()
    }

    /// Networks with demand.
    pub(super) fn len(&self) -> usize {
        self.pools.len()
    }

    /// The host that is the only one: nobody else is subscribed, nor was within the lifetime of advice.
    fn only_one(&self) -> Option<u64> {
        let mut holders = self.holders.iter();
        holders.next().filter(|(_, holder)| holder.streams > 0).map(|(id, _)| *id).filter(|_| holders.next().is_none())
    }

    fn standing(&self, id: u64) -> Standing {
        let connected = self.holders.get(&id).is_some_and(|holder| holder.streams > 0);
        if !connected {
            Standing::Gone
        } else if self.sole.is_some_and(|sole| sole.holder != id) {
            Standing::Waits
        } else {
            Standing::Free
        }
    }

    fn forget_ended(&mut self, now: Timestamp) {
        if self.sole.is_some_and(|sole| sole.until.is_some_and(|until| until <= now)) {
            self.sole = None;
        }
        if self.next_end.is_some_and(|end| end <= now) {
            self.holders.retain(|_, holder| holder.streams > 0 || holder.ends > now);
            let gone = self.holders.values().filter(|holder| holder.streams == 0);
            self.next_end = gone.map(|holder| holder.ends).min();
        }
    }
}
