//! A place of the flow table: a connection, and beside it its links.

use spand_proto::units::Timestamp;

use super::{Idleness, Which};
use crate::flow::connection::Connection;
use crate::flow::tuple::Tuple;
use crate::mem::Held;

/// A connection in the table.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) tuple: Tuple,
    /// Its last packet.
    pub(super) last_at: Timestamp,
    /// When it was put at the end of its list.
    pub(super) queued_at: Timestamp,
    /// The list it is in.
    pub(super) idleness: Idleness,
    /// What it takes in memory, as accounted for.
    pub(super) held: Held,
    /// The list of those with segments to give that it is in.
    pub(super) giving: Option<Which>,
    /// When it was put at the end of that.
    pub(super) giving_at: Timestamp,
    pub(super) connection: Connection,
}

/// Where an entry hangs in the lists that run through the table. Kept apart from the entries and small: to link one, its
/// neighbours are written too, and no packet of theirs has brought them near.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chain {
    /// Among entries in order of their last packet.
    pub(super) idle: Links,
    /// Among those with segments to give.
    pub(super) giving: Links,
    /// Among the timers of its slot.
    pub(super) timer: Links,
    /// The slot of the wheel that its timer hangs in.
    pub(super) slot: Option<u16>,
}

/// Neighbours in a list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Links {
    pub(super) previous: Neighbour,
    pub(super) next: Neighbour,
}

/// An entry's number, or none, in four bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Neighbour(u32);

impl Neighbour {
    /// Its number; none where that is the largest there is, which no slab gives.
    pub(super) fn get(self) -> Option<u32> {
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
