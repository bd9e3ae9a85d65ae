//! No more at a time than there is room for.

use super::*;

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
    let sampled = |n: u8, connection: u64| crate::flow::sample::WindowSample {
        at: ms(0),
        network: Network::of(IpAddr::from([198, 51, n, 1])),
        remote: [198, 51, n, 1].into(),
        connection: ConnectionId(connection),
        window: Window::from_bytes(10_000.0).unwrap(),
        mss: Bytes(1_000),
        reason: SampleReason::End,
        sawtooth: None,
        phase: crate::flow::sample::Phase::CongestionAvoidance,
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
