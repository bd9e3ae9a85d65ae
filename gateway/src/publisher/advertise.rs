//! Advertises changes to subscribers; with `to_hosts = "in_use"` only of the networks that a host uses.
//!
//! A host's list ([`super::destinations`]) is filled by starts that the engine announces and by what the host reports. A change
//! makes its network dirty for the hosts that have it in their list. A subscriber reads the current state when its turn comes, so
//! a network that changes several times before that costs one message.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use spand_core::estimate::NoEstimate;
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::push::WithdrawalReason;

use super::change::Change;
use super::config::{BATCH_CHANGES, ToHosts};
use super::dirty_set::Priority;
use super::retreat::client_network;
use super::{Published, Shared};

/// Networks that expire at a time, all hosts together: at ten times a second 40,960, and the lock is held under a millisecond.
const EXPIRED_AT_A_TIME: usize = 4_096;

impl Shared {
    /// Whether only the networks in use by a host are advertised to it.
    pub(super) fn sends_only_in_use(&self) -> bool {
        self.config.to_hosts == ToHosts::InUse
    }

    /// The host, where only the networks that it uses are advertised to it.
    pub(super) fn limited_host(&self, host_id: u64) -> Option<u64> {
        self.sends_only_in_use().then_some(host_id)
    }
}

impl Published {
    /// The estimate of a network to which hosts are about to connect.
    pub(super) fn estimate_for(&self, host_ids: &[u64], network: Network) -> Option<Arc<Estimate>> {
        let estimate = self.estimate(network);
        if !self.shared.sends_only_in_use() {
            return estimate;
        }
        let uses: Vec<_> = host_ids.iter().map(|host_id| (*host_id, network)).collect();
        self.record_uses(&uses, estimate.is_some());
        if estimate.is_some() {
            return estimate;
        }
        // It may have appeared before the uses were recorded: then no change advertises it to these hosts.
        let late = self.estimate(network)?;
        self.record_uses(&uses, true);
        Some(late)
    }

    /// Records networks to which hosts reported connections. Pass a few at a time: each lock is held for all of them.
    pub(crate) fn used_destinations(&self, uses: &[(IpAddr, Network)]) {
        if !self.shared.sends_only_in_use() || uses.is_empty() {
            return;
        }
        let subscribers = self.shared.subscribers.lock();
        let of_host = |(host, network): &(IpAddr, Network)| {
            let host_ids = subscribers.host_ids(*host);
            host_ids.into_iter().map(|host_id| (host_id, *network)).collect::<Vec<_>>()
        };
        let uses: Vec<_> = uses.iter().flat_map(of_host).collect();
        drop(subscribers);
        let new = self.record_uses(&uses, false);
        self.mark_dirty_now(new);
    }

    /// Records uses of networks, withdraws what was evicted, and returns the pairs that are new.
    fn record_uses(&self, uses: &[(u64, Network)], advertised: bool) -> Vec<(u64, Network)> {
        let now = self.now();
        let (mut new, mut gone) = (Vec::new(), Vec::new());
        let mut destinations = self.shared.destinations.lock();
        for (host_id, network) in uses {
            let recorded = destinations.record(*host_id, *network, advertised, now);
            new.extend(recorded.new.then_some((*host_id, *network)));
            if let Some((evicted, was_advertised)) = recorded.evicted {
                self.measures().destinations_evicted.inc();
                gone.extend(was_advertised.then_some((*host_id, evicted)));
            }
        }
        drop(destinations);
        self.mark_dirty(gone, Priority::Paced);
        new
    }

    /// Advertises gathered changes to subscribers until the gateway stops.
    pub(super) async fn advertise_changes(&self) {
        let gather = &self.shared.gather;
        while let Some((changes, replaced)) = gather.gathered(self.shared.config.gather).await {
            if replaced {
                gather.send_replaced();
            }
            for batch in changes.chunks(BATCH_CHANGES) {
                if self.shared.sends_only_in_use() {
                    gather.send(&self.mark_changes_dirty(batch));
                    // Lets other tasks run: a batch may concern every subscriber.
                    tokio::task::yield_now().await;
                } else {
                    gather.send(batch);
                }
            }
        }
    }

    /// Marks changed networks as dirty for the hosts that use them; returns the other changes.
    fn mark_changes_dirty(&self, changes: &[Change]) -> Vec<Change> {
        let (mut moved, mut ended, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let destinations = self.shared.destinations.lock();
        for change in changes {
            let (dirty, network) = match change {
                Change::Estimate(network) => (&mut moved, *network),
                Change::Withdrawn(network) => (&mut ended, *network),
                Change::Service(_) => {
                    others.push(change.clone());
                    continue;
                }
            };
            dirty.extend(destinations.hosts_of(network).iter().map(|host| (*host, network)));
        }
        drop(destinations);
        self.mark_dirty(moved, Priority::Paced);
        self.mark_dirty(ended, Priority::Now);
        others
    }

    /// Marks networks as dirty: the hosts read them with their next turns.
    fn mark_dirty(&self, dirty: Vec<(u64, Network)>, priority: Priority) {
        if dirty.is_empty() {
            return;
        }
        let limit = self.shared.config.dirty_limits();
        let subscribers = self.shared.subscribers.lock();
        let overflowed =
            dirty.into_iter().map(|(host_id, network)| subscribers.mark_dirty(host_id, network, priority, limit)).sum();
        drop(subscribers);
        self.measures().dirty_overflows.inc_by(overflowed);
    }

    /// Marks networks as dirty and wakes the hosts at once: other hosts wait for the change.
    pub(super) fn mark_dirty_now(&self, dirty: impl IntoIterator<Item = (u64, Network)>) {
        let limit = self.shared.config.dirty_limits();
        let mut dirty = dirty.into_iter().peekable();
        if dirty.peek().is_none() {
            return;
        }
        let subscribers = self.shared.subscribers.lock();
        let overflowed = dirty.map(|(host_id, network)| subscribers.mark_dirty_now(host_id, network, limit)).sum();
        drop(subscribers);
        self.measures().dirty_overflows.inc_by(overflowed);
    }

    /// Drops the leases of networks that are no longer advertised to the host: the withdrawal ended the lease.
    pub(super) fn only_in_use(&self, mut leases: Vec<(u64, Network)>) -> Vec<(u64, Network)> {
        if self.shared.sends_only_in_use() {
            let destinations = self.shared.destinations.lock();
            leases.retain(|(host_id, network)| destinations.contains(*host_id, *network));
        }
        leases
    }

    /// Withdraws networks that hosts did not use for `publish.destination_idle_s`.
    pub(super) fn expire_destinations(&self) {
        if !self.shared.sends_only_in_use() {
            return;
        }
        let expired = self.shared.destinations.lock().expire(self.now(), EXPIRED_AT_A_TIME);
        self.measures().destinations_expired.inc_by(expired.all as u64);
        self.mark_dirty(expired.advertised, Priority::Paced);
    }

    /// Drops the lists of hosts that are gone for longer than the lifetime of advice.
    pub(super) fn forget_gone_hosts(&self) {
        if self.shared.sends_only_in_use() {
            let now = self.now();
            // Starts wait for the lock of the leases: it is released before the lists are searched.
            let host_ids: BTreeSet<u64> = self.shared.leases.lock().host_ids(now).collect();
            self.shared.destinations.lock().retain_hosts(&host_ids);
        }
    }

    /// What to send a host about a network: the estimate in force, or why there is none for it.
    pub(super) fn state_for(&self, host_id: u64, network: Network) -> Result<Arc<Estimate>, WithdrawalReason> {
        let estimate = self.estimate(network);
        if let Some(host_id) = self.shared.limited_host(host_id) {
            let mut destinations = self.shared.destinations.lock();
            if !destinations.contains(host_id, network) {
                return Err(WithdrawalReason::Quiet);
            }
            if estimate.is_some() {
                destinations.set_advertised(host_id, network);
            }
        }
        estimate.ok_or_else(|| self.why_not(network))
    }

    fn why_not(&self, network: Network) -> WithdrawalReason {
        let Some(view) = self.network(network) else {
            // The retreat of a remote address is over, so that it has no advice of its own any more.
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

    /// How many networks are advertised to a host, at most.
    pub(super) fn advertised_count(&self, host_id: u64) -> usize {
        let limited_host = self.shared.limited_host(host_id);
        limited_host.map_or_else(|| self.estimate_count(), |host_id| self.shared.destinations.lock().len(host_id))
    }

    /// Up to `limit` networks in order whose estimates are advertised to a host, starting after `after`.
    pub(super) fn advertised_page(&self, host_id: u64, after: Option<Network>, limit: usize) -> Vec<Network> {
        let Some(host_id) = self.shared.limited_host(host_id) else {
            return self.shared.networks.read().page_of_estimates(after, limit);
        };
        let (mut advertised, mut after) = (Vec::new(), after);
        while advertised.len() < limit {
            let page = self.shared.destinations.lock().page(host_id, after, limit);
            let Some(last) = page.last() else { break };
            after = Some(*last);
            let networks = self.shared.networks.read();
            advertised.extend(page.into_iter().filter(|network| networks.has_estimate(*network)));
        }
        advertised.truncate(limit);
        advertised
    }

    /// Networks advertised to subscribers, each counted once per subscriber.
    pub fn advertised_pairs(&self) -> usize {
        if self.shared.sends_only_in_use() {
            self.shared.destinations.lock().pairs()
        } else {
            self.subscriber_count().saturating_mul(self.estimate_count())
        }
    }

    /// The hosts to which a network's estimate is advertised, by [`super::SubscriberView::host_id`]; `None` where
    /// those are all subscribers.
    pub fn advertised_to(&self, network: Network) -> Option<BTreeSet<u64>> {
        self.shared.sends_only_in_use().then(|| self.shared.destinations.lock().advertised(network).collect())
    }
}
