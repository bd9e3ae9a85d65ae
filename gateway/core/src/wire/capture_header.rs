//! What capture systems put before the frame they captured.

use super::link::{cisco_hdlc, first_layer};
use super::{Layer, ieee80211};
use crate::counters::Ignored;

type Next<'a> = Result<(Layer, PacketBytes<'a>), Ignored>;

const PPI: u16 = 192;
const PKTAP: u16 = 258;

/// Skips the header of a capture system by the frame's LINKTYPE.
pub(super) fn skip(link_type: u16, bytes: PacketBytes<'_>) -> Next<'_> {
    match link_type {
        // OpenBSD: address family, SPI and flags before what IPsec decrypted.
        109 => Ok((Layer::Ip, bytes.skip(12)?)),
        // OpenBSD's packet filter: its length in the first byte, padded to four.
        117 => Ok((Layer::Ip, bytes.skip(usize::from(bytes.first()?).next_multiple_of(4))?)),
        119 | 163 => wireless(bytes),
        127 => ieee80211::radiotap(bytes),
        178 => juniper(bytes, |packet| Ok((Layer::Ethernet, packet))),
        181 => juniper(bytes, cisco_hdlc),
        PPI => {
            let [_, _, len0, len1, link0, link1, ..] = *bytes.head::<8>()?;
            let len = usize::from(u16::from_le_bytes([len0, len1]));
            inner(u16::from_le_bytes([link0, link1]), bytes.skip(len)?)
        }
        239 => nflog(bytes),
        PKTAP => {
            let [len0, len1, _, _, _, _, _, _, link0, link1, _, _] = *bytes.head::<12>()?;
            let len = usize::from(u16::from_le_bytes([len0, len1]));
            inner(u16::from_le_bytes([link0, link1]), bytes.skip(len)?)
        }
        _ => Err(Ignored::LinkType),
    }
}

/// The frame whose link type a header states; such headers do not hold each other.
fn inner(link_type: u16, bytes: PacketBytes<'_>) -> Next<'_> {
    if matches!(link_type, PPI | PKTAP) { Err(Ignored::TooDeep) } else { first_layer(link_type, bytes) }
}

/// Prism's 144 bytes before 802.11, or those of AVS, which begin with a magic number and their length.
fn wireless(bytes: PacketBytes<'_>) -> Next<'_> {
    let len = match *bytes.head::<8>()? {
        [0x80, 0x21, 0x10, _, 0, 0, len0, len1] => usize::from(u16::from_be_bytes([len0, len1])),
        _ => 144,
    };
    Ok((Layer::Ieee80211, bytes.skip(len)?))
}

/// Juniper's header before the link's own: magic `MGC`, flags, and where bit 7 says so extensions behind their length.
fn juniper<'a>(bytes: PacketBytes<'a>, link: impl Fn(PacketBytes<'a>) -> Next<'a>) -> Next<'a> {
    let [b'M', b'G', b'C', flags] = *bytes.head::<4>()? else { return Err(Ignored::Malformed) };
    let mut bytes = bytes.skip(4)?;
    if flags & 0x80 != 0 {
        let extensions = usize::from(u16::from_be_bytes(*bytes.head::<2>()?));
        bytes = bytes.skip(2)?.skip(extensions)?;
    }
    // Bit 1: the packet came without a link header, behind four bytes of protocol family.
    if flags & 0x02 != 0 { Ok((Layer::Ip, bytes.skip(4)?)) } else { link(bytes) }
}

/// Linux netfilter log: four bytes, then type-length-values in the writer's byte order, padded to four.
fn nflog(bytes: PacketBytes<'_>) -> Next<'_> {
    const PAYLOAD: u16 = 9;
    // A log record has at most 18 kinds of attributes (enum nfulnl_attr_type).
    const ATTRIBUTES_MAX: usize = 32;
    let mut bytes = bytes.skip(4)?;
    for _ in 0..ATTRIBUTES_MAX {
        let [len0, len1, kind0, kind1] = *bytes.head::<4>()?;
        // The type is below 256 and so shows the order; the two top bits are flags.
        let (len, kind) = match kind1 & 0x3f {
            0 => (u16::from_le_bytes([len0, len1]), u16::from(kind0)),
            kind => (u16::from_be_bytes([len0, len1]), u16::from(kind)),
        };
        if len < 4 {
            return Err(Ignored::Malformed);
        }
        if kind == PAYLOAD {
            return Ok((Layer::Ip, bytes.skip(4)?));
        }
        bytes = bytes.skip(usize::from(len).next_multiple_of(4))?;
    }
    Err(Ignored::NotIp)
}

// The lenient view: the captured bytes of a layer and how many it had on the wire.

/// What is left of a frame from some layer on. Access is checked; what is missing says whether the snap length cut it or
/// the headers contradict themselves.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketBytes<'a> {
    captured: &'a [u8],
    wire_len: u32,
}

impl<'a> PacketBytes<'a> {
    /// A frame's bytes. A frame cannot have been shorter on the wire than what was captured of it.
    #[inline]
    pub(super) fn new(captured: &'a [u8], wire_len: u32) -> Self {
        Self { captured, wire_len: wire_len.max(u32::try_from(captured.len()).unwrap_or(u32::MAX)) }
    }

    /// What was captured.
    #[inline]
    pub(super) fn captured(self) -> &'a [u8] {
        self.captured
    }

    /// Bytes on the wire.
    #[inline]
    pub(super) fn wire_len(self) -> u32 {
        self.wire_len
    }

    /// The first `N` bytes.
    #[inline]
    pub(super) fn head<const N: usize>(self) -> Result<&'a [u8; N], Ignored> {
        self.captured.first_chunk().ok_or_else(|| self.short_of(N))
    }

    /// The first byte.
    #[inline]
    pub(super) fn first(self) -> Result<u8, Ignored> {
        self.captured.first().copied().ok_or_else(|| self.short_of(1))
    }

    /// What follows the first `len` bytes.
    #[inline]
    pub(super) fn skip(self, len: usize) -> Result<Self, Ignored> {
        match (self.captured.get(len..), u32::try_from(len).ok().and_then(|len| self.wire_len.checked_sub(len))) {
            (Some(captured), Some(wire_len)) => Ok(Self { captured, wire_len }),
            _ => Err(self.short_of(len)),
        }
    }

    /// The same with the length on the wire that a header states. Less than is there: the rest is padding. More than is
    /// there: a mirror port, a writer or an outer fragment cut the frame, and the header knows better.
    #[inline]
    pub(super) fn stated(self, wire_len: u32) -> Self {
        let len = usize::try_from(wire_len).unwrap_or(usize::MAX);
        Self { captured: self.captured.get(..len).unwrap_or(self.captured), wire_len }
    }

    /// Why `len` bytes are not to be had.
    fn short_of(self, len: usize) -> Ignored {
        if u32::try_from(len).is_ok_and(|len| len <= self.wire_len) { Ignored::Truncated } else { Ignored::Malformed }
    }
}
