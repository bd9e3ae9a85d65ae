//! A packet as its source hands it over.

use spand_proto::units::Timestamp;

use crate::LinkType;

/// One captured packet, borrowed from its source until the next one is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Packet<'a> {
    /// When it was captured, as recorded; may be earlier than the packet before it.
    pub timestamp: Timestamp,
    /// Its record holds no time (pcapng simple packet blocks), and `timestamp` is that of the packet before.
    pub untimed: bool,
    /// What the first byte of `data` belongs to.
    pub link_type: LinkType,
    /// Length on the wire in bytes, never less than `data.len()`.
    pub wire_len: u32,
    /// Which interface of the source saw it: 0 but in pcapng, where it counts the interface descriptions of the whole
    /// file, later sections continuing the numbers of earlier ones.
    pub interface: u32,
    /// Which source of a [`MergedSource`](crate::MergedSource) it came from, in the order they were given; otherwise 0.
    pub source: u32,
    /// The captured bytes, the first ones of the packet.
    pub data: &'a [u8],
}

/// What asking a source for its next packet gave.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next<'a> {
    /// A packet.
    Packet(Packet<'a>),
    /// A live source has nothing at the moment. Asking again waits for up to its read time-out.
    Idle,
    /// The source is exhausted; every later call says so too.
    End,
}
