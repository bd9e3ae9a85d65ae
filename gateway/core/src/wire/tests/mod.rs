//! Hand-built frames for every encapsulation, and arbitrary ones.

mod frames;

use std::num::NonZeroUsize;

use proptest::prelude::*;
use spand_proto::units::{Micros, Timestamp};

use self::frames::{
    ETHERNET, RAW, bridged, encapsulations, ethernet, gre, ipv4, ipv6, join, packet, tcp, tcp_with, udp,
};
use super::segment::{Ecn, Flags, SackBlock, Timestamps, WindowOption};
use super::*;
use crate::config::Tunnels;
use crate::counters::{Counters, Ignored};
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
    decoder(tunnels).decode(Timestamp(1), frame, &mut Counters::default())
}

fn decoder(tunnels: Tunnels) -> Decoder {
    Decoder::new(tunnels, NonZeroUsize::MIN, 7)
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
            let walked = decoder(Tunnels::ALL).walk(Timestamp(1), &frame, &mut Counters::default());
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
        let walked = decoder(Tunnels::ALL).walk(Timestamp(1), &frame, &mut Counters::default());
        prop_assert_eq!(&decoded, &walked, "the short way and the long one");
        if let Ok(segment) = decoded {
            prop_assert!(segment.payload_len <= wire_len.max(u32::from(u16::MAX)).max(200));
            prop_assert!(segment.options.len <= 40);
        }
    }
}

// IP packets in fragments: reassembled in any order, dropped for every reason, each frame counted.

/// A decoder with its counters and its clock.
struct Tap {
    decoder: Decoder,
    counters: Counters,
    now: Timestamp,
}

impl Tap {
    fn new(limit: usize) -> Self {
        let limit = NonZeroUsize::new(limit).unwrap();
        Self { decoder: Decoder::new(Tunnels::ALL, limit, 7), counters: Counters::default(), now: Timestamp(1) }
    }

    fn wait(&mut self, time: Micros) {
        self.now = self.now.after(time);
        self.decoder.expire(self.now, &mut self.counters);
    }

    fn see(&mut self, packet: &[u8]) -> Result<Segment, Ignored> {
        self.see_frame(RAW, packet)
    }

    fn see_frame(&mut self, link_type: u16, data: &[u8]) -> Result<Segment, Ignored> {
        let frame = Frame { link_type, wire_len: u32::try_from(data.len()).unwrap(), input: 0, data };
        self.decoder.decode(self.now, &frame, &mut self.counters)
    }

    /// What all of them give, in the end.
    fn see_all(&mut self, packets: &[Vec<u8>]) -> Result<Segment, Ignored> {
        packets.iter().map(|packet| self.see(packet)).last().unwrap()
    }

    /// Packets dropped, by reason: no room, too late, overlapping, too large.
    fn dropped(&self) -> [u64; 4] {
        [Ignored::FragmentNoRoom, Ignored::FragmentTimeout, Ignored::FragmentOverlap, Ignored::FragmentTooLarge]
            .map(|reason| self.counters.ignored(reason))
    }
}

/// Bytes `from..to` of `packet`'s payload, as the fragment of number `id`.
fn fragment_of(payload: &[u8], id: u8, from: usize, to: usize) -> Vec<u8> {
    let mut packet = ipv4(6, &payload[from..to]);
    let place = u16::try_from(from / 8).unwrap() | if to < payload.len() { 0x2000 } else { 0 };
    packet[5] = id;
    packet[6..8].copy_from_slice(&place.to_be_bytes());
    packet
}

fn fragment6_of(payload: &[u8], protocol: u8, from: usize, to: usize) -> Vec<u8> {
    let [high, low] = (u16::try_from(from).unwrap() | u16::from(to < payload.len())).to_be_bytes();
    ipv6(44, &[&[protocol, 0, high, low, 1, 2, 3, 4], &payload[from..to]].concat())
}

/// A TCP segment of 42 bytes in three fragments.
fn three() -> [Vec<u8>; 3] {
    let tcp = tcp();
    [(0, 16), (16, 32), (32, tcp.len())].map(|(from, to)| fragment_of(&tcp, 5, from, to))
}

#[test]
fn fragments_give_the_segment_in_any_order() {
    let whole = Tap::new(9).see(&ipv4(6, &tcp())).unwrap();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut tap = Tap::new(9);
        let parts = three();
        assert_eq!(tap.see(&parts[order[0]]), Err(Ignored::Fragment), "{order:?}");
        assert_eq!(tap.see(&parts[order[1]]), Err(Ignored::Fragment), "{order:?}");
        let segment = tap.see(&parts[order[2]]).unwrap();
        assert_eq!(segment, Segment { ip_id: Some(5), ..whole.clone() }, "{order:?}");
        tap.decoder.finish(&mut tap.counters);
        assert_eq!(tap.dropped(), [0; 4]);
    }
}

#[test]
fn ipv6_fragments_give_the_segment_behind_their_extension_headers() {
    let options = [&[6, 0, 1, 4, 0, 0, 0, 0][..], &tcp()].concat();
    for (protocol, payload) in [(6, tcp()), (60, options)] {
        let parts: Vec<_> = [(24, payload.len()), (0, 8), (8, 24)]
            .iter()
            .map(|(from, to)| fragment6_of(&payload, protocol, *from, *to))
            .collect();
        let segment = Tap::new(9).see_all(&parts).unwrap();
        assert_eq!(segment, Tap::new(9).see(&ipv6(6, &tcp())).unwrap());
    }
}

#[test]
fn fragments_inside_a_tunnel_are_put_together_and_those_of_a_tunnel_need_not_be() {
    let [first, second, third] = three();
    let mut tap = Tap::new(9);
    assert!(tap.see_frame(1, &gre(0, 0x0800, &[], &second)).is_err());
    assert!(tap.see_frame(1, &ethernet(0x0800, &ipv4(4, &third))).is_err());
    assert_eq!(tap.see_frame(1, &gre(0, 0x0800, &[], &first)).unwrap().payload_len, 10);
    // The inner header states its own length, by a checksum that is right.
    let mut inner = ipv4(6, &tcp());
    inner[10..12].copy_from_slice(&[0x4e, 0x34]);
    let tunnel = gre(0, 0x0800, &[], &inner);
    let mut outer_first = tunnel[..14 + 20 + 4 + 56].to_vec();
    outer_first[16..18].copy_from_slice(&[0, 80]);
    outer_first[20] = 0x20;
    assert_eq!(tap.see_frame(1, &outer_first).unwrap().payload_len, 10);
    let mut later = udp(53, &[0; 8]);
    later[21] = 3;
    assert_eq!(tap.see_frame(1, &later), Err(Ignored::Fragment));
    tap.decoder.finish(&mut tap.counters);
    assert_eq!(tap.dropped(), [0; 4], "nothing waits for what is not TCP");
}

#[test]
fn payload_is_counted_and_a_cut_frame_costs_no_more_than_before() {
    let payload = [tcp_with(&[], Flags::ACK), vec![0; 60_000]].concat();
    let parts: Vec<_> = (0..payload.len()).step_by(1_480).map(|from| (from, payload.len().min(from + 1_480))).collect();
    let mut tap = Tap::new(9);
    let mut given = Vec::new();
    for (from, to) in &parts {
        let packet = fragment_of(&payload, 5, *from, *to);
        let frame = Frame {
            link_type: RAW,
            wire_len: u32::try_from(packet.len()).unwrap(),
            input: 0,
            data: &packet[..64.min(packet.len())],
        };
        given.extend(tap.decoder.decode(tap.now, &frame, &mut tap.counters));
    }
    assert_eq!(given.iter().map(|segment| segment.payload_len).collect::<Vec<_>>(), [60_010]);
    let mut short = three();
    short[0].truncate(20 + 12);
    let lengths = three().map(|part| u32::try_from(part.len()).unwrap());
    let mut tap = Tap::new(9);
    let results = [0, 1, 2].map(|n| {
        let frame = Frame { link_type: RAW, wire_len: lengths[n], input: 0, data: &short[n] };
        tap.decoder.decode(tap.now, &frame, &mut tap.counters)
    });
    assert_eq!(results[2], Err(Ignored::Truncated), "the header has a hole");
}

#[test]
fn a_congestion_mark_on_any_fragment_is_the_packet_s() {
    let mut parts = three();
    assert_eq!(Tap::new(9).see_all(&parts).unwrap().ecn, Ecn::Ect0);
    parts[1][1] |= 3;
    assert_eq!(Tap::new(9).see_all(&parts).unwrap().ecn, Ecn::CongestionExperienced);
}

#[test]
fn what_does_not_come_within_30_s_is_dropped_and_counted_once() {
    let [first, second, third] = three();
    let mut tap = Tap::new(9);
    assert!(tap.see(&first).is_err());
    tap.wait(Micros::from_secs(20));
    assert!(tap.see(&second).is_err());
    tap.wait(Micros::from_secs(10));
    assert_eq!(tap.dropped(), [0; 4], "at 30 s");
    tap.wait(Micros(1));
    assert_eq!(tap.dropped(), [0, 1, 0, 0]);
    assert_eq!(tap.see(&third), Err(Ignored::Fragment), "another packet by now");
    tap.decoder.finish(&mut tap.counters);
    assert_eq!(tap.dropped(), [0, 2, 0, 0]);
}

#[test]
fn the_oldest_goes_where_there_is_no_room() {
    let tcp = tcp();
    let mut tap = Tap::new(2);
    for id in 1..=3 {
        assert!(tap.see(&fragment_of(&tcp, id, 0, 24)).is_err());
    }
    assert_eq!(tap.dropped(), [1, 0, 0, 0]);
    assert!(tap.see(&fragment_of(&tcp, 2, 24, tcp.len())).is_ok());
    assert!(tap.see(&fragment_of(&tcp, 3, 24, tcp.len())).is_ok());
    let (mut tap, long) = (Tap::new(2), vec![0; 65_000]);
    (0..=16).for_each(|n| assert!(tap.see(&fragment_of(&long, 1, 16 * n, 16 * n + 8)).is_err()));
    assert_eq!(tap.dropped(), [1, 0, 0, 0], "more parts than are kept");
}

#[test]
fn copies_are_passed_over_and_a_number_used_again_is_a_new_packet() {
    let [first, second, third] = three();
    let mut tap = Tap::new(9);
    assert!(tap.see(&first).is_err());
    assert_eq!(tap.see(&first), Err(Ignored::DuplicateCopy));
    assert!(tap.see(&second).is_err());
    assert!(tap.see(&third).is_ok());
    assert_eq!(tap.see(&third), Err(Ignored::DuplicateCopy));
    tap.wait(Micros::from_millis(21));
    assert_eq!(tap.see_all(&[first.clone(), second.clone()]), Err(Ignored::Fragment));
    assert!(tap.see(&third).is_ok());
    tap.wait(Micros::from_secs(31));
    assert_eq!(tap.dropped(), [0; 4]);
    assert!(tap.see_all(&[first, second, third]).is_ok(), "long after");
}

#[test]
fn overlapping_and_contradicting_fragments_void_their_packet() {
    let tcp = tcp();
    let part = |from, to| fragment_of(&tcp, 5, from, to);
    let other = |byte: usize, from, to| {
        let mut other = fragment_of(&tcp, 5, from, to);
        other[20 + byte] ^= 1;
        other
    };
    // A fragment after the end, one that states another end, bytes that differ, and one that begins inside another.
    let mut shorter = part(24, 32);
    shorter[6] &= !0x20;
    for packets in [
        vec![part(0, 24), part(16, 42), part(24, 42)],
        vec![part(16, 42), part(0, 24), part(0, 16)],
        vec![part(0, 16), other(3, 0, 16), part(16, 42)],
        vec![part(32, 42), shorter.clone(), part(0, 24), part(24, 32)],
        vec![shorter, part(32, 42), part(0, 24), part(24, 32)],
    ] {
        let mut tap = Tap::new(9);
        let last = packets.iter().map(|packet| tap.see(packet)).last().unwrap();
        assert_eq!((last, tap.dropped()), (Err(Ignored::Fragment), [0, 0, 1, 0]));
        tap.wait(Micros::from_secs(31));
        assert_eq!(tap.dropped(), [0, 0, 1, 0], "counted once");
        assert!(tap.see_all(&three()).is_ok(), "and then forgotten");
    }
}

#[test]
fn a_packet_beyond_the_longest_and_fragments_that_cannot_be() {
    let mut beyond = fragment_of(&tcp(), 5, 0, 42);
    beyond[6..8].copy_from_slice(&[0x1f, 0xff]);
    let mut tap = Tap::new(9);
    assert_eq!((tap.see(&beyond), tap.dropped()), (Err(Ignored::Fragment), [0, 0, 0, 1]));
    assert_eq!(tap.see_all(&three()), Err(Ignored::Fragment), "the packet is void");
    let mut odd = fragment_of(&tcp(), 6, 0, 20);
    odd[6] |= 0x20;
    let mut empty = fragment_of(&tcp(), 7, 0, 16);
    empty.truncate(20);
    empty[3] = 20;
    for packet in [odd, empty] {
        assert_eq!(tap.see(&packet), Err(Ignored::Malformed));
    }
}

proptest! {
    /// A packet gives one segment at most however it is fragmented, and no fragment stays behind.
    #[test]
    fn any_fragments_are_taken_and_none_is_lost_from_the_account(
        steps in prop::collection::vec((0_u8..4, 0_usize..8, 1_usize..9, 0_u64..9_000), 1..80),
        limit in 1_usize..5,
    ) {
        let tcp = [tcp(), vec![0; 14]].concat();
        let mut tap = Tap::new(limit);
        let (mut segments, mut ignored) = (0, 0);
        for (id, from, len, wait_ms) in steps {
            tap.wait(Micros::from_millis(wait_ms));
            let (from, to) = (8 * from.min(6), (8 * (from + len)).min(tcp.len()));
            if from == 0 && to == tcp.len() {
                continue;
            }
            match tap.see(&fragment_of(&tcp, id, from, to)) {
                Ok(segment) => {
                    segments += 1;
                    prop_assert_eq!(segment.payload_len, 24);
                }
                Err(reason) => {
                    ignored += 1;
                    prop_assert!([Ignored::Fragment, Ignored::DuplicateCopy].contains(&reason));
                }
            }
        }
        tap.decoder.finish(&mut tap.counters);
        prop_assert!(segments <= ignored, "each takes two fragments at least");
        prop_assert!(segments + tap.dropped().iter().sum::<u64>() <= segments + ignored);
        let before = tap.dropped();
        tap.wait(Micros::from_secs(100));
        prop_assert_eq!(before, tap.dropped());
    }
}
