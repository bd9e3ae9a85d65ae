//! Changed networks, for the store and the dashboard; and the restoring of stored ones.

use std::iter;

use spand_proto::network::Network;
use spand_proto::units::Timestamp;

use super::{NetworkEvent, NetworkTable, Withdrawal};
use crate::estimate::NoEstimate;
use crate::types::ConnectionId;
use crate::window::record::NetworkRecord;

impl NetworkTable {
    /// Networks that changed and were not returned by [`Self::changed_records`] since.
    pub fn changed(&self) -> usize {
        self.changes.len()
    }

    /// At most `limit` networks that changed since they were last returned here, with what is kept of them, or `None`
    /// if they were removed or hold nothing that this gateway saw. The first call starts the account with everything there is.
    pub fn changed_records(&mut self, limit: usize) -> Vec<(Network, Option<NetworkRecord>)> {
        let Self { slots, changes, .. } = self;
        if changes.wake() {
            slots.entries_mut().for_each(|entry| entry.changed = changes.note(entry.network));
        }
        let changed = iter::from_fn(|| changes.take()).take(limit);
        let mut record = |network| {
            let entry = slots.find(network).and_then(|slot| slots.get_mut(slot))?;
            entry.changed = false;
            (!entry.record.buckets.is_empty()).then(|| entry.record.clone())
        };
        changed.map(|network| (network, record(network))).collect()
    }

    /// The same with an event of each, which holds its view at `now`, or says that the window holds nothing of it. That is an
    /// evaluation as after a sample, and takes the place of its event.
    pub fn changed_networks(&mut self, limit: usize, now: Timestamp) -> Vec<(Network, Option<NetworkRecord>)> {
        let changed = self.changed_records(limit);
        self.dirty |= !changed.is_empty();
        for (network, _) in &changed {
            let view = self.slots.find(*network).and_then(|slot| {
                self.tell(slot, |others, own| others.renew(own, now));
                Some((slot, self.view_of(slot, now)?))
            });
            let event = match view {
                Some((slot, view)) => {
                    let estimate = view.estimate.clone().ok_or(view.why_not.unwrap_or(NoEstimate::Expired));
                    self.consider_estimate(slot, estimate, now);
                    NetworkEvent::Network(Box::new(view))
                }
                None => NetworkEvent::Withdrawn { network: *network, reason: Withdrawal::Evicted },
            };
            self.events.push_back(event);
        }
        changed
    }

    /// Restores a network's record, as far as it is valid and not aged at `now`. Returns the smallest
    /// connection number above all in it: new connections must be numbered from there on. A network that has samples
    /// already keeps those.
    pub fn restore(&mut self, network: Network, mut record: NetworkRecord, now: Timestamp) -> Option<ConnectionId> {
        if let Some(others) = &self.others {
            others.restore(&mut record);
        }
        let record = record.sound(now, &self.method.config)?;
        let sources = record.contributions.iter().filter_map(|contribution| contribution.source);
        let above = sources.map(|source| source.connection.0.saturating_add(1)).max();
        if self.slots.find(network).is_none() {
            let slot = self.slot(network, now)?;
            if let Some(entry) = self.slots.get_mut(slot) {
                entry.record = record;
            }
            self.evaluate(slot, now);
            self.account(slot);
        }
        above.map(ConnectionId)
    }
}
