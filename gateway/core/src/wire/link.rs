//! Link layers by their LINKTYPE value (<https://www.tcpdump.org/linktypes.html>).

use super::capture_header::PacketBytes;
use super::ip::{self, IpHeader};
use super::{Frame, Layer, capture_header, ether_type, ieee80211};
use crate::counters::Ignored;

type Next<'a> = Result<(Layer, PacketBytes<'a>), Ignored>;

/// The LINKTYPE of Ethernet.
const ETHERNET: u16 = 1;
/// An EtherType below this is the length of an 802.3 frame (IEEE 802.3 clause 3.2.6).
const ETHER_TYPE_MIN: u16 = 0x0600;

/// Finds the first layer of a frame of `link_type`.
pub(super) fn first_layer(link_type: u16, bytes: PacketBytes<'_>) -> Next<'_> {
    match link_type {
        ETHERNET => Ok((Layer::Ethernet, bytes)),
        // RAW under its LINKTYPE number and under two DLT numbers that writers let through, IPV4, IPV6.
        12 | 14 | 101 | 228 | 229 => Ok((Layer::Ip, bytes)),
        // NULL and LOOP: an address family in some byte order. IP's own version field says the same and has one order.
        0 | 108 => Ok((Layer::Ip, bytes.skip(4)?)),
        113 => linux_sll(bytes),
        276 => linux_sll2(bytes),
        9 => Ok((Layer::Ppp, bytes)),
        50 => hdlc_or_ppp(bytes),
        51 => Ok((Layer::EtherType(ether_type::PPPOE_SESSION), bytes)),
        // PPP_PPPD and PPP_WITH_DIR: one byte of direction before PPP.
        166 | 204 => Ok((Layer::Ppp, bytes.skip(1)?)),
        104 => cisco_hdlc(bytes),
        107 => frame_relay(bytes),
        // C_HDLC and FRELAY with one byte of direction before them.
        205 => cisco_hdlc(bytes.skip(1)?),
        206 => frame_relay(bytes.skip(1)?),
        6 => token_ring(bytes),
        // FDDI: frame control and two addresses, then LLC.
        10 => Ok((Layer::Llc, bytes.skip(13)?)),
        // ATM by RFC 1483 (now RFC 2684).
        100 => Ok((Layer::Llc, bytes)),
        // IP over IEEE 1394: two addresses of eight bytes, then an EtherType.
        138 => after_ether_type(bytes.skip(16)?),
        219 => Ok((Layer::Mpls, bytes)),
        105 => Ok((Layer::Ieee80211, bytes)),
        127 => ieee80211::radiotap(bytes),
        other => capture_header::skip(other, bytes),
    }
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
        let [high, low] = *bytes.head().ok()?;
        let (header, protocol, after) = match u16::from_be_bytes([high, low]) {
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
    let [.., high, low] = *bytes.head::<14>()?;
    let ether_type = u16::from_be_bytes([high, low]);
    let layer = if ether_type < ETHER_TYPE_MIN { Layer::Llc } else { Layer::EtherType(ether_type) };
    Ok((layer, bytes.skip(14)?))
}

/// PPP (RFC 1661, framing of RFC 1662): optional `ff 03`, then a protocol of one byte (compressed) or two.
pub(super) fn ppp(bytes: PacketBytes<'_>) -> Next<'_> {
    let bytes = if bytes.head::<2>()? == &[0xff, 0x03] { bytes.skip(2)? } else { bytes };
    let first = bytes.first()?;
    let (protocol, bytes) = if first & 1 == 1 {
        (u16::from(first), bytes.skip(1)?)
    } else {
        (u16::from_be_bytes(*bytes.head::<2>()?), bytes.skip(2)?)
    };
    match protocol {
        0x0021 | 0x0057 => Ok((Layer::Ip, bytes)),
        0x0281 | 0x0283 => Ok((Layer::Mpls, bytes)),
        _ => Err(Ignored::NotIp),
    }
}

/// `PPP_HDLC`: PPP, or Cisco's framing where the address byte says so.
fn hdlc_or_ppp(bytes: PacketBytes<'_>) -> Next<'_> {
    match bytes.first()? {
        0x0f | 0x8f => cisco_hdlc(bytes),
        _ => Ok((Layer::Ppp, bytes)),
    }
}

/// Cisco HDLC (RFC 1547 section 4.3.1): address, control, EtherType.
pub(super) fn cisco_hdlc(bytes: PacketBytes<'_>) -> Next<'_> {
    after_ether_type(bytes.skip(2)?)
}

/// Frame relay (RFC 2427): an address of two to four bytes, then control and protocol, or Cisco's EtherType.
fn frame_relay(bytes: PacketBytes<'_>) -> Next<'_> {
    let [_, second, third, _] = *bytes.head::<4>()?;
    // The lowest bit ends the address.
    let bytes = bytes.skip(if second & 1 == 1 { 2 } else { 3 + usize::from(third & 1 == 0) })?;
    match *bytes.head::<2>()? {
        [0x03, 0xcc | 0x8e] => Ok((Layer::Ip, bytes.skip(2)?)),
        // Padded to an even length, SNAP: an organisation and an EtherType.
        [0x03, 0x00] => after_ether_type(bytes.skip(6)?),
        [0x03, _] => Err(Ignored::NotIp),
        _ => after_ether_type(bytes),
    }
}

/// Token ring (IEEE 802.5): access and frame control, two addresses, perhaps a source route, then LLC.
fn token_ring(bytes: PacketBytes<'_>) -> Next<'_> {
    let [_, _, _, _, _, _, _, _, source, ..] = *bytes.head::<14>()?;
    let bytes = bytes.skip(14)?;
    let route = if source & 0x80 == 0 { 0 } else { usize::from(bytes.first()? & 0x1f) };
    Ok((Layer::Llc, bytes.skip(route)?))
}

fn after_ether_type(bytes: PacketBytes<'_>) -> Next<'_> {
    Ok((Layer::EtherType(u16::from_be_bytes(*bytes.head()?)), bytes.skip(2)?))
}

/// Linux cooked capture: the EtherType is the last field of 16 bytes.
fn linux_sll(bytes: PacketBytes<'_>) -> Next<'_> {
    let [.., high, low] = *bytes.head::<16>()?;
    cooked(u16::from_be_bytes([high, low]), bytes.skip(16)?)
}

/// Linux cooked capture, version 2: the EtherType is the first field of 20 bytes.
fn linux_sll2(bytes: PacketBytes<'_>) -> Next<'_> {
    let [high, low, ..] = *bytes.head::<20>()?;
    cooked(u16::from_be_bytes([high, low]), bytes.skip(20)?)
}

/// The protocol field of a cooked capture: an EtherType, or one of Linux's own numbers below them.
fn cooked(protocol: u16, bytes: PacketBytes<'_>) -> Next<'_> {
    match protocol {
        // ETH_P_802_2
        0x0004 => Ok((Layer::Llc, bytes)),
        0..ETHER_TYPE_MIN => Err(Ignored::NotIp),
        ether_type => Ok((Layer::EtherType(ether_type), bytes)),
    }
}
