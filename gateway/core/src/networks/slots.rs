//! Where entries lie: by network, by last use and by the moment they are due, in steps that do not grow with the table.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;

use hashbrown::HashMap;
use ipnet::IpNet;
use spand_proto::network::Network;
use spand_proto::units::Timestamp;

use super::{Entry, OwnNetwork};
use crate::hash::SeededState;
use crate::mem::{boxed, hashed, listed, treed};
use crate::recency::Recency;

/// A place in the table, good until its entry is removed.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Slot(u32);

/// A network as the hash table compares it: at a few instructions, where an `IpNet` takes a branch per field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Key {
    address: [u64; 2],
    /// Prefix length, 128 more for IPv6.
    prefix: u64,
}

/// The entries.
#[derive(Debug)]
pub(super) struct Slots {
    by_network: HashMap<Key, Slot, SeededState>,
    // Boxed, so that a million entries need not move when the table grows.
    places: Vec<Option<Box<Entry>>>,
    free: Vec<Slot>,
    recency: Recency,
    due: BTreeSet<(Timestamp, Slot)>,
    /// The first moment of those: it is asked for with every packet of a replay.
    first_due: Option<Timestamp>,
    limit: usize,
}

impl Slots {
    /// Memory in bytes of N entries, without their samples.
    pub(super) const fn bytes(networks: usize) -> usize {
        networks.saturating_mul(boxed::<Entry>())
            + listed::<Option<Box<Entry>>>(networks)
            + listed::<Slot>(networks)
            + Recency::bytes(networks)
            + hashed::<(Key, Slot)>(networks)
            + treed::<(Timestamp, Slot), ()>(networks)
    }

    pub(super) fn new(limit: NonZeroUsize, hash_seed: u64) -> Self {
        Self {
            by_network: HashMap::with_hasher(SeededState(hash_seed)),
            places: Vec::new(),
            free: Vec::new(),
            recency: Recency::default(),
            due: BTreeSet::new(),
            first_due: None,
            limit: limit.get().min(usize::try_from(u32::MAX).unwrap_or(usize::MAX)),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_network.len()
    }

    pub(super) fn is_half_full(&self) -> bool {
        self.len() >= self.limit / 2
    }

    pub(super) fn find(&self, network: Network) -> Option<Slot> {
        self.by_network.get(&Key::of(network)).copied()
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Entry> {
        self.places.get(slot.index())?.as_deref()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.places.get_mut(slot.index())?.as_deref_mut()
    }

    /// Every entry, in no order that means anything.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Slot, &Entry)> {
        let places = (0..).map(Slot).zip(&self.places);
        places.filter_map(|(slot, place)| Some((slot, place.as_deref()?)))
    }

    /// What other gateways may know of an entry.
    pub(super) fn own(&self, slot: Slot) -> Option<OwnNetwork<'_>> {
        self.get(slot).map(|entry| entry.own(slot))
    }

    /// Every entry, in no order that means anything.
    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.places.iter_mut().flatten().map(Box::as_mut)
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// The entry used longest ago.
    pub(super) fn oldest(&self) -> Option<Slot> {
        self.recency.oldest().map(Slot)
    }

    /// Adds the entry of a network that has none; `None` where there is no room.
    pub(super) fn insert(&mut self, entry: Entry) -> Option<Slot> {
        if self.is_full() {
            return None;
        }
        let slot = if let Some(slot) = self.free.pop() {
            slot
        } else {
            let slot = Slot(u32::try_from(self.places.len()).ok()?);
            self.places.push(None);
            slot
        };
        self.by_network.insert(Key::of(entry.network), slot);
        *self.places.get_mut(slot.index())? = Some(Box::new(entry));
        self.recency.push(slot.0);
        Some(slot)
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let entry = self.places.get_mut(slot.index())?.take()?;
        if let Some(due) = entry.due {
            self.due.remove(&(due, slot));
            self.find_first_due();
        }
        self.by_network.remove(&Key::of(entry.network));
        self.recency.remove(slot.0);
        self.free.push(slot);
        Some(*entry)
    }

    pub(super) fn touch(&mut self, slot: Slot) {
        self.recency.touch(slot.0);
    }

    /// Makes an entry due at `at`, unless it is due before.
    pub(super) fn due_by(&mut self, slot: Slot, at: Timestamp) {
        let Some(entry) = self.get_mut(slot) else { return };
        if entry.due.is_some_and(|due| due <= at) {
            return;
        }
        if let Some(due) = entry.due.replace(at) {
            self.due.remove(&(due, slot));
        }
        self.due.insert((at, slot));
        self.find_first_due();
    }

    /// Takes the entry due first, if that is at `now` or before; it is not due any more then.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Option<Slot> {
        let (_, slot) = self.due.first().copied().filter(|(due, _)| *due <= now)?;
        self.due.pop_first();
        self.find_first_due();
        if let Some(entry) = self.get_mut(slot) {
            entry.due = None;
        }
        Some(slot)
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.first_due
    }

    fn find_first_due(&mut self) {
        self.first_due = self.due.first().map(|(due, _)| *due);
    }
}

impl Key {
    fn of(network: Network) -> Self {
        match network.prefix() {
            IpNet::V4(net) => {
                Self { address: [0, u64::from(net.network().to_bits())], prefix: u64::from(net.prefix_len()) }
            }
            IpNet::V6(net) => {
                let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = net.network().octets();
                let address = [[a, b, c, d, e, f, g, h], [i, j, k, l, m, n, o, p]].map(u64::from_be_bytes);
                Self { address, prefix: 128 + u64::from(net.prefix_len()) }
            }
        }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [high, low] = self.address;
        // Mixed for the hash alone; equality compares each.
        state.write_u64(high ^ self.prefix);
        state.write_u64(low);
    }
}

impl Slot {
    pub(super) fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}
