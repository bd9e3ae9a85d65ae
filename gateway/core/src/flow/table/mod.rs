//! The table of connections: bounded, found by tuple from either direction, idle ones gone without a scan.
//!
//! Two lists in order of the last packet run through the entries, one for established connections and one for those
//! opening or closing, which may be silent for less long. An entry moves to the end of its list at most once per second,
//! so the order is right to within that second and most packets touch no neighbour. Knows nothing of TCP.

mod entry;
mod lists;
mod memory;
mod slab;
#[cfg(test)]
mod tests;
#[cfg(any(test, fuzzing))]
pub(crate) mod twin;
mod wheel;

use hashbrown::HashTable;
use spand_proto::units::{Micros, Timestamp};

use self::entry::Entry;
use self::lists::{Lists, Which};
pub(crate) use self::memory::Room;
use self::slab::Slab;
pub(crate) use self::wheel::TICK_BITS;
use self::wheel::Wheel;
use crate::config::Limits;
use crate::flow::connection::{Connection, Idleness};
use crate::flow::tuple::Tuple;
use crate::mem::{Account, Held};

/// An entry stays where it is in its list for this long after it was put there.
const REQUEUE: Micros = Micros(1_000_000);

/// A connection that was put at the end of its list this long ago, and not again, has fallen silent.
const SILENT: Micros = Micros(2 * REQUEUE.0);

/// Established connections may fill the table but for one part in this many.
const RESERVED: usize = 16;

/// No silence ends a connection.
const NEVER: Micros = Micros(u64::MAX);

/// Names a connection in the table for as long as it is there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Key(u32);

/// The table.
#[derive(Debug)]
pub(crate) struct FlowTable {
    index: HashTable<u32>,
    entries: Slab<Entry>,
    lists: Lists,
    wheel: Wheel,
    limit: usize,
    idle_established: Micros,
    idle_other: Micros,
    idle_unacknowledged: Micros,
    seed: u64,
    segments: Account,
    senders: Account,
}

impl FlowTable {
    /// An empty table.
    pub(crate) fn new(limits: &Limits, seed: u64) -> Self {
        Self {
            index: HashTable::new(),
            entries: Slab::new(),
            lists: Lists::default(),
            wheel: Wheel::new(),
            limit: limits.connections.get(),
            idle_established: limits.idle_established,
            idle_other: limits.idle_other,
            idle_unacknowledged: limits.idle_unacknowledged,
            seed,
            segments: Account::up_to(limits.segment_memory_bytes.get()),
            senders: Account::up_to(limits.sender_memory_bytes.get()),
        }
    }

    /// Connections in it.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether a new connection needs another one to go first.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.limit
    }

    /// Finds a connection.
    pub(crate) fn find(&self, tuple: &Tuple) -> Option<Key> {
        let entries = &self.entries;
        self.index
            .find(tuple.hash(self.seed), |index| entries.get(*index).is_some_and(|entry| entry.tuple == *tuple))
            .map(|index| Key(*index))
    }

    /// The connection under `key`, to look at.
    pub(crate) fn get(&self, key: Key) -> Option<&Connection> {
        self.entries.get(key.0).map(|entry| &entry.connection)
    }

    /// Every connection, in no order that means anything.
    pub(crate) fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.entries.iter().map(|entry| &entry.connection)
    }

    /// The ends of every connection, in no order that means anything.
    pub(crate) fn tuples(&self) -> impl Iterator<Item = &Tuple> {
        self.entries.iter().map(|entry| &entry.tuple)
    }

    /// The connection under `key`.
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Connection> {
        self.entries.get_mut(key.0).map(|entry| &mut entry.connection)
    }

    /// The connection under `key`, with its ends and the time of its last packet.
    pub(crate) fn entry_mut(&mut self, key: Key) -> Option<(&Tuple, Timestamp, &mut Connection)> {
        self.entries.get_mut(key.0).map(|entry| (&entry.tuple, entry.last_at, &mut entry.connection))
    }

    /// Adds a connection, which must not be there.
    pub(crate) fn insert(&mut self, tuple: Tuple, connection: Connection, at: Timestamp) -> Option<Key> {
        let hash = tuple.hash(self.seed);
        let index = self.entries.insert(Entry {
            tuple,
            last_at: at,
            queued_at: at,
            idleness: Idleness::Other,
            held: Held::default(),
            giving: None,
            giving_at: at,
            connection,
        })?;
        let entries = &self.entries;
        self.index
            .insert_unique(hash, index, |index| entries.get(*index).map_or(0, |entry| entry.tuple.hash(self.seed)));
        self.lists.link_last(index, Which::Other);
        Some(Key(index))
    }

    /// Takes a connection out.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Connection> {
        self.wheel.disarm(key.0);
        let entry = self.entries.remove(key.0)?;
        self.lists.unlink(key.0, entry.idleness.list());
        self.forget_held(key, &entry);
        if let Ok(found) = self.index.find_entry(entry.tuple.hash(self.seed), |index| *index == key.0) {
            found.remove();
        }
        Some(entry.connection)
    }

    /// Gives a packet of time `at` to its connection with `take`, which also says how long it may be silent then.
    #[inline]
    pub(crate) fn take<T>(
        &mut self,
        key: Key,
        at: Timestamp,
        take: impl FnOnce(&mut Connection) -> (T, Idleness),
    ) -> Option<T> {
        let entry = self.entries.get_mut(key.0)?;
        let (taken, idleness) = take(&mut entry.connection);
        entry.last_at = at;
        let resized = entry.connection.held() != entry.held;
        let due = entry.idleness != idleness || at.since(entry.queued_at) >= REQUEUE;
        if due {
            entry.queued_at = at;
            let before = std::mem::replace(&mut entry.idleness, idleness);
            self.requeue(key, before, idleness);
        }
        // Its place among those with segments to give goes by its progress, which is asked for once a second.
        if resized || due {
            self.account(key, at);
        }
        Some(taken)
    }

    #[cold]
    fn requeue(&mut self, key: Key, before: Idleness, idleness: Idleness) {
        self.lists.unlink(key.0, before.list());
        self.lists.link_last(key.0, idleness.list());
    }

    /// A connection silent for longer than it may be.
    pub(crate) fn expired(&self, now: Timestamp) -> Option<Key> {
        let silent = |(which, patience)| self.first_silent(which, patience, now);
        [(Which::Other, self.idle_other), (Which::Established, self.idle_established)].into_iter().find_map(silent)
    }

    /// A connection that has just fallen silent: given once until it has packets again. One that comes more than [`REQUEUE`] after it was
    /// put at the end puts it there again.
    pub(crate) fn silent(&mut self, now: Timestamp) -> Option<Key> {
        let until = Timestamp(now.0.checked_sub(SILENT.0 * 1_000)?);
        self.visit(Which::Other, until).or_else(|| self.visit(Which::Established, until))
    }

    fn first_silent(&self, which: Which, patience: Micros, now: Timestamp) -> Option<Key> {
        if patience == NEVER {
            return None;
        }
        let index = self.lists.of(which).ends.first?;
        let entry = self.entries.get(index)?;
        (now.since(entry.last_at) >= patience).then_some(Key(index))
    }

    /// The connection to go where there is no room: of those opening or closing the one idle longest, so that a flood of
    /// SYNs displaces itself and nothing established; of the established ones only while the others hold less than a
    /// [`RESERVED`] part of the table, so that new connections keep room to open.
    pub(crate) fn least_wanted(&self) -> Option<Key> {
        let reserved = self.limit / RESERVED;
        let (other, established) = (self.lists.of(Which::Other), self.lists.of(Which::Established));
        let first = if other.len > reserved { other.ends.first } else { established.ends.first };
        first.or(other.ends.first).or(established.ends.first).map(Key)
    }

    /// Has the connection looked at soon after `deadline`, unless that is so already.
    pub(crate) fn arm(&mut self, key: Key, deadline: Timestamp) {
        self.wheel.arm(key.0, deadline);
    }

    /// A connection whose look is due at `now`; it is not armed any more. `None` when all were given.
    pub(crate) fn due(&mut self, now: Timestamp) -> Option<Key> {
        self.wheel.due(now).map(Key)
    }

    /// When [`FlowTable::due`], [`FlowTable::expired`] or [`FlowTable::abandoned`] may give something next.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let expiry = |which, patience| {
            let at = self.entries.get(self.lists.of(which).ends.first?)?.last_at.after(patience);
            (at < Timestamp(u64::MAX)).then_some(at)
        };
        let expiries = [
            expiry(Which::Other, self.idle_other),
            expiry(Which::Established, self.idle_established),
            expiry(Which::Unacknowledged, self.idle_unacknowledged),
        ];
        expiries.into_iter().chain([self.wheel.next_due()]).flatten().min()
    }

    /// Whether [`FlowTable::next_due`] may lie at `now` or before.
    pub(crate) fn may_be_due(&self, now: Timestamp) -> bool {
        self.wheel.may_be_due(now) || self.expired(now).or_else(|| self.abandoned(now)).is_some()
    }
}
