//! Accounts in bytes, and what happens where one is full.

use super::*;
use crate::mem::{FEW_BYTES, FEW_SEGMENTS};

/// A segment of the n-th connection.
fn of(port: u16, segment: Segment) -> Segment {
    let [mut source, mut destination] = [segment.source, segment.destination];
    let client = if source.port == 80 { &mut destination } else { &mut source };
    client.port = port;
    Segment { source, destination, ..segment }
}

/// The n-th byte that the server sends, and an acknowledgement of all below the n-th.
fn byte(at: u64, n: u32) -> Segment {
    segment(ms(at), true, Flags::ACK, 5_001 + n, 101, 1)
}

fn acked(at: u64, n: u32) -> Segment {
    segment(ms(at), false, Flags::ACK, 101, 5_001 + n, 0)
}

fn with_segments(memory_bytes: usize) -> Engine {
    let segment_memory_bytes = NonZeroUsize::new(memory_bytes).unwrap();
    Engine::new(EngineConfig {
        internal: vec!["192.0.2.0/24".parse().unwrap()],
        limits: Limits { segment_memory_bytes, ..Limits::default() },
        ..EngineConfig::default()
    })
}

fn open(engine: &mut Engine, ports: std::ops::Range<u16>) {
    for port in ports {
        feed(engine, &handshake(100).map(|segment| of(port, segment)));
    }
}

fn send(engine: &mut Engine, port: u16, at: u64, numbers: std::ops::Range<u32>) {
    numbers.for_each(|n| feed(engine, &[of(port, byte(at, n))]));
}

fn used(engine: &Engine) -> usize {
    engine.memory().segments.used_bytes
}

#[test]
fn those_without_an_acknowledgement_give_room_first_and_then_who_waits_for_one_longest() {
    // Four with 48 segments each, and two with a few.
    let room = 4 * (48 * 32 + 16) + usize::try_from(FEW_BYTES).unwrap();
    let mut engine = with_segments(room);
    open(&mut engine, 1..7);
    for port in 1..=3 {
        send(&mut engine, port, 100, 0..48);
        feed(&mut engine, &[of(port, acked(150 + u64::from(port), 24))]);
    }
    send(&mut engine, 4, 200, 0..48);
    let given = |engine: &Engine| engine.counters().ignored(Ignored::SegmentMemory);
    assert_eq!((given(&engine), used(&engine)), (0, room));
    send(&mut engine, 5, 300, 0..48);
    assert_eq!(given(&engine), 1, "the fourth");
    assert!(used(&engine) <= room);
    feed(&mut engine, &[of(5, acked(400, 24)), of(1, acked(3_000, 30))]);
    send(&mut engine, 6, 3_100, 0..4);
    feed(&mut engine, &[of(6, acked(3_110, 4))]);
    send(&mut engine, 6, 3_120, 4..52);
    assert_eq!(given(&engine), 2, "the second waits longest");
    let before = used(&engine);
    feed(&mut engine, &[of(2, acked(3_200, 48)), of(4, acked(3_200, 48))]);
    assert_eq!(used(&engine), before, "what is left of both are a few segments");
    assert_eq!(engine.counters().ignored(Ignored::BeyondWindow), 0);
    assert_eq!(engine.connections(), 6, "none went");
    engine.handle_timeout(ms(10_000_000));
    assert_eq!((engine.connections(), used(&engine)), (0, 0));
    assert_eq!(engine.memory().senders.used_bytes, 0);
}

#[test]
fn what_one_that_gave_room_has_outstanding_is_acknowledged_as_ever() {
    let mut engine = with_segments(1);
    open(&mut engine, 1..2);
    send(&mut engine, 1, 100, 0..1_000);
    assert!(used(&engine) <= usize::try_from(FEW_BYTES).unwrap());
    feed(&mut engine, &[of(1, acked(150, 500)), of(1, acked(160, 1_000))]);
    engine.handle_timeout(ms(5_000));
    assert_eq!(engine.counters().loss_events, 0);
    assert_eq!(engine.counters().service_sizes, 1, "the transfer has its end");
}

#[test]
fn a_connection_without_any_acknowledgement_is_forgotten_soon() {
    let mut engine = with_segments(1 << 20);
    open(&mut engine, 1..4);
    send(&mut engine, 1, 100, 0..100);
    send(&mut engine, 2, 100, 0..100);
    send(&mut engine, 3, 100, 0..u32::try_from(FEW_SEGMENTS).unwrap());
    feed(&mut engine, &[of(2, acked(200, 50))]);
    engine.handle_timeout(ms(60_099));
    assert_eq!(engine.connections(), 3);
    engine.handle_timeout(ms(60_100));
    assert_eq!((engine.connections(), engine.counters().ignored(Ignored::Unacknowledged)), (2, 1));
    engine.handle_timeout(ms(3_600_000));
    assert_eq!(
        engine.connections(),
        1,
        "one with little stays as one that opens does, one with some acknowledged longer"
    );
}

#[test]
fn a_transfer_s_end_gives_its_room_back() {
    let mut engine = with_segments(1 << 20);
    open(&mut engine, 1..2);
    send(&mut engine, 1, 100, 0..48);
    let most = used(&engine);
    feed(&mut engine, &[of(1, acked(200, 48))]);
    assert_eq!(used(&engine), most, "it may go on");
    engine.handle_timeout(ms(10_000));
    assert_eq!((used(&engine), engine.connections()), (0, 1));
}

#[test]
fn a_window_that_shrinks_gives_room_back_while_it_is_in_use() {
    let mut engine = with_segments(1 << 30);
    open(&mut engine, 1..2);
    send(&mut engine, 1, 100, 0..10_000);
    let most = used(&engine);
    for n in 1..1_000 {
        feed(&mut engine, &[of(1, acked(200, n * 10))]);
    }
    assert!(used(&engine) * 100 < most, "{} of {most}", used(&engine));
}

#[test]
fn the_connection_idle_longest_goes_where_senders_take_too_much() {
    let sender_memory_bytes = NonZeroUsize::new(20_000).unwrap();
    let limits = Limits { sender_memory_bytes, ..Limits::default() };
    let mut engine = Engine::new(EngineConfig { limits, ..EngineConfig::default() });
    for port in 1..100 {
        open(&mut engine, port..port + 1);
        send(&mut engine, port, 100, 0..1);
        assert!(engine.memory().senders.used_bytes <= 20_000);
    }
    let (connections, evicted) = (engine.connections() as u64, engine.counters().connections_evicted);
    assert!(connections > 5 && connections + evicted == 99, "{connections} and {evicted}");
    assert_eq!(engine.counters().ignored(Ignored::NoRoom), evicted);
}

// No more at a time than there is room for.

/// `count` connections of which both directions were seen, at one moment.
fn connections(engine: &mut Engine, count: u16) {
    for port in 1..=count {
        for mut segment in handshake(100) {
            let client = if segment.source.port == 80 { &mut segment.destination } else { &mut segment.source };
            client.port = port;
            feed(engine, &[Segment { at: ms(0), ..segment }]);
        }
    }
}

fn limited_events(limit: usize) -> Limits {
    Limits { events: NonZeroUsize::new(limit).unwrap(), ..Limits::default() }
}

#[test]
fn every_report_comes_at_the_end_within_the_limit_of_events() {
    let mut engine = with_reports(EngineConfig { limits: limited_events(EVENTS_PER_STEP), ..EngineConfig::default() });
    connections(&mut engine, 100);
    while engine.poll_event().is_some() {}
    engine.finish(ms(1));
    assert_eq!(engine.connections(), 100, "none ends before there is room");
    let mut reports = 0;
    while let Some(event) = engine.poll_event() {
        reports += usize::from(matches!(event, Event::DirectionEnded(_)));
        assert!(engine.events.len() < EVENTS_PER_STEP);
    }
    assert_eq!((reports, engine.connections()), (200, 0));
    assert_eq!((engine.counters().connections_ended, engine.counters().ignored(Ignored::EventQueueFull)), (100, 0));
}

#[test]
fn silence_ends_no_more_connections_at_a_time_than_there_is_room_for() {
    let mut engine = with_reports(EngineConfig { limits: limited_events(40), ..EngineConfig::default() });
    connections(&mut engine, 100);
    while engine.poll_event().is_some() {}
    let (later, mut reports) = (ms(10_000_000), 0);
    for _ in 0..100 {
        engine.handle_timeout(later);
        assert!(engine.events.len() <= 40);
        reports += std::iter::from_fn(|| engine.poll_event())
            .filter(|event| matches!(event, Event::DirectionEnded(_)))
            .count();
    }
    assert_eq!((reports, engine.connections(), engine.counters().ignored(Ignored::EventQueueFull)), (200, 0, 0));
}

#[test]
fn networks_age_no_faster_than_there_is_room_for_their_events() {
    let mut engine = Engine::new(EngineConfig { limits: limited_events(7), ..EngineConfig::default() });
    let sampled = |n: u8, connection: u64| crate::types::WindowSample {
        at: ms(0),
        network: Network::of(IpAddr::from([198, 51, n, 1])),
        remote: [198, 51, n, 1].into(),
        connection: ConnectionId(connection),
        window: Window::from_bytes(10_000.0).unwrap(),
        mss: Bytes(1_000),
        reason: SampleReason::End,
        sawtooth: None,
        phase: crate::types::Phase::CongestionAvoidance,
        transfer: Bytes(100_000),
        advised: false,
        rtt_min: None,
        rtt: None,
    };
    engine.handle_timeout(ms(0));
    for n in 0..50 {
        (1..=3).for_each(|connection| engine.networks.add(&sampled(n, connection)));
        engine.take_network_events();
        assert!(matches!(engine.poll_event(), Some(Event::Estimate(_))));
    }
    let mut gone = 0;
    for _ in 0..10 {
        engine.handle_timeout(ms(400_000));
        gone += std::iter::from_fn(|| engine.poll_event()).count();
    }
    assert_eq!((gone, engine.counters().ignored(Ignored::EventQueueFull)), (50, 0));
}
