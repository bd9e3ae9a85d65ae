//! Hand-built frames for every encapsulation, and arbitrary ones.

use proptest::prelude::*;

use super::segment::{Ecn, Flags, SackBlock, Timestamps};
use super::*;

const ETHERNET: u16 = 1;
const RAW: u16 = 101;
const PAYLOAD: &[u8] = b"0123456789";

/// A TCP segment 40000 -> 80 with timestamps and ten octets of payload.
fn tcp() -> Vec<u8> {
    tcp_with(&[1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9], Flags::ACK | Flags::PSH)
}

fn tcp_with(options: &[u8], flags: u8) -> Vec<u8> {
    let words = u8::try_from(5 + options.len() / 4).unwrap();
    let mut tcp = vec![0x9c, 0x40, 0, 80, 0, 0, 1, 0, 0, 0, 2, 0, words << 4, flags, 0x10, 0, 0, 0, 0, 0];
    tcp.extend([options, PAYLOAD].concat());
    tcp
}

fn ipv4(protocol: u8, inner: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(20 + inner.len()).unwrap().to_be_bytes();
    let head = [0x45, 2, high, low, 0, 77, 0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2];
    [&head[..], inner].concat()
}

fn ipv6(next_header: u8, inner: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(inner.len()).unwrap().to_be_bytes();
    let mut head = vec![0x60, 0x10, 0, 0, high, low, next_header, 64];
    for last in [1, 2] {
        head.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    [&head[..], inner].concat()
}

fn packet() -> Vec<u8> {
    ipv4(6, &tcp())
}

fn ethernet(ether_type: u16, inner: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(ether_type.to_be_bytes());
    [&frame[..], inner].concat()
}

fn bridged() -> Vec<u8> {
    ethernet(0x0800, &packet())
}

fn udp(port: u16, inner: &[u8]) -> Vec<u8> {
    let mut udp = vec![0xc0, 0];
    udp.extend(port.to_be_bytes());
    udp.extend([0, 0, 0, 0]);
    ethernet(0x0800, &ipv4(17, &[&udp[..], inner].concat()))
}

fn gre(flags: u16, protocol: u16, optional: &[u8], inner: &[u8]) -> Vec<u8> {
    let head = [&flags.to_be_bytes()[..], &protocol.to_be_bytes(), optional, inner].concat();
    ethernet(0x0800, &ipv4(47, &head))
}

fn join(head: &[u8], inner: &[u8]) -> Vec<u8> {
    [head, inner].concat()
}

fn decode_whole(link_type: u16, data: &[u8]) -> Result<Segment, Ignored> {
    decode_tunnels(link_type, data, Tunnels::ALL)
}

fn decode_tunnels(link_type: u16, data: &[u8], tunnels: Tunnels) -> Result<Segment, Ignored> {
    let frame = Frame { link_type, wire_len: u32::try_from(data.len()).unwrap(), input: 0, data };
    decode(Timestamp(1), &frame, tunnels)
}

/// Every encapsulation around the same segment, by name.
fn encapsulations() -> Vec<(&'static str, u16, Vec<u8>)> {
    let ip = packet();
    let vlan = |outer: u16, inner: &[u8]| ethernet(outer, &join(&[0, 5], inner));
    let tagged = join(&[0x08, 0x00], &ip);
    let snap = join(&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &ip);
    let mac80211 = join(&[0x88, 0x01, 0, 0], &join(&[0; 20], &join(&[0, 0], &snap)));
    let amsdu = join(&[0x88, 0x02, 0, 0], &join(&[0; 20], &join(&[0x80, 0], &join(&[0; 14], &snap))));
    let ppp = join(&[0, 0x21], &ip);
    let pppoe = join(&[0x11, 0, 0, 1, 0, 0], &ppp);
    let hop_by_hop = ipv6(0, &join(&[6, 0, 1, 4, 0, 0, 0, 0], &tcp()));
    let chain = join(&[60, 0, 0, 0, 0, 0, 0, 0, 44, 0, 1, 4, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 1], &tcp());
    let authenticated = join(&[6, 4, 0, 0], &join(&[0; 20], &tcp()));
    let nflog_prefix = join(&[2, 0, 0, 0, 8, 0, 1, 0, 8, 0, 0, 0, 6, 0, 10, 0, b'a', 0, 0, 0], &[0x52, 0, 9, 0]);
    let gtp_extended = join(&[0x34, 255, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0], &ip);
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
        ("ip in ip", 1, ethernet(0x0800, &ipv4(4, &ip))),
        ("6in4", 1, ethernet(0x0800, &ipv4(41, &ipv6(6, &tcp())))),
        ("4in6", 1, ethernet(0x86dd, &ipv6(4, &ip))),
        ("gre", 1, gre(0, 0x0800, &[], &ip)),
        ("gre with checksum, key and sequence", 1, gre(0xb000, 0x0800, &[0; 12], &ip)),
        ("gre, bridged", 1, gre(0x2000, 0x6558, &[0; 4], &bridged())),
        ("gre, mpls", 1, gre(0, 0x8847, &[0, 1, 1, 64], &ip)),
        ("gre, pptp", 1, gre(0x3081, 0x880b, &[0; 12], &join(&[0xff, 3], &ppp))),
        ("gre, wccp 2", 1, gre(0, 0x883e, &[0; 4], &ip)),
        ("gre, wccp 1", 1, gre(0, 0x883e, &[], &ip)),
        ("gre, aruba", 1, gre(0, 0x8200, &[], &mac80211)),
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
        ("geneve", 1, udp(6081, &join(&[1, 0, 0x65, 0x58, 0, 0, 1, 0, 0, 0, 0, 0], &bridged()))),
        ("geneve, ip", 1, udp(6081, &join(&[0, 0, 8, 0, 0, 0, 1, 0], &ip))),
        ("gtp-u", 1, udp(2152, &join(&[0x30, 255, 0, 0, 0, 0, 0, 1], &ip))),
        ("gtp-u with sequence", 1, udp(2152, &join(&[0x32, 255, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0], &ip))),
        ("gtp-u with extension", 1, udp(2152, &gtp_extended)),
        ("mpls in ip", 1, ethernet(0x0800, &ipv4(137, &join(&[0, 1, 1, 64], &ip)))),
        ("ipv6 hop-by-hop", RAW, hop_by_hop),
        ("ipv6 routing, destination options, atomic fragment", RAW, ipv6(43, &chain)),
        ("authentication header", RAW, ipv4(51, &authenticated)),
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
        ("ppp, hdlc", 50, join(&[0xff, 3], &ppp)),
        ("ppp, cisco", 50, join(&[0x0f, 0, 8, 0], &ip)),
        ("ppp, pppoe", 51, pppoe.clone()),
        ("ppp with direction", 204, join(&[1, 0xff, 3], &ppp)),
        ("cisco hdlc", 104, join(&[0x0f, 0, 8, 0], &ip)),
        ("juniper hdlc", 181, join(&[b'M', b'G', b'C', 0x80, 0, 2, 9, 9, 0x0f, 0, 8, 0], &ip)),
        ("juniper ethernet", 178, join(&[b'M', b'G', b'C', 0], &bridged())),
        ("juniper, no link header", 178, join(&[b'M', b'G', b'C', 2, 0, 0, 0, 2], &ip)),
        ("fddi", 10, join(&[0x50; 13], &snap)),
        ("802.11", 105, mac80211.clone()),
        ("802.11, aggregate", 105, amsdu),
        ("radiotap", 127, join(&[0, 0, 9, 0, 0, 0, 0, 0, 0], &mac80211)),
        ("nflog", 239, join(&nflog_prefix, &ip)),
    ]
}

#[test]
fn every_encapsulation_gives_the_segment_inside() {
    for (name, link_type, data) in encapsulations() {
        let segment = decode_whole(link_type, &data).unwrap_or_else(|reason| panic!("{name}: {}", reason.name()));
        assert_eq!((segment.source.port, segment.destination.port), (40_000, 80), "{name}");
        assert_eq!((segment.seq, segment.ack, segment.window), (0x100, Some(0x200), 0x1000), "{name}");
        assert_eq!(segment.payload_len, 10, "{name}");
        assert_eq!(segment.options.timestamps, Some(Timestamps { value: 7, echo: 9 }), "{name}");
        assert_eq!((segment.options.len, segment.options.truncated), (12, false), "{name}");
        if segment.source.address.is_ipv4() {
            assert_eq!(segment.source.address.to_string(), "192.0.2.1", "{name}");
            assert_eq!((segment.ip_id, segment.ecn), (Some(77), Ecn::Ect0), "{name}");
        } else {
            assert_eq!(segment.destination.address.to_string(), "2001:db8::2", "{name}");
            assert_eq!((segment.ip_id, segment.ecn), (None, Ecn::Ect1), "{name}");
        }
    }
}

#[test]
fn a_short_snap_length_is_told_apart_from_a_malformed_frame() {
    for (name, link_type, data) in encapsulations() {
        for len in 0..data.len() {
            let wire_len = u32::try_from(data.len()).unwrap();
            let frame = Frame { link_type, wire_len, input: 0, data: &data[..len] };
            match decode(Timestamp(1), &frame, Tunnels::ALL) {
                Ok(segment) => assert_eq!(segment.payload_len, 10, "{name}, {len} octets"),
                Err(reason) => assert_eq!(reason, Ignored::Truncated, "{name}, {len} octets"),
            }
        }
    }
}

#[test]
fn tunnels_are_entered_only_where_configured() {
    for (name, link_type, data) in encapsulations() {
        let outer = decode_tunnels(link_type, &data, Tunnels::NONE);
        let tunnelled = ["ip in", "6in4", "4in6", "gre", "erspan", "vxlan", "geneve", "gtp", "mpls in ip"];
        assert_eq!(outer.is_err(), tunnelled.iter().any(|tunnel| name.starts_with(tunnel)), "{name}");
    }
}

#[test]
fn padding_is_no_payload_and_a_missing_length_is_the_frame_s() {
    let bare = ipv4(6, &tcp_with(&[], Flags::ACK)[..20]);
    let padded = join(&ethernet(0x0800, &bare), &[0; 6]);
    assert_eq!(decode_whole(ETHERNET, &padded).unwrap().payload_len, 0);
    let mut offloaded = bridged();
    offloaded[16..18].fill(0);
    assert_eq!(decode_whole(ETHERNET, &offloaded).unwrap().payload_len, 10);
    let mut jumbo = ethernet(0x86dd, &ipv6(6, &tcp()));
    jumbo[18..20].fill(0);
    assert_eq!(decode_whole(ETHERNET, &jumbo).unwrap().payload_len, 10);
}

#[test]
fn a_header_that_states_more_than_the_frame_is_believed_by_its_checksum() {
    let whole = packet();
    let mut sound = whole.clone();
    sound[10..12].copy_from_slice(&[0x4e, 0x34]);
    let mut damaged = sound.clone();
    damaged[2] = 0x40;
    for (packet, payload_len) in [(&whole, 6), (&sound, 10), (&damaged, 6)] {
        assert_eq!(decode_whole(RAW, &packet[..whole.len() - 4]).unwrap().payload_len, payload_len);
    }
}

#[test]
fn options_of_a_syn() {
    let options = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 200];
    let syn = decode_whole(RAW, &ipv4(6, &tcp_with(&options, Flags::SYN))).unwrap();
    assert_eq!((syn.options.mss, syn.options.window_scale, syn.options.sack_permitted), (Some(1_460), Some(14), true));
    assert_eq!(syn.seq_len(), 11);
    let ack = decode_whole(RAW, &ipv4(6, &tcp_with(&options, Flags::ACK))).unwrap();
    assert_eq!((ack.options.mss, ack.options.window_scale, ack.options.sack_permitted), (None, None, false));
}

#[test]
fn sack_blocks_and_options_that_end_early() {
    let sack = [1, 1, 5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 9];
    let segment = decode_whole(RAW, &ipv4(6, &tcp_with(&sack, Flags::ACK))).unwrap();
    let blocks = [SackBlock { left: 1, right: 2 }, SackBlock { left: 5, right: 9 }];
    assert_eq!(segment.options.sack.as_slice(), blocks);
    for broken in [[5, 1, 0, 0], [5, 0, 0, 0], [8, 40, 0, 0], [0, 5, 4, 2]] {
        let segment = decode_whole(RAW, &ipv4(6, &tcp_with(&broken, Flags::ACK))).unwrap();
        assert!(segment.options.sack.is_empty() && segment.options.timestamps.is_none());
    }
}

#[test]
fn what_is_not_tcp_says_why() {
    let mut fragment = bridged();
    fragment[21] = 1;
    let reason = |frame: &[u8]| decode_whole(ETHERNET, frame).unwrap_err();
    assert_eq!(reason(&fragment), Ignored::Fragment);
    assert_eq!(reason(&ethernet(0x0806, &[0; 28])), Ignored::NotIp);
    assert_eq!(reason(&udp(53, &[0; 8])), Ignored::NotTcp);
    assert_eq!(reason(&ethernet(0x0800, &ipv4(6, &[0; 20]))), Ignored::Malformed);
    assert_eq!(reason(&join(&ethernet(0x8100, &[]), &[0, 1, 0x81, 0].repeat(30))), Ignored::TooDeep);
    assert_eq!(decode_whole(4_242, &bridged()).unwrap_err(), Ignored::LinkType);
}

proptest! {
    #[test]
    fn arbitrary_octets_never_panic(
        link_type in prop_oneof![0_u16..300, any::<u16>()],
        wire_len: u32,
        data in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let _any = decode(Timestamp(0), &Frame { link_type, wire_len, input: 0, data: &data }, Tunnels::ALL);
    }

    #[test]
    fn damaged_frames_never_panic_and_a_segment_is_not_longer_than_ip_allows(
        which in 0..60_usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut: prop::sample::Index,
        wire_len in 0_u32..70_000,
    ) {
        let all = encapsulations();
        let (_, link_type, mut data) = all[which % all.len()].clone();
        for (index, value) in damage {
            let index = index.index(data.len());
            data[index] = value;
        }
        let frame = Frame { link_type, wire_len, input: 0, data: &data[..cut.index(data.len() + 1)] };
        let decoded = decode(Timestamp(0), &frame, Tunnels::ALL);
        prop_assert_eq!(&decoded, &walk(Timestamp(0), &frame, Tunnels::ALL), "the short way and the long one");
        if let Ok(segment) = decoded {
            prop_assert!(segment.payload_len <= wire_len.max(u32::from(u16::MAX)).max(200));
            prop_assert!(segment.options.len <= 40);
        }
    }
}
