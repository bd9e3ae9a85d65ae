//! Hand-built frames for every encapsulation, and arbitrary ones.

mod frames;

use proptest::prelude::*;
use spand_proto::units::Timestamp;

use self::frames::{
    ETHERNET, RAW, bridged, encapsulations, ethernet, gre, ipv4, ipv6, join, packet, tcp, tcp_with, udp,
};
use super::segment::{Flags, SackBlock, Timestamps, WindowOption};
use super::*;
use crate::config::Tunnels;
use crate::counters::Ignored;
use crate::wire::segment::Segment;
use crate::wire::{Decoder, Frame};

fn decode_whole(link_type: u16, data: &[u8]) -> Result<Segment, Ignored> {
    decode_tunnels(link_type, data, Tunnels::ALL)
}

fn decode_tunnels(link_type: u16, data: &[u8], tunnels: Tunnels) -> Result<Segment, Ignored> {
    let frame = Frame { link_type, wire_len: u32::try_from(data.len()).unwrap(), input: 0, data };
    decode(&frame, tunnels)
}

fn decode(frame: &Frame<'_>, tunnels: Tunnels) -> Result<Segment, Ignored> {
    Decoder::new(tunnels).decode(Timestamp(1), frame)
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
            assert_eq!((segment.ip_id, segment.ect), (Some(77), true), "{name}");
        } else {
            assert_eq!(segment.destination.address.to_string(), "2001:db8::2", "{name}");
            assert_eq!((segment.ip_id, segment.ect), (None, true), "{name}");
        }
    }
}

#[test]
fn a_short_snap_length_is_distinguished_from_a_malformed_frame() {
    for (name, link_type, data) in encapsulations() {
        for len in 0..data.len() {
            let wire_len = u32::try_from(data.len()).unwrap();
            let frame = Frame { link_type, wire_len, input: 0, data: &data[..len] };
            match decode(&frame, Tunnels::ALL) {
                Ok(segment) => assert_eq!(segment.payload_len, 10, "{name}, {len} bytes"),
                Err(reason) => assert_eq!(reason, Ignored::Truncated, "{name}, {len} bytes"),
            }
        }
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
fn every_ecn_field_but_not_ect_is_that_of_a_capable_transport() {
    for field in 0..4 {
        let mut whole = packet();
        whole[1] = 0xfc | field;
        for (link_type, data) in [(RAW, whole.clone()), (ETHERNET, ethernet(0x0800, &whole))] {
            assert_eq!(decode_whole(link_type, &data).unwrap().ect, field != 0, "{field} on {link_type}");
        }
    }
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
fn a_sender_reports_its_window_in_an_option_of_our_experiment_alone() {
    let option = [254, 12, 0x53, 0x50, 0, 1, 0x86, 0xa0, 0, 0, 0xc3, 0x50];
    let decoded = |options: &[u8]| decode_whole(RAW, &ipv4(6, &tcp_with(options, Flags::ACK))).unwrap().options;
    let timestamps = [1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9];
    let both = decoded(&[&timestamps[..], &option].concat());
    assert_eq!(both.window, Some(WindowOption { window_bytes: 100_000, srtt_us: 50_000 }));
    assert_eq!((both.timestamps.unwrap().value, both.len), (7, 24));
    for (place, byte) in [(0, 253), (1, 11), (1, 13), (1, 0), (2, 0x54), (3, 0x51)] {
        let mut other = option;
        other[place] = byte;
        assert_eq!(decoded(&other).window, None, "{other:?}");
    }
    assert_eq!(decoded(&[1, 1, 254, 2, 254, 4, 0x53, 0x50]).window, None);
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
    /// The short way and the walk over all layers: one answer, also for frames that are damaged, padded or cut.
    #[test]
    fn a_plain_frame_is_what_the_walk_makes_of_it(
        options in prop_oneof![Just(vec![]), Just(vec![1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9]), prop::collection::vec(any::<u8>(), 0..40)],
        damage in prop::collection::vec((0..90_usize, any::<u8>()), 0..3),
        (cut, beyond) in (0..100_usize, 0..100_u32),
    ) {
        let mut options = options;
        options.resize(options.len().div_ceil(4) * 4, 1);
        let mut data = ethernet(0x0800, &ipv4(6, &tcp_with(&options, 0x10)));
        for (place, byte) in damage {
            if let Some(place) = data.get_mut(place) {
                *place = byte;
            }
        }
        data.truncate(data.len().saturating_sub(cut / 2));
        let frame = Frame { link_type: ETHERNET, wire_len: u32::try_from(data.len()).unwrap() + beyond, input: 0, data: &data };
        if let Some(plain) = Plain::of(&frame) {
            let walked = Decoder::new(Tunnels::ALL).walk(Timestamp(1), &frame);
            prop_assert_eq!(Ok(plain.segment(Timestamp(1))), walked);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        link_type in prop_oneof![0_u16..300, any::<u16>()],
        wire_len: u32,
        data in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let _any = decode(&Frame { link_type, wire_len, input: 0, data: &data }, Tunnels::ALL);
    }

    #[test]
    fn damaged_frames_never_panic_and_a_segment_is_not_longer_than_ip_allows(
        which: usize,
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
        let decoded = decode(&frame, Tunnels::ALL);
        let walked = Decoder::new(Tunnels::ALL).walk(Timestamp(1), &frame);
        prop_assert_eq!(&decoded, &walked, "the short way and the long one");
        if let Ok(segment) = decoded {
            prop_assert!(segment.payload_len <= wire_len.max(u32::from(u16::MAX)).max(200));
            prop_assert!(segment.options.len <= 40);
        }
    }
}

/// Bytes `from..to` of `payload` behind an IP header, as a fragment.
fn fragment_of(payload: &[u8], from: usize, to: usize) -> Vec<u8> {
    let mut packet = ipv4(6, &payload[from..to]);
    let place = u16::try_from(from / 8).unwrap() | if to < payload.len() { 0x2000 } else { 0 };
    packet[6..8].copy_from_slice(&place.to_be_bytes());
    packet
}

fn fragment6_of(protocol: u8, payload: &[u8], from: usize, to: usize) -> Vec<u8> {
    let [high, low] = (u16::try_from(from).unwrap() | u16::from(to < payload.len())).to_be_bytes();
    ipv6(44, &[&[protocol, 0, high, low, 1, 2, 3, 4], &payload[from..to]].concat())
}

#[test]
fn fragments_of_tcp_are_passed_over() {
    // A first fragment with the whole TCP header does not state the segment's length.
    let tcp = tcp();
    let options = join(&[6, 0, 1, 4, 0, 0, 0, 0], &tcp);
    for (from, to) in [(0, 40), (0, 16), (16, 32), (32, 42)] {
        let in_gre = gre(0, 0x0800, &[], &fragment_of(&tcp, from, to));
        assert_eq!(decode_whole(ETHERNET, &in_gre), Err(Ignored::Fragment), "{from}");
        for packet in
            [fragment_of(&tcp, from, to), fragment6_of(6, &tcp, from, to), fragment6_of(60, &options, from, to)]
        {
            assert_eq!(decode_whole(RAW, &packet), Err(Ignored::Fragment), "{from}");
        }
    }
}

#[test]
fn the_first_fragment_of_a_tunnel_s_packet_is_enough() {
    // The inner header states its own length, by a checksum that is right.
    let mut inner = ipv4(6, &tcp());
    inner[10..12].copy_from_slice(&[0x4e, 0x34]);
    let tunnel = gre(0, 0x0800, &[], &inner);
    let mut first = tunnel[..14 + 20 + 4 + 56].to_vec();
    first[16..18].copy_from_slice(&[0, 80]);
    first[20] = 0x20;
    assert_eq!(decode_whole(ETHERNET, &first).unwrap().payload_len, 10);
    first[21] = 3;
    assert_eq!(decode_whole(ETHERNET, &first), Err(Ignored::Fragment), "a later one");
    let in_ipv6 = fragment6_of(4, &join(&ipv4(6, &tcp()), &[0; 6]), 0, 64);
    assert_eq!(decode_whole(RAW, &in_ipv6).unwrap().payload_len, 10);
}
