//! How fast one core replays: a generated trace through the file reader alone, through the decoder, and through the engine.
//!
//! Times are processor time of the one thread that does the work, the best of several runs, so that a busy machine shows
//! its speed and not its load. The ratio of engine to decoder says what reconstruction costs on top of a bare parse. The
//! engine runs twice: as at an organisation's egress, where the hosts of `--internal` are rebuilt, and with both ends of
//! every connection rebuilt, as `replay` does where no prefix is named. Memory is what the process holds when the engine has
//! seen everything, less what it held before there was one.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use ipnet::IpNet;
use spand_capture::{Next, PacketSource, open_file};
use spand_core::config::{EngineConfig, Limits};
use spand_core::engine::Engine;
use spand_core::wire::{Decoder, Frame};
use spand_proto::units::Timestamp;
use spand_tests::memory::{resident_bytes, thread_time};
use spand_tests::trace::extreme::{Extreme, write_extreme};
use spand_tests::trace::{TraceConfig, write_trace};

/// Octets kept of each packet of a generated trace.
const SNAP_LEN: usize = 96;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Packets of the generated trace.
    #[arg(long, default_value_t = 5_000_000)]
    packets: u64,
    /// Connections open at a time.
    #[arg(long, default_value_t = 50_000)]
    connections: u32,
    /// Probability that a data packet is lost behind the tap.
    #[arg(long, default_value_t = 0.01)]
    loss: f64,
    /// Runs of each kind; the best counts.
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// The organisation's prefix; the servers of the generated trace lie in the default.
    #[arg(long, default_value = "10.0.0.0/8")]
    internal: IpNet,
    /// Connections that the engine has room for.
    #[arg(long, default_value_t = Limits::default().connections)]
    limit: NonZeroUsize,
    /// A trace that no network has, instead of a usual one.
    #[arg(long)]
    extreme: Option<Extreme>,
    /// Replay this capture instead of a generated one.
    #[arg(long)]
    file: Option<PathBuf>,
}

/// Processor time per packet of one kind of work.
struct Timing {
    packets: u64,
    best: Duration,
}

impl Timing {
    fn nanoseconds(&self) -> f64 {
        self.best.as_nanos() as f64 / self.packets.max(1) as f64
    }

    fn print(&self, name: &str, base: &Self) {
        println!(
            "{name:<36} {:>7.1} ns/packet  {:>6.2} M packets/s  {:>5.2} x",
            self.nanoseconds(),
            1_000.0 / self.nanoseconds(),
            self.nanoseconds() / base.nanoseconds()
        );
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = match &arguments.file {
        Some(path) => path.clone(),
        None => generate(arguments, folder.path())?,
    };
    let read = best_of(arguments.runs, || replay(&path, |_, _| {}))?;
    let parsed = best_of(arguments.runs, || {
        let config = EngineConfig::default();
        let mut decoder = Decoder::new(config.tunnels.clone());
        let mut payload = 0u64;
        let count = replay(&path, |at, frame| {
            let segment = decoder.decode(at, frame);
            payload += segment.map_or(0, |segment| u64::from(segment.payload_len));
        })?;
        anyhow::ensure!(payload > 0, "the trace carries no data");
        Ok(count)
    })?;
    read.print("read", &parsed);
    parsed.print("read, parse", &parsed);
    let before = resident_bytes("self")?;
    for (name, internal) in [("rebuild senders inside", vec![arguments.internal]), ("rebuild both ends", Vec::new())] {
        let mut engine = None;
        let rebuilt = best_of(arguments.runs, || {
            // The memory of the run before goes first.
            drop(engine.take());
            let limits = Limits { connections: arguments.limit, ..Limits::for_replay() };
            let config = EngineConfig { limits, internal: internal.clone(), ..EngineConfig::default() };
            let engine = engine.insert(Engine::new(config));
            replay(&path, |at, frame| {
                engine.handle_frame(at, frame);
                while engine.poll_event().is_some() {}
            })
        })?;
        rebuilt.print(&format!("read, parse, {name}"), &parsed);
        if let Some(engine) = engine {
            let held = resident_bytes("self")?.saturating_sub(before);
            println!("{} connections at the end, {} MB, {:?}", engine.connections(), held >> 20, engine.counters());
        }
    }
    Ok(())
}

fn generate(arguments: &Arguments, folder: &Path) -> anyhow::Result<PathBuf> {
    let path = folder.join("trace.pcap");
    let file = std::io::BufWriter::new(std::fs::File::create(&path)?);
    if let Some(extreme) = arguments.extreme {
        let summary =
            write_extreme(file, extreme, arguments.packets, SNAP_LEN).context("the trace cannot be written")?;
        println!("{extreme:?} {summary:?}");
        return Ok(path);
    }
    let config = TraceConfig {
        packets: arguments.packets,
        connections: arguments.connections,
        loss: arguments.loss,
        networks: 5_000,
        snap_len: SNAP_LEN,
        seed: 1,
    };
    let summary = write_trace(file, &config).context("the trace cannot be written")?;
    println!("{summary:?}");
    Ok(path)
}

fn best_of(runs: u32, mut run: impl FnMut() -> anyhow::Result<u64>) -> anyhow::Result<Timing> {
    let mut timing = Timing { packets: 0, best: Duration::MAX };
    for _ in 0..runs.max(1) {
        let begun = thread_time()?;
        timing.packets = run()?;
        timing.best = timing.best.min(thread_time()?.saturating_sub(begun));
    }
    Ok(timing)
}

fn replay(path: &Path, mut take: impl FnMut(Timestamp, &Frame<'_>)) -> anyhow::Result<u64> {
    let mut source = open_file(path)?;
    let mut packets = 0;
    loop {
        match source.next_packet()? {
            Next::Packet(packet) => {
                packets += 1;
                let frame =
                    Frame { link_type: packet.link_type.0, wire_len: packet.wire_len, input: 0, data: packet.data };
                take(packet.timestamp, &frame);
            }
            Next::End => return Ok(packets),
            Next::Idle => bail!("a file is never idle"),
        }
    }
}
