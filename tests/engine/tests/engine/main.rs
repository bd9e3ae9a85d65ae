//! What takes loops over thousands of packets to show of the engine. What does not is a script in `scripts/`.

mod any_packets;
mod blind;
mod limits;
mod reported_window;
mod sharing;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use etherparse::{TcpHeader, TcpOptionElement};
use spand_core::config::EngineConfig;
use spand_core::engine::Engine;
use spand_core::event::Event;
use spand_core::networks::view::NetworkView;
use spand_core::wire::segment::Flags;
use spand_engine_tests::frame::{framed, take};
use spand_proto::units::{Micros, Timestamp};

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7)), 40_000);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 80);
const MSS: u32 = 1_460;

/// Where the server's data begins: both sides' first bytes after a handshake.
const FIRST: u32 = 5_001;
const CLIENT_FIRST: u32 = 101;

#[derive(Clone, Debug)]
struct Segment {
    at: Timestamp,
    from: SocketAddr,
    to: SocketAddr,
    tcp: TcpHeader,
    id: u16,
    payload: u16,
}

impl Segment {
    fn frame(&self) -> (Vec<u8>, u32) {
        let tcp = TcpHeader { source_port: self.from.port(), destination_port: self.to.port(), ..self.tcp.clone() };
        framed(&tcp, [self.from.ip(), self.to.ip()], (self.id, 0), self.payload.into())
            .unwrap_or_else(|fault| panic!("{fault}: {self:?}"))
    }

    /// The same of another client.
    fn with_client(mut self, client: SocketAddr) -> Self {
        *(if self.from == SERVER { &mut self.to } else { &mut self.from }) = client;
        self
    }

    fn later(self, ms: u64) -> Self {
        Self { at: self.at.after(Micros::from_millis(ms)), ..self }
    }
}

fn ms(n: u64) -> Timestamp {
    Timestamp(1_000_000_000_000 + n * 1_000_000)
}

/// A segment of the server's or towards it.
fn segment(at: u64, from_server: bool, flags: u8, seq: u32, ack: u32, payload: u16) -> Segment {
    let has = |flag| Flags(flags).has(flag);
    let mut tcp = TcpHeader::new(0, 0, seq, 65_535);
    (tcp.fin, tcp.syn, tcp.rst, tcp.psh) = (has(Flags::FIN), has(Flags::SYN), has(Flags::RST), has(Flags::PSH));
    (tcp.ack, tcp.urg, tcp.ece, tcp.cwr) = (has(Flags::ACK), has(Flags::URG), has(Flags::ECE), has(Flags::CWR));
    tcp.acknowledgment_number = ack;
    if tcp.syn {
        tcp.set_options(&[TcpOptionElement::MaximumSegmentSize(1_460)]).unwrap_or_else(|fault| panic!("{fault}"));
    }
    let (from, to) = if from_server { (SERVER, CLIENT) } else { (CLIENT, SERVER) };
    // The same packet with the same identification is a copy of a mirror port.
    let [low, high, ..] = at.to_le_bytes();
    Segment { at: ms(at), from, to, id: u16::from_le_bytes([low, high]), tcp, payload }
}

/// The SYN, its answer a millisecond later, and the acknowledgement after a round trip of 40 ms.
fn handshake() -> [Segment; 3] {
    [
        segment(0, false, Flags::SYN, CLIENT_FIRST - 1, 0, 0),
        segment(1, true, Flags::SYN | Flags::ACK, FIRST - 1, CLIENT_FIRST, 0),
        segment(41, false, Flags::ACK, CLIENT_FIRST, FIRST, 0),
    ]
}

/// The n-th full segment of the server's.
fn data(at: u64, n: u32) -> Segment {
    segment(at, true, Flags::ACK, FIRST + n * MSS, CLIENT_FIRST, 1_460)
}

/// The client acknowledges those before the n-th.
fn acked(at: u64, n: u32) -> Segment {
    segment(at, false, Flags::ACK, CLIENT_FIRST, FIRST + n * MSS, 0)
}

/// A transfer of the server's, acknowledged 100 ms later.
fn transfer(at: u64, segments: std::ops::Range<u32>) -> Vec<Segment> {
    segments.clone().map(|n| data(at, n)).chain([acked(at + 100, segments.end)]).collect()
}

fn feed(engine: &mut Engine, segments: &[Segment]) {
    for segment in segments {
        take(engine, segment.at, &segment.frame());
    }
}

fn events(engine: &mut Engine) -> Vec<Event> {
    std::iter::from_fn(|| engine.poll_event()).collect()
}

/// What is known of the network of a client.
fn view(engine: &Engine, client: IpAddr, at: u64) -> Option<NetworkView> {
    engine.networks().view(engine.network_of(client), ms(at))
}

fn inside() -> EngineConfig {
    EngineConfig { internal: "192.0.2.0/24".parse().into_iter().collect(), ..EngineConfig::default() }
}
