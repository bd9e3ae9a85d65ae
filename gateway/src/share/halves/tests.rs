//! Gateways that compare which directions of connections they saw.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use spand_core::config::EngineConfig;
use spand_core::engine::Engine;
use spand_core::sharing::{Pseudonyms, Sharing as EngineSharing, TapId};
use spand_core::wire::Frame;
use spand_proto::estimate::RuleKind;

use super::kept::MOST;
use super::*;
use crate::patience::PATIENCE;
use crate::publisher::{PacketClock, Published, PublisherConfig};
use crate::share::engine_end::EngineEnd;
use crate::share::format::FORMAT;
use crate::share::hub::Sharing;
use crate::share::memory::MemoryHub;

const START: Timestamp = Timestamp(1_700_000_003_000_000_000);
const OTHER: [GatewayId; 2] = [GatewayId(2), GatewayId(1)];

fn member(gateway: u16) -> Member {
    Member {
        gateway: GatewayId(gateway),
        tap: TapId::of_gateway(GatewayId(gateway)),
        instance: gateway.into(),
        name: format!("edge-{gateway}"),
        version: "0".to_owned(),
        bucket: Micros::from_secs(10),
        buckets: 30,
        rule: RuleKind::Robust,
        prefixes: 0,
        formats: (FORMAT, FORMAT),
        clock: Timestamp(0),
        digests: Vec::new(),
        address: None,
    }
}

/// A hash like any other, by `SplitMix64`.
fn hash(number: u64) -> u64 {
    let mut x = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Gateways 1 and 2.
struct Pair {
    members: [Member; 2],
    gateways: [Comparison; 2],
    news: [Vec<(u64, bool, String)>; 2],
    dropped: u64,
}

impl Pair {
    fn new() -> Self {
        let news = [Vec::new(), Vec::new()];
        Self { members: [member(1), member(2)], gateways: <[Comparison; 2]>::default(), news, dropped: 0 }
    }

    /// For these seconds both find connections of which they saw what `seen` says, `rate` of them a second.
    fn run(&mut self, seconds: std::ops::Range<u64>, rate: u64, seen: impl Fn(u64) -> [Option<Seen>; 2]) {
        for second in seconds.step_by(2) {
            let now = START.after(Micros::from_secs(second));
            let mut messages = Vec::new();
            for (index, gateway) in self.gateways.iter_mut().enumerate() {
                let half = |number: u64| {
                    let seen = seen(number)[index]?;
                    let lacks = (seen != Seen::Both).then_some([Direction::Incoming, Direction::Outgoing][index]);
                    Some(Half { hash: hash(number), seen, lacks })
                };
                let found = (second * rate..(second + 2) * rate).filter_map(half).collect();
                self.dropped += gateway.found(&Halves { sample: HashSample::ALL, found }, now);
                messages.push(gateway.message().0);
            }
            for (gateway, (from, message)) in self.gateways.iter_mut().zip(OTHER.iter().zip(messages.iter().rev())) {
                self.dropped += gateway.take(*from, message, now).unwrap();
            }
            self.compare(second);
        }
    }

    fn compare(&mut self, second: u64) {
        let now = START.after(Micros::from_secs(second));
        let [one, other] = &self.members;
        for (index, (own, other)) in [(one, other), (other, one)].into_iter().enumerate() {
            let news = self.gateways[index].compare(own, std::iter::once(other), now);
            self.news[index].extend(news.into_iter().map(|(is_fault, text)| (second, is_fault, text)));
        }
    }

    fn found(&self, index: usize) -> Compared {
        let mut all = self.gateways[index].all();
        all.next().map(|(_, found)| found).unwrap()
    }
}

/// Of ten connections four have one direction at each of the two, six are seen whole by the first, and of those that the first sees
/// in one direction six of ten are nowhere else.
fn divided(number: u64) -> [Option<Seen>; 2] {
    match number % 20 {
        0..12 => [Some(Seen::Both), None],
        12..15 => [Some(Seen::Low), Some(Seen::High)],
        _ => [Some(Seen::Low), None],
    }
}

#[test]
fn the_share_of_divided_connections_and_the_direction_that_is_lacking_are_named_once() {
    let mut pair = Pair::new();
    pair.run(0..200, 20, divided);
    let found = pair.found(0);
    assert_eq!(found.other_direction * 8, found.one_direction * 3, "{found:?}");
    assert!(found.one_direction > 1_000 && found.both_directions > 1_500, "{found:?}");
    assert_eq!([found.lacks_incoming, found.lacks_outgoing, found.seen_by_both], [found.other_direction, 0, 0]);
    let [one, other] = &pair.news;
    let expected = "38 % of the connections of which this gateway saw one direction have their other direction, the incoming one, \
                    at gateway 2 (edge-2): mirror both directions to one gateway";
    assert!(one.len() == 1 && one[0].0 <= 60 && one[0].1 && one[0].2.starts_with(expected), "{one:?}");
    assert!(other.len() == 1 && other[0].2.starts_with("100 % of") && other[0].2.contains("the outgoing one"));
    // Once the mirror is set right it is named, too.
    pair.run(200..700, 20, |_| [Some(Seen::Both), None]);
    assert_eq!(pair.found(0).one_direction, 0);
    let [one, _] = &pair.news;
    assert!(one.len() == 2 && !one[1].1 && one[1].2.starts_with("hardly any"), "{one:?}");
}

#[test]
fn of_symmetric_gateways_and_of_one_whose_other_halves_are_nowhere_nothing_is_logged() {
    let mut pair = Pair::new();
    pair.run(0..200, 20, |number| match number % 3 {
        0 => [Some(Seen::Both), None],
        1 => [None, Some(Seen::Both)],
        _ => [Some(Seen::Low), Some(Seen::Low)],
    });
    assert!(pair.found(0).one_direction > 1_000);
    assert_eq!(pair.news, [vec![], vec![]]);
}

#[test]
fn taps_that_see_the_same_packets_are_named_within_a_minute_unless_they_are_a_mirror_group() {
    let both = |_| [Some(Seen::Both); 2];
    let mut pair = Pair::new();
    pair.run(0..60, 20, both);
    for (news, other) in pair.news.iter().zip(["gateway 2 (edge-2)", "gateway 1 (edge-1)"]) {
        assert!(news.len() == 1 && news[0].1, "{news:?}");
        assert!(news[0].2.starts_with(&format!("{other} sees 100 % of the connections")), "{news:?}");
    }
    assert!(pair.found(0).is_duplicate && !pair.found(0).is_divided);
    let mut group = Pair::new();
    group.members.iter_mut().for_each(|member| member.tap = TapId::of_group(1));
    group.run(0..60, 20, both);
    assert!(group.found(0).seen_by_both > 100, "{:?}", group.found(0));
    assert_eq!(group.news, [vec![], vec![]]);
}

#[test]
fn gateways_of_different_size_compare_one_sample() {
    let mut pair = Pair::new();
    // The second sees a tenth of what the first does.
    pair.run(0..300, 1_000, |number| [Some(Seen::Both), number.is_multiple_of(10).then_some(Seen::Both)]);
    let [one, other] = [0, 1].map(|index| pair.found(index));
    assert!(pair.gateways[0].sample() > pair.gateways[1].sample());
    assert!(one.both_directions > 1_000, "{one:?}");
    let tenth = one.both_directions / 10;
    assert!(one.seen_by_both.abs_diff(tenth) * 5 < tenth, "{one:?}");
    assert!(other.both_directions > 100 && other.seen_by_both == other.both_directions, "{other:?}");
    assert_eq!(pair.dropped, 0);
}

#[test]
fn connections_that_a_gateway_could_not_see_before_it_came_count_nothing() {
    let mut pair = Pair::new();
    pair.run(0..100, 20, |_| [Some(Seen::Both); 2]);
    // It starts again: what it saw before is lost.
    pair.gateways[1] = Comparison::default();
    for (gateway, other) in pair.gateways.iter_mut().zip(OTHER) {
        gateway.others.remove(&other);
    }
    pair.run(100..118, 20, |_| [Some(Seen::Both); 2]);
    assert_eq!(pair.found(0).both_directions, 0);
    pair.run(118..200, 20, |_| [Some(Seen::Both); 2]);
    let found = pair.found(0);
    assert!(found.both_directions > 500 && found.both_directions == found.seen_by_both, "{found:?}");
}

#[test]
fn a_gateway_that_lies_takes_bounded_room_and_changes_nothing_with_others() {
    let mut pair = Pair::new();
    pair.run(0..100, 20, divided);
    let (before, now) = (pair.found(0), START.after(Micros::from_secs(98)));
    let liar = GatewayId(9);
    let lies = |sample: HashSample, round: u64| -> Vec<Half> {
        let all = 0..HALVES_AT_ONCE as u64;
        let of = |n| Half { hash: hash(round << 32 | n) >> sample.bits(), seen: Seen::High, lacks: None };
        all.map(of).collect()
    };
    let mut dropped = 0;
    for round in 0..20 {
        for bits in [0, 32] {
            let sample = HashSample::of_bits(bits).unwrap();
            let message = write_halves(sample, &lies(sample, round));
            dropped += pair.gateways[0].take(liar, &message, now).unwrap();
            let kept = &pair.gateways[0].others[&liar].kept;
            assert!(kept.all().count() <= MOST);
        }
    }
    assert!(dropped > 0);
    for message in [&[][..], &[FORMAT, 4, 0, 255], &write_halves(HashSample::ALL, &lies(HashSample::ALL, 1))[..99]] {
        assert!(pair.gateways[0].take(liar, message, now).is_err());
    }
    assert_eq!(pair.found(0), before);
    // It is no member.
    pair.compare(98);
    assert!(!pair.gateways[0].others.contains_key(&liar));
    assert_eq!(pair.found(0), before);
}

/// Runs twenty times as fast as the wall's.
#[derive(Clone, Copy)]
struct Fast(Instant);

impl PacketClock for Fast {
    fn now(&self) -> Timestamp {
        START.after(Micros::from(self.0.elapsed() * 20))
    }
}

struct Gateway {
    engine: Engine,
    end: EngineEnd,
    sharing: Sharing,
}

fn join(hub: &MemoryHub, own: Member, clock: Fast) -> Gateway {
    let pseudonyms = Pseudonyms::new([9; 16]);
    let sharing = EngineSharing { gateway: own.gateway, tap: own.tap, pseudonyms };
    let internal = vec!["10.0.0.0/8".parse().unwrap()];
    let engine = Engine::new(EngineConfig { internal, sharing: Some(sharing), ..EngineConfig::default() });
    let published = Published::new(PublisherConfig::default(), clock);
    let exchange = hub.member(own.gateway);
    let (sharing, mut ends) = Sharing::start(exchange, own, 1, Box::new(|_| 0), published).unwrap();
    Gateway { engine, end: ends.remove(0), sharing }
}

/// A TCP segment without payload between a server inside and a client.
fn frame(is_outgoing: bool, port: u16, flags: u8, [seq, ack]: [u32; 2]) -> Vec<u8> {
    let (server, client) = ((Ipv4Addr::new(10, 0, 0, 1), 443), (Ipv4Addr::new(192, 0, 2, 9), port));
    let [from, to] = if is_outgoing { [server, client] } else { [client, server] };
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
    frame.extend(from.0.octets().into_iter().chain(to.0.octets()));
    frame.extend(from.1.to_be_bytes().into_iter().chain(to.1.to_be_bytes()));
    frame.extend(seq.to_be_bytes().into_iter().chain(ack.to_be_bytes()));
    frame.extend([0x50, flags, 255, 255, 0, 0, 0, 0]);
    frame
}

/// The handshake of one connection, of which the gateway sees these directions: incoming, outgoing.
fn opens(engine: &mut Engine, port: u16, [incoming, outgoing]: [bool; 2], now: Timestamp) {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let handshake =
        [(false, SYN, [100, 0]), (true, SYN | ACK, [500, 101]), (false, ACK, [101, 501]), (true, ACK, [501, 101])];
    for (is_outgoing, flags, numbers) in handshake {
        if if is_outgoing { outgoing } else { incoming } {
            let data = frame(is_outgoing, port, flags, numbers);
            engine.handle_frame(now, &Frame { link_type: 1, wire_len: 60, input: 0, data: &data });
        }
    }
}

#[test]
fn packets_divided_between_two_gateways_are_named_to_both_and_in_the_metrics() {
    let (hub, clock) = (MemoryHub::new(), Fast(Instant::now()));
    let mut gateways = [join(&hub, member(1), clock), join(&hub, member(2), clock)];
    let begun = Instant::now();
    let mut port = 1_000;
    let found = loop {
        // Of five connections one is divided, one is half at the first and nowhere else, and three are whole there.
        let seen = match port % 5 {
            0 => [[false, true], [true, false]],
            1 => [[false, true], [false, false]],
            _ => [[true, true], [false, false]],
        };
        for (gateway, seen) in gateways.iter_mut().zip(seen) {
            let now = clock.now();
            opens(&mut gateway.engine, port, seen, now);
            gateway.end.turn(&mut gateway.engine, now);
            gateway.engine.handle_timeout(now);
            while gateway.engine.poll_event().is_some() {}
        }
        port += 1;
        let views = gateways.each_ref().map(|gateway| gateway.sharing.status().view().compared);
        let found = [views[0].get(&GatewayId(2)).copied(), views[1].get(&GatewayId(1)).copied()];
        if let [Some(one), Some(other)] = found
            && one.is_divided
            && other.is_divided
            && one.one_direction > 50
        {
            break [one, other];
        }
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {found:?}");
        std::thread::sleep(Duration::from_millis(5));
    };
    let [one, other] = found;
    let half = one.one_direction / 2;
    assert!(one.other_direction.abs_diff(half) * 5 < half, "{one:?}");
    assert!(one.both_directions > one.one_direction && !one.is_duplicate, "{one:?}");
    assert_eq!((one.lacks_outgoing, one.lacks_incoming), (0, one.other_direction));
    assert_eq!((other.both_directions, other.other_direction), (0, other.one_direction));
    let measures = &gateways[0].sharing.status().measures().halves;
    let label = crate::share::measure::GatewayLabel::of(GatewayId(2));
    assert!(measures.one_direction.get_or_create(&label).get() > 50);
    assert!(measures.other_direction.get_or_create(&label).get() >= 10);
}
