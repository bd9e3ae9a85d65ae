//! Doubly linked lists over slot numbers: every step takes the same short time, however many there are.

use crate::mem::listed;

/// The neighbours of every slot, each in at most one of the lists that run through it. Kept apart from what the slots hold, and small: to link
/// one, its neighbours are written too, and nothing has brought those near.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links(Vec<Neighbours>);

#[derive(Clone, Copy, Debug, Default)]
struct Neighbours {
    previous: Neighbour,
    next: Neighbour,
}

/// A slot's number, or none, in four bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Neighbour(u32);

/// The first and the last slot of a list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ends {
    pub(crate) first: Option<u32>,
    pub(crate) last: Option<u32>,
}

impl Links {
    /// Bytes of the links of N slots.
    pub(crate) const fn bytes(slots: usize) -> usize {
        listed::<Neighbours>(slots)
    }

    /// Appends a slot that is in no list.
    pub(crate) fn push(&mut self, list: &mut Ends, slot: u32) {
        let place = index(slot);
        if self.0.len() <= place {
            self.0.resize(place + 1, Neighbours::default());
        }
        let previous = list.last.replace(slot);
        match self.neighbours_mut(previous) {
            Some(neighbours) => neighbours.next = Some(slot).into(),
            None => list.first = Some(slot),
        }
        if let Some(neighbours) = self.0.get_mut(place) {
            *neighbours = Neighbours { previous: previous.into(), next: Neighbour::default() };
        }
    }

    /// Takes a slot of this list out of it.
    pub(crate) fn remove(&mut self, list: &mut Ends, slot: u32) {
        let Some(Neighbours { previous, next }) = self.neighbours_mut(Some(slot)).map(std::mem::take) else { return };
        match self.neighbours_mut(previous.get()) {
            Some(neighbours) => neighbours.next = next,
            None => list.first = next.get(),
        }
        match self.neighbours_mut(next.get()) {
            Some(neighbours) => neighbours.previous = previous,
            None => list.last = previous.get(),
        }
    }

    /// The slot after this one in its list.
    pub(crate) fn next(&self, slot: u32) -> Option<u32> {
        self.0.get(index(slot))?.next.get()
    }

    fn neighbours_mut(&mut self, slot: Option<u32>) -> Option<&mut Neighbours> {
        self.0.get_mut(index(slot?))
    }
}

impl Neighbour {
    /// Its number; none where that is the largest there is, which no slot has.
    fn get(self) -> Option<u32> {
        (self != Self::default()).then_some(self.0)
    }
}

impl Default for Neighbour {
    fn default() -> Self {
        Self(u32::MAX)
    }
}

impl From<Option<u32>> for Neighbour {
    fn from(number: Option<u32>) -> Self {
        number.map_or_else(Self::default, Self)
    }
}

/// Slots in order of their last use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recency {
    links: Links,
    list: Ends,
}

impl Recency {
    /// Bytes of a list of N slots.
    pub(crate) const fn bytes(slots: usize) -> usize {
        Links::bytes(slots)
    }

    /// Appends a slot that is not in the list as the newest.
    pub(crate) fn push(&mut self, slot: u32) {
        self.links.push(&mut self.list, slot);
    }

    /// Takes a slot of the list out of it.
    pub(crate) fn remove(&mut self, slot: u32) {
        self.links.remove(&mut self.list, slot);
    }

    /// Makes a slot of the list the newest.
    pub(crate) fn touch(&mut self, slot: u32) {
        if self.list.last != Some(slot) {
            self.remove(slot);
            self.push(slot);
        }
    }

    /// The slot used longest ago.
    pub(crate) fn oldest(&self) -> Option<u32> {
        self.list.first
    }
}

/// A slot as the index of a list.
pub(crate) fn index(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_the_one_used_longest_ago() {
        let mut recency = Recency::default();
        for slot in [0, 1, 2] {
            recency.push(slot);
        }
        recency.touch(0);
        recency.touch(0);
        assert_eq!(recency.oldest(), Some(1));
        recency.remove(1);
        assert_eq!(recency.oldest(), Some(2));
        recency.remove(0);
        recency.push(0);
        recency.remove(2);
        assert_eq!(recency.oldest(), Some(0));
        recency.remove(0);
        assert_eq!(recency.oldest(), None);
        recency.push(7);
        assert_eq!(recency.oldest(), Some(7));
    }
}
