//! Telling hosts of the networks that they talk with, and of no others.
//!
//! A host's list ([`super::talks`]) is filled by starts that the engine announces and by what the host reports. A change is
//! marked for those alone whose list has its network: each looks at what holds when it reads, so a mark says nothing but
//! "look at this network", may come twice, and whatever happens between is not lost.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use spand_core::estimate::NoEstimate;
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::push::WithdrawalReason;

use super::change::Change;
use super::config::{BATCH_CHANGES, ToHosts};
use super::marks::Haste;
use super::retreat::client_network;
use super::{Published, Shared};

/// Networks that lapse at one look, all hosts together: 40,960 a second, each under a millisecond of the lock.
const LAPSES: usize = 4_096;

impl Shared {
    /// Whether hosts are told only of networks that they talk with.
    pub(super) fn is_talking(&self) -> bool {
        self.config.to_hosts == ToHosts::Talking
    }

    /// A host's number, where it is told only of networks that it talks with.
    pub(super) fn talker(&self, holder: u64) -> Option<u64> {
        self.is_talking().then_some(holder)
    }
}

impl Published {
    /// The estimate of a network with which hosts, by their numbers, are about to talk.
    pub(super) fn estimate_for(&self, holders: &[u64], network: Network) -> Option<Arc<Estimate>> {
        let estimate = self.estimate(network);
        if !self.shared.is_talking() {
            return estimate;
        }
        let talks: Vec<_> = holders.iter().map(|holder| (*holder, network)).collect();
        self.note_talks(&talks, estimate.is_some());
        if estimate.is_some() {
            return estimate;
        }
        // It may have come before these hosts were known to want it: then nobody else tells them.
        let late = self.estimate(network)?;
        self.note_talks(&talks, true);
        Some(late)
    }

    /// Hosts say themselves that they talked with addresses of networks: a few, since each lock is held for all of them.
    pub(crate) fn talked(&self, talks: &[(IpAddr, Network)]) {
        if !self.shared.is_talking() || talks.is_empty() {
            return;
        }
        let subscribers = self.shared.subscribers.lock();
        let of_host = |(host, network): &(IpAddr, Network)| {
            let holders = subscribers.holders(*host);
            holders.into_iter().map(|holder| (holder, *network)).collect::<Vec<_>>()
        };
        let talks: Vec<_> = talks.iter().flat_map(of_host).collect();
        drop(subscribers);
        let new = self.note_talks(&talks, false);
        self.mark_now(new);
    }

    /// Notes talks of hosts, has them told of what had to go, and gives those of which the network is new for the host.
    fn note_talks(&self, talking: &[(u64, Network)], told: bool) -> Vec<(u64, Network)> {
        let now = self.now();
        let (mut new, mut gone) = (Vec::new(), Vec::new());
        let mut talks = self.shared.talks.lock();
        for (holder, network) in talking {
            let noted = talks.note(*holder, *network, told, now);
            new.extend(noted.new.then_some((*holder, *network)));
            if let Some((displaced, held)) = noted.displaced {
                self.measures().talks_displaced.inc();
                gone.extend(held.then_some((*holder, displaced)));
            }
        }
        drop(talks);
        self.mark(gone, Haste::Paced);
        new
    }

    /// Tells gathered changes to subscribers until the gateway stops.
    pub(super) async fn tell_changes(&self) {
        let gather = &self.shared.gather;
        while let Some((changes, replaced)) = gather.gathered(self.shared.config.gather).await {
            if replaced {
                gather.tell_replaced();
            }
            for batch in changes.chunks(BATCH_CHANGES) {
                if self.shared.is_talking() {
                    gather.tell(&self.mark_changes(batch));
                    // Others may run: a batch may concern every subscriber.
                    tokio::task::yield_now().await;
                } else {
                    gather.tell(batch);
                }
            }
        }
    }

    /// Marks changed networks for the hosts that talk with them; gives the changes that concern others.
    fn mark_changes(&self, changes: &[Change]) -> Vec<Change> {
        let (mut moved, mut ended, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let talks = self.shared.talks.lock();
        for change in changes {
            let (marks, network) = match change {
                Change::Estimate(network) => (&mut moved, *network),
                Change::Withdrawn(network) => (&mut ended, *network),
                Change::Service(_) => {
                    others.push(change.clone());
                    continue;
                }
            };
            marks.extend(talks.hosts_of(network).iter().map(|host| (*host, network)));
        }
        drop(talks);
        self.mark(moved, Haste::Paced);
        self.mark(ended, Haste::Now);
        others
    }

    /// Has holders look at networks with their next turns.
    fn mark(&self, marks: Vec<(u64, Network)>, haste: Haste) {
        if marks.is_empty() {
            return;
        }
        let limit = self.shared.config.marks();
        let subscribers = self.shared.subscribers.lock();
        let overflowed =
            marks.into_iter().map(|(holder, network)| subscribers.mark(holder, network, haste, limit)).sum();
        drop(subscribers);
        self.measures().marks_overflowed.inc_by(overflowed);
    }

    /// Has holders look at networks at once, before their next turns: others wait for it.
    pub(super) fn mark_now(&self, marks: impl IntoIterator<Item = (u64, Network)>) {
        let limit = self.shared.config.marks();
        let mut marks = marks.into_iter().peekable();
        if marks.peek().is_none() {
            return;
        }
        let subscribers = self.shared.subscribers.lock();
        let marks = marks.map(|(holder, network)| subscribers.mark_now(holder, network, limit));
        let overflowed = marks.sum();
        drop(subscribers);
        self.measures().marks_overflowed.inc_by(overflowed);
    }

    /// Without those of whose network the host is not told any more: its end was told, and the lease with it.
    pub(super) fn those_who_talk(&self, mut leases: Vec<(u64, Network)>) -> Vec<(u64, Network)> {
        if self.shared.is_talking() {
            let talks = self.shared.talks.lock();
            leases.retain(|(holder, network)| talks.talks(*holder, *network));
        }
        leases
    }

    /// Lets networks lapse with which hosts did not talk within the window.
    pub(super) fn lapse_talks(&self) {
        if !self.shared.is_talking() {
            return;
        }
        let lapsed = self.shared.talks.lock().lapse(self.now(), LAPSES);
        self.measures().talks_lapsed.inc_by(lapsed.all as u64);
        self.mark(lapsed.held, Haste::Paced);
    }

    /// Forgets with whom hosts talked that are gone for longer than their advice lives.
    pub(super) fn forget_talkers(&self) {
        if self.shared.is_talking() {
            let now = self.now();
            // Starts wait for the leases: they are let go before the lists are looked through.
            let holders: BTreeSet<u64> = self.shared.leases.lock().holders(now).collect();
            self.shared.talks.lock().keep(&holders);
        }
    }

    /// What a host is to be told of a network: the estimate in force, or why there is none for it.
    pub(super) fn news(&self, holder: u64, network: Network) -> Result<Arc<Estimate>, WithdrawalReason> {
        let estimate = self.estimate(network);
        if let Some(talker) = self.shared.talker(holder) {
            let mut talks = self.shared.talks.lock();
            if !talks.talks(talker, network) {
                return Err(WithdrawalReason::Quiet);
            }
            if estimate.is_some() {
                talks.tell(talker, network);
            }
        }
        estimate.ok_or_else(|| self.why_not(network))
    }

    fn why_not(&self, network: Network) -> WithdrawalReason {
        let Some(view) = self.network(network) else {
            // A remote address is no network of its own any more when its retreat is over.
            let address = network.prefix().addr();
            if network == client_network(address) && self.shared.networks.read().network_of(address).is_some() {
                return WithdrawalReason::Expired;
            }
            let made = self.shared.made_by.read().as_ref().is_none_or(|partition| partition.makes(network));
            return if made { WithdrawalReason::Evicted } else { WithdrawalReason::Administrator };
        };
        match view.why_not {
            None | Some(NoEstimate::Expired) => WithdrawalReason::Expired,
            Some(NoEstimate::TooFewSamples | NoEstimate::TooFewConnections) => WithdrawalReason::TooFew,
            Some(NoEstimate::Retreat) => WithdrawalReason::Retreat,
        }
    }

    /// How many networks a host is told of, at most.
    pub(super) fn told_count(&self, holder: u64) -> usize {
        let talker = self.shared.talker(holder);
        talker.map_or_else(|| self.estimate_count(), |talker| self.shared.talks.lock().len(talker))
    }

    /// Up to `limit` networks in order of whose estimates a host is told, from the first one after `after` on.
    pub(super) fn told_page(&self, holder: u64, after: Option<Network>, limit: usize) -> Vec<Network> {
        let Some(talker) = self.shared.talker(holder) else {
            return self.shared.networks.read().page_of_estimates(after, limit);
        };
        let (mut told, mut after) = (Vec::new(), after);
        while told.len() < limit {
            let page = self.shared.talks.lock().page(talker, after, limit);
            let Some(last) = page.last() else { break };
            after = Some(*last);
            let networks = self.shared.networks.read();
            told.extend(page.into_iter().filter(|network| networks.has_estimate(*network)));
        }
        told.truncate(limit);
        told
    }

    /// How many networks subscribers are told of, each counted once for each subscriber.
    pub fn told_pairs(&self) -> usize {
        if self.shared.is_talking() {
            self.shared.talks.lock().pairs()
        } else {
            self.subscriber_count().saturating_mul(self.estimate_count())
        }
    }

    /// The numbers of the hosts that hold a network's estimate, as [`super::SubscriberView::holder`] has them; `None` where
    /// that is all that are subscribed.
    pub fn told(&self, network: Network) -> Option<BTreeSet<u64>> {
        self.shared.is_talking().then(|| self.shared.talks.lock().told(network).collect())
    }
}
