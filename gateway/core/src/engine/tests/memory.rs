//! Accounts in bytes, and what happens where one is full.

use super::*;
use crate::memory::{FEW_BYTES, FEW_SEGMENTS};

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
