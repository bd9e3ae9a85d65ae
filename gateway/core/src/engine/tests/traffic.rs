//! What passes to and from networks.

use spand_proto::network::Network;

use super::*;
use crate::types::{Flow, Flows, SampleRate};

fn inside() -> Engine {
    let internal = vec!["192.0.2.0/24".parse().unwrap()];
    Engine::new(EngineConfig { internal, ..EngineConfig::default() })
}

fn flow(packets: u64, bytes: u64, retransmitted_packets: u64, retransmitted_bytes: u64) -> Flow {
    Flow { packets, bytes, retransmitted_packets, retransmitted_bytes }
}

fn flows(engine: &Engine, now: Timestamp) -> Option<Flows> {
    let view = engine.network(Network::of(CLIENT.parse().unwrap()), now)?;
    assert_eq!(view.traffic.window, view.traffic.total, "in the window's first span");
    Some(view.traffic.total)
}

/// A connection in which the server sent a segment, so that its network is in the table.
fn begun() -> Engine {
    let mut engine = inside();
    feed(&mut engine, &handshake(100));
    feed(&mut engine, &transfer(45, 5_001, 1));
    engine.handle_timeout(ms(90_000));
    engine
}

/// Data of the client, in a connection in which the server acknowledges it at once.
fn upload(at: u64, seq: u32, payload_len: u32, ts: u32) -> [Segment; 2] {
    let data = segment(ms(at), false, Flags::ACK, seq, 5_001, payload_len);
    let timestamps = Some(Timestamps { value: ts, echo: 0 });
    let data = Segment { options: Options { timestamps, ..data.options.clone() }, ..data };
    [data, segment(ms(at), true, Flags::ACK, 5_001, seq + payload_len, 0)]
}

#[test]
fn both_directions_are_counted_and_copies_of_the_mirror_port_are_not() {
    let mut engine = inside();
    feed(&mut engine, &handshake(100));
    let mut segments = transfer(100, 5_001, 4);
    segments.iter_mut().zip(1..).for_each(|(segment, id)| segment.ip_id = Some(id));
    segments.insert(1, segments[0].clone());
    // The first again, in recovery, and one byte that keeps the connection alive.
    segments.insert(5, Segment { at: ms(150), ip_id: Some(90), ..segments[0].clone() });
    segments.push(Segment {
        at: ms(900),
        ip_id: Some(91),
        payload_len: 1,
        seq: 5_000 + 4 * 1_460,
        ..segments[0].clone()
    });
    feed(&mut engine, &segments);
    engine.handle_timeout(ms(10_000));
    let expected = Flows { outbound: flow(7, 5 * 1_460 + 1, 1, 1_460), inbound: flow(3, 0, 0, 0) };
    assert_eq!(flows(&engine, ms(10_000)), Some(expected));
    let counters = engine.counters();
    assert_eq!((counters.traffic_out_bytes, counters.traffic_out_packets), (5 * 1_460 + 1, 7));
    assert_eq!((counters.traffic_out_retransmitted_bytes, counters.traffic_in_packets), (1_460, 3));
    assert_eq!(counters.traffic_out_covered_bytes, 0, "it has no estimate");
}

#[test]
fn what_a_host_outside_sends_again_counts_and_what_was_overtaken_does_not() {
    let mut engine = begun();
    let before = flows(&engine, ms(90_000)).unwrap();
    assert_eq!((before.outbound, before.inbound), (flow(2, 1_460, 0, 0), flow(3, 0, 0, 0)));
    // The second is lost before the tap and comes again, the fourth is overtaken by the fifth.
    for (n, seq, ts) in [(0, 0, 1), (1, 2, 3), (2, 1, 9), (3, 4, 12), (4, 3, 11), (5, 5, 13)] {
        feed(&mut engine, &upload(100_000 + n, 101 + seq * 1_000, 1_000, ts));
    }
    engine.handle_timeout(ms(103_000));
    let flows = flows(&engine, ms(103_000)).unwrap();
    assert_eq!(flows.inbound, flow(9, 6_000, 1, 1_000));
    assert_eq!(flows.inbound.loss(), Some(1.0 / 6.0));
}

#[test]
fn what_the_capture_brings_after_its_acknowledgement_was_not_sent_before() {
    let mut engine = begun();
    let [data, ack] = upload(100_000, 101, 1_000, 1);
    feed(&mut engine, &[ack, Segment { at: ms(100_001), ..data }]);
    engine.handle_timeout(ms(103_000));
    assert_eq!(flows(&engine, ms(103_000)).unwrap().inbound, flow(4, 1_000, 0, 0));
}

#[test]
fn a_download_keeps_its_network_and_a_network_that_falls_silent_goes() {
    let mut engine = begun();
    for s in 0..400_u32 {
        feed(&mut engine, &upload(100_000 + 1_000 * u64::from(s), 101 + s * 1_000, 1_000, 10 * s));
    }
    let view = |engine: &Engine, s: u64| engine.network(Network::of(CLIENT.parse().unwrap()), ms(s * 1_000));
    let traffic = view(&engine, 499).unwrap().traffic;
    let window = traffic.window.inbound.bytes;
    // Up to a bucket is not in the window any more, and up to some seconds are not handed over.
    assert!((285_000..=300_000).contains(&window), "{window}");
    assert!(traffic.total.inbound.bytes >= 395_000, "{traffic:?}");
    let span = traffic.span(ms(0)).as_secs_f64();
    assert!((290.0..=300.0).contains(&span), "{span}");
    engine.handle_timeout(ms(502_000));
    assert_eq!(view(&engine, 502).unwrap().traffic.total.inbound.bytes, 400_000, "silent for long enough");
    engine.handle_timeout(ms(820_000));
    assert_eq!((view(&engine, 820), engine.network_count()), (None, 0));
}

/// Time without frames does not move what passed before it into another bucket.
#[test]
fn what_is_handed_over_late_counts_when_it_passed() {
    let mut engine = begun();
    feed(&mut engine, &upload(100_000, 101, 1_000, 1));
    engine.handle_timeout(ms(250_000));
    let window = |s: u64| engine.network(Network::of(CLIENT.parse().unwrap()), ms(s * 1_000));
    assert_eq!(window(399).map(|view| view.traffic.window.inbound.bytes), Some(1_000));
    assert_eq!(window(401).map(|view| view.traffic.window.inbound.bytes), None);
}

#[test]
fn a_flood_of_openings_makes_no_network() {
    let mut engine = inside();
    for n in 0..1_000 {
        let syn = segment(ms(n), false, Flags::SYN, 100, 0, 0);
        let source =
            Endpoint { address: IpAddr::from((0xc633_0000 + u32::try_from(n << 8).unwrap()).to_be_bytes()), port: 9 };
        feed(&mut engine, &[Segment { source, ..syn }]);
    }
    engine.handle_timeout(ms(200_000));
    assert_eq!((engine.network_count(), engine.counters().traffic_in_packets), (0, 1_000));
}

#[test]
fn connections_that_end_of_other_prefixes_or_under_overload_hand_over_before() {
    let expected = Some(Flows { outbound: flow(11, 10 * 1_460, 0, 0), inbound: flow(3, 0, 0, 0) });
    for shed in [false, true] {
        let mut engine = inside();
        feed(&mut engine, &handshake(100));
        feed(&mut engine, &transfer(100, 5_001, 10));
        if shed {
            engine.keep(SampleRate::LEAST);
            feed(&mut engine, &transfer(300, 5_001 + 10 * 1_460, 1));
        } else {
            engine.set_prefixes(vec!["192.0.2.0/25".parse().unwrap(), "203.0.113.0/24".parse().unwrap()], Vec::new());
            assert_eq!(engine.connections(), 1, "it means the same to this one");
            engine.finish(ms(300));
            while engine.poll_event().is_some() {}
        }
        assert_eq!(flows(&engine, ms(300)), expected, "shed: {shed}");
    }
}
