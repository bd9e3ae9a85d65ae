//! One engine against a yardstick, several engines against one, and tcptrace: a generated trace in memory.
//!
//! `make bench-engines ARGS="[--packets N] [--connections N] [--engines N] [--runs N] [--divided] [--patience S]
//! [--without-tcptrace]"`
//!
//! The yardstick is a walk over the records and a bare batched loop that looks up each packet's connection ([`yardstick`]). Of
//! several engines each is given every packet and leaves those of others alone after a look at their addresses, as where
//! no reader divides them; with `--divided` each walks over its own, as behind the gateway's capture threads. Counted is
//! processor time, of several threads that of the busiest one, the best of several runs; the time on the wall is beside it. tcptrace
//! (Debian's package, where it is installed) reads the same trace from a file.

mod yardstick;

use std::num::NonZeroU32;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use ipnet::IpNet;
use spand_core::config::{EngineConfig, Limits, Shard};
use spand_core::engine::Engine;
use spand_core::shard::{Partition, Takers};
use spand_tests::memory::{children, resident_bytes, thread_time};
use spand_tests::trace::TraceSummary;

use yardstick::Trace;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Packets of the generated trace.
    #[arg(long, default_value_t = 10_000_000)]
    packets: u64,
    /// Connections open at a time.
    #[arg(long, default_value_t = 100_000)]
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
    /// Seconds after which tcptrace is stopped, and rated by what it had read until then.
    #[arg(long, default_value_t = 300)]
    patience: u64,
    /// Leave out tcptrace, which takes minutes.
    #[arg(long)]
    without_tcptrace: bool,
}

/// One way of doing the work, measured.
#[derive(Clone, Copy)]
struct Timing {
    /// Processor time of the busiest thread.
    busiest: Duration,
    wall: Duration,
    samples: u64,
    /// What the engines held at the end.
    held: u64,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let trace = Trace::generate(arguments.packets, arguments.connections)?;
    let TraceSummary { packets, connections, retransmissions, file_bytes } = &trace.summary;
    println!("{packets} packets of {connections} connections, {retransmissions} sent again, {file_bytes} bytes");
    let packets = trace.summary.packets.max(1);
    let print = |name: &str, timing: &Timing, base: &Timing| {
        let per_packet = |time: Duration| time.as_nanos() as f64 / packets as f64;
        println!(
            "{name:<22} {:>7.1} ns/packet, {:>7.1} on the wall, {:>6.2} x, {} MB",
            per_packet(timing.busiest),
            per_packet(timing.wall),
            timing.busiest.as_secs_f64() / base.busiest.as_secs_f64(),
            timing.held >> 20,
        );
    };

    let walked = best_of(arguments.runs, || bare(|| yardstick::walk(&trace).0))?;
    print("walk", &walked, &walked);
    let connections = usize::try_from(trace.summary.connections)?;
    let mut found = (0, 0, 0);
    let looked_up = best_of(arguments.runs, || {
        bare(|| {
            found = yardstick::batched(&trace, connections);
            found.0
        })
    })?;
    println!("the bare loop found {} connections, {} packets sent again", found.1, found.2);
    print("bare batched look-up", &looked_up, &walked);

    let internal: Vec<IpNet> = vec!["10.0.0.0/8".parse()?];
    let config = EngineConfig { internal, limits: Limits::for_replay(), ..EngineConfig::default() };
    let one = best_of(arguments.runs, || time(&trace, &config, NonZeroU32::MIN, false))?;
    print("1 engine", &one, &looked_up);
    let several = best_of(arguments.runs, || time(&trace, &config, arguments.engines, arguments.divided))?;
    print(&format!("{} engines", arguments.engines), &several, &looked_up);
    let gain = |before: Duration, after: Duration| before.as_secs_f64() / after.as_secs_f64();
    println!(
        "{} engines gain {:.2} x by processor time, {:.2} x on the wall",
        arguments.engines,
        gain(one.busiest, several.busiest),
        gain(one.wall, several.wall)
    );
    // A transfer that ends by silence ends when its engine looks, which is at its next packet.
    let apart = one.samples.abs_diff(several.samples);
    anyhow::ensure!(apart * 100 <= one.samples, "{apart} of {} samples differ", one.samples);

    if arguments.without_tcptrace {
        return Ok(());
    }
    println!("tcptrace reads the same trace, for {} s at most …", arguments.patience);
    let Some((timing, finished)) = tcptrace(&trace, Duration::from_secs(arguments.patience))? else {
        println!("tcptrace: not installed, not measured");
        return Ok(());
    };
    print(if finished { "tcptrace -l -r" } else { "tcptrace, not finished" }, &timing, &looked_up);
    println!(
        "tcptrace takes {}{:.1} x the processor time of one engine, {:.1} x its memory",
        if finished { "" } else { "more than " },
        gain(timing.busiest, one.busiest),
        timing.held as f64 / one.held.max(1) as f64
    );
    Ok(())
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

/// Times what gives a number of packets.
fn bare(work: impl FnOnce() -> u64) -> anyhow::Result<Timing> {
    let (begun, wall) = (thread_time()?, Instant::now());
    anyhow::ensure!(work() > 0, "there are no packets");
    Ok(Timing { busiest: thread_time()?.saturating_sub(begun), wall: wall.elapsed(), samples: 0, held: 0 })
}

fn time(trace: &Trace, config: &EngineConfig, count: NonZeroU32, divided: bool) -> anyhow::Result<Timing> {
    let partition = Partition::new(config, count);
    let together = Barrier::new(usize::try_from(count.get())? + 1);
    let before = resident_bytes("self")?;
    thread::scope(|scope| {
        let engines: Vec<_> = (0..count.get())
            .map(|index| {
                let config = EngineConfig { shard: Shard { index, count }, ..config.clone() };
                let (together, partition) = (&together, &partition);
                scope.spawn(move || {
                    let own: Vec<_> = if divided {
                        trace.records().filter(|(_, frame)| takes(partition.takers(frame), index)).collect()
                    } else {
                        Vec::new()
                    };
                    let mut engine = Engine::new(config);
                    together.wait();
                    let begun = thread_time()?;
                    let mut take = |(at, frame)| {
                        engine.handle_frame(at, &frame);
                        while engine.poll_event().is_some() {}
                    };
                    if divided {
                        own.into_iter().for_each(&mut take);
                    } else {
                        trace.records().for_each(&mut take);
                    }
                    anyhow::Ok((thread_time()?.saturating_sub(begun), engine))
                })
            })
            .collect();
        together.wait();
        let begun = Instant::now();
        let (mut busiest, mut samples, mut kept) = (Duration::ZERO, 0, Vec::new());
        for engine in engines {
            let (time, engine) = engine.join().ok().context("an engine failed")??;
            busiest = busiest.max(time);
            samples += engine.counters().window_samples;
            kept.push(engine);
        }
        let wall = begun.elapsed();
        Ok(Timing { busiest, wall, samples, held: resident_bytes("self")?.saturating_sub(before) })
    })
}

fn takes(takers: Takers, index: u32) -> bool {
    match takers {
        Takers::One(one) => one == index,
        Takers::Two(home, other) => home == index || other == index,
        Takers::All => true,
    }
}

/// tcptrace's long report with round-trip times of the same trace, and whether it came to an end within `patience`; `None` where it is
/// not installed.
fn tcptrace(trace: &Trace, patience: Duration) -> anyhow::Result<Option<(Timing, bool)>> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), trace.file())?;
    let begun = (children()?.0, Instant::now());
    let mut command = Command::new("tcptrace");
    // -n: else it asks for the name of every address, and waits.
    command.args(["-n", "-l", "-r"]).arg(file.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = match command.spawn() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        spawned => spawned.context("tcptrace cannot be started")?,
    };
    let ended = loop {
        if let Some(status) = running.try_wait()? {
            anyhow::ensure!(status.success(), "tcptrace ended with {status}");
            break true;
        }
        if begun.1.elapsed() >= patience {
            running.kill()?;
            running.wait()?;
            break false;
        }
        thread::sleep(Duration::from_millis(20));
    };
    let (time, held) = children()?;
    let timing = Timing { busiest: time.saturating_sub(begun.0), wall: begun.1.elapsed(), samples: 0, held };
    Ok(Some((timing, ended)))
}
