//! Well-known protocols of frames that are neither IP nor TCP: what a mirror shows in place of what is wanted.

use std::fmt;

use self::ProtocolNumber::{EtherType, IpProtocol, LinkType, UdpPort};
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
    known(EtherType(0x0806), "ARP", Content::Own),
    known(EtherType(0x22f3), "TRILL", Content::Packets),
    known(EtherType(0x8809), "slow protocols such as LACP", Content::Own),
    known(EtherType(0x8863), "PPPoE discovery", Content::Own),
    known(EtherType(0x888e), "802.1X", Content::Own),
    known(EtherType(0x88cc), "LLDP", Content::Own),
    known(EtherType(0x88e5), "MACsec", Content::Encrypted),
    known(EtherType(0x88f7), "PTP", Content::Own),
    known(EtherType(0x88fb), "PRP", Content::Packets),
    known(EtherType(0x8903), "FabricPath", Content::Packets),
    known(EtherType(0x8906), "FCoE", Content::Own),
    known(EtherType(0x892f), "HSR", Content::Packets),
    known(IpProtocol(1), "ICMP", Content::Own),
    known(IpProtocol(50), "ESP of IPsec", Content::Encrypted),
    known(IpProtocol(58), "ICMPv6", Content::Own),
    known(IpProtocol(89), "OSPF", Content::Own),
    known(IpProtocol(97), "EtherIP", Content::Packets),
    known(IpProtocol(115), "L2TPv3", Content::Packets),
    known(IpProtocol(132), "SCTP", Content::Own),
    known(UdpPort(53), "DNS", Content::Own),
    known(UdpPort(123), "NTP", Content::Own),
    known(UdpPort(443), "QUIC", Content::Own),
    known(UdpPort(1194), "OpenVPN", Content::Encrypted),
    known(UdpPort(1701), "L2TP", Content::Packets),
    known(UdpPort(2055), "NetFlow", Content::Summaries),
    known(UdpPort(3544), "Teredo", Content::Packets),
    known(UdpPort(4341), "LISP", Content::Packets),
    known(UdpPort(4500), "IPsec through NAT", Content::Encrypted),
    known(UdpPort(4739), "IPFIX", Content::Summaries),
    known(UdpPort(4790), "VXLAN-GPE", Content::Packets),
    known(UdpPort(5247), "CAPWAP", Content::Packets),
    known(UdpPort(6080), "GUE", Content::Packets),
    known(UdpPort(6343), "sFlow", Content::Summaries),
    known(UdpPort(6635), "MPLS in UDP", Content::Packets),
    known(UdpPort(7932), "the mirror of an HP switch", Content::Packets),
    known(UdpPort(8472), "VXLAN on Linux's own default port", Content::Tunnel(TunnelKind::Vxlan)),
    known(UdpPort(9995), "NetFlow", Content::Summaries),
    known(UdpPort(30_030), "the mirror of a Juniper router", Content::Packets),
    known(UdpPort(51_820), "WireGuard", Content::Encrypted),
    known(LinkType(242), "IP over InfiniBand", Content::Packets),
    known(LinkType(281), "the conduit of a Broadcom switch", Content::Packets),
    known(LinkType(282), "the conduit of a Broadcom switch", Content::Packets),
    known(LinkType(284), "the conduit of a Marvell switch", Content::Packets),
    known(LinkType(285), "the conduit of a Marvell switch", Content::Packets),
];

const fn known(number: ProtocolNumber, name: &'static str, content: Content) -> OtherProtocol {
    OtherProtocol { number, name, content }
}
