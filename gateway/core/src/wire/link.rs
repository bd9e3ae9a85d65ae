//! Link layers by their LINKTYPE value (<https://www.tcpdump.org/linktypes.html>).

use super::ip::{self, IpHeader};
use super::octets::Octets;
use super::{Frame, Layer, ether_type, ieee80211, tcp};
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
        // FDDI: frame control and two addresses, then LLC.
        10 => Ok((Layer::Llc, octets.skip(13)?)),
        105 => Ok((Layer::Ieee80211, octets)),
        127 => ieee80211::radiotap(octets),
        178 => juniper(octets, |packet| Ok((Layer::Ethernet, packet))),
        181 => juniper(octets, cisco_hdlc),
        239 => nflog(octets),
        _ => Err(Ignored::LinkType),
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
        return (protocol == tcp::PROTOCOL).then_some((header, after));
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
fn cisco_hdlc(octets: Octets<'_>) -> Next<'_> {
    let [_, _, high, low] = *octets.head::<4>()?;
    Ok((Layer::EtherType(u16::from_be_bytes([high, low])), octets.skip(4)?))
}

/// Juniper's header before the link's own: magic `MGC`, flags, and where bit 7 says so extensions behind their length.
fn juniper<'a>(octets: Octets<'a>, link: impl Fn(Octets<'a>) -> Next<'a>) -> Next<'a> {
    let [b'M', b'G', b'C', flags] = *octets.head::<4>()? else { return Err(Ignored::Malformed) };
    let mut octets = octets.skip(4)?;
    if flags & 0x80 != 0 {
        let extensions = usize::from(u16::from_be_bytes(*octets.head::<2>()?));
        octets = octets.skip(2)?.skip(extensions)?;
    }
    // Bit 1: the packet came without a link header, behind four octets of protocol family.
    if flags & 0x02 != 0 { Ok((Layer::Ip, octets.skip(4)?)) } else { link(octets) }
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

/// Linux netfilter log: four octets, then type-length-values in the writer's byte order, padded to four.
fn nflog(octets: Octets<'_>) -> Next<'_> {
    const PAYLOAD: u16 = 9;
    // A log record has at most 18 kinds of attributes (enum nfulnl_attr_type).
    const ATTRIBUTES_MAX: usize = 32;
    let mut octets = octets.skip(4)?;
    for _ in 0..ATTRIBUTES_MAX {
        let [len0, len1, kind0, kind1] = *octets.head::<4>()?;
        // The type is below 256 and so shows the order; the two top bits are flags.
        let (len, kind) = match kind1 & 0x3f {
            0 => (u16::from_le_bytes([len0, len1]), u16::from(kind0)),
            kind => (u16::from_be_bytes([len0, len1]), u16::from(kind)),
        };
        if len < 4 {
            return Err(Ignored::Malformed);
        }
        if kind == PAYLOAD {
            return Ok((Layer::Ip, octets.skip(4)?));
        }
        octets = octets.skip(usize::from(len).next_multiple_of(4))?;
    }
    Err(Ignored::NotIp)
}
