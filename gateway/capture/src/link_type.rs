//! Link-layer types as capture files number them.

use std::fmt;

use spand_proto::units::Timestamp;

/// What the first byte of a packet belongs to: a `LINKTYPE_` number of the registry at
/// <https://www.tcpdump.org/linktypes.html>.
///
/// Always the registry's number: the `DLT_RAW` values 12 and 14 that some systems wrote into files, and that libpcap
/// reports for live interfaces, have become [`LinkType::RAW`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: a four-byte address family in the byte order of the capturing host, then the packet.
    pub const NULL: Self = Self(0);
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// Raw IP; the version nibble distinguishes IPv4 from IPv6.
    pub const RAW: Self = Self(101);
    /// Linux cooked capture, version 2.
    pub const LINUX_SLL2: Self = Self(276);

    /// The type for a number found in a file or reported by libpcap, with the two old spellings of raw IP folded.
    pub(crate) const fn from_wire(number: u16) -> Self {
        match number {
            12 | 14 => Self::RAW,
            other => Self(other),
        }
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link type {}", self.0)
    }
}

// A packet as its source hands it over.

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
