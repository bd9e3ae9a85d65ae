//! Changes that wait to be saved: the newest of each network, within a limit of bytes.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use spand_core::mem::allocated;
use spand_core::window::record::NetworkRecord;
use spand_proto::network::Network;

use super::Change;

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    changes: BTreeMap<Network, Place>,
    /// Networks by when they were put in first; those that could not be saved come before all others.
    order: BTreeMap<i64, Network>,
    next: i64,
    before: i64,
    bytes: usize,
}

#[derive(Debug)]
struct Place {
    record: Option<NetworkRecord>,
    number: i64,
    bytes: usize,
}

/// What a change takes beside its record: its places in both trees, whose nodes are two thirds full, and in the list that is written.
const PLACE_BYTES: usize = 3 * (size_of::<(Network, Place)>() + size_of::<(i64, Network)>()) / 2 + size_of::<Change>();

impl Waiting {
    /// Bytes in which N changes without records wait.
    #[cfg(test)]
    pub(super) fn room_for(changes: usize) -> NonZeroUsize {
        NonZeroUsize::new(changes * PLACE_BYTES).expect("some")
    }

    /// Puts a change in, in the place of an earlier one of its network. How many others had to go for it, oldest first; one by
    /// itself always may wait.
    pub(super) fn put(&mut self, network: Network, record: Option<NetworkRecord>, limit: NonZeroUsize) -> u64 {
        let number = self.changes.get(&network).map_or(self.next + 1, |place| place.number);
        self.next = self.next.max(number);
        self.place(network, record, number);
        self.shrink(limit)
    }

    /// Puts back what could not be saved, where nothing newer came meanwhile. How many had to go.
    pub(super) fn put_back(&mut self, changes: Vec<Change>, limit: NonZeroUsize) -> u64 {
        for (network, record) in changes {
            if !self.changes.contains_key(&network) {
                self.before -= 1;
                self.place(network, record, self.before);
            }
        }
        self.shrink(limit)
    }

    /// Takes all of it, in order of networks.
    pub(super) fn take(&mut self) -> Vec<Change> {
        let changes = std::mem::take(&mut self.changes);
        self.order.clear();
        self.bytes = 0;
        changes.into_iter().map(|(network, place)| (network, place.record)).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    fn place(&mut self, network: Network, record: Option<NetworkRecord>, number: i64) {
        let bytes = PLACE_BYTES + record.as_ref().map_or(0, |record| allocated(record.held_bytes()));
        self.bytes += bytes;
        if let Some(old) = self.changes.insert(network, Place { record, number, bytes }) {
            self.bytes -= old.bytes;
        }
        self.order.insert(number, network);
    }

    fn shrink(&mut self, limit: NonZeroUsize) -> u64 {
        let mut gone = 0;
        while self.bytes > limit.get() && self.changes.len() > 1 {
            let Some((_, network)) = self.order.pop_first() else { break };
            if let Some(place) = self.changes.remove(&network) {
                self.bytes -= place.bytes;
                gone += 1;
            }
        }
        gone
    }
}
