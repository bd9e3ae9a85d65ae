//! Lists that run through the table, each in an order of time: the first of one is the next to go, or to give.

use spand_proto::units::Timestamp;

use super::entry::{Chain, Links, Neighbour};
use super::{FlowTable, Idleness, Key};

/// A list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Which {
    /// Established connections, by their last packet.
    Established,
    /// Those opening or closing, by their last packet.
    Other,
    /// Those with segments to give of which none was ever acknowledged, by their last packet.
    Unacknowledged,
    /// Other ones with segments to give, by when more of them was acknowledged last.
    Acknowledged,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct List {
    pub(super) first: Option<u32>,
    pub(super) last: Option<u32>,
    pub(super) len: usize,
    /// The first of those that [`FlowTable::silent`] has not given since they were put at the end.
    pub(super) unvisited: Option<u32>,
    /// None of those was put at the end before this.
    pub(super) unvisited_from: Timestamp,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Lists {
    established: List,
    other: List,
    unacknowledged: List,
    acknowledged: List,
}

impl Lists {
    pub(super) const fn of(&self, which: Which) -> List {
        match which {
            Which::Established => self.established,
            Which::Other => self.other,
            Which::Unacknowledged => self.unacknowledged,
            Which::Acknowledged => self.acknowledged,
        }
    }

    const fn of_mut(&mut self, which: Which) -> &mut List {
        match which {
            Which::Established => &mut self.established,
            Which::Other => &mut self.other,
            Which::Unacknowledged => &mut self.unacknowledged,
            Which::Acknowledged => &mut self.acknowledged,
        }
    }
}

impl Idleness {
    pub(super) const fn list(self) -> Which {
        match self {
            Self::Established => Which::Established,
            Self::Other => Which::Other,
        }
    }
}

impl Chain {
    fn links_mut(&mut self, which: Which) -> &mut Links {
        match which {
            Which::Established | Which::Other => &mut self.idle,
            Which::Unacknowledged | Which::Acknowledged => &mut self.giving,
        }
    }
}

impl FlowTable {
    fn links_mut(&mut self, index: Option<u32>, which: Which) -> Option<&mut Links> {
        self.chain_mut(index).map(|chain| chain.links_mut(which))
    }

    pub(super) fn unlink(&mut self, index: u32, which: Which) {
        let Some(links) = self.links_mut(Some(index), which) else { return };
        let Links { previous, next } = std::mem::take(links);
        let list = self.lists.of_mut(which);
        list.len = list.len.saturating_sub(1);
        if list.unvisited == Some(index) {
            list.unvisited = next.get();
        }
        match self.links_mut(previous.get(), which) {
            Some(links) => links.next = next,
            None => self.lists.of_mut(which).first = next.get(),
        }
        match self.links_mut(next.get(), which) {
            Some(links) => links.previous = previous,
            None => self.lists.of_mut(which).last = previous.get(),
        }
    }

    /// The first that was not visited in a list, and is now, if it was put at the end by `until`.
    pub(super) fn visit(&mut self, which: Which, until: Timestamp) -> Option<Key> {
        let List { unvisited, unvisited_from, .. } = self.lists.of(which);
        let index = unvisited.filter(|_| unvisited_from <= until)?;
        let queued_at = self.entries.get(index)?.queued_at;
        self.lists.of_mut(which).unvisited_from = queued_at;
        if queued_at > until {
            return None;
        }
        self.lists.of_mut(which).unvisited = self.links_mut(Some(index), which)?.next.get();
        Some(Key(index))
    }

    pub(super) fn link_last(&mut self, index: u32, which: Which) {
        let list = self.lists.of_mut(which);
        list.len += 1;
        list.unvisited.get_or_insert(index);
        let previous = list.last.replace(index);
        if previous.is_none() {
            list.first = Some(index);
        }
        if let Some(links) = self.links_mut(previous, which) {
            links.next = Some(index).into();
        }
        if let Some(links) = self.links_mut(Some(index), which) {
            *links = Links { previous: previous.into(), next: Neighbour::default() };
        }
    }
}
