//! Link layers by their LINKTYPE value (<https://www.tcpdump.org/linktypes.html>).

use super::ip::{self, IpHeader};
use super::octets::Octets;
use super::{Frame, Layer, capture_header, ether_type, ieee80211};
use crate::counters::Ignored;

type Next<'a> = Result<(Layer, Octets<'a>), Ignored>;

/// The LINKTYPE of Ethernet.
const ETHERNET: u16 = 1;
/// An EtherType below this is the length of an 802.3 frame (IEEE 802.3 clause 3.2.6).
const ETHER_TYPE_MIN: u16 = 0x0600;

/// Finds the first layer of a frame of `link_type`.
pub(super) fn first_layer(link_type: u16, octets: Octets<'_>) -> Next<'_> {
    match link_type {
        ETHERNET => Ok((Layer::Ethernet, octets)),
        // RAW under its LINKTYPE number and under two DLT numbers that writers let through, IPV4, IPV6.
        12 | 14 | 101 | 228 | 229 => Ok((Layer::Ip, octets)),
        // NULL and LOOP: an address family in some byte order. IP's own version field says the same and has one order.
        0 | 108 => Ok((Layer::Ip, octets.skip(4)?)),
        113 => linux_sll(octets),
        276 => linux_sll2(octets),
        9 => Ok((Layer::Ppp, octets)),
        50 => hdlc_or_ppp(octets),
        51 => Ok((Layer::EtherType(ether_type::PPPOE_SESSION), octets)),
        // PPP_PPPD and PPP_WITH_DIR: one octet of direction before PPP.
        166 | 204 => Ok((Layer::Ppp, octets.skip(1)?)),
        104 => cisco_hdlc(octets),
        107 => frame_relay(octets),
        // C_HDLC and FRELAY with one octet of direction before them.
        205 => cisco_hdlc(octets.skip(1)?),
        206 => frame_relay(octets.skip(1)?),
        6 => token_ring(octets),
        // FDDI: frame control and two addresses, then LLC.
        10 => Ok((Layer::Llc, octets.skip(13)?)),
        // ATM by RFC 1483 (now RFC 2684).
        100 => Ok((Layer::Llc, octets)),
        // IP over IEEE 1394: two addresses of eight octets, then an EtherType.
        138 => after_ether_type(octets.skip(16)?),
        219 => Ok((Layer::Mpls, octets)),
        105 => Ok((Layer::Ieee80211, octets)),
        127 => ieee80211::radiotap(octets),
        other => capture_header::skip(other, octets),
    }
}

/// The short way from an Ethernet frame to TCP: up to two tags, then IPv4 or IPv6 without extension headers. `None` where
/// anything else is in the way; the walk over all layers then says what.
#[inline]
pub(super) fn ethernet_to_tcp<'a>(frame: &Frame<'a>) -> Option<(IpHeader, Octets<'a>)> {
    const TAGS_MAX: usize = 2;
    if frame.link_type != ETHERNET {
        return None;
    }
    let mut octets = Octets::new(frame.data, frame.wire_len).skip(12).ok()?;
    for _ in 0..=TAGS_MAX {
        let [high, low] = *octets.head().ok()?;
        let (header, protocol, after) = match u16::from_be_bytes([high, low]) {
            ether_type::IPV4 | ether_type::IPV6 => ip::by_version(octets.skip(2).ok()?).ok()?,
            tag if ether_type::is_vlan(tag) => {
                octets = octets.skip(4).ok()?;
                continue;
            }
            _ => return None,
        };
        return (protocol == ip::TCP).then_some((header, after));
    }
    None
}

/// Ethernet: two addresses, then an EtherType or a length before LLC.
pub(super) fn ethernet(octets: Octets<'_>) -> Next<'_> {
    let [.., high, low] = *octets.head::<14>()?;
    let ether_type = u16::from_be_bytes([high, low]);
    let layer = if ether_type < ETHER_TYPE_MIN { Layer::Llc } else { Layer::EtherType(ether_type) };
    Ok((layer, octets.skip(14)?))
}

/// PPP (RFC 1661, framing of RFC 1662): optional `ff 03`, then a protocol of one octet (compressed) or two.
pub(super) fn ppp(octets: Octets<'_>) -> Next<'_> {
    let octets = if octets.head::<2>()? == &[0xff, 0x03] { octets.skip(2)? } else { octets };
    let first = octets.first()?;
    let (protocol, octets) = if first & 1 == 1 {
        (u16::from(first), octets.skip(1)?)
    } else {
        (u16::from_be_bytes(*octets.head::<2>()?), octets.skip(2)?)
    };
    match protocol {
        0x0021 | 0x0057 => Ok((Layer::Ip, octets)),
        0x0281 | 0x0283 => Ok((Layer::Mpls, octets)),
        _ => Err(Ignored::NotIp),
    }
}

/// `PPP_HDLC`: PPP, or Cisco's framing where the address octet says so.
fn hdlc_or_ppp(octets: Octets<'_>) -> Next<'_> {
    match octets.first()? {
        0x0f | 0x8f => cisco_hdlc(octets),
        _ => Ok((Layer::Ppp, octets)),
    }
}

/// Cisco HDLC (RFC 1547 section 4.3.1): address, control, EtherType.
pub(super) fn cisco_hdlc(octets: Octets<'_>) -> Next<'_> {
    after_ether_type(octets.skip(2)?)
}

/// Frame relay (RFC 2427): an address of two to four octets, then control and protocol, or Cisco's EtherType.
fn frame_relay(octets: Octets<'_>) -> Next<'_> {
    let [_, second, third, _] = *octets.head::<4>()?;
    // The lowest bit ends the address.
    let octets = octets.skip(if second & 1 == 1 { 2 } else { 3 + usize::from(third & 1 == 0) })?;
    match *octets.head::<2>()? {
        [0x03, 0xcc | 0x8e] => Ok((Layer::Ip, octets.skip(2)?)),
        // Padded to an even length, SNAP: an organisation and an EtherType.
        [0x03, 0x00] => after_ether_type(octets.skip(6)?),
        [0x03, _] => Err(Ignored::NotIp),
        _ => after_ether_type(octets),
    }
}

/// Token ring (IEEE 802.5): access and frame control, two addresses, perhaps a source route, then LLC.
fn token_ring(octets: Octets<'_>) -> Next<'_> {
    let [_, _, _, _, _, _, _, _, source, ..] = *octets.head::<14>()?;
    let octets = octets.skip(14)?;
    let route = if source & 0x80 == 0 { 0 } else { usize::from(octets.first()? & 0x1f) };
    Ok((Layer::Llc, octets.skip(route)?))
}

fn after_ether_type(octets: Octets<'_>) -> Next<'_> {
    Ok((Layer::EtherType(u16::from_be_bytes(*octets.head()?)), octets.skip(2)?))
}

/// Linux cooked capture: the EtherType is the last field of 16 octets.
fn linux_sll(octets: Octets<'_>) -> Next<'_> {
    let [.., high, low] = *octets.head::<16>()?;
    cooked(u16::from_be_bytes([high, low]), octets.skip(16)?)
}

/// Linux cooked capture, version 2: the EtherType is the first field of 20 octets.
fn linux_sll2(octets: Octets<'_>) -> Next<'_> {
    let [high, low, ..] = *octets.head::<20>()?;
    cooked(u16::from_be_bytes([high, low]), octets.skip(20)?)
}

/// The protocol field of a cooked capture: an EtherType, or one of Linux's own numbers below them.
fn cooked(protocol: u16, octets: Octets<'_>) -> Next<'_> {
    match protocol {
        // ETH_P_802_2
        0x0004 => Ok((Layer::Llc, octets)),
        0..ETHER_TYPE_MIN => Err(Ignored::NotIp),
        ether_type => Ok((Layer::EtherType(ether_type), octets)),
    }
}
