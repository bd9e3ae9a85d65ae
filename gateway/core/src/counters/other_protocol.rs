//! Well-known protocols of frames that are neither IP nor TCP: what a mirror shows in place of what is wanted.

use std::fmt;

use super::Ignored;
use crate::types::TunnelKind;

/// The number of a protocol, by the header that holds it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ProtocolNumber {
    /// Of an Ethernet frame, or of a link type that carries `EtherType`s.
    EtherType(u16),
    /// Of an IP packet.
    IpProtocol(u8),
    /// Of a UDP datagram: the destination's port or else the source's.
    UdpPort(u16),
    /// Of a capture file or an interface (`LINKTYPE_`).
    LinkType(u16),
}

impl ProtocolNumber {
    /// The reason for which such frames are ignored.
    pub const fn reason(self) -> Ignored {
        match self {
            Self::EtherType(_) => Ignored::NotIp,
            Self::IpProtocol(_) | Self::UdpPort(_) => Ignored::NotTcp,
            Self::LinkType(_) => Ignored::LinkType,
        }
    }
}

impl fmt::Display for ProtocolNumber {
    /// Its stable name: a metric label.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EtherType(number) => write!(f, "ether_type_{number:04x}"),
            Self::IpProtocol(number) => write!(f, "ip_{number}"),
            Self::UdpPort(number) => write!(f, "udp_{number}"),
            Self::LinkType(number) => write!(f, "link_type_{number}"),
        }
    }
}

/// What frames of such a protocol hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Content {
    /// Packets in a tunnel of this kind, on a UDP port that is not the kind's own.
    Tunnel(TunnelKind),
    /// Packets in a tunnel of a kind that is not decapsulated.
    Packets,
    /// Encrypted packets.
    Encrypted,
    /// Summaries of packets.
    Summaries,
    /// Traffic of its own, which is not TCP.
    Own,
}

/// A well-known protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OtherProtocol {
    /// Its number.
    pub number: ProtocolNumber,
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub content: Content,
}

/// All that are distinguished, in ascending order of their numbers.
pub const OTHER_PROTOCOLS: [OtherProtocol; 44] = [
    ether_type(0x0806, "ARP", Content::Own),
    ether_type(0x22f3, "TRILL", Content::Packets),
    ether_type(0x8809, "slow protocols such as LACP", Content::Own),
    ether_type(0x8863, "PPPoE discovery", Content::Own),
    ether_type(0x888e, "802.1X", Content::Own),
    ether_type(0x88cc, "LLDP", Content::Own),
    ether_type(0x88e5, "MACsec", Content::Encrypted),
    ether_type(0x88f7, "PTP", Content::Own),
    ether_type(0x88fb, "PRP", Content::Packets),
    ether_type(0x8903, "FabricPath", Content::Packets),
    ether_type(0x8906, "FCoE", Content::Own),
    ether_type(0x892f, "HSR", Content::Packets),
    ip_protocol(1, "ICMP", Content::Own),
    ip_protocol(50, "ESP of IPsec", Content::Encrypted),
    ip_protocol(58, "ICMPv6", Content::Own),
    ip_protocol(89, "OSPF", Content::Own),
    ip_protocol(97, "EtherIP", Content::Packets),
    ip_protocol(115, "L2TPv3", Content::Packets),
    ip_protocol(132, "SCTP", Content::Own),
    udp_port(53, "DNS", Content::Own),
    udp_port(123, "NTP", Content::Own),
    udp_port(443, "QUIC", Content::Own),
    udp_port(1194, "OpenVPN", Content::Encrypted),
    udp_port(1701, "L2TP", Content::Packets),
    udp_port(2055, "NetFlow", Content::Summaries),
    udp_port(3544, "Teredo", Content::Packets),
    udp_port(4341, "LISP", Content::Packets),
    udp_port(4500, "IPsec through NAT", Content::Encrypted),
    udp_port(4739, "IPFIX", Content::Summaries),
    udp_port(4790, "VXLAN-GPE", Content::Packets),
    udp_port(5247, "CAPWAP", Content::Packets),
    udp_port(6080, "GUE", Content::Packets),
    udp_port(6343, "sFlow", Content::Summaries),
    udp_port(6635, "MPLS in UDP", Content::Packets),
    udp_port(7932, "the mirror of an HP switch", Content::Packets),
    udp_port(8472, "VXLAN on Linux's own default port", Content::Tunnel(TunnelKind::Vxlan)),
    udp_port(9995, "NetFlow", Content::Summaries),
    udp_port(30_030, "the mirror of a Juniper router", Content::Packets),
    udp_port(51_820, "WireGuard", Content::Encrypted),
    link_type(242, "IP over InfiniBand", Content::Packets),
    link_type(281, "the conduit of a Broadcom switch", Content::Packets),
    link_type(282, "the conduit of a Broadcom switch", Content::Packets),
    link_type(284, "the conduit of a Marvell switch", Content::Packets),
    link_type(285, "the conduit of a Marvell switch", Content::Packets),
];

const fn ether_type(number: u16, name: &'static str, content: Content) -> OtherProtocol {
    OtherProtocol { number: ProtocolNumber::EtherType(number), name, content }
}

const fn ip_protocol(number: u8, name: &'static str, content: Content) -> OtherProtocol {
    OtherProtocol { number: ProtocolNumber::IpProtocol(number), name, content }
}

const fn udp_port(number: u16, name: &'static str, content: Content) -> OtherProtocol {
    OtherProtocol { number: ProtocolNumber::UdpPort(number), name, content }
}

const fn link_type(number: u16, name: &'static str, content: Content) -> OtherProtocol {
    OtherProtocol { number: ProtocolNumber::LinkType(number), name, content }
}

/// One count for each of them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct PerProtocol([u64; OTHER_PROTOCOLS.len()]);

impl Default for PerProtocol {
    fn default() -> Self {
        Self([0; OTHER_PROTOCOLS.len()])
    }
}

impl PerProtocol {
    pub(super) fn count(&mut self, number: ProtocolNumber) -> bool {
        let found = OTHER_PROTOCOLS.binary_search_by_key(&number, |protocol| protocol.number);
        let Some(count) = found.ok().and_then(|index| self.0.get_mut(index)) else { return false };
        *count += 1;
        true
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    pub(super) fn each(&self) -> impl Iterator<Item = (&'static OtherProtocol, u64)> {
        OTHER_PROTOCOLS.iter().zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protocol_is_found_and_counted_by_its_number() {
        let mut counts = PerProtocol::default();
        for (n, protocol) in OTHER_PROTOCOLS.iter().enumerate() {
            assert!((0..=n).all(|_| counts.count(protocol.number)), "{protocol:?} is out of order");
        }
        assert!(counts.each().zip(1..).all(|((_, count), n)| count == n));
        assert!(!counts.count(ProtocolNumber::UdpPort(4789)) && !counts.count(ProtocolNumber::EtherType(0x0800)));
    }
}
