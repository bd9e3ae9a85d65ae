//! Tunnels: entered between configured endpoints alone, at every level, and counted by kind elsewhere.

use ipnet::IpNet;
use proptest::prelude::*;
use strum::VariantArray;

use super::frames::{ETHERNET, RAW, bridged, encapsulations, ethernet, gre, ipv4, ipv6, join, packet, tcp, udp};
use super::{decode, decode_tunnels, decoder};
use crate::config::{TunnelKind, Tunnels};
use crate::counters::{Counters, Ignored};
use crate::wire::Frame;
use spand_proto::units::Timestamp;

const STRANGER: [u8; 4] = [203, 0, 113, 5];

/// The tunnel of an encapsulation of that name; `None` where it is none.
fn kind_of(name: &str) -> Option<TunnelKind> {
    let kinds: [(TunnelKind, &[&str]); 9] = [
        (TunnelKind::Gre, &["gre", "erspan", "mpls in ip"]),
        (TunnelKind::Vxlan, &["vxlan"]),
        (TunnelKind::VxlanGpe, &["gpe"]),
        (TunnelKind::Tzsp, &["tzsp"]),
        (TunnelKind::Gue, &["gue"]),
        (TunnelKind::Etherip, &["etherip"]),
        (TunnelKind::Geneve, &["geneve"]),
        (TunnelKind::Gtp, &["gtp"]),
        (TunnelKind::IpInIp, &["ip in", "6in4", "4in6", "teredo", "ayiya"]),
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
        (2152, &[0x32, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0]),
        (3544, b"queries of a name"),
        (5072, &[0x42, 0x52, 0x11, 59, 0, 0, 0, 0]),
        (4790, &[0x1c, 0, 0, 3, 0, 0, 1, 0]),
        (4790, &[0x0d, 0, 0, 3, 0, 0, 1, 0]),
        (4790, &[0x0c, 0, 0, 9, 0, 0, 1, 0]),
        (37_008, &[1, 4, 0, 0, 1]),
        (37_008, &[2, 0, 0, 1, 1]),
        (37_008, &[1, 0, 0, 7, 1]),
        (6080, &[0x20, 1, 0, 0, 0, 0, 0, 0]),
        (6080, &[0, 59, 0, 0, 0, 0, 0, 0]),
        (6080, &[0x80, 4, 0, 0, 0, 0, 0, 0]),
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
        (TunnelKind::Etherip, join(&[0x30, 0], &bridged())),
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
    // Behind an extension header fragments are put together; the header of the whole is looked at.
    let payload = join(&[47, 0, 1, 4, 0, 0, 0, 0], &join(&[0, 0, 0x86, 0xdd], &ipv6(6, &tcp())));
    let part = |from: usize, to: usize| {
        let [high, low] = (u16::try_from(from).unwrap() | u16::from(to < payload.len())).to_be_bytes();
        ipv6(44, &join(&[60, 0, high, low, 0, 0, 0, 9], &payload[from..to]))
    };
    let parts = [part(0, 64), part(64, payload.len())];
    for (tunnels, expected) in [
        (Tunnels::NONE, Err(Ignored::TunnelGreNotConfigured)),
        (between(TunnelKind::Gre, &["2001:db8::1/128"]), Err(Ignored::TunnelGreUnknownEndpoint)),
        (between(TunnelKind::Gre, &OUTER), Ok(())),
    ] {
        let mut decoder = decoder(tunnels);
        let mut see = |data: &[u8]| {
            let frame = Frame { link_type: RAW, wire_len: u32::try_from(data.len()).unwrap(), input: 0, data };
            decoder.decode(Timestamp(1), &frame, &mut Counters::default()).map(drop)
        };
        assert_eq!(see(&parts[0]), Err(Ignored::Fragment));
        assert_eq!(see(&parts[1]), expected);
    }
    // Of any other the first fragment shows what is inside.
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
