//! Connections that are not followed under overload: what is still announced of them.

use super::*;
use crate::event::StartImminent;
use crate::flow::sample_rate::SampleRate;

const CONNECTIONS: u32 = 51_357;

/// The packets of connection `n` with an outside host: its SYN, that again as a mirror port copies it or as its sender repeats it, and the rest
/// of the handshake.
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
        let shed = engine.counters().ignored(Ignored::Shed) as f64 / segments.len() as f64;
        assert!((shed - (1.0 - f64::from(parts) / 256.0)).abs() < 0.02, "{shed} not followed at {parts} of 256");
    }
}

#[test]
fn a_connection_that_is_not_followed_announces_its_syn_and_nothing_else() {
    let mut engine = inside(SampleRate::LEAST);
    let segments: Vec<_> = handshake(100).into_iter().chain(transfer(100, 5_001, 3)).collect();
    assert!(!engine.keeps(segments[0].source, segments[0].destination));
    let idle = [segment(ms(60_000), false, Flags::ACK | Flags::PSH, 101, 5_001 + 3 * 1_460, 300)];
    let triggers: Vec<_> = starts(&mut engine, &segments).into_iter().map(|start| start.trigger).collect();
    assert_eq!(triggers, [Trigger::PassiveOpen]);
    assert_eq!(starts(&mut engine, &idle), [], "its idle time is not known");
    let outsiders = Segment { destination: endpoint("203.0.113.1", 1), ..handshake(100)[0].clone() };
    assert!(!engine.keeps(outsiders.source, outsiders.destination));
    assert_eq!(starts(&mut engine, &[outsiders]), []);
    engine.set_own_listeners([format!("{SERVER}:80").parse().unwrap()].into());
    assert_eq!(starts(&mut engine, &[Segment { at: ms(70_000), ..handshake(900)[0].clone() }]), []);
    assert_eq!(engine.connections(), 0);
}
