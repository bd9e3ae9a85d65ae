//! The hosts that may hold leases: those that are subscribed, and those that were within the lifetime of advice.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use spand_proto::units::{Micros, Timestamp};

use super::NEWS;
use super::pool::Standing;

/// Hosts by their numbers, and by their addresses: an agent that reconnects is the same one.
#[derive(Debug)]
pub(super) struct Hosts {
    lifetime: Micros,
    /// Hosts at a time. At the limit an unknown host is refused: a host that is gone may go on using its advice, so
    /// its slot is free only when that has expired.
    limit: usize,
    next: u64,
    by_number: BTreeMap<u64, Host>,
    by_addresses: HashMap<Arc<[IpAddr]>, u64>,
    /// Those that are gone, by when their leases end.
    gone: BTreeSet<(Timestamp, u64)>,
    sole: Option<Sole>,
}

#[derive(Debug)]
struct Host {
    addresses: Arc<[IpAddr]>,
    /// Its leases end this much later: it passes them on.
    later: Micros,
    streams: u32,
    /// One of this many streams ended; until this time its advice may still be used.
    parted: Option<(u32, Timestamp)>,
    /// Since when no stream was left, until it is back and every lease was sent again.
    left: Option<Timestamp>,
    /// Once no stream is left: when its leases end.
    ends: Option<Timestamp>,
}

/// The host that got whole budgets because it was the only one.
#[derive(Clone, Copy, Debug)]
struct Sole {
    host: u64,
    /// When those have expired, if it is no longer the only one.
    until: Option<Timestamp>,
}

/// No room for one more host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::publisher) struct TooManyHosts(pub(in crate::publisher) usize);

/// A host that subscribed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::publisher) struct Joined {
    /// Its number.
    pub(in crate::publisher) host: u64,
    /// A host that needs a new snapshot: it was the only one until now, or had one agent.
    pub(in crate::publisher) request_snapshot: Option<u64>,
}

impl Hosts {
    pub(super) fn new(lifetime: Micros, limit: usize) -> Self {
        Self {
            lifetime,
            limit,
            next: 0,
            by_number: BTreeMap::new(),
            by_addresses: HashMap::new(),
            gone: BTreeSet::new(),
            sole: None,
        }
    }

    /// A host with these addresses, sorted, subscribed.
    pub(super) fn join(&mut self, addresses: &[IpAddr], later: Micros, now: Timestamp) -> Result<Joined, TooManyHosts> {
        self.forget_ended(now);
        let id = match self.by_addresses.get(addresses) {
            Some(id) => *id,
            None => self.add(addresses, later)?,
        };
        let mut streams = 1;
        if let Some(host) = self.by_number.get_mut(&id) {
            host.streams += 1;
            streams = host.streams;
            host.ends.take().map(|ends| self.gone.remove(&(ends, id)));
            // Nobody sends a gateway a snapshot: what is lent is sent to it again and again.
            host.left = host.left.filter(|_| later == Micros(0));
        }
        let only = self.only_one() == Some(id);
        let was_only_one = match &mut self.sole {
            // What is lent to a gateway is written down in each network.
            None if only && later == Micros(0) => {
                self.sole = Some(Sole { host: id, until: None });
                None
            }
            Some(sole) if sole.host == id && only => {
                sole.until = None;
                None
            }
            Some(Sole { host, until: until @ None }) if *host != id => {
                // At the latest then, whether or not it reads: renewals until now hold no longer than that.
                *until = Some(now.after(self.lifetime).after(NEWS));
                Some(*host)
            }
            _ => None,
        };
        Ok(Joined { host: id, request_snapshot: was_only_one.or((streams > 1).then_some(id)) })
    }

    fn add(&mut self, addresses: &[IpAddr], later: Micros) -> Result<u64, TooManyHosts> {
        if self.by_number.len() >= self.limit {
            return Err(TooManyHosts(self.by_number.len()));
        }
        let (id, addresses) = (self.next, Arc::from(addresses));
        self.next += 1;
        self.by_addresses.insert(Arc::clone(&addresses), id);
        self.by_number.insert(id, Host { addresses, later, streams: 0, parted: None, left: None, ends: None });
        Ok(id)
    }

    /// A stream of a host ended.
    pub(super) fn leave(&mut self, id: u64, now: Timestamp) {
        let Some(host) = self.by_number.get_mut(&id).filter(|host| host.streams > 0) else { return };
        let ends = now.after(self.lifetime).after(NEWS).after(host.later);
        host.parted = Some((parts(host, now), ends));
        host.streams -= 1;
        if host.streams > 0 {
            return;
        }
        (host.left, host.ends) = (Some(now), Some(ends));
        self.gone.insert((ends, id));
        if let Some(sole) = self.sole.as_mut().filter(|sole| sole.host == id) {
            sole.until = Some(sole.until.map_or(ends, |until| until.min(ends)));
        }
    }

    /// Among how many agents a host's leases are divided: each that has its addresses and is connected, or was within the lifetime of
    /// advice, has the same part. One that comes back is not counted twice where its stream had ended before.
    pub(super) fn parts(&self, id: u64, now: Timestamp) -> u32 {
        self.by_number.get(&id).map_or(1, |host| parts(host, now))
    }

    /// Every lease of a host was sent again.
    pub(super) fn all_advertised(&mut self, id: u64, now: Timestamp) {
        if let Some(host) = self.by_number.get_mut(&id).filter(|host| host.streams > 0) {
            host.left = None;
        }
        if let Some(Sole { until: Some(until), .. }) = self.sole.as_mut().filter(|sole| sole.host == id) {
            *until = (*until).min(now.after(NEWS));
        }
    }

    /// Whether a host has all of every budget that is not divided.
    pub(super) fn has_all(&mut self, id: u64) -> bool {
        if self.sole.is_none() && self.only_one() == Some(id) {
            self.sole = Some(Sole { host: id, until: None });
        }
        matches!(self.sole, Some(Sole { host, until: None }) if host == id)
    }

    /// The only host: no other one is subscribed, nor was within the lifetime of advice.
    pub(super) fn only_one(&self) -> Option<u64> {
        let mut hosts = self.by_number.iter();
        hosts.next().filter(|(_, host)| host.streams > 0).map(|(id, _)| *id).filter(|_| hosts.next().is_none())
    }

    /// What a host may get; `None` for one that is forgotten.
    pub(super) fn standing(&self, id: u64) -> Option<Standing> {
        let host = self.by_number.get(&id)?;
        Some(if host.streams == 0 {
            Standing::Gone(host.left.unwrap_or_default())
        } else if self.sole.is_some_and(|sole| sole.host != id) {
            Standing::Waits
        } else {
            host.left.map_or(Standing::Free, Standing::Back)
        })
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.by_number.keys().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Forgets those whose leases have ended.
    pub(super) fn forget_ended(&mut self, now: Timestamp) {
        if self.sole.is_some_and(|sole| sole.until.is_some_and(|until| until <= now)) {
            self.sole = None;
        }
        while let Some((_, id)) = self.gone.first().copied().filter(|(ends, _)| *ends <= now) {
            self.gone.pop_first();
            if let Some(host) = self.by_number.remove(&id) {
                self.by_addresses.remove(&host.addresses);
            }
        }
    }
}

fn parts(host: &Host, now: Timestamp) -> u32 {
    let before = host.parted.filter(|(_, until)| host.streams > 0 && *until > now).map_or(0, |(streams, _)| streams);
    host.streams.max(before).max(1)
}
