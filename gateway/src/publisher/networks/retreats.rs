//! Advice that is held back after losses in first flights, or where it makes transfers slower: of networks, and of single clients in them.
//!
//! A client's own advice is published as a separate network while its retreat lasts, and follows its network's estimate.

use std::net::IpAddr;

use spand_cells::HeldBack;
use spand_core::mem::treed;
use spand_core::networks::view::NetworkView;
use spand_proto::network::Network;
use spand_proto::start::DEFAULT_INITIAL_WINDOW;
use spand_proto::units::Timestamp;

use super::{Entry, Networks, Put};
use crate::publisher::config::PublisherConfig;
use crate::publisher::retreat::{Displaced, FirstFlight, Retreat, Transfer, Verdict, client_network, is_over};

/// Networks that are not known here and held back elsewhere. At the limit a further one is held back once its own hosts lose.
const HELD_ELSEWHERE: usize = 4_096;

/// What a report of a first flight led to.
#[derive(Debug)]
pub(in crate::publisher) struct Judged {
    pub(in crate::publisher) verdict: Verdict,
    /// The client, if the verdict is about its own advice.
    pub(in crate::publisher) about: Network,
    /// What is to be advertised.
    pub(in crate::publisher) changes: Vec<(Network, Put)>,
    /// Losses of another client that still counted were forgotten for it.
    pub(in crate::publisher) has_displaced: bool,
}

impl Networks {
    /// Takes a host's report of an advised first flight to a network.
    pub(in crate::publisher) fn first_flight(
        &mut self,
        (network, host): (Network, u64),
        flight: &FirstFlight,
        now: Timestamp,
        config: &PublisherConfig,
    ) -> Option<Judged> {
        let client = client_network(flight.ends[1].ip());
        // A start on the client's own advice is no evidence about its network's advice.
        if self.clients.is_held(client) && self.clients.network_of(client) == Some(network) {
            return self.client_flight((client, network, host), flight, now, config);
        }
        let retreat = retreat_of(self.entries.get_mut(&network)?);
        let before = retreat.due();
        let verdict = retreat.report(flight, now);
        let put = self.renew(network, before, config);
        let mut judged = Judged { verdict, about: network, changes: vec![(network, put)], has_displaced: false };
        // A client that is itself a published network, and a network of one client, are treated as a network.
        let is_network = self.entries.get(&client).is_some_and(|entry| !entry.is_client);
        let counts_for_client = match verdict {
            Verdict::Halved | Verdict::Withdrawn => {
                self.clients.begin_snapshot(network);
                false
            }
            Verdict::Random | Verdict::OneAddress | Verdict::OneHost => {
                flight.lost && flight.advised > DEFAULT_INITIAL_WINDOW && !is_network && network.covers(client)
            }
            Verdict::Clean => self.clients.contains(client),
            Verdict::Known | Verdict::AddressHalved | Verdict::AddressWithdrawn => false,
        };
        judged.changes.append(&mut self.of_clients);
        if counts_for_client && let Some(of_client) = self.client_flight((client, network, host), flight, now, config) {
            judged.changes.extend(of_client.changes);
            judged.has_displaced = of_client.has_displaced;
            if of_client.verdict == Verdict::AddressHalved {
                (judged.verdict, judged.about) = (of_client.verdict, client);
            }
        }
        Some(judged)
    }

    /// Takes a host's report of a transfer with an arm; what follows where the network's advice makes transfers slower.
    pub(in crate::publisher) fn transfer(
        &mut self,
        network: Network,
        transfer: &Transfer,
        now: Timestamp,
        config: &PublisherConfig,
    ) -> Option<Judged> {
        // What starts on the client's own advice is not compared.
        if self.narrowed(network, transfer.ends[1].ip()) != network {
            return None;
        }
        let entry = self.entries.get_mut(&network).filter(|entry| entry.estimate.is_some())?;
        let comparable = match &entry.retreat {
            Some(retreat) => retreat.comparable(now)?,
            None => (Timestamp::default(), false),
        };
        if !self.comparisons.take(network, transfer, comparable, now) {
            return None;
        }
        let verdict = retreat_of(entry).slower(now);
        let put = self.renew(network, None, config);
        self.clients.begin_snapshot(network);
        let mut changes = vec![(network, put)];
        changes.append(&mut self.of_clients);
        Some(Judged { verdict, about: network, changes, has_displaced: false })
    }

    fn client_flight(
        &mut self,
        (client, network, host): (Network, Network, u64),
        flight: &FirstFlight,
        now: Timestamp,
        config: &PublisherConfig,
    ) -> Option<Judged> {
        let view = NetworkView::clone(&self.entries.get(&network)?.view);
        let before = self.clients.due(client);
        let reported = self.clients.report((client, &view), host, flight, now);
        let mut changes = Vec::new();
        if let Some(Displaced { client, due }) = reported.displaced
            && due.is_some()
        {
            changes.push((client, self.unpublish_client(client, due)));
        }
        changes.push((client, self.renew_client((client, &view), before, config)));
        Some(Judged { verdict: reported.verdict, about: client, changes, has_displaced: reported.displaced.is_some() })
    }

    /// Holds back the advice of a network as another gateway does; what is to be advertised, where anything changed. A network that is
    /// not known yet is held back once it is.
    pub(in crate::publisher) fn hold_back(
        &mut self,
        held: &HeldBack,
        now: Timestamp,
        config: &PublisherConfig,
    ) -> Option<Vec<(Network, Put)>> {
        let network = held.network;
        let Some(entry) = self.entries.get_mut(&network) else {
            self.wait_for_network(held, now);
            return None;
        };
        // Of a client this gateway judges by itself.
        if entry.is_client {
            return None;
        }
        let retreat = retreat_of(entry);
        let before = retreat.due();
        if !retreat.join(held, now) {
            return None;
        }
        let put = self.renew(network, before, config);
        let mut changes = vec![(network, put)];
        changes.append(&mut self.of_clients);
        Some(changes)
    }

    /// How the advice of a network is held back, for other gateways.
    pub(in crate::publisher) fn held_back(&self, network: Network) -> Option<HeldBack> {
        let entry = self.entries.get(&network).filter(|entry| !entry.is_client)?;
        entry.retreat.as_ref()?.shared(network)
    }

    /// Bytes of what is held back of networks that are not known.
    pub(in crate::publisher) const fn bytes_held_elsewhere() -> usize {
        treed::<Network, HeldBack>(HELD_ELSEWHERE)
    }

    /// Of all networks.
    pub(in crate::publisher) fn all_held_back(&self) -> Vec<HeldBack> {
        self.retreats.iter().filter_map(|(_, network)| self.held_back(*network)).collect()
    }

    fn wait_for_network(&mut self, held: &HeldBack, now: Timestamp) {
        if self.held_elsewhere.len() >= HELD_ELSEWHERE {
            self.held_elsewhere.retain(|_, held| !is_over(held, now));
        }
        if self.held_elsewhere.len() < HELD_ELSEWHERE {
            self.held_elsewhere.insert(held.network, *held);
        }
    }

    /// Takes what another gateway held back of a network that was not known then.
    pub(super) fn take_held_elsewhere(
        &mut self,
        network: Network,
        now: Timestamp,
        config: &PublisherConfig,
    ) -> Option<Put> {
        let held = self.held_elsewhere.remove(&network)?;
        let retreat = retreat_of(self.entries.get_mut(&network)?);
        let before = retreat.due();
        retreat.join(&held, now).then(|| self.renew(network, before, config))
    }

    /// Ends or eases at most N retreats that are due; returns what follows for the networks.
    pub(in crate::publisher) fn pass(
        &mut self,
        now: Timestamp,
        at_most: usize,
        config: &PublisherConfig,
    ) -> Vec<(Network, Put)> {
        let mut passed = Vec::new();
        for _ in 0..at_most {
            let Some((due, network)) = self.retreats.first().copied().filter(|(due, _)| *due <= now) else { break };
            self.retreats.pop_first();
            if self.entries.get(&network).is_some_and(|entry| entry.is_client) {
                let around = self.clients.network_of(network).and_then(|around| self.entries.get(&around));
                let view = around.map(|entry| NetworkView::clone(&entry.view));
                if self.clients.pass(network, now)
                    && let Some(view) = view
                {
                    passed.push((network, self.renew_client((network, &view), Some(due), config)));
                }
                continue;
            }
            let retreat = self.entries.get_mut(&network).and_then(|entry| entry.retreat.as_mut());
            if retreat.is_some_and(|retreat| retreat.pass(now)) {
                passed.push((network, self.renew(network, Some(due), config)));
                passed.append(&mut self.of_clients);
            }
        }
        passed
    }

    /// Whether [`Networks::pass`] has something to do.
    pub(in crate::publisher) fn is_due(&self, now: Timestamp) -> bool {
        self.retreats.first().is_some_and(|(due, _)| *due <= now)
    }

    /// Networks and clients whose advice is held back.
    pub(in crate::publisher) fn with_retreats(&self) -> impl Iterator<Item = Network> {
        self.retreats.iter().map(|(_, network)| *network)
    }

    /// Networks whose advice is held back.
    pub(in crate::publisher) fn retreats(&self) -> usize {
        self.retreats.len() - self.clients.held()
    }

    /// Clients whose own advice is.
    pub(in crate::publisher) fn client_retreats(&self) -> usize {
        self.clients.held()
    }

    /// Takes the changes of clients that followed from changes of their networks.
    pub(in crate::publisher) fn take_of_clients(&mut self) -> Vec<(Network, Put)> {
        std::mem::take(&mut self.of_clients)
    }

    /// The network whose advice a start towards `remote` in `network` uses: the client's own, if there is one.
    pub(in crate::publisher) fn narrowed(&self, network: Network, remote: IpAddr) -> Network {
        if self.client_entries == 0 {
            return network;
        }
        let client = client_network(remote);
        let is_published = self.entries.get(&client).is_some_and(|entry| entry.is_client);
        let is_its_own = self.clients.network_of(client) == Some(network) || self.has_own_share(client, network);
        if is_published && is_its_own { client } else { network }
    }

    /// Publishes a network again after a change of its retreat, which was due at `before`.
    fn renew(&mut self, network: Network, before: Option<Timestamp>, config: &PublisherConfig) -> Put {
        let Some(entry) = self.entries.get(&network) else { return Put::Silent };
        let Some(retreat) = &entry.retreat else { return Put::Silent };
        let (view, due) = (retreat.renew(&entry.view), retreat.due());
        self.set_due(network, before, due);
        self.publish(view, config)
    }

    /// Publishes what holds for a client in the network of this state after its own retreat changed, which was due at `before`.
    fn renew_client(
        &mut self,
        (client, view): (Network, &NetworkView),
        before: Option<Timestamp>,
        config: &PublisherConfig,
    ) -> Put {
        match self.clients.hold(client, view) {
            Some(own) => {
                self.set_due(client, before, self.clients.due(client));
                self.publish_one(own, true, config)
            }
            None => self.unpublish_client(client, before),
        }
    }

    /// Has the clients of a network follow it.
    pub(super) fn renew_clients_of(&mut self, network: Network, config: &PublisherConfig) {
        if self.clients.held() == 0 {
            return;
        }
        let Some(view) = self.entries.get(&network).map(|entry| NetworkView::clone(&entry.view)) else { return };
        for client in self.clients.held_in(network) {
            if let Some(own) = self.clients.hold(client, &view) {
                let put = self.publish_one(own, true, config);
                self.of_clients.push((client, put));
            }
        }
    }

    /// A client has its network's advice again, from its retreat that was due at `before` on.
    pub(super) fn unpublish_client(&mut self, client: Network, before: Option<Timestamp>) -> Put {
        self.set_due(client, before, None);
        let is_client = self.entries.get(&client).is_some_and(|entry| entry.is_client);
        let Some(entry) = is_client.then(|| self.entries.remove(&client)).flatten() else { return Put::Silent };
        self.client_entries -= 1;
        self.count(client, false);
        self.estimates.remove(&client);
        entry.advertised.map_or(Put::Silent, |_| Put::Rejoin)
    }

    /// Forgets what was held against a client whose entry is its network's from here on.
    pub(super) fn forget_client(&mut self, client: Network) {
        self.set_due(client, self.clients.due(client), None);
        self.clients.remove(client);
    }

    fn set_due(&mut self, network: Network, before: Option<Timestamp>, due: Option<Timestamp>) {
        before.map(|before| self.retreats.remove(&(before, network)));
        due.map(|due| self.retreats.insert((due, network)));
    }
}

/// The retreat of a network, begun where there is none.
fn retreat_of(entry: &mut Entry) -> &mut Retreat {
    let view = &entry.view;
    entry.retreat.get_or_insert_with(|| {
        let mut retreat = Box::<Retreat>::default();
        retreat.hold(NetworkView::clone(view));
        retreat
    })
}
