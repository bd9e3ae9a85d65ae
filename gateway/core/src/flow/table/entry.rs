//! A place of the flow table: a connection and its links.

use spand_proto::units::Timestamp;

use super::Idleness;
use super::wheel::Armed;
use crate::flow::connection::Connection;
use crate::flow::tuple::Tuple;

/// Neighbours in a list that runs through the entries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Links {
    pub(super) previous: Option<u32>,
    pub(super) next: Option<u32>,
}

/// A connection in the table.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) tuple: Tuple,
    pub(super) hash: u64,
    /// Its last packet.
    pub(super) last_at: Timestamp,
    /// When it was put at the end of its list.
    pub(super) queued_at: Timestamp,
    /// The list it is in.
    pub(super) idleness: Idleness,
    pub(super) idle: Links,
    pub(super) timer: Option<Armed>,
    pub(super) connection: Connection,
}
