//! A place of the flow table.

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
