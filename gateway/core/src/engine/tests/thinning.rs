//! What is followed under overload, and what is still announced and known of the rest.

use std::hash::BuildHasher;

use super::*;
use crate::engine::thinning::Starts;
use crate::event::StartImminent;
use crate::hash::SeededState;
use crate::networks::view::NetworkView;
use crate::types::SampleRate;

const CONNECTIONS: u32 = 51_357;

/// The handshake of connection `n` with an outside host. For some `n` its SYN comes twice: as a copy of the mirror port, or sent again.
fn opening(n: u32) -> Vec<Segment> {
    let outside = match n % 3 {
        0 => IpAddr::from((0x2001_0db8_u128 << 96 | u128::from(n) << 64).to_be_bytes()),
        _ => IpAddr::from((0xc612_0000 + n).to_be_bytes()),
    };
    let inside = if outside.is_ipv6() { "2001:db8:ffff::1" } else { SERVER };
    let (server, client) =
        (endpoint(inside, 80), Endpoint { address: outside, port: 1_024 + u16::try_from(n % 60_000).unwrap() });
    // Every fourth is opened from inside.
    let (source, destination) = if n.is_multiple_of(4) { (server, client) } else { (client, server) };
    let at = |us: u64| Timestamp(ms(0).0 + (u64::from(n) * 100 + us) * 1_000);
    let [syn, answer, ack] = handshake(100);
    let syn = Segment { at: at(0), source, destination, ip_id: Some(7), ..syn };
    let mut segments = vec![syn.clone()];
    match n % 5 {
        1 => segments.push(Segment { at: at(30), ..syn }),
        2 => segments.push(Segment { at: at(1_000_000), ip_id: Some(8), ..syn }),
        _ => {}
    }
    segments.push(Segment { at: at(1_040_000), source: destination, destination: source, ..answer });
    segments.push(Segment { at: at(1_080_000), source, destination, ..ack });
    segments
}

fn inside(kept: SampleRate) -> Engine {
    let internal = vec!["192.0.2.0/24".parse().unwrap(), "2001:db8:ffff::/48".parse().unwrap()];
    let mut engine = Engine::new(EngineConfig { internal, ..EngineConfig::default() });
    engine.keep(kept);
    engine
}

fn starts(engine: &mut Engine, segments: &[Segment]) -> Vec<StartImminent> {
    let mut starts = Vec::new();
    for segment in segments {
        feed(engine, std::slice::from_ref(segment));
        starts.extend(std::iter::from_fn(|| engine.poll_event()).filter_map(|event| match event {
            Event::StartImminent(start) => Some(start),
            _ => None,
        }));
    }
    starts
}

#[test]
fn every_start_is_announced_whatever_part_of_the_connections_is_followed() {
    let mut segments: Vec<_> = (0..CONNECTIONS).flat_map(opening).collect();
    segments.sort_by_key(|segment| segment.at);
    let all = starts(&mut inside(SampleRate::ALL), &segments);
    let again = (0..CONNECTIONS).filter(|n| n % 5 == 2).count();
    assert_eq!(all.len(), usize::try_from(CONNECTIONS).unwrap() + again, "of copies none, of what is sent again one");
    for parts in [128, 64, 1] {
        let mut engine = inside(SampleRate::of_256(parts));
        assert!(starts(&mut engine, &segments) == all, "{parts} of 256");
        // No start was counted before: whole networks are left out. Those of IPv4 are 134, those of IPv6 one.
        let is_v4 = |tuple: &&Tuple| tuple.addresses().iter().all(IpAddr::is_ipv4);
        let part = engine.flows.tuples().filter(is_v4).count() as f64 / (f64::from(CONNECTIONS) * 2.0 / 3.0);
        assert!((part - f64::from(parts) / 256.0).abs() < 0.13, "{part} followed at {parts} of 256");
    }
}

#[test]
fn a_connection_that_is_not_followed_announces_its_syn_and_nothing_else() {
    let mut engine = inside(SampleRate::LEAST);
    let segments: Vec<_> = handshake(100).into_iter().chain(transfer(100, 5_001, 3)).collect();
    let idle = [segment(ms(60_000), false, Flags::ACK | Flags::PSH, 101, 5_001 + 3 * 1_460, 300)];
    let triggers: Vec<_> = starts(&mut engine, &segments).into_iter().map(|start| start.trigger).collect();
    assert_eq!(triggers, [Trigger::PassiveOpen]);
    assert_eq!(starts(&mut engine, &idle), [], "its idle time is not known");
    let outsiders = Segment { destination: endpoint("203.0.113.1", 1), ..handshake(100)[0].clone() };
    assert_eq!(starts(&mut engine, &[outsiders]), []);
    engine.set_own_listeners([format!("{SERVER}:80").parse().unwrap()].into());
    assert_eq!(starts(&mut engine, &[Segment { at: ms(70_000), ..handshake(900)[0].clone() }]), []);
    assert_eq!(engine.connections(), 0);
}

/// The n-th client of a network at its address `host`.
fn client((network, host): (u8, u8), n: u32) -> Endpoint {
    Endpoint { address: IpAddr::from([198, 51, network, host]), port: 1_024 + u16::try_from(n).unwrap() }
}

/// The n-th connection with it: a handshake that takes 40 ms, one segment, and its acknowledgement after 100 ms.
fn exchange(of: (u8, u8), n: u32, at: u64) -> Vec<Segment> {
    let [syn, answer, ack] = handshake(100);
    let data = segment(ms(50), true, Flags::ACK | Flags::PSH, 5_001, 101, 1_000);
    let acked = segment(ms(150), false, Flags::ACK, 101, 6_001, 0);
    let with_client = |part: Segment| {
        let end = |end: Endpoint| if end.port == 80 { end } else { client(of, n) };
        let (source, destination) = (end(part.source), end(part.destination));
        Segment { at: Timestamp(part.at.0 + at * 1_000_000), source, destination, ..part }
    };
    [syn, answer, ack, data, acked].into_iter().map(with_client).collect()
}

/// In the n-th bucket: this number of connections with each of these networks, from their n-th address.
fn bucket(engine: &mut Engine, n: u8, connections: &[(u8, u32)]) {
    let of = |&(network, count): &(u8, u32)| {
        (0..count).flat_map(move |of| {
            exchange((network, n), of, u64::from(n) * 10_000 + u64::from(of) * 9_500 / u64::from(count))
        })
    };
    let mut segments: Vec<_> = connections.iter().flat_map(of).collect();
    segments.sort_by_key(|segment| segment.at);
    feed(engine, &segments);
    while engine.poll_event().is_some() {}
}

/// How many of them are followed.
fn followed(engine: &Engine, of: (u8, u8)) -> usize {
    let address = client(of, 0).address;
    engine.flows.tuples().filter(|tuple| tuple.addresses().contains(&address)).count()
}

fn view(engine: &Engine, network: u8, now: Timestamp) -> NetworkView {
    engine.network(engine.network_of(client((network, 0), 0).address), now).unwrap()
}

#[test]
fn busy_networks_are_thinned_to_one_number_and_the_others_are_untouched() {
    let mut engine = inside(SampleRate::ALL);
    let connections = [(1, 2_000), (2, 400), (3, 100), (4, 32), (5, 3)];
    bucket(&mut engine, 0, &connections);
    assert_eq!(connections.map(|(network, _)| followed(&engine, (network, 0))), [2_000, 400, 100, 32, 3]);
    // 633 of 2,535: 35 of the last two, and a third of the rest for each of the other three, or all that it has.
    engine.keep(SampleRate::of_256(64));
    for n in 1..4 {
        bucket(&mut engine, n, &connections);
        let [first, second, third, rest @ ..] = connections.map(|(network, _)| followed(&engine, (network, n)));
        assert!((200..300).contains(&first) && (200..300).contains(&second), "{first} and {second} of some 250");
        assert_eq!((third, rest), (100, [32, 3]));
    }
    let now = ms(39_999);
    let followed = [1, 2, 3, 4, 5].map(|network| view(&engine, network, now).followed);
    assert!(followed[0] < SampleRate::of_256(40) && followed[1] > SampleRate::of_256(140), "{followed:?}");
    assert_eq!(followed[2..], [SampleRate::ALL; 3]);
    engine.keep(SampleRate::ALL);
    bucket(&mut engine, 4, &connections);
    assert_eq!(self::followed(&engine, (1, 4)), 2_000);
    assert_eq!(view(&engine, 1, now).followed, followed[0], "for as long as the window has them");
}

#[test]
fn of_very_many_networks_whole_ones_are_left_out() {
    let mut engine = inside(SampleRate::ALL);
    let connections: Vec<_> = (0..200).map(|network| (network, 40)).collect();
    bucket(&mut engine, 0, &connections);
    engine.keep(SampleRate::of_256(64));
    bucket(&mut engine, 1, &connections);
    let followed: Vec<_> = connections.iter().map(|(network, _)| followed(&engine, (*network, 1))).collect();
    let whole = followed.iter().filter(|followed| (20..=40).contains(*followed)).count();
    let none = followed.iter().filter(|followed| **followed == 0).count();
    assert_eq!(whole + none, 200, "{followed:?}");
    assert!((40..85).contains(&whole), "64 of 256 of all starts: 32 each of {whole}");
}

#[test]
fn a_burst_is_thinned_within_its_bucket() {
    let mut engine = inside(SampleRate::ALL);
    bucket(&mut engine, 0, &[(1, 400)]);
    engine.keep(SampleRate::of_256(64));
    bucket(&mut engine, 1, &[(1, 400), (2, 20_000)]);
    let followed = followed(&engine, (2, 1));
    assert!((100..1_000).contains(&followed), "{followed}: 100 and the logarithm of what is beyond");
}

#[test]
fn connections_at_once_are_counted_with_their_weight() {
    let open = |n: u8| {
        let of = move |k: u32| exchange((1, n), k, u64::from(n) * 10_000 + u64::from(k)).into_iter().take(4);
        (0..1_000).flat_map(of)
    };
    let mut engine = inside(SampleRate::ALL);
    bucket(&mut engine, 0, &[(1, 1_000), (2, 10)]);
    engine.keep(SampleRate::of_256(64));
    bucket(&mut engine, 1, &[(1, 1_000), (2, 10)]);
    let mut segments: Vec<_> = open(2).collect();
    segments.sort_by_key(|segment| segment.at);
    feed(&mut engine, &segments);
    let parallel = view(&engine, 1, ms(21_100)).parallel;
    let followed = followed(&engine, (1, 2));
    assert!((200..310).contains(&followed), "{followed}");
    assert!((850..1_150).contains(&parallel), "{parallel} of a thousand, of which {followed} are followed");
    // Half of them go on in the next selection, and stand for twice as many.
    engine.keep(SampleRate::of_256(32));
    let more = |k: u32| Segment { at: ms(21_200), seq: 6_001, ..exchange((1, 2), k, 0)[3].clone() };
    feed(&mut engine, &(0..1_000).map(more).collect::<Vec<_>>());
    let fewer = self::followed(&engine, (1, 2));
    assert!((90..170).contains(&fewer), "{fewer}");
    let parallel = view(&engine, 1, ms(42_000)).parallel;
    assert!((800..1_200).contains(&parallel), "{parallel} of a thousand, of which {fewer} are followed");
}

#[test]
fn connections_older_than_a_bucket_are_kept_and_those_passed_over_are_not_taken_up() {
    let mut engine = inside(SampleRate::ALL);
    bucket(&mut engine, 0, &[(1, 500)]);
    bucket(&mut engine, 1, &[(1, 500)]);
    bucket(&mut engine, 2, &[(1, 500)]);
    engine.keep(SampleRate::of_256(64));
    let again =
        |n: u8| (0..500).map(move |k| Segment { at: ms(29_900), seq: 6_001, ..exchange((1, n), k, 0)[3].clone() });
    feed(&mut engine, &[0, 1, 2].into_iter().flat_map(again).collect::<Vec<_>>());
    let kept = [0, 1, 2].map(|n| followed(&engine, (1, n)));
    assert_eq!(kept[0], 500, "these have lasted for 20 s");
    assert!((90..160).contains(&kept[2]), "{kept:?}");
    let passed = engine.counters().ignored(Ignored::Shed);
    feed(&mut engine, &again(2).collect::<Vec<_>>());
    assert_eq!(followed(&engine, (1, 2)), kept[2]);
    assert_eq!(engine.counters().ignored(Ignored::Shed) - passed, 500 - kept[2] as u64);
}

#[test]
fn starts_by_network_are_never_counted_too_low() {
    let mut starts = Starts::new();
    let hash = |n: u64| SeededState(5).hash_one(n);
    (0..5_000u64).for_each(|n| (0..=n % 7).for_each(|_| starts.count(hash(n))));
    let exact = (0..5_000u64).filter(|n| {
        let (counted, real) = (starts.of(hash(*n)), u32::try_from(n % 7 + 1).unwrap());
        assert!(counted >= real, "{n}: {counted} of {real}");
        counted == real
    });
    assert!(exact.count() > 4_800, "collisions in both rows are few");
    starts.turn();
    assert_eq!(starts.of(hash(6)), 7, "the bucket before");
    starts.turn();
    assert_eq!(starts.of(hash(6)), 0);
}

#[test]
fn a_stray_segment_before_its_handshake_hides_no_connection() {
    let followed = |strays: u32| {
        let mut engine = inside(SampleRate::ALL);
        bucket(&mut engine, 0, &[(1, 1_000), (2, 10)]);
        engine.keep(SampleRate::of_256(64));
        let stray = |n: u32| Segment { at: ms(10_000), ..exchange((1, 1), n, 0)[2].clone() };
        feed(&mut engine, &(0..strays).map(stray).collect::<Vec<_>>());
        bucket(&mut engine, 1, &[(1, 1_000), (2, 10)]);
        (followed(&engine, (1, 1)), engine.counters().ignored(Ignored::Shed))
    };
    let (all, shed) = followed(0);
    assert!(all > 200, "{all}");
    assert_eq!(followed(1_000), (all, shed + 1_000), "the strays are passed over, and no more than those");
}

#[test]
fn weights_end_with_the_thinning() {
    let mut engine = inside(SampleRate::ALL);
    bucket(&mut engine, 0, &[(1, 1_000), (2, 10)]);
    engine.keep(SampleRate::of_256(64));
    let open = |n: u32| exchange((1, 1), n, 10_000 + u64::from(n)).into_iter().take(4);
    let mut segments: Vec<_> = (0..1_000).flat_map(open).collect();
    segments.sort_by_key(|segment| segment.at);
    feed(&mut engine, &segments);
    engine.keep(SampleRate::ALL);
    let more = |n: u32| Segment { at: ms(11_200), seq: 6_001, ..exchange((1, 1), n, 0)[3].clone() };
    feed(&mut engine, &(0..1_000).map(more).collect::<Vec<_>>());
    assert_eq!(followed(&engine, (1, 1)), 1_000);
    let parallel = view(&engine, 1, ms(31_300)).parallel;
    assert_eq!(parallel, 1_000, "each for itself");
}

#[test]
fn of_few_connections_that_are_the_whole_load_fewer_are_followed_in_the_end() {
    let mut engine = inside(SampleRate::ALL);
    bucket(&mut engine, 0, &[(1, 500)]);
    bucket(&mut engine, 3, &[(1, 2_000)]);
    let more = |n: u32| Segment { at: ms(39_900), seq: 6_001, ..exchange((1, 0), n, 0)[3].clone() };
    for (parts, range) in [(64, 500..=500), (16, 90..=160)] {
        engine.keep(SampleRate::of_256(parts));
        feed(&mut engine, &(0..500).map(more).collect::<Vec<_>>());
        let followed = followed(&engine, (1, 0));
        assert!(range.contains(&followed), "{followed} at {parts} of 256");
    }
}
