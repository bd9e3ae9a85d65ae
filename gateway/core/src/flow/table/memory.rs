//! What connections take in memory, summed up as it changes, and which of them gives some where that is too much.
//!
//! The account counts entries times their size, and not what the allocator adds. Connections that hold more segments than a few
//! are in one of two lists. Of those of which no data was ever acknowledged, which is what a flood of data looks like, the one
//! silent longest gives room first; where they hold little, of the others the one that waits for an acknowledgement longest. So a
//! flood displaces its own segments, and senders whose data arrives keep theirs.

use spand_proto::units::Timestamp;

use super::entry::Entry;
use super::lists::Which;
use super::{FlowTable, Key, REQUEUE};
use crate::flow::scoreboard::Outstanding;
use crate::mem::{Account, FEW_SEGMENTS, Held, hashed, listed, number};
use crate::recency::Links;

/// The fraction (one in N) of the memory for segments that connections without an acknowledgement have in any case: otherwise new
/// ones had no room where the others take all.
const RESERVED: usize = 16;

/// Bytes of a segment; a range of sequence space is smaller, and counts as one.
const SEGMENT_BYTES: usize = size_of::<Outstanding>();

/// Who is to make room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Room {
    /// Its segments are to be merged.
    Give(Key),
    /// It is to go.
    End(Key),
}

impl FlowTable {
    /// Bytes of places for N connections, beside what they keep elsewhere.
    pub(crate) const fn places_bytes(connections: usize) -> usize {
        // Chunks of entries do not move.
        connections.saturating_mul(size_of::<Option<Entry>>())
            + listed::<u32>(connections)
            + 3 * Links::bytes(connections)
            + listed::<Option<u16>>(connections)
            + hashed::<u32>(connections)
    }

    /// Bytes of the segments that N connections keep in any case, both senders of each.
    pub(crate) const fn few_bytes(connections: usize) -> usize {
        connections.saturating_mul(2 * FEW_SEGMENTS * SEGMENT_BYTES)
    }

    /// Memory of segments, and of all else that is kept of senders.
    pub(crate) const fn memory(&self) -> [Account; 2] {
        [self.segments, self.senders]
    }

    /// Takes down what the connection under `key` holds after something changed it, at `at`.
    #[inline(never)]
    pub(crate) fn account(&mut self, key: Key, at: Timestamp) {
        let Some(entry) = self.entries.get_mut(key.0) else { return };
        let held = entry.connection.held();
        let before = std::mem::replace(&mut entry.held, held);
        let gives = entry.giving.is_some() || held.is_much();
        self.change_accounts(before, held);
        if gives {
            self.requeue_giving(key, at);
        }
    }

    #[cold]
    fn requeue_giving(&mut self, key: Key, at: Timestamp) {
        let Some(entry) = self.entries.get_mut(key.0) else { return };
        let list = |held: Held| if held.unacknowledged { Which::Unacknowledged } else { Which::Acknowledged };
        let (before, now) = (entry.giving, entry.held.is_much().then(|| list(entry.held)));
        let progressed = entry.connection.take_progress();
        let moved_on = progressed || now == Some(Which::Unacknowledged);
        if before == now && !(moved_on && at.since(entry.giving_at) >= REQUEUE) {
            return;
        }
        (entry.giving, entry.giving_at) = (now, at);
        if let Some(before) = before {
            self.lists.unlink(key.0, before);
        }
        if let Some(now) = now {
            self.lists.link_last(key.0, now);
        }
    }

    /// What an entry held that was taken out.
    pub(super) fn forget_held(&mut self, key: Key, entry: &Entry) {
        self.change_accounts(entry.held, Held::default());
        if let Some(list) = entry.giving {
            self.lists.unlink(key.0, list);
        }
    }

    fn change_accounts(&mut self, before: Held, now: Held) {
        let [segments_before, segments] = [before, now].map(|held| held.segments.saturating_mul(number(SEGMENT_BYTES)));
        self.segments.change(segments_before, segments);
        self.senders.change(before.sender_bytes, now.sender_bytes);
    }

    /// Who is to make room, where memory is over its limit.
    #[inline]
    pub(crate) fn over(&self) -> Option<Room> {
        if self.segments.is_over() {
            let (unacknowledged, others) = (self.lists.of(Which::Unacknowledged), self.lists.of(Which::Acknowledged));
            let little = unacknowledged.len <= (unacknowledged.len + others.len) / RESERVED;
            let first = if little { others.ends.first } else { unacknowledged.ends.first };
            let first = first.or(unacknowledged.ends.first).or(others.ends.first);
            if let Some(first) = first {
                return Some(Room::Give(Key(first)));
            }
        }
        if self.senders.is_over() { self.least_wanted().map(Room::End) } else { None }
    }

    /// A connection idle for longer than allowed for one that holds segments none of which was ever acknowledged.
    pub(crate) fn abandoned(&self, now: Timestamp) -> Option<Key> {
        self.first_silent(Which::Unacknowledged, self.idle_unacknowledged, now)
    }
}
