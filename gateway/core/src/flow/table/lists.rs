//! Lists that run through the table, each in an order of time: the first of one is the next to go, or to give.

use spand_proto::units::Timestamp;

use super::{FlowTable, Idleness, Key};
use crate::recency::{Ends, Links};

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
    pub(super) ends: Ends,
    pub(super) len: usize,
    /// The first of those that [`FlowTable::silent`] has not given since they were put at the end.
    pub(super) unvisited: Option<u32>,
    /// None of those was put at the end before this.
    pub(super) unvisited_from: Timestamp,
}

/// All of them, and the links between their entries.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Every entry is in one list by its last packet,
    idle: Links,
    /// and some are in one of those with segments to give.
    giving: Links,
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

    const fn parts(&mut self, which: Which) -> (&mut Links, &mut List) {
        match which {
            Which::Established => (&mut self.idle, &mut self.established),
            Which::Other => (&mut self.idle, &mut self.other),
            Which::Unacknowledged => (&mut self.giving, &mut self.unacknowledged),
            Which::Acknowledged => (&mut self.giving, &mut self.acknowledged),
        }
    }

    pub(super) fn unlink(&mut self, index: u32, which: Which) {
        let (links, list) = self.parts(which);
        list.len = list.len.saturating_sub(1);
        if list.unvisited == Some(index) {
            list.unvisited = links.next(index);
        }
        links.remove(&mut list.ends, index);
    }

    pub(super) fn link_last(&mut self, index: u32, which: Which) {
        let (links, list) = self.parts(which);
        list.len += 1;
        list.unvisited.get_or_insert(index);
        links.push(&mut list.ends, index);
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

impl FlowTable {
    /// The first that was not visited in a list, and is now, if it was put at the end by `until`.
    pub(super) fn visit(&mut self, which: Which, until: Timestamp) -> Option<Key> {
        let (links, list) = self.lists.parts(which);
        let index = list.unvisited.filter(|_| list.unvisited_from <= until)?;
        list.unvisited_from = self.entries.get(index)?.queued_at;
        if list.unvisited_from > until {
            return None;
        }
        list.unvisited = links.next(index);
        Some(Key(index))
    }
}
