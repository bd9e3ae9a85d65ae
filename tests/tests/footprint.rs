//! What a connection takes in memory in each of its states, and what a replay takes for each, counted to the byte. Each has a limit that
//! only falls: who raises one says in the commit what for, and where less is taken it is lowered. And how near the engine's account
//! comes to it.

#![expect(clippy::unwrap_used, reason = "what a test stands on either works or fails it")]

use std::fs::File;
use std::io::BufWriter;
use std::net::Ipv4Addr;

use spand_core::config::{EngineConfig, Limits};
use spand_core::engine::Engine;
use spand_core::flow::evidence::Evidence;
use spand_core::wire::Frame;
use spand_core::wire::segment::Endpoint;
use spand_gateway::replay::{Moments, Options, replay};
use spand_proto::units::Timestamp;
use spand_tests::memory::{Asked, Counted, held_bytes};
use spand_tests::silent::Silent;
use spand_tests::trace::frame::encode;
use spand_tests::trace::packet::{MSS, Packet, Tuple, control};
use spand_tests::trace::{TraceConfig, write_trace};

#[global_allocator]
static MEMORY: Counted = Counted;

/// Many short connections, as a capture of a busy service has them.
const TRACE: TraceConfig =
    TraceConfig { packets: 200_000, connections: 1_000, loss: 0.01, networks: 1_000, snap_len: 96, seed: 1 };
const INSIDE: &str = "10.0.0.0/8";
/// Limits for each connection of it.
const BYTES_INSIDE: f64 = 1_528.0;
const PIECES_INSIDE: f64 = 8.04;
const BYTES_BOTH: f64 = 1_751.0;
const PIECES_BOTH: f64 = 11.16;

/// Fails above the limit, and where it lies more than a fiftieth above what was counted.
fn held_to(limit: f64, what: &str, counted: f64) -> Option<String> {
    println!("{what}: {counted:.2} of {limit:.2}");
    if counted > limit {
        return Some(format!("{what}: {counted:.1} are more than {limit:.1}"));
    }
    (counted < 0.98 * limit).then(|| format!("{what}: {counted:.1} are less: lower the limit of {limit:.1} to that"))
}

fn no_faults(faults: impl IntoIterator<Item = Option<String>>) {
    let faults: Vec<_> = faults.into_iter().flatten().collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The most bytes at a time and the pieces of memory of a replay, for each connection.
fn replayed(inside: &[&str]) -> [f64; 2] {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pcap");
    write_trace(BufWriter::new(File::create(&path).unwrap()), &TRACE).unwrap();
    let internal = inside.iter().map(|prefix| prefix.parse().unwrap()).collect();
    let engine = EngineConfig { limits: Limits::for_replay(), internal, ..EngineConfig::default() };
    let before = Asked::begin();
    let report = replay(Options { files: vec![path], engine, moments: Moments::End }, &mut Silent).unwrap();
    let after = Asked::so_far();
    assert!(report.counters.window_samples + report.counters.lower_bounds > 1_000, "{:?}", report.counters);
    [after.most_bytes - before.bytes, after.pieces - before.pieces]
        .map(|n| n as f64 / report.counters.connections as f64)
}

#[test]
fn a_replay_takes_no_more_memory_for_a_connection_than_it_did() {
    let [inside, both] = [replayed(&[INSIDE]), replayed(&[])];
    no_faults([
        held_to(BYTES_INSIDE, "bytes, senders inside", inside[0]),
        held_to(PIECES_INSIDE, "pieces of memory, senders inside", inside[1]),
        held_to(BYTES_BOTH, "bytes, both ends", both[0]),
        held_to(PIECES_BOTH, "pieces of memory, both ends", both[1]),
    ]);
}

/// Connections that are brought into a state: as many as lie in one piece of the table.
const CONNECTIONS: u16 = 4_096;
const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 1), 443);
const REQUEST: u32 = 200;
const SERVER_ISN: u32 = 1_000_000;
const CLIENT_ISN: u32 = 5_000_000;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// An engine with one connection for each port, all of them in the same state.
struct Stage {
    engine: Engine,
    at_us: u64,
}

impl Stage {
    /// With a handshake and a request of each.
    fn new() -> Self {
        let internal = vec![INSIDE.parse().unwrap()];
        let engine = Engine::new(EngineConfig { internal, ..EngineConfig::default() });
        let mut stage = Self { engine, at_us: 1_700_000_000_000_000 };
        stage.put(false, |_| (CLIENT_ISN, 0, SYN, 0));
        stage.put(true, |_| (SERVER_ISN, CLIENT_ISN + 1, SYN | ACK, 0));
        stage.pass(50_000);
        stage.put(false, |_| (CLIENT_ISN + 1, SERVER_ISN + 1, ACK, 0));
        stage.put(false, |_| (CLIENT_ISN + 1, SERVER_ISN + 1, ACK, REQUEST));
        stage
    }

    fn pass(&mut self, us: u64) {
        self.at_us += us;
        self.engine.handle_timeout(Timestamp::from_micros(self.at_us));
    }

    /// One packet of every connection: sequence number, acknowledgement, flags, bytes.
    fn put(&mut self, from_server: bool, of: impl Fn(u32) -> (u32, u32, u8, u32)) {
        self.put_with(from_server, &[], of);
    }

    fn put_with(&mut self, from_server: bool, sack: &[(u32, u32)], of: impl Fn(u32) -> (u32, u32, u8, u32)) {
        let mut data = Vec::new();
        for n in 0..CONNECTIONS {
            let (seq, ack, flags, payload_len) = of(n.into());
            let client = (Ipv4Addr::new(198, 51, 100, 1), 1_024 + n);
            let sack = sack.iter().copied().collect();
            let packet = Packet { sack, ..control(from_server, seq, ack, flags, payload_len) };
            let at_ns = self.at_us * 1_000;
            let wire_len = encode(&mut data, n, at_ns, &Tuple { server: SERVER, client }, &packet);
            let frame = Frame { link_type: 1, wire_len: u32::try_from(wire_len).unwrap(), input: 0, data: &data };
            self.engine.handle_frame(Timestamp(at_ns), &frame);
        }
        while self.engine.poll_event().is_some() {}
    }

    /// The segments of these numbers.
    fn send(&mut self, segments: std::ops::Range<u32>, apart_us: u64) {
        for segment in segments {
            self.put(true, |_| (position(segment), CLIENT_ISN + 1 + REQUEST, ACK, MSS));
            self.pass(apart_us);
        }
    }

    fn acknowledge(&mut self, segments: u32, blocks: &[(u32, u32)]) {
        let sack: Vec<_> = blocks.iter().map(|&(from, to)| (position(from), position(to))).collect();
        self.put_with(false, &sack, |_| (CLIENT_ISN + 1 + REQUEST, position(segments), ACK, 0));
    }

    fn may_be_bbr(&self) -> bool {
        let source = Endpoint { address: SERVER.0.into(), port: SERVER.1 };
        let destination = Endpoint { address: Ipv4Addr::new(198, 51, 100, 1).into(), port: 1_024 };
        self.engine.evidence(source, destination).is_some_and(Evidence::may_be_bbr)
    }
}

fn position(segment: u32) -> u32 {
    SERVER_ISN + 1 + segment * MSS
}

/// Bytes of each connection that was brought into a state.
struct Taken {
    /// As asked for.
    asked: f64,
    /// As the allocator handed them out.
    held: f64,
    /// By the engine's account of segments and senders.
    accounted: f64,
}

fn taken(bring: impl FnOnce(&mut Stage)) -> Taken {
    let (asked, held) = (Asked::begin().bytes, held_bytes());
    let mut stage = Stage::new();
    bring(&mut stage);
    assert_eq!(stage.engine.connections(), usize::from(CONNECTIONS));
    let memory = stage.engine.memory();
    let each = |bytes: f64| bytes / f64::from(CONNECTIONS);
    Taken {
        asked: each((Asked::so_far().bytes - asked) as f64),
        held: each((held_bytes() - held) as f64),
        accounted: each((memory.segments.used_bytes + memory.senders.used_bytes) as f64),
    }
}

/// The account is never below what is held, and above it by no more than senders may allocate and most do not.
fn accounted(what: &str, taken: &Taken, place: f64) -> Option<String> {
    let part = taken.accounted / (taken.held - place);
    println!("{what}: {part:.3} accounted of what is held");
    (!(1.0..1.3).contains(&part)).then(|| format!("{what}: the account has {part:.3} of what is held"))
}

#[test]
fn a_connection_takes_no_more_memory_in_any_state_than_it_did() {
    let idle = taken(|stage| {
        stage.send(0..4, 0);
        stage.pass(50_000);
        stage.acknowledge(4, &[]);
        stage.pass(10_000_000);
    });
    let in_flight = taken(|stage| stage.send(0..4, 0));
    let full = taken(|stage| stage.send(0..48, 0));
    let recovering = taken(|stage| {
        stage.send(0..4, 0);
        stage.pass(50_000);
        (2..=4).for_each(|received| stage.acknowledge(0, &[(1, received)]));
        stage.send(0..1, 0);
        assert!(stage.engine.counters().loss_events >= u64::from(CONNECTIONS));
    });
    let paced = taken(|stage| {
        stage.send(0..10, 0);
        stage.pass(50_000);
        stage.acknowledge(8, &[]);
        stage.pass(3_000);
        stage.send(10..20, 3_500);
        assert!(stage.may_be_bbr(), "its delivery rate is measured");
    });
    let closed = taken(|stage| {
        let answered = CLIENT_ISN + 1 + REQUEST;
        stage.put(true, |_| (position(0), answered, ACK | FIN, 0));
        stage.put(false, |_| (answered, position(0) + 1, ACK | FIN, 0));
        stage.put(true, |_| (position(0) + 1, answered + 1, ACK, 0));
    });
    // A closed connection has only its place in the table.
    let place = closed.held;
    no_faults([
        held_to(1_449.5, "bytes, established and idle", idle.asked),
        held_to(1_436.0, "bytes, four segments in flight", in_flight.asked),
        held_to(1_636.0, "bytes, in recovery", recovering.asked),
        held_to(4_508.0, "bytes, perhaps BBR", paced.asked),
        held_to(252.0, "bytes, closed", closed.asked),
        accounted("established and idle", &idle, place),
        accounted("four segments in flight", &in_flight, place),
        accounted("48 segments in flight", &full, place),
        accounted("in recovery", &recovering, place),
        accounted("perhaps BBR", &paced, place),
    ]);
}
