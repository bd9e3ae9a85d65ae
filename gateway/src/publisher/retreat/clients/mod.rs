//! Clients that lose first flights while their neighbours do not, and whose own advice is held back for it.
//!
//! A client is tracked from its first loss that is not attributed to its network. Its losses are treated like those of a network in
//! which it is the only one; a retreat is published as a separate network. Bounded: at the limit the client reported longest ago is
//! evicted, first among those without their own advice; reports of one host evict only clients reported by that host.
//! Pure: takes the time.

use std::collections::{BTreeMap, BTreeSet};

use spand_core::mem::treed;
use spand_core::networks::view::NetworkView;
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::units::Timestamp;

use super::{FirstFlight, Retreat, SERIES_SPAN, Verdict};

/// Clients that are tracked at a time, each with losses in first flights that are not attributed to its network.
const CLIENTS: usize = 4_096;
/// Of them those that one host reported: only several lying hosts together displace the reports of others.
const CLIENTS_OF_HOST: usize = CLIENTS / 8;

/// Known clients, by their prefixes.
#[derive(Debug, Default)]
pub(in crate::publisher) struct Clients {
    known: BTreeMap<Network, Client>,
    /// In the order in which they go: of all, and of each host.
    order: BTreeSet<Place>,
    order_of: BTreeMap<u64, BTreeSet<Place>>,
    /// Those whose advice is held back.
    held: BTreeSet<Network>,
}

/// When a client's turn to go comes.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Place {
    held: bool,
    reported: Timestamp,
    client: Network,
}

#[derive(Debug)]
struct Client {
    /// The network that it is in.
    network: Network,
    /// The host that reported it last.
    host: u64,
    reported: Timestamp,
    retreat: Retreat,
}

impl Client {
    fn place(&self, client: Network) -> Place {
        Place { held: self.retreat.is_held(), reported: self.reported, client }
    }
}

/// What a report of a client's first flight led to.
#[derive(Debug)]
pub(in crate::publisher) struct Reported {
    pub(in crate::publisher) verdict: Verdict,
    /// One that had to go.
    pub(in crate::publisher) displaced: Option<Displaced>,
}

/// A client that had to go while its losses still counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::publisher) struct Displaced {
    pub(in crate::publisher) client: Network,
    /// As [`Clients::due`]; only one whose advice was held back has some.
    pub(in crate::publisher) due: Option<Timestamp>,
}

impl Clients {
    /// Clients that can be published at a time, as separate networks.
    pub(in crate::publisher) const MOST: usize = CLIENTS;

    /// Bytes taken by all of them.
    pub(in crate::publisher) const fn bytes() -> usize {
        treed::<Network, Client>(CLIENTS)
            + CLIENTS * Retreat::BYTES
            + treed::<Place, ()>(CLIENTS)
            // A host's smallest tree has one node.
            + treed::<u64, BTreeSet<Place>>(CLIENTS)
            + CLIENTS * treed::<Place, ()>(6)
            + treed::<Network, ()>(CLIENTS)
    }

    /// How many have advice that is held back.
    pub(in crate::publisher) fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether this one has.
    pub(in crate::publisher) fn is_held(&self, client: Network) -> bool {
        self.held.contains(&client)
    }

    /// Whether anything is known of a client.
    pub(in crate::publisher) fn contains(&self, client: Network) -> bool {
        self.known.contains_key(&client)
    }

    /// The network that a client is in.
    pub(in crate::publisher) fn network_of(&self, client: Network) -> Option<Network> {
        self.known.get(&client).map(|known| known.network)
    }

    /// Clients of a network whose advice is held back.
    pub(in crate::publisher) fn held_in(&self, network: Network) -> Vec<Network> {
        let held = self.held.range(network..).take_while(|client| network.covers(**client));
        held.filter(|client| self.network_of(**client) == Some(network)).copied().collect()
    }

    /// What is published of a client whose advice is held back, where that of its network is `view`.
    pub(in crate::publisher) fn hold(&mut self, client: Network, view: &NetworkView) -> Option<NetworkView> {
        let known = self.known.get_mut(&client).filter(|known| known.retreat.is_held())?;
        Some(known.retreat.hold(own_view(client, view)))
    }

    /// When [`Clients::pass`] has something to do for a client.
    pub(in crate::publisher) fn due(&self, client: Network) -> Option<Timestamp> {
        self.known.get(&client)?.retreat.due()
    }

    /// Takes a host's report of a first flight to a client in the network that is published as `view`.
    pub(in crate::publisher) fn report(
        &mut self,
        (client, view): (Network, &NetworkView),
        host: u64,
        flight: &FirstFlight,
        now: Timestamp,
    ) -> Reported {
        let mut displaced = None;
        if !self.contains(client) {
            displaced = self.make_room(host, now);
            self.link(client, Client { network: view.network, host, reported: now, retreat: Retreat::default() });
        }
        let verdict = self.change(client, |known| {
            (known.network, known.host, known.reported) = (view.network, host, now);
            // Its network's advertised estimate may have changed since its last report.
            known.retreat.hold(own_view(client, view));
            known.retreat.report(flight, now)
        });
        let verdict = match verdict {
            Some(Verdict::Halved) => Verdict::AddressHalved,
            Some(Verdict::Withdrawn) => Verdict::AddressWithdrawn,
            other => other.unwrap_or(Verdict::Random),
        };
        Reported { verdict, displaced }
    }

    /// Lets what is over for a client be over; whether what is published of it changes.
    pub(in crate::publisher) fn pass(&mut self, client: Network, now: Timestamp) -> bool {
        self.change(client, |known| known.retreat.pass(now)).unwrap_or(false)
    }

    /// The losses of a network's clients so far are its own now.
    pub(in crate::publisher) fn begin_snapshot(&mut self, network: Network) {
        for (client, known) in self.known.range_mut(network..) {
            if !network.covers(*client) {
                break;
            }
            known.retreat.row.clear();
        }
    }

    /// Forgets a client.
    pub(in crate::publisher) fn remove(&mut self, client: Network) {
        self.unlink(client);
    }

    /// Does something with a client, and keeps it in order.
    fn change<T>(&mut self, client: Network, change: impl FnOnce(&mut Client) -> T) -> Option<T> {
        let mut known = self.unlink(client)?;
        let result = change(&mut known);
        self.link(client, known);
        Some(result)
    }

    fn link(&mut self, client: Network, known: Client) {
        let place = known.place(client);
        self.order.insert(place);
        self.order_of.entry(known.host).or_default().insert(place);
        if place.held {
            self.held.insert(client);
        }
        self.known.insert(client, known);
    }

    fn unlink(&mut self, client: Network) -> Option<Client> {
        let known = self.known.remove(&client)?;
        let place = known.place(client);
        self.order.remove(&place);
        self.held.remove(&client);
        if let Some(places) = self.order_of.get_mut(&known.host) {
            places.remove(&place);
            if places.is_empty() {
                self.order_of.remove(&known.host);
            }
        }
        Some(known)
    }

    /// Evicts one where there is no room for one more of a host's; returns it if its losses still counted.
    fn make_room(&mut self, host: u64, now: Timestamp) -> Option<Displaced> {
        let of_host = self.order_of.get(&host).filter(|places| places.len() >= CLIENTS_OF_HOST);
        let of_all = (self.known.len() >= CLIENTS).then_some(&self.order);
        let place = of_host.or(of_all)?.first().copied();
        let Place { held, reported, client } = place?;
        let due = self.due(client);
        self.unlink(client);
        (held || now.since(reported) <= SERIES_SPAN).then_some(Displaced { client, due })
    }
}

/// What a client has where its own advice is not held back: its network's, with the budget of one connection.
pub(in crate::publisher) fn own_view(client: Network, view: &NetworkView) -> NetworkView {
    let estimate = view.estimate.clone().map(|estimate| Estimate { network: client, ..estimate });
    NetworkView { network: client, estimate, parallel: 1, parallel_at_samples: 1, ..view.clone() }
}

#[cfg(test)]
mod tests;
