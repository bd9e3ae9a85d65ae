//! Shares of single clients in networks whose addresses differ: a client with samples of its own starts on these, and all others on the
//! share of the lower part (`docs/explain/definitions.md`, "Marks").
//!
//! A client's share is published as a separate network, with the budget of one connection. It does not judge losses: a client's retreat
//! ([`super::retreats`]) replaces its share while it lasts.

use std::collections::BTreeMap;

use spand_core::estimate::AddressShare;
use spand_core::mem::treed;
use spand_core::networks::view::NetworkView;
use spand_proto::estimate::{Estimate, Mark};
use spand_proto::network::Network;

use super::Networks;
use crate::publisher::config::PublisherConfig;
use crate::publisher::retreat::{client_network, own_view};

/// Clients with a share of their own, and the network that each is in.
#[derive(Debug, Default)]
pub(super) struct OwnShares {
    network_of: BTreeMap<Network, Network>,
}

impl OwnShares {
    /// At the limit a further client starts on its network's share.
    pub(super) const MOST: usize = 4_096;

    /// Bytes taken by all of them.
    pub(super) const fn bytes() -> usize {
        treed::<Network, Network>(Self::MOST)
    }
}

impl Networks {
    /// Whether this client of the network has a share of its own.
    pub(super) fn has_own_share(&self, client: Network, network: Network) -> bool {
        self.own_shares.network_of.get(&client) == Some(&network)
    }

    /// Publishes the shares of a network's clients as they are now.
    pub(super) fn renew_own_shares_of(&mut self, network: Network, config: &PublisherConfig) {
        let Some(entry) = self.entries.get(&network) else { return };
        let differ = entry.view.estimate.as_ref().is_some_and(|of| of.mark == Some(Mark::AddressesDiffer));
        let is_held = entry.retreat.as_ref().is_some_and(|retreat| retreat.is_held());
        let mut shares: Vec<(Network, AddressShare)> = Vec::new();
        if differ && !is_held {
            let own = entry.view.addresses.iter().filter(|of| of.samples >= entry.view.needed.0);
            for share in own {
                let client = client_network(share.address);
                // Addresses come in order, the largest share first: of several in an IPv6 /64 the smallest share counts.
                match shares.iter_mut().find(|(other, _)| *other == client) {
                    Some((_, lower)) => *lower = *share,
                    None => shares.push((client, *share)),
                }
            }
        }
        let view = (!shares.is_empty()).then(|| NetworkView::clone(&entry.view));
        self.end_own_shares_of(network, |client| shares.iter().any(|(wanted, _)| *wanted == client));
        let Some(view) = view else { return };
        for (client, share) in shares {
            let is_network = self.entries.get(&client).is_some_and(|entry| !entry.is_client);
            let has_room = self.own_shares.network_of.len() < OwnShares::MOST || self.has_own_share(client, network);
            if is_network || !has_room || self.clients.is_held(client) || !network.covers(client) {
                continue;
            }
            let own = own_view(client, &view);
            // By its own samples, so that they back it.
            let of_samples = |of: Estimate| Estimate {
                share: share.share,
                // The network's is that of its fastest client.
                bdp: of.bdp.map(|bdp| if bdp < share.share { bdp } else { share.share }),
                samples: share.samples,
                is_lower_bound: false,
                loss_connections: 1,
                mark: None,
                ..of
            };
            let estimate = own.estimate.map(of_samples);
            self.own_shares.network_of.insert(client, network);
            let put = self.publish_one(NetworkView { estimate, addresses: Vec::new(), ..own }, true, config);
            self.of_clients.push((client, put));
        }
    }

    /// Ends the own shares of a network's clients, without those that are `kept`: they start on the network's share again.
    pub(super) fn end_own_shares_of(&mut self, network: Network, kept: impl Fn(Network) -> bool) {
        let inside = self.own_shares.network_of.range(network..).take_while(|(client, _)| network.covers(**client));
        let gone: Vec<Network> =
            inside.filter(|(client, of)| **of == network && !kept(**client)).map(|(client, _)| *client).collect();
        for client in gone {
            self.own_shares.network_of.remove(&client);
            if !self.clients.is_held(client) {
                let put = self.unpublish_client(client, None);
                self.of_clients.push((client, put));
            }
        }
    }
}
