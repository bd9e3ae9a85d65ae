//! Floods beside real connections: what they do to the estimates of real networks, and to the engine's tables.
//!
//! The real part is a generated trace ([`crate::trace`]); a flood is mixed into it packet by packet, in trace time. What is
//! asked is how the networks stand with the flood against the same trace without it.

mod blind;
mod flood;
mod hoard;
pub mod tunnels;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use spand_core::config::{EngineConfig, Limits};
use spand_core::counters::Counters;
use spand_core::engine::Engine;
use spand_core::mem::MemoryUse;
use spand_core::wire::Frame;
use spand_proto::network::Network;
use spand_proto::units::Timestamp;

pub use blind::Blind;
use blind::Spoofer;
use flood::Flood;
pub use flood::Kind;
pub use hoard::Hoard;
use hoard::Hoarding;

use crate::trace::frame::{EPOCH_SECONDS, encode};
use crate::trace::packet::{Packet, Tuple};
use crate::trace::{TraceConfig, generate};

/// A network under attack.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// How long, in seconds of the trace.
    pub seconds: u64,
    /// Real connections at a time.
    pub connections: u32,
    /// Client networks that they go to.
    pub networks: u32,
    /// Connections that the engine has room for.
    pub limit: NonZeroUsize,
    /// New tuples of the flood per second.
    pub tuples_per_second: u64,
    /// Memory that the engine has for outstanding segments.
    pub segment_memory_bytes: NonZeroUsize,
}

/// What comes beside the real connections.
#[derive(Clone, Copy, Debug)]
pub enum Attack {
    /// New tuples all the time.
    Flood(Kind),
    /// Segments that nobody acknowledges.
    Hoard(Hoard),
    /// Packets with drawn numbers on every real connection.
    Blind(Blind),
}

/// What became of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Every ten seconds, the share of each network with an estimate, in bytes.
    pub shares: Vec<BTreeMap<Network, f64>>,
    /// Most connections in the table at any of these moments.
    pub most_connections: usize,
    /// What the engine counted.
    pub counters: Counters,
    /// Networks in the table at the end.
    pub networks: usize,
    /// Tuples of the flood, or connections with blind packets.
    pub tuples: u64,
    /// The engine's accounts of memory at the end.
    pub memory: MemoryUse,
    /// Most bytes of segments that it had at any time, by its account.
    pub most_segment_bytes: usize,
    /// `held_bytes` with the engine at the end, above its value before.
    pub held_bytes: u64,
    /// Memory that the process holds with the engine at the end, in MiB; that of engines before may be among it.
    pub resident_mib: u64,
}

impl Scene {
    /// Plays it with an attack, or without one. `held_bytes` says what the caller's allocator has handed out.
    pub fn play(&self, attack: Option<Attack>, held_bytes: impl Fn() -> u64) -> Outcome {
        let before = held_bytes();
        let trace = TraceConfig {
            packets: u64::MAX,
            connections: self.connections,
            loss: 0.01,
            networks: self.networks,
            snap_len: 0,
            seed: 3,
        };
        let mut tap = Tap::new(self);
        let mut flood = None;
        let mut hoarding = None;
        let mut spoofer = None;
        match attack {
            Some(Attack::Flood(kind)) => flood = Some(Flood::new(kind, self.tuples_per_second, self.networks)),
            Some(Attack::Hoard(hoard)) => hoarding = Some(Hoarding::new(hoard)),
            Some(Attack::Blind(blind)) => spoofer = Some(Spoofer::new(blind)),
            None => {}
        }
        let (end_ns, mut look_ns) = (self.seconds * 1_000_000_000, LOOK_NS);
        generate(&trace, |at_ns, tuple, packet| {
            if let Some(flood) = &mut flood {
                flood.until(at_ns, |at_ns, tuple, packet| tap.see(at_ns, tuple, packet));
            }
            if let Some(hoarding) = &mut hoarding {
                hoarding.until(at_ns, |at_ns, tuple, packet| tap.see(at_ns, tuple, packet));
            }
            while at_ns >= look_ns {
                tap.look(look_ns);
                look_ns += LOOK_NS;
            }
            tap.see(at_ns, tuple, packet);
            if let Some(spoofer) = &mut spoofer {
                spoofer.after(tuple, packet).iter().for_each(|packet| tap.see(at_ns, tuple, packet));
            }
            at_ns < end_ns
        });
        let Tap { engine, mut outcome, .. } = tap;
        outcome.memory = engine.memory();
        outcome.held_bytes = held_bytes().saturating_sub(before);
        outcome.counters = engine.counters().clone();
        outcome.networks = engine.networks().views(Timestamp(EPOCH_NS + end_ns)).len();
        outcome.tuples = flood.map(|flood| flood.tuples()).or(spoofer.map(|one| one.connections())).unwrap_or(0);
        outcome.resident_mib = resident_mib();
        drop(engine);
        outcome
    }
}

impl Outcome {
    /// How far the shares are from those `without` the flood: the furthest, the mean of the distances, and how many
    /// estimates are missing of how many.
    pub fn moved(&self, without: &Self) -> (f64, f64, usize, usize) {
        let (mut furthest, mut sum, mut there, mut missing) = (0.0_f64, 0.0, 0, 0);
        for (with, without) in self.shares.iter().zip(&without.shares) {
            for (network, share) in without {
                match with.get(network) {
                    Some(moved) => {
                        let moved = moved / share - 1.0;
                        (there, sum) = (there + 1, sum + moved.abs());
                        furthest = if moved.abs() > furthest.abs() { moved } else { furthest };
                    }
                    None => missing += 1,
                }
            }
        }
        (furthest, sum / f64::max(f64::from(there), 1.0), missing, missing + usize::try_from(there).unwrap_or(0))
    }
}

/// Memory in use by this process.
fn resident_mib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    (pages.unwrap_or(0) * 4_096) >> 20
}

const LOOK_NS: u64 = 10_000_000_000;
const EPOCH_NS: u64 = EPOCH_SECONDS * 1_000_000_000;

/// The mirror port and the engine behind it.
struct Tap {
    engine: Engine,
    frame: Vec<u8>,
    ip_id: u16,
    outcome: Outcome,
}

impl Tap {
    fn new(scene: &Scene) -> Self {
        let (connections, segment_memory_bytes) = (scene.limit, scene.segment_memory_bytes);
        let config = EngineConfig {
            internal: vec!["10.0.0.0/8".parse().expect("a prefix")],
            limits: Limits { connections, segment_memory_bytes, ..Limits::default() },
            ..EngineConfig::default()
        };
        Self { engine: Engine::new(config), frame: Vec::new(), ip_id: 0, outcome: Outcome::default() }
    }

    fn see(&mut self, at_ns: u64, tuple: &Tuple, packet: &Packet) {
        self.ip_id = self.ip_id.wrapping_add(1);
        let wire_len = encode(&mut self.frame, self.ip_id, at_ns, tuple, packet);
        let wire_len = u32::try_from(wire_len).unwrap_or(u32::MAX);
        let frame = Frame { link_type: 1, wire_len, input: 0, data: &self.frame };
        self.engine.handle_frame(Timestamp(EPOCH_NS + at_ns), &frame);
        while self.engine.poll_event().is_some() {}
        let segments = self.engine.memory().segments.used_bytes;
        self.outcome.most_segment_bytes = self.outcome.most_segment_bytes.max(segments);
    }

    fn look(&mut self, at_ns: u64) {
        let views = self.engine.networks().views(Timestamp(EPOCH_NS + at_ns));
        let shares = views.into_iter().filter_map(|view| Some((view.network, view.estimate?.share.bytes())));
        self.outcome.shares.push(shares.collect());
        self.outcome.most_connections = self.outcome.most_connections.max(self.engine.connections());
    }
}
