//! Link layers by their LINKTYPE value (<https://www.tcpdump.org/linktypes.html>).

use super::ip::{self, IpHeader};
use super::packet_bytes::PacketBytes;
use super::{Frame, Layer, Next, ether_type};
use crate::counters::Ignored;

/// The LINKTYPE of Ethernet.
const ETHERNET: u16 = 1;

/// Finds the first layer of a frame of `link_type`.
pub(super) fn first_layer(link_type: u16, bytes: PacketBytes<'_>) -> Next<'_> {
    let (layer, header_len) = match link_type {
        ETHERNET => (Layer::Ethernet, 0),
        // RAW under its LINKTYPE number and under two DLT numbers that writers let through, IPV4, IPV6.
        12 | 14 | 101 | 228 | 229 => (Layer::Ip, 0),
        // NULL and LOOP: an address family in some byte order. IP's own version field says the same and has one order.
        0 | 108 => (Layer::Ip, 4),
        // OpenBSD: address family, SPI and flags before what IPsec decrypted.
        109 => (Layer::Ip, 12),
        9 => (Layer::Ppp, 0),
        // PPP_PPPD and PPP_WITH_DIR: one byte of direction before PPP.
        166 | 204 => (Layer::Ppp, 1),
        51 => (Layer::EtherType(ether_type::PPPOE_SESSION), 0),
        // FDDI: frame control and two addresses, then LLC.
        10 => (Layer::Llc, 13),
        // ATM by RFC 1483 (now RFC 2684).
        100 => (Layer::Llc, 0),
        219 => (Layer::Mpls, 0),
        105 => (Layer::Ieee80211, 0),
        // Cisco HDLC, without or with one byte of direction: address, control, EtherType (RFC 1547 section 4.3.1).
        104 => (ether_type_at(2, bytes)?, 4),
        205 => (ether_type_at(3, bytes)?, 5),
        // IP over IEEE 1394: two addresses of eight bytes, then an EtherType.
        138 => (ether_type_at(16, bytes)?, 18),
        // Linux cooked capture, versions 1 and 2.
        113 => (ether_type_at(14, bytes)?, 16),
        276 => (ether_type_at(0, bytes)?, 20),
        127 => return radiotap(bytes),
        178 => return juniper(bytes),
        239 => return nflog(bytes),
        _ => return Err(Ignored::LinkType),
    };
    Ok((layer, bytes.skip(header_len)?))
}

/// The short way from an Ethernet frame to TCP: up to two tags, then IPv4 or IPv6 without extension headers. `None` where
/// anything else is in the way; the walk over all layers then says what.
#[inline]
pub(super) fn ethernet_to_tcp<'a>(frame: &Frame<'a>) -> Option<(IpHeader, PacketBytes<'a>)> {
    const TAGS_MAX: usize = 2;
    if frame.link_type != ETHERNET {
        return None;
    }
    let mut bytes = PacketBytes::new(frame.data, frame.wire_len).skip(12).ok()?;
    for _ in 0..=TAGS_MAX {
        let (header, protocol, after) = match bytes.u16_at(0).ok()? {
            ether_type::IPV4 | ether_type::IPV6 => ip::by_version(bytes.skip(2).ok()?).ok()?,
            tag if ether_type::is_vlan(tag) => {
                bytes = bytes.skip(4).ok()?;
                continue;
            }
            _ => return None,
        };
        return (protocol == ip::TCP).then_some((header, after));
    }
    None
}

/// Ethernet: two addresses, then an EtherType or a length before LLC.
pub(super) fn ethernet(bytes: PacketBytes<'_>) -> Next<'_> {
    Ok((ether_type::type_or_length(bytes.u16_at(12)?), bytes.skip(14)?))
}

/// PPP (RFC 1661, framing of RFC 1662): optional `ff 03`, then a protocol of one byte (compressed) or two.
pub(super) fn ppp(bytes: PacketBytes<'_>) -> Next<'_> {
    let bytes = if bytes.head::<2>()? == &[0xff, 0x03] { bytes.skip(2)? } else { bytes };
    let first = bytes.first()?;
    let (protocol, bytes) =
        if first & 1 == 1 { (u16::from(first), bytes.skip(1)?) } else { (bytes.u16_at(0)?, bytes.skip(2)?) };
    match protocol {
        0x0021 | 0x0057 => Ok((Layer::Ip, bytes)),
        0x0281 | 0x0283 => Ok((Layer::Mpls, bytes)),
        _ => Err(Ignored::NotIp),
    }
}

/// The layer that the EtherType at `at` announces, or one of Linux's own numbers below them.
fn ether_type_at(at: usize, bytes: PacketBytes<'_>) -> Result<Layer, Ignored> {
    match bytes.u16_at(at)? {
        // ETH_P_802_2
        0x0004 => Ok(Layer::Llc),
        0..ether_type::ETHER_TYPE_MIN => Err(Ignored::NotIp),
        ether_type => Ok(Layer::EtherType(ether_type)),
    }
}

/// Radiotap header (<https://www.radiotap.org>): its length says where the MAC header starts.
fn radiotap(bytes: PacketBytes<'_>) -> Next<'_> {
    let [version, _, len0, len1] = *bytes.head::<4>()?;
    if version != 0 {
        return Err(Ignored::Malformed);
    }
    Ok((Layer::Ieee80211, bytes.skip(usize::from(u16::from_le_bytes([len0, len1])))?))
}

/// A data frame (IEEE 802.11 clause 9.3.2), of an aggregate (A-MSDU) its first part. Encrypted ones cannot be parsed.
pub(super) fn ieee80211(bytes: PacketBytes<'_>) -> Next<'_> {
    const DATA: u8 = 2;
    const NO_DATA: u8 = 0x4;
    const QOS: u8 = 0x8;
    const TO_AND_FROM_DS: u8 = 0x03;
    const PROTECTED: u8 = 0x40;
    const ORDER: u8 = 0x80;
    const AGGREGATE: u8 = 0x80;

    let [control, flags] = *bytes.head::<2>()?;
    let subtype = control >> 4;
    if (control >> 2) & 3 != DATA || subtype & NO_DATA != 0 || flags & PROTECTED != 0 {
        return Err(Ignored::NotIp);
    }
    let addresses = if flags & TO_AND_FROM_DS == TO_AND_FROM_DS { 30 } else { 24 };
    let mut bytes = bytes.skip(addresses)?;
    if subtype & QOS != 0 {
        let [qos, _] = *bytes.head::<2>()?;
        bytes = bytes.skip(if flags & ORDER == 0 { 2 } else { 6 })?;
        if qos & AGGREGATE != 0 {
            // Two addresses and a length before each part.
            bytes = bytes.skip(14)?;
        }
    }
    Ok((Layer::Llc, bytes))
}

/// Juniper's header before an Ethernet frame: magic `MGC`, flags, and where bit 7 says so extensions behind their length.
fn juniper(bytes: PacketBytes<'_>) -> Next<'_> {
    let [b'M', b'G', b'C', flags] = *bytes.head::<4>()? else { return Err(Ignored::Malformed) };
    let mut bytes = bytes.skip(4)?;
    if flags & 0x80 != 0 {
        bytes = bytes.skip(2 + usize::from(bytes.u16_at(0)?))?;
    }
    // Bit 1: the packet came without a link header, behind four bytes of protocol family.
    if flags & 0x02 != 0 { Ok((Layer::Ip, bytes.skip(4)?)) } else { Ok((Layer::Ethernet, bytes)) }
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
