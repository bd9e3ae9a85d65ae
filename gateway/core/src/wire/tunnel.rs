//! Encapsulations that carry whole packets of somebody else, entered only between endpoints that the configuration names.

use super::Layer;
use super::ether_type::{self, BRIDGED_ETHERNET};
use super::ip::IpHeader;
use super::packet_bytes::PacketBytes;
use crate::config::{TunnelKind, Tunnels};
use crate::counters::Ignored;

type Next<'a> = Result<(Layer, PacketBytes<'a>), Ignored>;

/// UDP ports: the destination's, and for the last three those of either end.
const VXLAN_PORT: u16 = 4789;
const GENEVE_PORT: u16 = 6081;
const GRE_PORT: u16 = 4754;
const GTP_U_PORT: u16 = 2152;
const TEREDO_PORT: u16 = 3544;
const AYIYA_PORT: u16 = 5072;

/// Enters the encapsulation that `protocol` of the IP header `outer` announces, where its addresses are those of endpoints.
///
/// What the inner packet holds decides nothing before that. What only looks like an encapsulation (a datagram to its port)
/// is no TCP, as any other datagram.
pub(super) fn enter<'a>(outer: &IpHeader, protocol: u8, bytes: PacketBytes<'a>, tunnels: &Tunnels) -> Next<'a> {
    let (kind, inner) = match protocol {
        4 | 41 => (TunnelKind::IpInIp, Ok((Layer::Ip, bytes))),
        47 => (TunnelKind::Gre, gre(bytes)),
        // MPLS in IP (RFC 4023).
        137 => (TunnelKind::Gre, Ok((Layer::Mpls, bytes))),
        17 => udp(bytes)?,
        _ => return Err(Ignored::NotTcp),
    };
    match tunnels.admit(kind, outer.source, outer.destination) {
        Ok(()) => inner,
        Err(reason) => Err(match inner {
            Err(Ignored::NotTcp | Ignored::Malformed) => Ignored::NotTcp,
            _ => reason,
        }),
    }
}

/// The encapsulation of which a datagram has the port, and what its header leads to.
fn udp(bytes: PacketBytes<'_>) -> Result<(TunnelKind, Next<'_>), Ignored> {
    let &[s0, s1, d0, d1, ..] = bytes.head::<8>()?;
    let (source, destination) = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
    let payload = bytes.skip(8)?;
    Ok(match destination {
        VXLAN_PORT => (TunnelKind::Vxlan, vxlan(payload)),
        GENEVE_PORT => (TunnelKind::Geneve, geneve(payload)),
        GRE_PORT => (TunnelKind::Gre, gre(payload)),
        _ if [source, destination].contains(&GTP_U_PORT) => (TunnelKind::Gtp, gtp_u(payload)),
        _ if [source, destination].contains(&TEREDO_PORT) => (TunnelKind::IpInIp, teredo(payload)),
        _ if [source, destination].contains(&AYIYA_PORT) => (TunnelKind::IpInIp, ayiya(payload)),
        _ => return Err(Ignored::NotTcp),
    })
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
    let &[version_len, _, high, low, ..] = bytes.head::<8>()?;
    if version_len >> 6 != 0 {
        return Err(Ignored::NotTcp);
    }
    let options_len = usize::from(version_len & 0x3f) * 4;
    Ok((Layer::EtherType(u16::from_be_bytes([high, low])), bytes.skip(8 + options_len)?))
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
    let &[_, _, _, mut next] = bytes.head::<4>()?;
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

/// Teredo (RFC 4380 section 5.1.1): authentication and origin may stand before IPv6.
fn teredo(bytes: PacketBytes<'_>) -> Next<'_> {
    let mut bytes = bytes;
    if let [0, 1, id_len, auth_len] = *bytes.head::<4>()? {
        bytes = bytes.skip(13 + usize::from(id_len) + usize::from(auth_len))?;
    }
    if let [0, 0] = *bytes.head::<2>()? {
        bytes = bytes.skip(8)?;
    }
    if bytes.first()? >> 4 == 6 { Ok((Layer::Ip, bytes)) } else { Err(Ignored::NotTcp) }
}

/// AYIYA (draft-massar-v6ops-ayiya-02): eight bytes, an identity and a signature before a packet.
fn ayiya(bytes: PacketBytes<'_>) -> Next<'_> {
    let &[identity, signature, _, next, ..] = bytes.head::<8>()?;
    let len = 8 + (1 << (identity >> 4)) + usize::from(signature >> 4) * 4;
    match next {
        4 | 41 => Ok((Layer::Ip, bytes.skip(len)?)),
        _ => Err(Ignored::NotTcp),
    }
}

/// GRE (RFC 2784, RFC 2890) and its PPTP variant (RFC 2637).
fn gre(bytes: PacketBytes<'_>) -> Next<'_> {
    const CHECKSUM: u16 = 0x8000;
    const ROUTING: u16 = 0x4000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    const ACKNOWLEDGMENT: u16 = 0x0080;
    const VERSION: u16 = 0x0007;
    let &[flags0, flags1, high, low] = bytes.head::<4>()?;
    let flags = u16::from_be_bytes([flags0, flags1]);
    let optional = match flags & VERSION {
        0 => CHECKSUM | KEY | SEQUENCE,
        1 => KEY | SEQUENCE | ACKNOWLEDGMENT,
        _ => return Err(Ignored::NotTcp),
    };
    // Source routes of RFC 1701 were withdrawn with it.
    if flags & ROUTING != 0 {
        return Err(Ignored::NotTcp);
    }
    let optional_words = usize::try_from((flags & optional).count_ones()).unwrap_or_default();
    let payload = bytes.skip(4 + 4 * optional_words)?;
    match u16::from_be_bytes([high, low]) {
        0x880b => Ok((Layer::Ppp, payload)),
        // ERSPAN type II has a header of eight bytes, type I none; only II numbers its packets.
        0x88be => Ok((Layer::Ethernet, payload.skip(if flags & SEQUENCE == 0 { 0 } else { 8 })?)),
        0x22eb => erspan_3(payload),
        // Aruba's access points carry whole 802.11 frames.
        0x8200..=0x82ff => Ok((Layer::Ieee80211, payload)),
        // WCCP: version 2 puts four bytes before the packet, version 1 none.
        0x883e if payload.first()? == 0x45 => Ok((Layer::Ip, payload)),
        0x883e => Ok((Layer::Ip, payload.skip(4)?)),
        BRIDGED_ETHERNET => Ok((Layer::Ethernet, payload)),
        protocol => ether_type::next(protocol, payload),
    }
}

/// ERSPAN type III: twelve bytes, eight more where the last bit says so.
fn erspan_3(bytes: PacketBytes<'_>) -> Next<'_> {
    let [.., last] = *bytes.head::<12>()?;
    Ok((Layer::Ethernet, bytes.skip(if last & 1 == 0 { 12 } else { 20 })?))
}
