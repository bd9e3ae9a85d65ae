//! The time that one engine takes for a packet of a trace in memory: what `scripts/bench-reference` compares between two versions of the
//! engine, each in a process of its own, in turns.
//!
//! It uses no more of the engine than its oldest interface, so that an older engine can be built into it.

#[expect(
    dead_code,
    unreachable_pub,
    reason = "a part of the library is taken in, since an older engine has another library"
)]
#[path = "../../engine/src/trace/mod.rs"]
mod trace;

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use spand_core::config::{EngineConfig, Limits};
use spand_core::engine::Engine;
use spand_core::wire::Frame;
use spand_proto::units::Timestamp;

use crate::trace::{TraceConfig, frame, generate};

const USAGE: &str = "engine-time PACKETS CONNECTIONS RUNS";
/// Bytes kept of each packet.
const SNAP_LEN: usize = 96;

struct Record {
    at: Timestamp,
    start: usize,
    len: usize,
    wire_len: u32,
}

struct Trace {
    bytes: Vec<u8>,
    records: Vec<Record>,
}

impl Trace {
    fn new(packets: u64, connections: u32) -> Self {
        let config = TraceConfig { packets, connections, loss: 0.01, networks: 5_000, snap_len: SNAP_LEN, seed: 1 };
        let (mut bytes, mut records, mut buffer, mut ip_id) = (Vec::new(), Vec::new(), Vec::new(), 0u16);
        generate(&config, |at_ns, tuple, packet| {
            ip_id = ip_id.wrapping_add(1);
            let wire_len = frame::encode(&mut buffer, ip_id, at_ns, tuple, packet);
            buffer.truncate(SNAP_LEN);
            records.push(Record {
                at: Timestamp(frame::EPOCH_SECONDS * 1_000_000_000 + at_ns),
                start: bytes.len(),
                len: buffer.len(),
                wire_len: u32::try_from(wire_len).unwrap_or(u32::MAX),
            });
            bytes.extend_from_slice(&buffer);
            true
        });
        Self { bytes, records }
    }

    fn frame(&self, record: &Record) -> Frame<'_> {
        let data = self.bytes.get(record.start..record.start + record.len).unwrap_or_default();
        Frame { link_type: 1, wire_len: record.wire_len, input: 0, data }
    }

    /// Every packet through an engine in which the hosts of 10.0.0.0/8 are inside.
    fn rebuild(&self) -> (Duration, Engine) {
        let internal = "10.0.0.0/8".parse().into_iter().collect();
        let mut engine =
            Engine::new(EngineConfig { limits: Limits::for_replay(), internal, ..EngineConfig::default() });
        let begun = processor_time();
        for record in &self.records {
            engine.handle_frame(record.at, &self.frame(record));
            while engine.poll_event().is_some() {}
        }
        (processor_time().saturating_sub(begun), engine)
    }
}

fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|number| number.parse().ok()).collect();
    let &[packets, connections, runs] = numbers.as_slice() else {
        eprintln!("{USAGE}");
        std::process::exit(64);
    };
    let trace = Trace::new(packets, u32::try_from(connections).unwrap_or(u32::MAX));
    let mut best_ns = f64::MAX;
    for _ in 0..runs.max(1) {
        let (time, engine) = trace.rebuild();
        assert!(engine.counters().lower_bounds > 0, "no window was rebuilt");
        best_ns = best_ns.min(time.as_nanos() as f64 / trace.records.len().max(1) as f64);
    }
    println!("{best_ns:.1}");
}
