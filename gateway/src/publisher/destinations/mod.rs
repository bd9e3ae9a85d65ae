//! The destination networks that each host uses, which decide what is advertised to it.
//!
//! An agent that reconnects with the same addresses is the same host. Each host has a bounded list. When it is full, the network
//! used longest ago is evicted, first among those never advertised to the host: spoofed SYNs from networks without an estimate
//! displace only each other. Networks of one provider's prefix (/16, IPv6 /32) that fill half of a list displace only each other, too.
//! Pure: takes the time and returns what was evicted.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::ops::Bound;

use ipnet::IpNet;
use spand_core::mem::{boxed, hashed, treed};
use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};

/// A use is recorded again only after this fraction of the window: a busy host's list would otherwise be sorted at every start.
const STEPS: u64 = 16;

/// The networks in use by each host.
#[derive(Debug)]
pub(super) struct DestinationsInUse {
    window: Micros,
    /// Networks of one host.
    limit: NonZeroUsize,
    /// Of all hosts together.
    pairs_limit: NonZeroUsize,
    hosts: BTreeMap<u64, Host>,
    /// The hosts of each network, so that the cost of a change is proportional to the hosts that use it.
    hosts_of: HashMap<Network, Vec<u64>>,
    pairs: usize,
}

#[derive(Debug, Default)]
struct Host {
    networks: BTreeMap<Network, Destination>,
    /// By time of last use: never advertised to the host, and advertised.
    unadvertised: BTreeSet<(Timestamp, Network)>,
    advertised: BTreeSet<(Timestamp, Network)>,
}

#[derive(Clone, Copy, Debug)]
struct Destination {
    last_used: Timestamp,
    advertised: bool,
}

/// The result of recording a use.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Recorded {
    /// The network is new in the host's list.
    pub(super) new: bool,
    /// The network that was evicted, and whether it had been advertised to the host.
    pub(super) evicted: Option<(Network, bool)>,
}

impl Host {
    fn order(&mut self, advertised: bool) -> &mut BTreeSet<(Timestamp, Network)> {
        if advertised { &mut self.advertised } else { &mut self.unadvertised }
    }

    fn put(&mut self, network: Network, destination: Destination) {
        if let Some(old) = self.networks.insert(network, destination) {
            self.order(old.advertised).remove(&(old.last_used, network));
        }
        self.order(destination.advertised).insert((destination.last_used, network));
    }

    /// Removes the network of one of the two orders that was used longest ago, if `may` allows it.
    fn take_oldest(&mut self, advertised: bool, may: impl Fn(Timestamp) -> bool) -> Option<Network> {
        let (_, network) = self.order(advertised).first().copied().filter(|(at, _)| may(*at))?;
        self.order(advertised).pop_first();
        self.networks.remove(&network);
        Some(network)
    }

    /// Makes room for `newcomer`.
    fn evict(&mut self, newcomer: Network) -> Option<(Network, bool)> {
        let prefix = provider_prefix(newcomer);
        let inside = self.networks.range(prefix..).take_while(|(network, _)| prefix.covers(**network)).count();
        let only_inside = 2 * inside >= self.networks.len();
        [false, true].into_iter().find_map(|advertised| {
            let order = self.order(advertised);
            let oldest = *order.iter().find(|(_, network)| !only_inside || prefix.covers(*network))?;
            order.remove(&oldest);
            self.networks.remove(&oldest.1);
            Some((oldest.1, advertised))
        })
    }
}

/// The prefix that one provider is commonly assigned: a /16, an IPv6 /32.
fn provider_prefix(network: Network) -> Network {
    let prefix = network.prefix();
    let len = prefix.prefix_len().min(if prefix.addr().is_ipv4() { 16 } else { 32 });
    IpNet::new(prefix.addr(), len).map_or(network, Network::new)
}

impl DestinationsInUse {
    /// Memory in bytes of N pairs; in the worst case each is of a different network.
    pub(super) const fn bytes(pairs: usize) -> usize {
        treed::<Network, Destination>(pairs)
            + treed::<(Timestamp, Network), ()>(pairs)
            + hashed::<(Network, Vec<u64>)>(pairs)
            + pairs.saturating_mul(boxed::<[u64; 4]>())
    }

    /// No destinations yet; each expires `window` after its last use.
    pub(super) fn new(window: Micros, limit: NonZeroUsize, pairs_limit: NonZeroUsize) -> Self {
        Self { window, limit, pairs_limit, hosts: BTreeMap::new(), hosts_of: HashMap::new(), pairs: 0 }
    }

    /// Records that a host uses a network. `advertised`: its estimate is advertised to the host now.
    pub(super) fn record(&mut self, host: u64, network: Network, advertised: bool, now: Timestamp) -> Recorded {
        let known = self.hosts.entry(host).or_default();
        if let Some(old) = known.networks.get(&network).copied() {
            let newly_advertised = advertised && !old.advertised;
            if newly_advertised || now.since(old.last_used) >= Micros(self.window.0 / STEPS) {
                known.put(network, Destination { last_used: now, advertised: old.advertised || advertised });
            }
            return Recorded::default();
        }
        // At the limit of all hosts together, a host without any destination may still have one.
        let is_full = known.networks.len() >= self.limit.get() || self.pairs >= self.pairs_limit.get();
        let evicted = is_full.then(|| known.evict(network)).flatten();
        known.put(network, Destination { last_used: now, advertised });
        self.hosts_of.entry(network).or_default().push(host);
        self.pairs += 1;
        if let Some((evicted, _)) = evicted {
            self.unlink(host, evicted);
        }
        Recorded { new: true, evicted }
    }

    /// A network's estimate is advertised to a host now. The flag stays set when the estimate ends: one of the host's streams may
    /// lag behind, and gets the withdrawal when the network expires at the latest.
    pub(super) fn set_advertised(&mut self, host: u64, network: Network) {
        let Some(known) = self.hosts.get_mut(&host) else { return };
        if let Some(old) = known.networks.get(&network).copied().filter(|old| !old.advertised) {
            known.put(network, Destination { advertised: true, ..old });
        }
    }

    /// Whether a host uses a network.
    pub(super) fn contains(&self, host: u64, network: Network) -> bool {
        self.hosts.get(&host).is_some_and(|known| known.networks.contains_key(&network))
    }

    /// The hosts that use a network.
    pub(super) fn hosts_of(&self, network: Network) -> &[u64] {
        self.hosts_of.get(&network).map_or(&[], Vec::as_slice)
    }

    /// Those of them to which its estimate was advertised.
    pub(super) fn advertised(&self, network: Network) -> impl Iterator<Item = u64> {
        let advertised = move |host: &u64| self.hosts.get(host)?.networks.get(&network).map(|of| of.advertised);
        self.hosts_of(network).iter().copied().filter(move |host| advertised(host) == Some(true))
    }

    /// Up to `limit` networks of a host in order, starting after `after`.
    pub(super) fn page(&self, host: u64, after: Option<Network>, limit: usize) -> Vec<Network> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let networks =
            self.hosts.get(&host).into_iter().flat_map(|known| known.networks.range((from, Bound::Unbounded)));
        networks.take(limit).map(|(network, _)| *network).collect()
    }

    /// Networks of a host.
    pub(super) fn len(&self, host: u64) -> usize {
        self.hosts.get(&host).map_or(0, |known| known.networks.len())
    }

    /// Networks of all hosts.
    pub(super) const fn pairs(&self) -> usize {
        self.pairs
    }

    /// Removes at most `at_most` networks that hosts did not use within the window.
    pub(super) fn expire(&mut self, now: Timestamp, at_most: usize) -> Expired {
        let window = self.window;
        let mut gone = Vec::new();
        for (host, known) in &mut self.hosts {
            for advertised in [false, true] {
                while gone.len() < at_most
                    && let Some(network) = known.take_oldest(advertised, |at| now.since(at) >= window)
                {
                    gone.push((*host, network, advertised));
                }
            }
        }
        for (host, network, _) in &gone {
            self.unlink(*host, *network);
        }
        let advertised =
            gone.iter().filter(|(.., advertised)| *advertised).map(|(host, network, _)| (*host, *network)).collect();
        Expired { all: gone.len(), advertised }
    }

    /// Removes every other host.
    pub(super) fn retain_hosts(&mut self, hosts: &BTreeSet<u64>) {
        let gone: Vec<u64> = self.hosts.keys().copied().filter(|host| !hosts.contains(host)).collect();
        for host in gone {
            for network in self.hosts.remove(&host).into_iter().flat_map(|known| known.networks.into_keys()) {
                self.unlink(host, network);
            }
        }
    }

    fn unlink(&mut self, host: u64, network: Network) {
        self.pairs -= 1;
        let Some(hosts) = self.hosts_of.get_mut(&network) else { return };
        if let Some(index) = hosts.iter().position(|other| *other == host) {
            hosts.swap_remove(index);
        }
        if hosts.is_empty() {
            self.hosts_of.remove(&network);
        }
    }
}

/// What expired.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Expired {
    /// How many pairs.
    pub(super) all: usize,
    /// Pairs whose estimate was advertised to the host and has to be withdrawn there.
    pub(super) advertised: Vec<(u64, Network)>,
}
