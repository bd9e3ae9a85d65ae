//! Frames built by hand: one TCP segment in every encapsulation.

use ipnet::IpNet;
use proptest::prelude::*;
use strum::VariantArray;

use super::super::segment::Flags;
use super::{decode, decode_tunnels};
use crate::config::Tunnels;
use crate::counters::Ignored;
use crate::types::TunnelKind;
use crate::wire::Frame;

pub(super) const ETHERNET: u16 = 1;
pub(super) const RAW: u16 = 101;
pub(super) const PAYLOAD: &[u8] = b"0123456789";

/// A TCP segment 40000 -> 80 with timestamps and ten bytes of payload.
pub(super) fn tcp() -> Vec<u8> {
    tcp_with(&[1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9], Flags::ACK | Flags::PSH)
}

pub(super) fn tcp_with(options: &[u8], flags: u8) -> Vec<u8> {
    let words = u8::try_from(5 + options.len() / 4).unwrap();
    let mut tcp = vec![0x9c, 0x40, 0, 80, 0, 0, 1, 0, 0, 0, 2, 0, words << 4, flags, 0x10, 0, 0, 0, 0, 0];
    tcp.extend([options, PAYLOAD].concat());
    tcp
}

pub(super) fn ipv4(protocol: u8, inner: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(20 + inner.len()).unwrap().to_be_bytes();
    let head = [0x45, 2, high, low, 0, 77, 0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2];
    [&head[..], inner].concat()
}

pub(super) fn ipv6(next_header: u8, inner: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(inner.len()).unwrap().to_be_bytes();
    let mut head = vec![0x60, 0x10, 0, 0, high, low, next_header, 64];
    for last in [1, 2] {
        head.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    [&head[..], inner].concat()
}

pub(super) fn packet() -> Vec<u8> {
    ipv4(6, &tcp())
}

pub(super) fn ethernet(ether_type: u16, inner: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(ether_type.to_be_bytes());
    [&frame[..], inner].concat()
}

pub(super) fn bridged() -> Vec<u8> {
    ethernet(0x0800, &packet())
}

pub(super) fn udp(port: u16, inner: &[u8]) -> Vec<u8> {
    let mut udp = vec![0xc0, 0];
    udp.extend(port.to_be_bytes());
    udp.extend([0, 0, 0, 0]);
    ethernet(0x0800, &ipv4(17, &[&udp[..], inner].concat()))
}

pub(super) fn gre(flags: u16, protocol: u16, optional: &[u8], inner: &[u8]) -> Vec<u8> {
    let head = [&flags.to_be_bytes()[..], &protocol.to_be_bytes(), optional, inner].concat();
    ethernet(0x0800, &ipv4(47, &head))
}

pub(super) fn join(head: &[u8], inner: &[u8]) -> Vec<u8> {
    [head, inner].concat()
}

/// A frame's name, its LINKTYPE and its bytes.
pub(super) type Named = (&'static str, u16, Vec<u8>);

/// Every encapsulation around the same segment, by name.
pub(super) fn encapsulations() -> Vec<Named> {
    [tags(), tunnels(), extension_headers(), links(), capture_headers()].concat()
}

fn ppp() -> Vec<u8> {
    join(&[0, 0x21], &packet())
}

fn pppoe() -> Vec<u8> {
    join(&[0x11, 0, 0, 1, 0, 0], &ppp())
}

fn snap() -> Vec<u8> {
    join(&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &packet())
}

fn wireless() -> Vec<u8> {
    join(&[0x88, 0x01, 0, 0], &join(&[0; 20], &join(&[0, 0], &snap())))
}

/// Between Ethernet and IP.
fn tags() -> Vec<Named> {
    let (ip, snap, pppoe) = (packet(), snap(), pppoe());
    let vlan = |outer: u16, inner: &[u8]| ethernet(outer, &join(&[0, 5], inner));
    let tagged = join(&[0x08, 0x00], &ip);
    vec![
        ("ethernet", 1, bridged()),
        ("ethernet, ipv6", 1, ethernet(0x86dd, &ipv6(6, &tcp()))),
        ("ethernet, llc with snap", 1, ethernet(100, &snap)),
        ("802.1q", 1, vlan(0x8100, &tagged)),
        ("qinq", 1, vlan(0x88a8, &join(&[0x81, 0, 0, 6], &tagged))),
        ("three tags", 1, vlan(0x9100, &join(&[0x91, 0, 0, 6, 0x81, 0, 0, 7], &tagged))),
        ("mpls", 1, ethernet(0x8847, &join(&[0, 0, 0x10, 64, 0, 1, 1, 64], &ip))),
        ("mpls pseudo-wire", 1, ethernet(0x8847, &join(&[0, 1, 1, 64, 0, 0, 0, 0], &bridged()))),
        (
            "mpls pseudo-wire without control word",
            1,
            ethernet(0x8848, &join(&[0, 1, 1, 64], &[&[0x82], &bridged()[1..]].concat())),
        ),
        ("pppoe", 1, ethernet(0x8864, &pppoe)),
        ("pppoe in qinq", 1, vlan(0x8100, &join(&[0x81, 0, 0, 6, 0x88, 0x64], &pppoe))),
        ("802.1ah", 1, ethernet(0x88e7, &join(&[0, 0, 0, 9], &bridged()))),
        ("vn-tag", 1, ethernet(0x8926, &join(&[0, 0, 0, 9, 8, 0], &ip))),
        ("802.1br e-tag", 1, ethernet(0x893f, &join(&[0, 0, 0, 1, 0, 0, 8, 0], &ip))),
        ("802.1br e-tag in a tag", 1, vlan(0x8100, &join(&[0x89, 0x3f, 0, 0, 0, 1, 0, 0, 8, 0], &ip))),
        ("cisco metadata", 1, ethernet(0x8909, &join(&[1, 1, 0, 1, 0, 100, 8, 0], &ip))),
        ("nsh", 1, ethernet(0x894f, &join(&[0, 2, 1, 1, 0, 0, 0, 0], &ip))),
        ("nsh, bridged", 1, ethernet(0x894f, &join(&[0, 2, 1, 3, 0, 0, 0, 0], &bridged()))),
    ]
}

fn tunnels() -> Vec<Named> {
    let (ip, wireless) = (packet(), wireless());
    let gtp_extended = join(&[0x34, 255, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0], &ip);
    vec![
        ("ip in ip", 1, ethernet(0x0800, &ipv4(4, &ip))),
        ("6in4", 1, ethernet(0x0800, &ipv4(41, &ipv6(6, &tcp())))),
        ("4in6", 1, ethernet(0x86dd, &ipv6(4, &ip))),
        ("gre", 1, gre(0, 0x0800, &[], &ip)),
        ("gre with checksum, key and sequence", 1, gre(0xb000, 0x0800, &[0; 12], &ip)),
        ("gre, bridged", 1, gre(0x2000, 0x6558, &[0; 4], &bridged())),
        ("gre, mpls", 1, gre(0, 0x8847, &[0, 1, 1, 64], &ip)),
        ("gre, aruba", 1, gre(0, 0x8200, &[], &wireless)),
        ("gre over udp", 1, udp(4754, &join(&[0, 0, 8, 0], &ip))),
        ("erspan 1", 1, gre(0, 0x88be, &[], &bridged())),
        ("erspan 2", 1, gre(0x1000, 0x88be, &[0; 12], &bridged())),
        ("erspan 3", 1, gre(0x1000, 0x22eb, &[0; 16], &bridged())),
        (
            "erspan 3 with subheader",
            1,
            gre(0x1000, 0x22eb, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], &bridged()),
        ),
        ("vxlan", 1, udp(4789, &join(&[8, 0, 0, 0, 0, 0, 1, 0], &bridged()))),
        ("tzsp", 1, udp(37_008, &join(&[1, 0, 0, 1, 1], &bridged()))),
        ("tzsp with tags", 1, udp(37_008, &join(&[1, 1, 0, 1, 0, 41, 2, 0, 9, 1], &bridged()))),
        ("tzsp, 802.11", 1, udp(37_008, &join(&[1, 0, 0, 18, 10, 1, 0xc0, 1], &wireless))),
        ("geneve", 1, udp(6081, &join(&[1, 0, 0x65, 0x58, 0, 0, 1, 0, 0, 0, 0, 0], &bridged()))),
        ("geneve, ip", 1, udp(6081, &join(&[0, 0, 8, 0, 0, 0, 1, 0], &ip))),
        ("gtp-u", 1, udp(2152, &join(&[0x30, 255, 0, 0, 0, 0, 0, 1], &ip))),
        ("gtp-u with sequence", 1, udp(2152, &join(&[0x32, 255, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0], &ip))),
        ("gtp-u with extension", 1, udp(2152, &gtp_extended)),
        ("mpls in ip", 1, ethernet(0x0800, &ipv4(137, &join(&[0, 1, 1, 64], &ip)))),
    ]
}

/// Between IP and TCP.
fn extension_headers() -> Vec<Named> {
    let hop_by_hop = ipv6(0, &join(&[6, 0, 1, 4, 0, 0, 0, 0], &tcp()));
    let chain = join(&[60, 0, 0, 0, 0, 0, 0, 0, 44, 0, 1, 4, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 1], &tcp());
    let authenticated = join(&[6, 4, 0, 0], &join(&[0; 20], &tcp()));
    vec![
        ("ipv6 hop-by-hop", RAW, hop_by_hop),
        ("ipv6 routing, destination options, atomic fragment", RAW, ipv6(43, &chain)),
        ("authentication header", RAW, ipv4(51, &authenticated)),
    ]
}

fn links() -> Vec<Named> {
    let (ip, ppp, pppoe, snap) = (packet(), ppp(), pppoe(), snap());
    let tagged = join(&[0x08, 0x00], &ip);
    vec![
        ("raw", 101, ip.clone()),
        ("raw, dlt 12", 12, ip.clone()),
        ("ipv4", 228, ip.clone()),
        ("ipv6", 229, ipv6(6, &tcp())),
        ("null, little endian", 0, join(&[2, 0, 0, 0], &ip)),
        ("loop, ipv6", 108, join(&[0, 0, 0, 24], &ipv6(6, &tcp()))),
        ("sll", 113, join(&[0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0], &ip)),
        ("sll2", 276, join(&[8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0], &ip)),
        ("ppp", 9, join(&[0xff, 3], &ppp)),
        ("ppp, compressed", 9, join(&[0x21], &ip)),
        ("ppp, pppoe", 51, pppoe),
        ("ppp with direction", 204, join(&[1, 0xff, 3], &ppp)),
        ("cisco hdlc", 104, join(&[0x0f, 0, 8, 0], &ip)),
        ("cisco hdlc with direction", 205, join(&[0, 0x0f, 0, 8, 0], &ip)),
        ("atm", 100, snap.clone()),
        ("ieee 1394", 138, join(&[0; 16], &tagged)),
        ("mpls, bare", 219, join(&[0, 1, 1, 64], &ip)),
    ]
}

/// What capture systems put before a frame, and 802.11, which comes with them.
fn capture_headers() -> Vec<Named> {
    let (ip, snap, wireless) = (packet(), snap(), wireless());
    let aggregate = join(&[0x88, 0x02, 0, 0], &join(&[0; 20], &join(&[0x80, 0], &join(&[0; 14], &snap))));
    let nflog_prefix = join(&[2, 0, 0, 0, 8, 0, 1, 0, 8, 0, 0, 0, 6, 0, 10, 0, b'a', 0, 0, 0], &[0x52, 0, 9, 0]);
    vec![
        ("openbsd ipsec", 109, join(&[0; 12], &ip)),
        ("juniper ethernet", 178, join(&[b'M', b'G', b'C', 0], &bridged())),
        ("juniper, no link header", 178, join(&[b'M', b'G', b'C', 2, 0, 0, 0, 2], &ip)),
        ("fddi", 10, join(&[0x50; 13], &snap)),
        ("802.11", 105, wireless.clone()),
        ("802.11, aggregate", 105, aggregate),
        ("radiotap", 127, join(&[0, 0, 9, 0, 0, 0, 0, 0, 0], &wireless)),
        ("nflog", 239, join(&nflog_prefix, &ip)),
    ]
}

// Tunnels: entered between configured endpoints alone, at every level, and counted by kind elsewhere.

const STRANGER: [u8; 4] = [203, 0, 113, 5];

/// The tunnel of an encapsulation of that name; `None` where it is none.
fn kind_of(name: &str) -> Option<TunnelKind> {
    let kinds: [(TunnelKind, &[&str]); 6] = [
        (TunnelKind::Gre, &["gre", "erspan", "mpls in ip"]),
        (TunnelKind::Vxlan, &["vxlan"]),
        (TunnelKind::Tzsp, &["tzsp"]),
        (TunnelKind::Geneve, &["geneve"]),
        (TunnelKind::Gtp, &["gtp"]),
        (TunnelKind::IpInIp, &["ip in", "6in4", "4in6"]),
    ];
    kinds.iter().find(|(_, names)| names.iter().any(|begin| name.starts_with(begin))).map(|(kind, _)| *kind)
}

fn between(kind: TunnelKind, endpoints: &[&str]) -> Tunnels {
    let endpoints: Vec<IpNet> = endpoints.iter().map(|prefix| prefix.parse().unwrap()).collect();
    Tunnels::NONE.between(kind, &endpoints)
}

/// The outer addresses of [`super::frames`], of either family.
const OUTER: [&str; 3] = ["192.0.2.1/32", "198.51.100.2/32", "2001:db8::/126"];

#[test]
fn tunnels_are_entered_only_between_their_endpoints() {
    let mut seen = Vec::new();
    for (name, link_type, data) in encapsulations() {
        let Some(kind) = kind_of(name) else {
            assert!(decode_tunnels(link_type, &data, Tunnels::NONE).is_ok(), "{name}");
            continue;
        };
        seen.push(kind);
        assert_eq!(decode_tunnels(link_type, &data, Tunnels::NONE), Err(kind.not_configured()), "{name}");
        assert!(decode_tunnels(link_type, &data, between(kind, &OUTER)).is_ok(), "{name}");
        for other in TunnelKind::VARIANTS.iter().copied().filter(|other| *other != kind) {
            assert_eq!(decode_tunnels(link_type, &data, between(other, &OUTER)), Err(kind.not_configured()), "{name}");
        }
        let half = between(kind, &OUTER[..1]).between(kind, &["198.51.100.2/32".parse().unwrap()]);
        for endpoints in [between(kind, &["192.0.2.1/32"]), between(kind, &["198.51.100.0/24"]), half] {
            assert_eq!(decode_tunnels(link_type, &data, endpoints), Err(kind.unknown_endpoint()), "{name}");
        }
        if data[12..14] == [0x08, 0x00] {
            for outer_address in [26, 30] {
                let mut forged = data.clone();
                forged[outer_address..outer_address + 4].copy_from_slice(&STRANGER);
                let refused = decode_tunnels(link_type, &forged, between(kind, &OUTER));
                assert_eq!(refused, Err(kind.unknown_endpoint()), "{name}");
            }
        }
    }
    seen.dedup();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, TunnelKind::VARIANTS);
}

#[test]
fn outer_addresses_of_ipv6_are_looked_at_too() {
    let vxlan = &udp(4789, &join(&[8, 0, 0, 0, 0, 0, 1, 0], &bridged()))[34..];
    let data = ethernet(0x86dd, &ipv6(17, vxlan));
    assert_eq!(decode_tunnels(ETHERNET, &data, Tunnels::NONE), Err(Ignored::TunnelVxlanNotConfigured));
    let of = |prefix| decode_tunnels(ETHERNET, &data, between(TunnelKind::Vxlan, &[prefix]));
    assert!(of("2001:db8::/32").is_ok());
    for prefix in ["2001:db8::1/128", "2001:db8::2/128", "0.0.0.0/0", "192.0.2.0/24"] {
        assert_eq!(of(prefix), Err(Ignored::TunnelVxlanUnknownEndpoint), "{prefix}");
    }
}

#[test]
fn every_level_of_a_tunnel_in_a_tunnel_is_looked_at() {
    // GRE between the endpoints, and in it VXLAN that a host on the other side sent.
    let vxlan = &udp(4789, &join(&[8, 0, 0, 0, 0, 0, 1, 0], &bridged()))[14..];
    let mut inner = vxlan.to_vec();
    inner[12..16].copy_from_slice(&STRANGER);
    let data = gre(0, 0x0800, &[], &inner);
    let outer = between(TunnelKind::Gre, &OUTER);
    let endpoints: Vec<IpNet> = OUTER.iter().map(|prefix| prefix.parse().unwrap()).collect();
    let stranger: Vec<IpNet> = vec!["203.0.113.0/24".parse().unwrap(), "198.51.100.2/32".parse().unwrap()];
    for (tunnels, expected) in [
        (Tunnels::NONE, Err(Ignored::TunnelGreNotConfigured)),
        (Tunnels::NONE.from_anyone(TunnelKind::Vxlan), Err(Ignored::TunnelGreNotConfigured)),
        (outer.clone(), Err(Ignored::TunnelVxlanNotConfigured)),
        (outer.clone().between(TunnelKind::Vxlan, &endpoints), Err(Ignored::TunnelVxlanUnknownEndpoint)),
        (outer.between(TunnelKind::Vxlan, &stranger), Ok(())),
    ] {
        assert_eq!(decode_tunnels(ETHERNET, &data, tunnels.clone()).map(drop), expected, "{tunnels:?}");
    }
    // The same kind twice: the outer pair opens the outer one alone.
    let mut inner = ipv4(4, &packet());
    inner[12..16].copy_from_slice(&STRANGER);
    let data = ethernet(0x0800, &ipv4(4, &inner));
    let refused = decode_tunnels(ETHERNET, &data, between(TunnelKind::IpInIp, &OUTER));
    assert_eq!(refused, Err(Ignored::TunnelIpInIpUnknownEndpoint));
}

#[test]
fn a_datagram_that_only_has_the_port_of_a_tunnel_is_no_tcp() {
    for (port, payload) in [
        (4789, &[0; 40][..]),
        (4789, &[8; 3]),
        (4789, &[]),
        (6081, &[0xff; 40]),
        (4754, &[0, 7, 8, 0, 1, 2, 3, 4]),
        (4754, &[0x30, 1, 0x88, 0x0b, 0, 0, 0, 0]),
        (2152, &[0x32, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0]),
        (37_008, &[1, 4, 0, 0, 1]),
        (37_008, &[2, 0, 0, 1, 1]),
        (37_008, &[1, 0, 0, 7, 1]),
        (443, &[0x40; 40]),
    ] {
        for tunnels in [Tunnels::NONE, between(TunnelKind::Gre, &["203.0.113.0/24"])] {
            assert_eq!(decode_tunnels(ETHERNET, &udp(port, payload), tunnels), Err(Ignored::NotTcp), "{port}");
        }
    }
    for protocol in [1, 50, 89, 97] {
        assert_eq!(decode_tunnels(RAW, &ipv4(protocol, &[0; 40]), Tunnels::NONE), Err(Ignored::NotTcp));
    }
}

#[test]
fn a_kind_is_found_on_the_port_that_is_configured_for_it() {
    let vxlan = join(&[8, 0, 0, 0, 0, 0, 1, 0], &bridged());
    for (kind, payload) in [
        (TunnelKind::Vxlan, vxlan.clone()),
        (TunnelKind::Gre, join(&[0, 0, 8, 0], &packet())),
        (TunnelKind::Gtp, join(&[0x30, 255, 0, 0, 0, 0, 0, 1], &packet())),
        (TunnelKind::IpInIp, packet()),
    ] {
        let data = udp(8472, &payload);
        let endpoints: Vec<IpNet> = OUTER.iter().map(|prefix| prefix.parse().unwrap()).collect();
        let on = |port| Tunnels::NONE.between((kind, port), &endpoints);
        assert!(decode_tunnels(ETHERNET, &data, on(8472)).is_ok(), "{kind:?}");
        assert_eq!(decode_tunnels(ETHERNET, &data, on(8473)), Err(Ignored::NotTcp), "{kind:?}");
        let strangers = Tunnels::NONE.between((kind, 8472), &endpoints[..1]);
        assert_eq!(decode_tunnels(ETHERNET, &data, strangers), Err(kind.unknown_endpoint()));
        assert_eq!(
            decode_tunnels(ETHERNET, &udp(8472, &[0x50; 9]), on(8472)).map(drop),
            Err(Ignored::NotTcp),
            "{kind:?}"
        );
    }
    let own = decode_tunnels(ETHERNET, &udp(4789, &vxlan), Tunnels::NONE.from_anyone((TunnelKind::Vxlan, 8472)));
    assert_eq!(own, Err(Ignored::TunnelVxlanNotConfigured));
}

#[test]
fn outer_packets_in_fragments_are_those_of_their_addresses() {
    // The first fragment shows what is inside.
    let mut first = ethernet(0x0800, &ipv4(4, &packet()));
    first[20] = 0x20;
    let of = |tunnels| decode_tunnels(ETHERNET, &first, tunnels).map(drop);
    assert_eq!(of(Tunnels::NONE), Err(Ignored::TunnelIpInIpNotConfigured));
    assert_eq!(of(between(TunnelKind::IpInIp, &OUTER)), Ok(()));
    assert_eq!(of(between(TunnelKind::IpInIp, &OUTER[..1])), Err(Ignored::TunnelIpInIpUnknownEndpoint));
}

proptest! {
    /// However it is damaged or cut: where no endpoint is configured, no inner segment comes out of a tunnel.
    #[test]
    fn nothing_in_a_tunnel_is_found_without_its_endpoints(
        which: usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut: prop::sample::Index,
    ) {
        let all: Vec<_> = encapsulations().into_iter().filter(|(name, ..)| kind_of(name).is_some()).collect();
        let (_, link_type, mut data) = all[which % all.len()].clone();
        for (index, value) in damage {
            // The Ethernet and IP headers stay: without them there is no tunnel.
            let place = 34 + index.index(data.len() - 34);
            data[place] = value;
        }
        let wire_len = u32::try_from(data.len()).unwrap();
        let frame = Frame { link_type, wire_len, input: 0, data: &data[..cut.index(data.len() + 1)] };
        prop_assert!(decode(&frame, Tunnels::NONE).is_err());
    }
}
