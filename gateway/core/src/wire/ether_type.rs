//! What an EtherType announces: tags, labels and sessions between the link and IP.

use super::packet_bytes::PacketBytes;
use super::{Layer, Next};
use crate::counters::Ignored;

/// An EtherType below this is the length of an 802.3 frame.
pub(super) const ETHER_TYPE_MIN: u16 = 0x0600;
pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
pub(super) const MPLS_UNICAST: u16 = 0x8847;
pub(super) const MPLS_MULTICAST: u16 = 0x8848;
pub(super) const PPPOE_SESSION: u16 = 0x8864;
/// An Ethernet frame inside a tunnel (RFC 1701, "Transparent Ethernet Bridging").
pub(super) const BRIDGED_ETHERNET: u16 = 0x6558;

/// Whether a VLAN tag follows: 802.1Q, 802.1ad, and the two values used for stacked tags before that.
#[inline]
pub(super) const fn is_vlan(ether_type: u16) -> bool {
    matches!(ether_type, 0x8100 | 0x88a8 | 0x9100 | 0x9200)
}

/// Takes what an EtherType announces.
pub(super) fn next(ether_type: u16, bytes: PacketBytes<'_>) -> Next<'_> {
    match ether_type {
        IPV4 | IPV6 => Ok((Layer::Ip, bytes)),
        tag if is_vlan(tag) => Ok((type_or_length(bytes.u16_at(2)?), bytes.skip(4)?)),
        MPLS_UNICAST | MPLS_MULTICAST => Ok((Layer::Mpls, bytes)),
        PPPOE_SESSION => pppoe(bytes),
        BRIDGED_ETHERNET => Ok((Layer::Ethernet, bytes)),
        // A provider's backbone bridge (802.1ah): its tag, then the customer's frame.
        0x88e7 => Ok((Layer::Ethernet, bytes.skip(4)?)),
        // A virtual interface's tag (Cisco's VN-Tag).
        0x8926 => Ok((Layer::EtherType(bytes.u16_at(4)?), bytes.skip(6)?)),
        // An extended port's tag (802.1BR), and Cisco's MetaData with a security group.
        0x893f | 0x8909 => Ok((Layer::EtherType(bytes.u16_at(6)?), bytes.skip(8)?)),
        0x894f => service_header(bytes),
        _ => Err(Ignored::NotIp),
    }
}

/// The layer after the field that holds an EtherType, or the length of an 802.3 frame (IEEE 802.3 clause 3.2.6).
pub(super) const fn type_or_length(field: u16) -> Layer {
    if field < ETHER_TYPE_MIN { Layer::Llc } else { Layer::EtherType(field) }
}

/// LLC with SNAP (IEEE 802.2, RFC 1042), or with IP's own service access point.
pub(super) fn llc(bytes: PacketBytes<'_>) -> Next<'_> {
    match *bytes.head::<3>()? {
        [0xaa, 0xaa, 0x03] => Ok((Layer::EtherType(bytes.u16_at(6)?), bytes.skip(8)?)),
        [0x06, 0x06, 0x03] => Ok((Layer::Ip, bytes.skip(3)?)),
        _ => Err(Ignored::NotIp),
    }
}

/// One label stack (RFC 3032). No field says what follows it: IP where the version and header length fit, an Ethernet
/// pseudo-wire with control word where the first nibble is zero (RFC 4385), without one otherwise.
pub(super) fn mpls(bytes: PacketBytes<'_>) -> Next<'_> {
    const LABELS_MAX: usize = 16;
    let mut bytes = bytes;
    for _ in 0..LABELS_MAX {
        let [_, _, low, _] = *bytes.head::<4>()?;
        bytes = bytes.skip(4)?;
        if low & 1 == 1 {
            return match bytes.first()? {
                0x45..=0x4f | 0x60..=0x6f => Ok((Layer::Ip, bytes)),
                0x00..=0x0f => Ok((Layer::Ethernet, bytes.skip(4)?)),
                _ => Ok((Layer::Ethernet, bytes)),
            };
        }
    }
    Err(Ignored::TooDeep)
}

/// Network service header (RFC 8300): its length in words, and what it carries.
fn service_header(bytes: PacketBytes<'_>) -> Next<'_> {
    let [_, len, _, next] = *bytes.head::<4>()?;
    let bytes = bytes.skip(usize::from(len & 0x3f) * 4)?;
    match next {
        1 | 2 => Ok((Layer::Ip, bytes)),
        3 => Ok((Layer::Ethernet, bytes)),
        5 => Ok((Layer::Mpls, bytes)),
        _ => Err(Ignored::NotIp),
    }
}

/// PPPoE session (RFC 2516): six bytes before PPP's protocol; a code other than 0 is discovery.
fn pppoe(bytes: PacketBytes<'_>) -> Next<'_> {
    let [_, code, ..] = *bytes.head::<6>()?;
    if code != 0 {
        return Err(Ignored::NotIp);
    }
    Ok((Layer::Ppp, bytes.skip(6)?))
}
