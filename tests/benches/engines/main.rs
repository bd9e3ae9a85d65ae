//! What several engines side by side gain: a generated trace in memory, taken by one engine, and by several at once.
//!
//! `cargo bench -p spand-tests --bench engines -- [--packets N] [--connections N] [--engines N] [--runs N] [--divided]`
//!
//! Every engine is given every packet and leaves those of others alone after a look at their addresses, as where no
//! reader divides them; with `--divided` each is given its own, as by the gateway's capture threads. Counted is the processor
//! time of the busiest thread, the best of several runs, and the time on the wall beside it.

use std::num::NonZeroU32;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Parser;
use ipnet::IpNet;
use nix::time::{ClockId, clock_gettime};
use spand_capture::{Next, PacketSource, open_file};
use spand_core::config::{EngineConfig, Limits};
use spand_core::engine::Engine;
use spand_core::shard::{Partition, Shard, Takers};
use spand_core::wire::Frame;
use spand_proto::units::Timestamp;
use spand_tests::trace::{TraceConfig, write_trace};

/// Octets kept of each packet.
const SNAP_LEN: usize = 96;

#[derive(Parser)]
struct Arguments {
    /// Packets of the generated trace.
    #[arg(long, default_value_t = 5_000_000)]
    packets: u64,
    /// Connections open at a time.
    #[arg(long, default_value_t = 50_000)]
    connections: u32,
    /// Engines side by side.
    #[arg(long, default_value = "2")]
    engines: NonZeroU32,
    /// Runs of each kind; the best counts.
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Give each engine its own packets alone.
    #[arg(long)]
    divided: bool,
    /// What `cargo bench` passes.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The packets of a trace in memory.
#[derive(Default)]
struct Trace {
    octets: Vec<u8>,
    packets: Vec<Packet>,
}

struct Packet {
    at: Timestamp,
    wire_len: u32,
    start: usize,
    end: usize,
}

impl Trace {
    fn frame(&self, packet: &Packet) -> Frame<'_> {
        let data = self.octets.get(packet.start..packet.end).unwrap_or_default();
        Frame { link_type: 1, wire_len: packet.wire_len, input: 0, data }
    }
}

/// One way of sharing the work, measured.
struct Timing {
    busiest: Duration,
    wall: Duration,
    samples: u64,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let trace = generate(&arguments)?;
    let internal: Vec<IpNet> = vec!["10.0.0.0/8".parse()?];
    let config = EngineConfig { internal, limits: Limits::for_replay(), ..EngineConfig::default() };
    let one = best_of(arguments.runs, || run(&trace, &config, NonZeroU32::MIN, false))?;
    let several = best_of(arguments.runs, || run(&trace, &config, arguments.engines, arguments.divided))?;
    let per_packet = |time: Duration| time.as_nanos() as f64 / trace.packets.len().max(1) as f64;
    for (name, timing) in [("1 engine".to_owned(), &one), (format!("{} engines", arguments.engines), &several)] {
        println!(
            "{name:<12} {:>7.1} ns/packet of the busiest thread, {:>7.1} on the wall, {} samples",
            per_packet(timing.busiest),
            per_packet(timing.wall),
            timing.samples
        );
    }
    let gain = |before: Duration, after: Duration| before.as_secs_f64() / after.as_secs_f64();
    println!(
        "gain         {:.2} x by processor time, {:.2} x on the wall",
        gain(one.busiest, several.busiest),
        gain(one.wall, several.wall)
    );
    // A transfer that ends by silence ends when its engine looks, which is at its next packet.
    let apart = one.samples.abs_diff(several.samples);
    anyhow::ensure!(apart * 100 <= one.samples, "{apart} of {} samples differ", one.samples);
    Ok(())
}

fn generate(arguments: &Arguments) -> anyhow::Result<Trace> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("trace.pcap");
    let config = TraceConfig {
        packets: arguments.packets,
        connections: arguments.connections,
        loss: 0.01,
        networks: 5_000,
        snap_len: SNAP_LEN,
        seed: 1,
    };
    let file = std::io::BufWriter::new(std::fs::File::create(&path)?);
    println!("{:?}", write_trace(file, &config).context("the trace cannot be written")?);
    let mut source = open_file(&path)?;
    let mut trace = Trace::default();
    loop {
        match source.next_packet()? {
            Next::Packet(packet) => {
                let start = trace.octets.len();
                trace.octets.extend_from_slice(packet.data);
                let end = trace.octets.len();
                trace.packets.push(Packet { at: packet.timestamp, wire_len: packet.wire_len, start, end });
            }
            Next::End => return Ok(trace),
            Next::Idle => bail!("a file is never idle"),
        }
    }
}

fn best_of(runs: u32, mut run: impl FnMut() -> anyhow::Result<Timing>) -> anyhow::Result<Timing> {
    let mut best = run()?;
    for _ in 1..runs {
        let timing = run()?;
        best.busiest = best.busiest.min(timing.busiest);
        best.wall = best.wall.min(timing.wall);
    }
    Ok(best)
}

fn run(trace: &Trace, config: &EngineConfig, count: NonZeroU32, divided: bool) -> anyhow::Result<Timing> {
    let partition = Partition::new(config, count);
    let together = Barrier::new(usize::try_from(count.get())? + 1);
    thread::scope(|scope| {
        let engines: Vec<_> = (0..count.get())
            .map(|index| {
                let config = EngineConfig { shard: Shard { index, count }, ..config.clone() };
                let (together, partition) = (&together, &partition);
                scope.spawn(move || {
                    let own: Vec<&Packet> = if divided {
                        let own = |packet: &&Packet| takes(partition.takers(&trace.frame(packet)), index);
                        trace.packets.iter().filter(own).collect()
                    } else {
                        trace.packets.iter().collect()
                    };
                    let mut engine = Engine::new(config);
                    together.wait();
                    let begun = thread_time()?;
                    for packet in own {
                        engine.handle_frame(packet.at, &trace.frame(packet));
                        while engine.poll_event().is_some() {}
                    }
                    anyhow::Ok((thread_time()?.saturating_sub(begun), engine.counters().window_samples))
                })
            })
            .collect();
        together.wait();
        let begun = Instant::now();
        let (mut busiest, mut samples) = (Duration::ZERO, 0);
        for engine in engines {
            let (time, found) = engine.join().ok().context("an engine failed")??;
            busiest = busiest.max(time);
            samples += found;
        }
        Ok(Timing { busiest, wall: begun.elapsed(), samples })
    })
}

fn takes(takers: Takers, index: u32) -> bool {
    match takers {
        Takers::One(one) => one == index,
        Takers::Two(home, other) => home == index || other == index,
        Takers::All => true,
    }
}

fn thread_time() -> anyhow::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}
