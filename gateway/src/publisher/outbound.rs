//! What goes out to hosts, under one lock: who is subscribed, what each uses, and the changes on their way.

use super::PublisherConfig;
use super::change::Change;
use super::config::DirtyLimits;
use super::destinations::DestinationsInUse;
use super::dirty_set::Priority;
use super::gather::Gather;
use super::subscribers::Subscribers;
use spand_proto::network::Network;
use spand_proto::units::Timestamp;

/// Subscribers, and what waits for them.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) subscribers: Subscribers,
    pub(super) destinations: DestinationsInUse,
    pub(super) gather: Gather,
    limits: DirtyLimits,
}

/// The result of recording networks that hosts use.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// Those that are new, by host.
    pub(super) new: Vec<(u64, Network)>,
    /// How many others had to go for them.
    pub(super) evicted: u64,
    /// How many streams had no room for their withdrawal, so that a snapshot follows.
    pub(super) overflowed: u64,
}

impl Outbound {
    pub(super) fn new(config: &PublisherConfig) -> Self {
        Self {
            subscribers: Subscribers::default(),
            destinations: DestinationsInUse::new(
                config.destination_idle,
                config.destinations_per_host,
                config.destinations,
            ),
            gather: Gather::new(config.backlog_batches),
            limits: config.dirty_limits(),
        }
    }

    /// Records networks that hosts use; what had to go for them is withdrawn from its host.
    pub(super) fn record_uses(&mut self, uses: &[(u64, Network)], advertised: bool, now: Timestamp) -> Uses {
        let mut result = Uses::default();
        for (host_id, network) in uses {
            let recorded = self.destinations.record(*host_id, *network, advertised, now);
            result.new.extend(recorded.new.then_some((*host_id, *network)));
            if let Some((evicted, was_advertised)) = recorded.evicted {
                result.evicted += 1;
                if was_advertised {
                    result.overflowed += self.mark_dirty([(*host_id, evicted)], Priority::Paced);
                }
            }
        }
        result
    }

    /// Marks the changed networks as dirty for the hosts that use them. Returns for how many streams there was no room, and the other
    /// changes.
    pub(super) fn mark_changes_dirty(&self, changes: &[Change]) -> (u64, Vec<Change>) {
        let (mut overflowed, mut others) = (0, Vec::new());
        for change in changes {
            let (priority, network) = match change {
                Change::Estimate(network) => (Priority::Paced, *network),
                Change::Withdrawn(network) => (Priority::Now, *network),
                Change::Service(_) => {
                    others.push(change.clone());
                    continue;
                }
            };
            let hosts = self.destinations.hosts_of(network).iter();
            overflowed += self.mark_dirty(hosts.map(|host| (*host, network)), priority);
        }
        (overflowed, others)
    }

    /// Marks networks as dirty: the hosts read them with their next turns. Returns for how many streams there was no room.
    pub(super) fn mark_dirty(&self, dirty: impl IntoIterator<Item = (u64, Network)>, priority: Priority) -> u64 {
        let mark = |(host_id, network)| self.subscribers.mark_dirty(host_id, network, priority, self.limits);
        dirty.into_iter().map(mark).sum()
    }

    /// The same, and wakes the hosts at once: other hosts wait for the change.
    pub(super) fn mark_dirty_now(&self, dirty: impl IntoIterator<Item = (u64, Network)>) -> u64 {
        let mark = |(host_id, network)| self.subscribers.mark_dirty_now(host_id, network, self.limits);
        dirty.into_iter().map(mark).sum()
    }
}
