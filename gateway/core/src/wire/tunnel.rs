//! Encapsulations that carry whole packets of somebody else, entered only between endpoints that the configuration names.

use arrayvec::ArrayVec;

use super::ether_type::{self, BRIDGED_ETHERNET};
use super::ip::IpHeader;
use super::packet_bytes::PacketBytes;
use super::{Layer, Next};
use crate::config::{Encapsulation, Tunnels};
use crate::counters::{Ignored, ProtocolNumber};
use crate::types::TunnelKind;

/// UDP's number in IP headers.
const UDP: u8 = 17;

/// Enters the encapsulation that `protocol` of the IP header `outer` announces, where its addresses are those of endpoints.
///
/// What the inner packet holds decides nothing before that. What only looks like an encapsulation (a datagram to its port)
/// is no TCP, as any other datagram.
pub(super) fn enter<'a>(outer: &IpHeader, protocol: u8, bytes: PacketBytes<'a>, tunnels: &Tunnels) -> Next<'a> {
    let (tunnel, inner) = match protocol {
        UDP => udp(bytes, tunnels)?,
        _ => by_protocol(protocol, bytes).map(|(kind, inner)| (kind.into(), inner)).ok_or(Ignored::NotTcp)?,
    };
    match tunnels.admit(tunnel, outer.source, outer.destination) {
        Ok(()) => inner,
        Err(reason) => Err(match inner {
            Err(Ignored::NotTcp | Ignored::Malformed) => Ignored::NotTcp,
            _ => reason,
        }),
    }
}

/// The encapsulation that IP's protocol number names, and what its header leads to.
fn by_protocol(protocol: u8, bytes: PacketBytes<'_>) -> Option<(TunnelKind, Next<'_>)> {
    Some(match protocol {
        4 | 41 => (TunnelKind::IpInIp, Ok((Layer::Ip, bytes))),
        47 => (TunnelKind::Gre, gre(bytes)),
        // MPLS in IP (RFC 4023).
        137 => (TunnelKind::Gre, Ok((Layer::Mpls, bytes))),
        _ => return None,
    })
}

/// The encapsulation of which a datagram has the port, and what its header leads to.
fn udp<'a>(bytes: PacketBytes<'a>, tunnels: &Tunnels) -> Result<(Encapsulation, Next<'a>), Ignored> {
    let (source, destination) = ports(bytes)?;
    let payload = bytes.skip(8)?;
    if let Some(tunnel) = tunnels.on_port(destination) {
        return Ok((tunnel, in_datagram(tunnel.kind, payload)));
    }
    // Either end of GTP-U may have its port.
    let of_source = TunnelKind::of_port(source).filter(|kind| *kind == TunnelKind::Gtp);
    of_source.map(|kind| (kind.into(), gtp_u(payload))).ok_or(Ignored::NotTcp)
}

/// The numbers by which `protocol` of an IP header, or the datagram that it announces, may be well known.
pub(super) fn numbers(protocol: u8, bytes: PacketBytes<'_>) -> ArrayVec<ProtocolNumber, 2> {
    match ports(bytes) {
        Ok((source, destination)) if protocol == UDP => {
            ArrayVec::from([ProtocolNumber::UdpPort(destination), ProtocolNumber::UdpPort(source)])
        }
        _ => ArrayVec::from_iter([ProtocolNumber::IpProtocol(protocol)]),
    }
}

/// Source and destination port of a datagram.
fn ports(bytes: PacketBytes<'_>) -> Result<(u16, u16), Ignored> {
    bytes.head::<8>()?;
    Ok((bytes.u16_at(0)?, bytes.u16_at(2)?))
}

/// What a datagram holds on the port of a kind. IP comes in UDP as Linux's FOU sends it: without a header of its own.
fn in_datagram(kind: TunnelKind, payload: PacketBytes<'_>) -> Next<'_> {
    match kind {
        TunnelKind::Gre => gre(payload),
        TunnelKind::Vxlan => vxlan(payload),
        TunnelKind::Geneve => geneve(payload),
        TunnelKind::Gtp => gtp_u(payload),
        TunnelKind::IpInIp => match payload.first()? >> 4 {
            4 | 6 => Ok((Layer::Ip, payload)),
            _ => Err(Ignored::NotTcp),
        },
        TunnelKind::Tzsp => tzsp(payload),
    }
}

/// TZSP: four bytes and tagged fields before a frame of a sniffer. Keep-alives and configuration carry none.
fn tzsp(bytes: PacketBytes<'_>) -> Next<'_> {
    const RECEIVED: u8 = 0;
    const TO_TRANSMIT: u8 = 1;
    const PADDING: u8 = 0;
    const END: u8 = 1;
    const TAGS_MAX: usize = 64;
    let &[1, RECEIVED | TO_TRANSMIT, ..] = bytes.head::<4>()? else { return Err(Ignored::NotTcp) };
    let layer = match bytes.u16_at(2)? {
        1 => Layer::Ethernet,
        18 => Layer::Ieee80211,
        _ => return Err(Ignored::NotTcp),
    };
    let mut bytes = bytes.skip(4)?;
    for _ in 0..TAGS_MAX {
        bytes = match bytes.first()? {
            END => return Ok((layer, bytes.skip(1)?)),
            PADDING => bytes.skip(1)?,
            _ => {
                let &[_, len] = bytes.head::<2>()?;
                bytes.skip(2 + usize::from(len))?
            }
        };
    }
    Err(Ignored::TooDeep)
}

/// VXLAN (RFC 7348): eight bytes before an Ethernet frame.
fn vxlan(bytes: PacketBytes<'_>) -> Next<'_> {
    const VNI_VALID: u8 = 0x08;
    let &[flags, ..] = bytes.head::<8>()?;
    if flags & VNI_VALID == 0 {
        return Err(Ignored::NotTcp);
    }
    Ok((Layer::Ethernet, bytes.skip(8)?))
}

/// Geneve (RFC 8926): eight bytes and options before what an EtherType announces.
fn geneve(bytes: PacketBytes<'_>) -> Next<'_> {
    let &[version_len, ..] = bytes.head::<8>()?;
    if version_len >> 6 != 0 {
        return Err(Ignored::NotTcp);
    }
    let options_len = usize::from(version_len & 0x3f) * 4;
    Ok((Layer::EtherType(bytes.u16_at(2)?), bytes.skip(8 + options_len)?))
}

/// GTP-U version 1 (3GPP TS 29.281 section 5): a user packet behind eight bytes and optional fields.
fn gtp_u(bytes: PacketBytes<'_>) -> Next<'_> {
    const VERSION_1_GTP: u8 = 0x30;
    const G_PDU: u8 = 255;
    const EXTENSION: u8 = 0x04;
    const ANY_OPTION: u8 = 0x07;
    const EXTENSIONS_MAX: usize = 8;
    let &[flags, message, ..] = bytes.head::<8>()?;
    if flags & 0xf0 != VERSION_1_GTP || message != G_PDU {
        return Err(Ignored::NotTcp);
    }
    let mut bytes = bytes.skip(8)?;
    if flags & ANY_OPTION == 0 {
        return Ok((Layer::Ip, bytes));
    }
    let &[_, _, _, mut next] = bytes.head()?;
    bytes = bytes.skip(4)?;
    if flags & EXTENSION == 0 {
        return Ok((Layer::Ip, bytes));
    }
    for _ in 0..EXTENSIONS_MAX {
        if next == 0 {
            return Ok((Layer::Ip, bytes));
        }
        // Each extension begins with its length in units of four bytes and ends with the type of the next.
        let len = usize::from(bytes.first()?) * 4;
        let last = len.checked_sub(1).ok_or(Ignored::Malformed)?;
        next = bytes.skip(last)?.first()?;
        bytes = bytes.skip(len)?;
    }
    Err(Ignored::TooDeep)
}

/// GRE (RFC 2784, RFC 2890).
fn gre(bytes: PacketBytes<'_>) -> Next<'_> {
    const CHECKSUM: u16 = 0x8000;
    const ROUTING: u16 = 0x4000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    const VERSION: u16 = 0x0007;
    let protocol = bytes.u16_at(2)?;
    let flags = bytes.u16_at(0)?;
    // Source routes of RFC 1701 were withdrawn with it.
    if flags & (VERSION | ROUTING) != 0 {
        return Err(Ignored::NotTcp);
    }
    let optional_words = usize::try_from((flags & (CHECKSUM | KEY | SEQUENCE)).count_ones()).unwrap_or_default();
    let payload = bytes.skip(4 + 4 * optional_words)?;
    match protocol {
        // ERSPAN type II has a header of eight bytes, type I none; only II numbers its packets.
        0x88be => Ok((Layer::Ethernet, payload.skip(if flags & SEQUENCE == 0 { 0 } else { 8 })?)),
        0x22eb => erspan_3(payload),
        // Aruba's access points carry whole 802.11 frames.
        0x8200..=0x82ff => Ok((Layer::Ieee80211, payload)),
        BRIDGED_ETHERNET => Ok((Layer::Ethernet, payload)),
        protocol => ether_type::next(protocol, payload),
    }
}

/// ERSPAN type III: twelve bytes, eight more where the last bit says so.
fn erspan_3(bytes: PacketBytes<'_>) -> Next<'_> {
    let [.., last] = *bytes.head::<12>()?;
    Ok((Layer::Ethernet, bytes.skip(if last & 1 == 0 { 12 } else { 20 })?))
}
