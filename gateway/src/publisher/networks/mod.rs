//! The published networks: in order for lists, by longest match for addresses.
//!
//! Keeps per network the estimate that was advertised last, so that only changes are advertised. Clients with their own retreat
//! ([`retreats`]) or their own share ([`own_shares`]) are entries too.

mod own_shares;
mod retreats;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use ipnet::IpNet;
use spand_cells::HeldBack;
use spand_core::config::WindowConfig;
use spand_core::estimate::NoEstimate;
use spand_core::mem::{boxed, treed};
use spand_core::networks::Withdrawal;
use spand_core::networks::traffic::NetworkTraffic;
use spand_core::networks::view::NetworkView;
use spand_core::types::{LimitCounts, SampleRate};
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::no_estimate::Outcomes;
use spand_proto::units::{Micros, Segments, Timestamp, Window};

use self::own_shares::OwnShares;
pub(super) use self::retreats::Judged;
use super::cluster::Division;
use super::config::PublisherConfig;
use super::retreat::{Clients, Comparisons, Retreat};

/// Networks by prefix. Each is written by one engine's thread; holds as many as the engine's own table.
#[derive(Debug)]
pub(super) struct Networks {
    entries: BTreeMap<Network, Entry>,
    /// How many networks there are of each prefix length, so that a lookup tries only lengths that occur.
    ipv4_lengths: [usize; 33],
    ipv6_lengths: [usize; 129],
    /// Those with an estimate: pages of these alone do not pass over the others, of which a scan leaves many.
    estimates: BTreeSet<Network>,
    /// Networks whose advice is held back, and clients, by when that changes with time alone.
    retreats: BTreeSet<(Timestamp, Network)>,
    clients: Clients,
    own_shares: OwnShares,
    /// Entries that are clients.
    client_entries: usize,
    comparisons: Comparisons,
    /// Changes of clients that followed from the last change of their network.
    of_clients: Vec<(Network, Put)>,
    /// Networks that are not known here, held back at other gateways.
    held_elsewhere: BTreeMap<Network, HeldBack>,
    /// Where there are other gateways.
    division: Option<Division>,
}

#[derive(Debug)]
struct Entry {
    view: Arc<NetworkView>,
    /// The view's estimate, to be shared.
    estimate: Option<Arc<Estimate>>,
    advertised: Option<Arc<Estimate>>,
    /// Of a client, whose network is another one.
    is_client: bool,
    /// Where hosts reported first flights.
    retreat: Option<Box<Retreat>>,
}

impl Networks {
    /// Bytes taken by N networks, with a retreat of each.
    pub(super) const fn bytes(networks: usize) -> usize {
        // The advertised estimate may differ from the one in force; both are shared.
        let each = boxed::<[usize; 2]>() + boxed::<NetworkView>() + 2 * boxed::<Estimate>() + Retreat::BYTES;
        networks.saturating_mul(each)
            + treed::<Network, Entry>(networks)
            + treed::<Network, ()>(networks)
            + treed::<(Timestamp, Network), ()>(networks)
    }

    /// Memory in bytes of clients with losses and of those with their own share, all of them with their own advice.
    pub(super) const fn bytes_of_clients() -> usize {
        Self::bytes(Clients::MOST + OwnShares::MOST) + Clients::bytes() + OwnShares::bytes()
    }

    pub(super) fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            ipv4_lengths: [0; 33],
            ipv6_lengths: [0; 129],
            estimates: BTreeSet::new(),
            retreats: BTreeSet::new(),
            clients: Clients::default(),
            own_shares: OwnShares::default(),
            client_entries: 0,
            comparisons: Comparisons::default(),
            of_clients: Vec::new(),
            held_elsewhere: BTreeMap::new(),
            division: None,
        }
    }

    /// Networks, without clients.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.client_entries
    }

    /// How many estimates there are, those of clients included.
    pub(super) fn estimates(&self) -> usize {
        self.estimates.len()
    }

    /// Whether a network has an estimate.
    pub(super) fn has_estimate(&self, network: Network) -> bool {
        self.estimates.contains(&network)
    }

    /// Up to `limit` networks with an estimate in order, from the first one after `after` on.
    pub(super) fn page_of_estimates(&self, after: Option<Network>, limit: usize) -> Vec<Network> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.estimates.range((from, Bound::Unbounded)).take(limit).copied().collect()
    }

    /// Every network, without clients.
    pub(super) fn all(&self) -> Vec<Network> {
        let networks = self.entries.iter().filter(|(_, entry)| !entry.is_client);
        networks.map(|(network, _)| *network).collect()
    }

    pub(super) fn get(&self, network: Network) -> Option<&Arc<NetworkView>> {
        self.entries.get(&network).map(|entry| &entry.view)
    }

    /// The longest published network that contains `address`, clients included.
    pub(super) fn longest_match(&self, address: IpAddr) -> Option<&Arc<NetworkView>> {
        self.longest(address, |_| true).map(|entry| &entry.view)
    }

    /// The network that `address` is in, whatever is published of it by itself.
    pub(super) fn network_of(&self, address: IpAddr) -> Option<Network> {
        self.longest(address, |entry| !entry.is_client).map(|entry| entry.view.network)
    }

    fn longest(&self, address: IpAddr, is_meant: impl Fn(&Entry) -> bool) -> Option<&Entry> {
        let address = address.to_canonical();
        let lengths: &[usize] = if address.is_ipv4() { &self.ipv4_lengths } else { &self.ipv6_lengths };
        let longest_first = lengths.iter().enumerate().rev().filter(|(_, count)| **count > 0);
        longest_first.map(|(len, _)| len).find_map(|len| {
            let prefix = IpNet::new(address, u8::try_from(len).ok()?).ok()?;
            self.entries.get(&Network::new(prefix)).filter(|entry| is_meant(entry))
        })
    }

    /// Up to `limit` networks in order, from the first one after `after` on.
    pub(super) fn page(&self, after: Option<Network>, limit: usize) -> Vec<Arc<NetworkView>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.entries.range((from, Bound::Unbounded)).take(limit).map(|(_, entry)| Arc::clone(&entry.view)).collect()
    }

    pub(super) fn estimate(&self, network: Network) -> Option<Arc<Estimate>> {
        self.entries.get(&network)?.estimate.clone()
    }

    /// What hosts, and gateways that it is lent to, may have granted above their defaults in a network and not yet acknowledged. Beside other
    /// gateways that is what this one's own tap shows of the whole: those parts add up to it.
    pub(super) fn budget(&self, network: Network) -> Option<Segments> {
        let Some(Division { of_tap, all }) = self.division else { return self.whole_budget(network) };
        let view = self.get(network)?;
        let estimate = view.estimate.as_ref()?;
        let share = estimate.share_segments(estimate.mss).0;
        Some(Segments(match view.parallel_here {
            0 if view.parallel == 0 => share / all,
            here => share.saturating_mul(here) / of_tap,
        }))
    }

    /// The budget of all gateways together: a network's share for each connection that is seen there at once (`docs/explain/definitions.md`,
    /// "Budget and retreat"), limited to the number of parallel connections during which the share was measured: a share that few
    /// connections had for themselves is not what each of a crowd gets.
    pub(super) fn whole_budget(&self, network: Network) -> Option<Segments> {
        let view = self.get(network)?;
        let estimate = view.estimate.as_ref()?;
        let parallel = view.parallel.min(view.parallel_at_samples).max(1);
        Some(Segments(estimate.share_segments(estimate.mss).0.saturating_mul(parallel)))
    }

    /// Takes among how many gateways budgets are divided; whether they are others than before.
    pub(super) fn set_division(&mut self, division: Option<Division>) -> bool {
        std::mem::replace(&mut self.division, division) != division
    }

    /// Takes a network's new state.
    pub(super) fn put(&mut self, view: NetworkView, now: Timestamp, config: &PublisherConfig) -> Put {
        // A prefix list can make a network of what was a client.
        if self.entries.get(&view.network).is_some_and(|entry| entry.is_client) {
            self.forget_client(view.network);
        }
        let retreat = self.entries.get_mut(&view.network).and_then(|entry| entry.retreat.as_mut());
        let view = match retreat {
            Some(retreat) => retreat.hold(view),
            None => view,
        };
        let network = view.network;
        let put = self.publish(view, config);
        let held = if self.held_elsewhere.is_empty() { None } else { self.take_held_elsewhere(network, now, config) };
        held.filter(|held| *held != Put::Silent).unwrap_or(put)
    }

    /// Publishes a network, and what follows for the clients in it.
    fn publish(&mut self, view: NetworkView, config: &PublisherConfig) -> Put {
        let network = view.network;
        let put = self.publish_one(view, false, config);
        self.renew_clients_of(network, config);
        self.renew_own_shares_of(network, config);
        put
    }

    fn publish_one(&mut self, view: NetworkView, is_client: bool, config: &PublisherConfig) -> Put {
        let network = view.network;
        let estimate = view.estimate.clone().map(Arc::new);
        if estimate.is_some() {
            self.estimates.insert(network);
        } else {
            self.estimates.remove(&network);
        }
        let entry =
            Entry { view: Arc::new(view), estimate: estimate.clone(), advertised: None, is_client, retreat: None };
        self.client_entries += usize::from(is_client);
        let (advertised, retreat) = if let Some(old) = self.entries.insert(network, entry) {
            self.client_entries -= usize::from(old.is_client);
            (old.advertised, old.retreat)
        } else {
            self.count(network, true);
            (None, None)
        };
        let (advertised, put) = match (advertised, estimate) {
            (Some(_), None) if is_client => (None, Put::Rejoin),
            (Some(_), None) => (None, Put::Withdraw),
            (None, None) => (None, Put::Silent),
            (Some(old), Some(new)) if !worth_advertising(&old, &new, config) => (Some(old), Put::Silent),
            (_, Some(new)) => (Some(new), Put::Advertise),
        };
        if let Some(entry) = self.entries.get_mut(&network) {
            entry.advertised = advertised;
            entry.retreat = retreat;
        }
        put
    }

    /// Takes a network's new estimate; the rest of its state stays until a view brings it.
    pub(super) fn put_estimate(&mut self, estimate: Estimate, now: Timestamp, config: &PublisherConfig) -> Put {
        // The engine's own minima come with its next view of the network.
        let WindowConfig { min_samples, min_connections, .. } = WindowConfig::default();
        let view = match self.get(estimate.network) {
            Some(view) => NetworkView { why_not: None, estimate: Some(estimate), ..NetworkView::clone(view) },
            None => NetworkView {
                network: estimate.network,
                why_not: None,
                rtt_min: estimate.rtt_min,
                rtt_mean: estimate.rtt_mean,
                samples: estimate.samples,
                lower_bounds: 0,
                connections: estimate.connections,
                losses: estimate.losses,
                limits: LimitCounts::default(),
                parallel: 0,
                parallel_at_samples: 0,
                parallel_here: 0,
                reported: None,
                followed: SampleRate::ALL,
                outcomes: Outcomes::default(),
                traffic: NetworkTraffic::default(),
                needed: (min_samples, min_connections),
                compared: Vec::new(),
                addresses: Vec::new(),
                newest: Some(estimate.refreshed),
                estimate: Some(estimate),
            },
        };
        self.put(view, now, config)
    }

    /// Takes away a network's estimate.
    pub(super) fn withdraw(&mut self, network: Network, reason: Withdrawal, config: &PublisherConfig) -> Put {
        let Some(entry) = self.entries.get_mut(&network) else {
            return Put::Silent;
        };
        let why_not = match reason {
            Withdrawal::Expired | Withdrawal::Evicted | Withdrawal::Administrator => NoEstimate::Expired,
            Withdrawal::TooFew => NoEstimate::TooFewSamples,
        };
        let view = NetworkView { estimate: None, why_not: Some(why_not), ..NetworkView::clone(&entry.view) };
        entry.view = Arc::new(match &mut entry.retreat {
            Some(retreat) => retreat.hold(view),
            None => view,
        });
        entry.estimate = None;
        let put = entry.advertised.take().map_or(Put::Silent, |_| Put::Withdraw);
        self.estimates.remove(&network);
        self.renew_clients_of(network, config);
        self.renew_own_shares_of(network, config);
        put
    }

    /// Forgets a network, and what was held against clients in it.
    pub(super) fn remove(&mut self, network: Network) -> Put {
        for client in self.clients.held_in(network) {
            let put = self.unpublish_client(client, self.clients.due(client));
            self.clients.remove(client);
            self.of_clients.push((client, put));
        }
        self.end_own_shares_of(network, |_| false);
        let Some(entry) = self.entries.remove(&network) else {
            return Put::Silent;
        };
        self.count(network, false);
        let due = entry.retreat.as_ref().and_then(|retreat| retreat.due());
        due.map(|due| self.retreats.remove(&(due, network)));
        self.estimates.remove(&network);
        entry.advertised.map_or(Put::Silent, |_| Put::Withdraw)
    }

    fn count(&mut self, network: Network, added: bool) {
        let prefix = network.prefix();
        let lengths: &mut [usize] = match prefix {
            IpNet::V4(_) => &mut self.ipv4_lengths,
            IpNet::V6(_) => &mut self.ipv6_lengths,
        };
        if let Some(count) = lengths.get_mut(usize::from(prefix.prefix_len())) {
            *count = if added { *count + 1 } else { count.saturating_sub(1) };
        }
    }
}

/// What became of a new state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Put {
    /// The estimate appeared or changed, or the advertised one is old.
    Advertise,
    /// There was an estimate and there is none now.
    Withdraw,
    /// A client no longer has its own estimate: that of its network applies to it.
    Rejoin,
    /// Nothing to advertise.
    Silent,
}

/// Whether `new` differs enough from the advertised estimate: in share, round-trip time or the windows at losses, in what decides
/// about a start below the host's default, or because the advertised one is old.
pub(super) fn worth_advertising(advertised: &Estimate, new: &Estimate, config: &PublisherConfig) -> bool {
    let moved = |a: f64, b: f64| (a - b).abs() > config.change * a.abs();
    let some_moved = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => moved(a, b),
        (a, b) => a.is_some() != b.is_some(),
    };
    let rtt = |of: Option<Micros>| of.map(|rtt| rtt.0 as f64);
    let at_losses = |of: &Estimate| of.loss_window.map(Window::bytes);
    moved(advertised.share.bytes(), new.share.bytes())
        || some_moved(rtt(advertised.rtt_min), rtt(new.rtt_min))
        || some_moved(rtt(advertised.rtt_mean), rtt(new.rtt_mean))
        || some_moved(at_losses(advertised), at_losses(new))
        || advertised.mss != new.mss
        || advertised.rule != new.rule
        || advertised.loss_connections.min(FLOOR_CONNECTIONS) != new.loss_connections.min(FLOOR_CONNECTIONS)
        || new.refreshed.since(advertised.refreshed) >= config.readvertise
}

/// Connections with a loss from which on a start below the host's default is allowed (`docs/explain/definitions.md`, "The start").
const FLOOR_CONNECTIONS: u32 = 3;
