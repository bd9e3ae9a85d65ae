//! One kind of work on a generated trace, once: what `scripts/bench-instructions` counts the instructions of.
//!
//! `instructions write FILE`, then `instructions parse FILE`, `inside FILE` (the senders of `INSIDE` rebuilt), `sharing FILE` or
//! `both FILE`; each prints how many packets it took. `classes FILE` does what `inside` does, each class of packet ([`class`]) in a function
//! of its own, so that callgrind counts it by itself, and prints the packets of each. `unordered FILE` writes what the script has `replay` itself
//! count: short connections, recorded out of order. `--compare liss,iss` computes those rules beside the one in force.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};
use spand_capture::{Next, PacketSource, open_file};
use spand_cells::{GatewayId, Pseudonyms, Shares, Sharing, TapId};
use spand_core::config::{EngineConfig, Limits};
use spand_core::engine::Engine;
use spand_core::wire::{Decoder, Frame};
use spand_openings::{LossCount, PLACES, openings};
use spand_proto::estimate::RuleKind;
use spand_proto::units::Timestamp;
use spand_tests::ending::{arguments, exit_code};
use spand_tests::trace::{TraceConfig, write_trace, write_unordered};

/// Small enough to be counted in seconds, with the share of beginnings, losses and ends that a long trace has.
const TRACE: TraceConfig =
    TraceConfig { packets: 300_000, connections: 5_000, loss: 0.01, networks: 5_000, snap_len: 96, seed: 1 };

/// Part of the records of an unordered trace that comes late, and by how much at most: as measured in a capture of several receive queues.
const LATE: f64 = 0.1;
const LATE_NS: u64 = 319_000;

/// Packets between two looks at what is to be shared, about as a gateway takes them at once.
const TURN: u64 = 64;

/// The organisation's prefix: the servers of the generated trace.
const INSIDE: &str = "10.0.0.0/8";

#[derive(Parser)]
struct Arguments {
    work: Work,
    file: PathBuf,
    /// Rules to compute beside the one in force.
    #[arg(long, value_delimiter = ',')]
    compare: Vec<RuleKind>,
}

/// A kind of work.
#[derive(Clone, Copy, ValueEnum)]
enum Work {
    /// Write the trace.
    Write,
    /// Write one of fewer connections at a time, as several receive queues record it.
    Unordered,
    /// Read and parse it.
    Parse,
    /// Rebuild the senders inside as well.
    Inside,
    /// The same, class by class.
    Classes,
    /// Rebuild both ends as well.
    Both,
    /// As `inside`, and make the cells and halves that other gateways get.
    Sharing,
}

fn main() -> ExitCode {
    exit_code(work())
}

fn work() -> anyhow::Result<()> {
    let Arguments { work, file, compare } = arguments();
    let packets = match work {
        Work::Write => write_trace(create(&file)?, &TRACE)?.packets,
        Work::Unordered => {
            let trace = TraceConfig { connections: 1_000, networks: 1_000, ..TRACE };
            write_unordered(create(&file)?, &trace, LATE, LATE_NS)?.packets
        }
        Work::Parse => parse(&file)?,
        Work::Inside => rebuild(&file, vec![INSIDE.parse()?], compare, None)?,
        Work::Classes => classes(&file, vec![INSIDE.parse()?])?,
        Work::Both => rebuild(&file, Vec::new(), compare, None)?,
        Work::Sharing => rebuild(&file, vec![INSIDE.parse()?], compare, Some(one_of_several()))?,
    };
    println!("{packets}");
    Ok(())
}

fn create(file: &Path) -> anyhow::Result<BufWriter<File>> {
    Ok(BufWriter::new(File::create(file).with_context(|| format!("{} cannot be written", file.display()))?))
}

/// A function of its own for each class of packet.
macro_rules! classes {
    ($($class:ident)+) => {
        /// The classes, by the names of the functions in which the engine takes them.
        const CLASSES: &[(&str, fn(&mut Engine, Timestamp, &Frame<'_>))] = &[$((stringify!($class), $class)),+];

        $(
            #[inline(never)]
            fn $class(engine: &mut Engine, at: Timestamp, frame: &Frame<'_>) {
                engine.handle_frame(at, frame);
                while engine.poll_event().is_some() {}
                // Functions with equal code are made one.
                std::hint::black_box(stringify!($class));
            }
        )+
    };
}

classes!(class_syn class_fin class_request class_data class_ack class_ack_sack class_other);

/// The class of a frame of the generated trace, by its place among [`CLASSES`].
fn class(frame: &Frame<'_>) -> usize {
    const PLAIN_OPTIONS: u8 = 12;
    let byte = |at: usize| frame.data.get(at).copied().unwrap_or(0);
    let (flags, options) = (byte(47), (byte(46) >> 4) * 4 - 20);
    let payload = u16::from_be_bytes([byte(16), byte(17)]) - 40 - u16::from(options);
    match (byte(26) == 10, payload > 0) {
        _ if flags & 2 != 0 => 0,
        _ if flags & 1 != 0 => 1,
        (false, true) => 2,
        (true, true) => 3,
        (false, false) if options <= PLAIN_OPTIONS => 4,
        (false, false) => 5,
        (true, false) => 6,
    }
}

fn one_of_several() -> Sharing {
    let gateway = GatewayId(1);
    Sharing { gateway, tap: TapId::of_gateway(gateway), pseudonyms: Pseudonyms::new([7; 16]) }
}

fn parse(file: &Path) -> anyhow::Result<u64> {
    let config = EngineConfig::default();
    let mut decoder = Decoder::new(config.tunnels.clone());
    let mut payload = 0u64;
    let packets = replay(file, |at, frame| {
        payload += decoder.decode(at, frame).map_or(0, |segment| u64::from(segment.payload_len));
    })?;
    anyhow::ensure!(payload > 0, "the trace carries no data");
    Ok(packets)
}

fn rebuild(
    file: &Path,
    internal: Vec<ipnet::IpNet>,
    compare: Vec<RuleKind>,
    sharing: Option<Sharing>,
) -> anyhow::Result<u64> {
    let limits = Limits::for_replay();
    let openings = openings(RuleKind::default(), &compare, PLACES, LossCount::Episodes);
    let config = EngineConfig { limits, internal, compare, openings, ..EngineConfig::default() };
    let mut engine = Engine::new(config).sharing(sharing);
    let (mut cells, mut count) = (0, 0);
    let packets = replay(file, |at, frame| {
        engine.handle_frame(at, frame);
        while engine.poll_event().is_some() {}
        count += 1;
        if sharing.is_some() && count % TURN == 0 {
            cells += engine.take_cells().len();
        }
    })?;
    anyhow::ensure!(sharing.is_none() || cells > 0, "no cell was made");
    anyhow::ensure!(engine.counters().window_samples > 0, "no window was rebuilt");
    Ok(packets)
}

fn classes(file: &Path, internal: Vec<ipnet::IpNet>) -> anyhow::Result<u64> {
    let mut engine = Engine::new(EngineConfig { limits: Limits::for_replay(), internal, ..EngineConfig::default() });
    let mut counts = [0; CLASSES.len()];
    let packets = replay(file, |at, frame| {
        let class = class(frame);
        if let (Some((_, take)), Some(count)) = (CLASSES.get(class), counts.get_mut(class)) {
            *count += 1;
            take(&mut engine, at, frame);
        }
    })?;
    for ((class, _), count) in CLASSES.iter().zip(counts) {
        println!("{class} {count}");
    }
    Ok(packets)
}

fn replay(file: &Path, mut take: impl FnMut(Timestamp, &Frame<'_>)) -> anyhow::Result<u64> {
    let mut source = open_file(file)?;
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
