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
    changes: BTreeMap<Network, Option<NetworkRecord>>,
    bytes: usize,
}

/// What a change takes beside its record: its place in the tree, whose nodes are two thirds full, and in the list that is written.
const CHANGE_BYTES: usize = 5 * size_of::<Change>() / 2;

impl Waiting {
    /// Bytes in which N changes without records wait.
    #[cfg(test)]
    pub(super) fn room_for(changes: usize) -> NonZeroUsize {
        NonZeroUsize::new(changes * CHANGE_BYTES).expect("some")
    }

    /// Puts a change in, in the place of an earlier one of its network, which stays where the new one has no room. Gives whether it had room:
    /// the first one always has, and so has a removal in the place of another change.
    pub(super) fn put(&mut self, network: Network, record: Option<NetworkRecord>, limit: NonZeroUsize) -> bool {
        let before = self.changes.get(&network).map_or(0, |before| bytes(before.as_ref()));
        let rest = self.bytes - before;
        let more = bytes(record.as_ref());
        let has_room = rest == 0 || more <= before || rest + more <= limit.get();
        if has_room {
            self.bytes = rest + more;
            self.changes.insert(network, record);
        }
        has_room
    }

    /// Puts back what could not be saved, where nothing newer came meanwhile. How many had no room.
    pub(super) fn put_back(&mut self, mut changes: Vec<Change>, limit: NonZeroUsize) -> u64 {
        changes.retain(|(network, _)| !self.changes.contains_key(network));
        changes.into_iter().map(|(network, record)| u64::from(!self.put(network, record, limit))).sum()
    }

    /// Takes all of it, in order of networks.
    pub(super) fn take(&mut self) -> Vec<Change> {
        std::mem::take(self).changes.into_iter().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

fn bytes(record: Option<&NetworkRecord>) -> usize {
    CHANGE_BYTES + record.map_or(0, |record| allocated(record.held_bytes()))
}
