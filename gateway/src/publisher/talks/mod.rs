//! With which networks each host talked lately, and so of which it is told.
//!
//! A host is a holder of leases: an agent that comes back with the same addresses is the same one. Each has a bounded list
//! from which goes what it talked with longest ago; first what it was never told of, so that spoofed openings from networks
//! without an estimate push out nothing but each other. Pure: takes the time, and says what went.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::ops::Bound;

use spand_core::memory::{boxed, hashed, treed};
use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};

/// A talk is remembered to this part of the window: a busy host would otherwise have its list sorted with every start.
const STEPS: u64 = 16;

/// Who talks with whom.
#[derive(Debug)]
pub(super) struct Talks {
    window: Micros,
    /// Networks of one host.
    limit: NonZeroUsize,
    /// Of all hosts together.
    pairs_limit: NonZeroUsize,
    hosts: BTreeMap<u64, Host>,
    /// The hosts of each network, so that a change costs as much as there are hosts to be told of it.
    hosts_of: HashMap<Network, Vec<u64>>,
    pairs: usize,
}

#[derive(Debug, Default)]
struct Host {
    networks: BTreeMap<Network, Talk>,
    /// By time: those that it was never told of, and those that it may hold.
    untold: BTreeSet<(Timestamp, Network)>,
    told: BTreeSet<(Timestamp, Network)>,
}

#[derive(Clone, Copy, Debug)]
struct Talk {
    at: Timestamp,
    told: bool,
}

/// What came of a talk.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Noted {
    /// The host had not talked with the network lately.
    pub(super) new: bool,
    /// A network that had to go, and whether the host was told of it.
    pub(super) displaced: Option<(Network, bool)>,
}

impl Host {
    fn order(&mut self, told: bool) -> &mut BTreeSet<(Timestamp, Network)> {
        if told { &mut self.told } else { &mut self.untold }
    }

    fn put(&mut self, network: Network, talk: Talk) {
        if let Some(old) = self.networks.insert(network, talk) {
            self.order(old.told).remove(&(old.at, network));
        }
        self.order(talk.told).insert((talk.at, network));
    }

    /// Takes out the one of these that was talked with longest ago, if `may` it go.
    fn take_oldest(&mut self, told: bool, may: impl Fn(Timestamp) -> bool) -> Option<Network> {
        let (_, network) = self.order(told).first().copied().filter(|(at, _)| may(*at))?;
        self.order(told).pop_first();
        self.networks.remove(&network);
        Some(network)
    }

    fn displace(&mut self) -> Option<(Network, bool)> {
        [false, true].into_iter().find_map(|told| Some((self.take_oldest(told, |_| true)?, told)))
    }
}

impl Talks {
    /// Bytes taken by N pairs, each with a network of its own at worst.
    pub(super) const fn bytes(pairs: usize) -> usize {
        treed::<Network, Talk>(pairs)
            + treed::<(Timestamp, Network), ()>(pairs)
            + hashed::<(Network, Vec<u64>)>(pairs)
            + pairs.saturating_mul(boxed::<[u64; 4]>())
    }

    /// Nobody talked yet; a talk counts for `window`.
    pub(super) fn new(window: Micros, limit: NonZeroUsize, pairs_limit: NonZeroUsize) -> Self {
        Self { window, limit, pairs_limit, hosts: BTreeMap::new(), hosts_of: HashMap::new(), pairs: 0 }
    }

    /// A host talked with a network. `told`: it hears of its estimate now.
    pub(super) fn note(&mut self, host: u64, network: Network, told: bool, now: Timestamp) -> Noted {
        let known = self.hosts.entry(host).or_default();
        if let Some(talk) = known.networks.get(&network).copied() {
            let turned = told && !talk.told;
            if turned || now.since(talk.at) >= Micros(self.window.0 / STEPS) {
                known.put(network, Talk { at: now, told: talk.told || told });
            }
            return Noted::default();
        }
        // Where all hosts together have too many, one that has none yet may have one still.
        let is_full = known.networks.len() >= self.limit.get() || self.pairs >= self.pairs_limit.get();
        let displaced = is_full.then(|| known.displace()).flatten();
        known.put(network, Talk { at: now, told });
        self.hosts_of.entry(network).or_default().push(host);
        self.pairs += 1;
        if let Some((displaced, _)) = displaced {
            self.unlink(host, displaced);
        }
        Noted { new: true, displaced }
    }

    /// A host is told of a network's estimate now. That stays so when the estimate ends: a stream of several that it may have
    /// can be behind with its reading, and hears of the end when the network lapses at the latest.
    pub(super) fn tell(&mut self, host: u64, network: Network) {
        let Some(known) = self.hosts.get_mut(&host) else { return };
        if let Some(talk) = known.networks.get(&network).copied().filter(|talk| !talk.told) {
            known.put(network, Talk { told: true, ..talk });
        }
    }

    /// Whether a host talked with a network lately.
    pub(super) fn talks(&self, host: u64, network: Network) -> bool {
        self.hosts.get(&host).is_some_and(|known| known.networks.contains_key(&network))
    }

    /// The hosts that talked with a network lately.
    pub(super) fn hosts_of(&self, network: Network) -> &[u64] {
        self.hosts_of.get(&network).map_or(&[], Vec::as_slice)
    }

    /// Those of them that hold its estimate, where there is one.
    pub(super) fn told(&self, network: Network) -> impl Iterator<Item = u64> {
        let told = move |host: &u64| self.hosts.get(host)?.networks.get(&network).map(|talk| talk.told);
        self.hosts_of(network).iter().copied().filter(move |host| told(host) == Some(true))
    }

    /// Up to `limit` networks of a host in order, from the first one after `after` on.
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

    /// Forgets at most `at_most` networks with which hosts did not talk within the window; gives those that a host may hold.
    pub(super) fn lapse(&mut self, now: Timestamp, at_most: usize) -> Lapsed {
        let window = self.window;
        let mut gone = Vec::new();
        for (host, known) in &mut self.hosts {
            for told in [false, true] {
                while gone.len() < at_most
                    && let Some(network) = known.take_oldest(told, |at| now.since(at) >= window)
                {
                    gone.push((*host, network, told));
                }
            }
        }
        for (host, network, _) in &gone {
            self.unlink(*host, *network);
        }
        let held = gone.iter().filter(|(.., told)| *told).map(|(host, network, _)| (*host, *network)).collect();
        Lapsed { all: gone.len(), held }
    }

    /// Forgets every host but these.
    pub(super) fn keep(&mut self, hosts: &BTreeSet<u64>) {
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
        if let Some(place) = hosts.iter().position(|other| *other == host) {
            hosts.swap_remove(place);
        }
        if hosts.is_empty() {
            self.hosts_of.remove(&network);
        }
    }
}

/// What lapsed.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Lapsed {
    pub(super) all: usize,
    /// Hosts that may hold the estimate of a network and are to be told that it is no longer in force there.
    pub(super) held: Vec<(u64, Network)>,
}
