//! Advertises changes to subscribers; with `to_hosts = "in_use"` only of the networks that a host uses.
//!
//! A host's list ([`super::destinations`]) is filled by starts that the engine announces and by what the host reports. A change
//! makes its network dirty for the hosts that have it in their list. A subscriber reads the current state when its turn comes, so
//! a network that changes several times before that costs one message.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::push::WithdrawalReason;
use spand_proto::units::Segments;

use super::change::Change;
use super::config::{BATCH_CHANGES, ToHosts};
use super::dirty_set::Priority;
use super::outbound::Uses;
use super::{Published, Shared};

/// Networks that expire at a time, all hosts together: at ten times a second 40,960, and the lock is held under a millisecond.
const EXPIRED_AT_A_TIME: usize = 4_096;
/// Networks of one host that are recorded under one hold of the lock.
const USES_AT_A_TIME: usize = 64;

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
    /// Records networks to which hosts reported connections. Pass a few at a time: the lock is held for all of them.
    pub(crate) fn used_destinations(&self, uses: &[(IpAddr, Network)]) {
        if !self.shared.sends_only_in_use() || uses.is_empty() {
            return;
        }
        let now = self.now();
        let mut outbound = self.shared.outbound.lock();
        let of_host = |(host, network): &(IpAddr, Network)| {
            let host_ids = outbound.subscribers.host_ids(*host);
            host_ids.into_iter().map(|host_id| (host_id, *network)).collect::<Vec<_>>()
        };
        let uses: Vec<_> = uses.iter().flat_map(of_host).collect();
        let recorded = outbound.record_uses(&uses, false, now);
        let overflowed = outbound.mark_dirty_now(recorded.new.iter().copied());
        drop(outbound);
        self.count_uses(&recorded);
        self.measures().dirty_overflows.inc_by(overflowed);
    }

    /// Records networks that a host used before it came here, ahead of its snapshot.
    pub(super) fn uses_of_host(&self, uses: &[(u64, Network)]) {
        if !self.shared.sends_only_in_use() {
            return;
        }
        // Starts wait for the same lock.
        for some in uses.chunks(USES_AT_A_TIME) {
            let recorded = self.shared.outbound.lock().record_uses(some, false, self.now());
            self.count_uses(&recorded);
        }
    }

    pub(super) fn count_uses(&self, uses: &Uses) {
        self.measures().destinations_evicted.inc_by(uses.evicted);
        self.measures().dirty_overflows.inc_by(uses.overflowed);
    }

    /// Advertises gathered changes to subscribers until the gateway stops.
    pub(super) async fn advertise_changes(&self) {
        while let Some((changes, replaced)) = self.gathered().await {
            if replaced {
                self.shared.outbound.lock().gather.send_replaced();
            }
            for batch in changes.chunks(BATCH_CHANGES) {
                self.send(batch);
                // Lets other tasks run: a batch may concern every subscriber.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Waits for changes and a little longer. Returns them, and whether everything sent before is void; `None` once closed.
    async fn gathered(&self) -> Option<(Vec<Change>, bool)> {
        self.shared.changed.notified().await;
        tokio::time::sleep(self.shared.config.gather).await;
        self.shared.outbound.lock().gather.take()
    }

    fn send(&self, batch: &[Change]) {
        let mut outbound = self.shared.outbound.lock();
        if !self.shared.sends_only_in_use() {
            outbound.gather.send(batch);
            return;
        }
        let (overflowed, others) = outbound.mark_changes_dirty(batch);
        outbound.gather.send(&others);
        drop(outbound);
        self.measures().dirty_overflows.inc_by(overflowed);
    }

    /// Withdraws networks that hosts did not use for `publish.destination_idle_s`.
    pub(super) fn expire_destinations(&self) {
        if !self.shared.sends_only_in_use() {
            return;
        }
        let mut outbound = self.shared.outbound.lock();
        let expired = outbound.destinations.expire(self.now(), EXPIRED_AT_A_TIME);
        let overflowed = outbound.mark_dirty(expired.advertised, Priority::Paced);
        drop(outbound);
        self.measures().destinations_expired.inc_by(expired.all as u64);
        self.measures().dirty_overflows.inc_by(overflowed);
    }

    /// Drops the lists of hosts that are gone for longer than the lifetime of advice.
    pub(super) fn forget_gone_hosts(&self) {
        if self.shared.sends_only_in_use() {
            let now = self.now();
            let mut outbound = self.shared.outbound.lock();
            let host_ids: BTreeSet<u64> = self.shared.state.write().leases.host_ids(now).collect();
            outbound.destinations.retain_hosts(&host_ids);
        }
    }

    /// What to send a host about a network: the estimate in force and the host's part of its budget, or why there is none for it.
    pub(super) fn advice_for(
        &self,
        host_id: u64,
        network: Network,
    ) -> Result<(Arc<Estimate>, Segments), WithdrawalReason> {
        let (config, now) = (&self.shared.config, self.now());
        let mut outbound = self.shared.sends_only_in_use().then(|| self.shared.outbound.lock());
        if outbound.as_ref().is_some_and(|outbound| !outbound.destinations.contains(host_id, network)) {
            return Err(WithdrawalReason::Quiet);
        }
        let mut state = self.shared.state.write();
        let Some(estimate) = state.estimate(network, now, config) else { return Err(state.why_not(network)) };
        if let Some(outbound) = &mut outbound {
            outbound.destinations.set_advertised(host_id, network);
        }
        let lease = state.lease(host_id, &estimate, now);
        Ok((estimate, lease))
    }

    /// How many networks are advertised to a host, at most.
    pub(super) fn advertised_count(&self, host_id: u64) -> usize {
        let limited_host = self.shared.limited_host(host_id);
        let destinations = |host_id| self.shared.outbound.lock().destinations.len(host_id);
        limited_host.map_or_else(|| self.estimate_count(), destinations)
    }

    /// Up to `limit` networks in order whose estimates are advertised to a host, starting after `after`.
    pub(super) fn advertised_page(&self, host_id: u64, after: Option<Network>, limit: usize) -> Vec<Network> {
        let Some(host_id) = self.shared.limited_host(host_id) else {
            return self.shared.state.read().networks.page_of_estimates(after, limit);
        };
        let (mut advertised, mut after) = (Vec::new(), after);
        while advertised.len() < limit {
            let page = self.shared.outbound.lock().destinations.page(host_id, after, limit);
            let Some(last) = page.last() else { break };
            after = Some(*last);
            let state = self.shared.state.read();
            advertised.extend(page.into_iter().filter(|network| state.networks.has_estimate(*network)));
        }
        advertised.truncate(limit);
        advertised
    }

    /// Networks advertised to subscribers, each counted once per subscriber.
    pub fn advertised_pairs(&self) -> usize {
        if self.shared.sends_only_in_use() {
            self.shared.outbound.lock().destinations.pairs()
        } else {
            self.subscriber_count().saturating_mul(self.estimate_count())
        }
    }

    /// The hosts to which a network's estimate is advertised, by [`super::SubscriberView::host_id`]; `None` where
    /// those are all subscribers.
    pub fn advertised_to(&self, network: Network) -> Option<BTreeSet<u64>> {
        let hosts = || self.shared.outbound.lock().destinations.advertised(network).collect();
        self.shared.sends_only_in_use().then(hosts)
    }
}
