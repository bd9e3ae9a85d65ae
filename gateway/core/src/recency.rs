//! Slots in order of their last use.

use crate::mem::listed;

/// A doubly linked list over slot numbers: every step takes the same short time, however many there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recency {
    links: Vec<Links>,
    oldest: Option<u32>,
    newest: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Links {
    older: Option<u32>,
    newer: Option<u32>,
}

impl Recency {
    /// Bytes of a list of N slots.
    pub(crate) const fn bytes(slots: usize) -> usize {
        listed::<Links>(slots)
    }

    /// Appends a slot that is not in the list as the newest.
    pub(crate) fn push(&mut self, slot: u32) {
        let place = index(slot);
        if self.links.len() <= place {
            self.links.resize(place + 1, Links::default());
        }
        let older = self.newest.replace(slot);
        if let Some(links) = self.links.get_mut(place) {
            *links = Links { older, newer: None };
        }
        match older.and_then(|older| self.links.get_mut(index(older))) {
            Some(links) => links.newer = Some(slot),
            None => self.oldest = Some(slot),
        }
    }

    /// Takes a slot of the list out of it.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Some(Links { older, newer }) = self.links.get_mut(index(slot)).map(std::mem::take) else { return };
        match older.and_then(|older| self.links.get_mut(index(older))) {
            Some(links) => links.newer = newer,
            None => self.oldest = newer,
        }
        match newer.and_then(|newer| self.links.get_mut(index(newer))) {
            Some(links) => links.older = older,
            None => self.newest = older,
        }
    }

    /// Makes a slot of the list the newest.
    pub(crate) fn touch(&mut self, slot: u32) {
        if self.newest != Some(slot) {
            self.remove(slot);
            self.push(slot);
        }
    }

    /// The slot used longest ago.
    pub(crate) fn oldest(&self) -> Option<u32> {
        self.oldest
    }
}

fn index(slot: u32) -> usize {
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
