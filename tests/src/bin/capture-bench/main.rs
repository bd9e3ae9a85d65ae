//! What each capture backend takes from a live interface: a sender as fast as one core can, a reader on another.
//!
//! ```text
//! make capture-bench ARGS="--seconds 60 --backends af_packet"
//! ```
//!
//! Sender and reader are the ends of a veth pair in a namespace of their own. The kernel delivers a frame to the reader's
//! socket on the sender's core, so what is measured is what one core can send and deliver, and whether the reader's core
//! keeps up. Frames that were offered and neither read nor counted as lost by anyone are shown as `unknown`.

mod frames;
mod reader;
mod sender;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Parser, ValueEnum};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, unshare};
use nix::unistd::Pid;
use spand_capture::{Backend, LiveOptions, PfRingOptions};
use spand_proto::units::Micros;
use spand_tests::lab::link::{End, veth};
use spand_tests::lab::namespace::Namespace;
use spand_tests::product::{self, Asking, MeasuredGateway};

use self::frames::{Frames, LONGEST_BYTES, SHORTEST_BYTES};
use self::sender::Sent;

const NEAR: &str = "near0";
const FAR: &str = "far0";
const SENDER_CPU: usize = 0;
const READER_CPU: usize = 1;
/// Frames a second where the delay of single packets is measured.
const SINGLE_RATE: u32 = 200;

#[derive(Debug, Parser)]
#[command(about = "Measures what each capture backend takes from a live interface")]
struct Arguments {
    /// Seconds of each row
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Frame lengths in bytes, without the checksum
    #[arg(long, value_delimiter = ',', default_values_t = [SHORTEST_BYTES, LONGEST_BYTES])]
    sizes: Vec<usize>,
    /// TCP connections
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    connections: u32,
    /// Backends
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Way::Libpcap, Way::AfPacket])]
    backends: Vec<Way>,
    /// What reads
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Load::Read, Load::Engine, Load::Gateway])]
    loads: Vec<Load>,
    /// Frames a second; as many as there can be where it is not given
    #[arg(long)]
    rate: Option<u32>,
    /// Let the reader's core deliver the frames (receive packet steering), through its backlog
    #[arg(long)]
    steer: bool,
    /// The gateway's readers of the interface
    #[arg(long, default_value_t = 1)]
    readers: u16,
    /// The gateway's engines side by side
    #[arg(long, default_value_t = 1)]
    engines: u32,
    /// Destinations a second that the gateway is asked about meanwhile
    #[arg(long)]
    queries: Option<u32>,
    /// Measure the delay of single packets instead
    #[arg(long)]
    delay: bool,
    /// PF_RING's library
    #[arg(long, env = "SPAND_PFRING_LIB", default_value = "libpfring.so")]
    pf_ring_library: PathBuf,
    /// The gateway; beside this program where it is not given
    #[arg(long)]
    gateway: Option<PathBuf>,
}

/// A backend, and the device by its own naming.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Way {
    AfPacket,
    Libpcap,
    /// PF_RING's `pcap:` module
    PfRing,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Load {
    /// A loop that counts
    Read,
    /// The engine in the same thread
    Engine,
    /// The gateway's process, everything on
    Gateway,
}

/// One line of the table.
#[derive(Debug, Default)]
struct Row {
    read: u64,
    lost_ring: Option<u64>,
    lost_backlog: Option<u64>,
    lost_queue: u64,
    processor: Duration,
    segments: Option<u64>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    for size in &arguments.sizes {
        ensure!(
            (SHORTEST_BYTES..=LONGEST_BYTES).contains(size),
            "frames have {SHORTEST_BYTES} to {LONGEST_BYTES} bytes"
        );
    }
    // The gateway inherits this; the sender moves away.
    stay_on(READER_CPU).context("this needs two cores")?;
    let namespace = Namespace::create("capture")?;
    namespace.sysctl("ipv6/conf/default/disable_ipv6", "1")?;
    let end = |device, station| End { namespace: &namespace, device, station };
    veth(end(NEAR, 1), end(FAR, 2))?;
    if arguments.steer {
        steer(&namespace)?;
    }
    if arguments.delay {
        return delays(&arguments, &namespace);
    }
    println!(
        "| backend | reads | frame (B) | offered (M/s) | offered | read | lost: ring | backlog | queue | unknown | CPU of the reader (ns/packet) | segments |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for &size in &arguments.sizes {
        for &backend in &arguments.backends {
            for &load in &arguments.loads {
                let (sent, row) = match load {
                    Load::Gateway => with_gateway(&arguments, &namespace, backend, size)?,
                    load => in_process(&arguments, &namespace, backend, load, size)?,
                };
                print(backend, load, size, sent, &row);
            }
        }
    }
    Ok(())
}

fn in_process(arguments: &Arguments, namespace: &Namespace, way: Way, load: Load, size: usize) -> Result<(Sent, Row)> {
    let time = Duration::from_secs(arguments.seconds);
    let (sent, read) = measure(arguments, namespace, way, size, time, arguments.rate, load == Load::Engine)?;
    let row = Row {
        read: read.stats.packets,
        lost_ring: read.stats.dropped_by_kernel,
        lost_backlog: read.stats.dropped_by_backlog,
        lost_queue: 0,
        processor: read.processor,
        segments: read.segments,
    };
    Ok((sent, row))
}

fn measure(
    arguments: &Arguments,
    namespace: &Namespace,
    way: Way,
    size: usize,
    time: Duration,
    rate: Option<u32>,
    with_engine: bool,
) -> Result<(Sent, reader::Read)> {
    let options = options(arguments, way);
    let stop = Arc::new(AtomicBool::new(false));
    let (ready, opened) = mpsc::channel();
    let with_delays = arguments.delay;
    let stopped = Arc::clone(&stop);
    let reading = namespace.spawn("reader", move || {
        stay_on(READER_CPU)?;
        reader::read(&options, with_engine, with_delays, &stopped, || {
            // Nobody waits any more where this fails.
            _ = ready.send(());
        })
    })?;
    // An error of the reader ends the channel; joining it says which.
    let sent = opened
        .recv()
        .map_err(|_| anyhow!("the capture did not open"))
        .and_then(|()| send(namespace, Frames::new(size, arguments.connections as usize), time, rate));
    stop.store(true, Ordering::Relaxed);
    let read = reading.join().map_err(|_| anyhow!("the reader panicked"))??;
    Ok((sent?, read))
}

fn with_gateway(arguments: &Arguments, namespace: &Namespace, way: Way, size: usize) -> Result<(Sent, Row)> {
    let program = product::program(arguments.gateway.as_deref(), "spand-gateway")?;
    let (device, name) = (device(way), backend(way).name());
    let capture = match way {
        Way::PfRing => format!("backend = \"{name}\"\npf_ring_library = \"{}\"", arguments.pf_ring_library.display()),
        Way::AfPacket | Way::Libpcap => format!("backend = \"{name}\""),
    };
    let capture = format!("{capture}\nreaders = {}\n[engine]\nthreads = {}", arguments.readers, arguments.engines);
    let frames = Frames::new(size, arguments.connections as usize);
    let remotes = frames.remotes();
    let known: &[IpAddr] = if arguments.queries.is_some() { &remotes } else { &[] };
    let gateway = MeasuredGateway::start(namespace, &program, &device, &capture, known)?;
    let asking = arguments.queries.map(|rate| Asking::start(namespace, rate, remotes.clone())).transpose()?;
    let before = gateway.processor()?;
    let sent = send(namespace, frames, Duration::from_secs(arguments.seconds), arguments.rate)?;
    let waits = asking.map(Asking::stop).transpose()?;
    let counters = gateway.counters()?;
    let processor = gateway.processor()?.saturating_sub(before);
    gateway.stop()?;
    let get = |name: &str| counters.iter().find(|(key, _)| key.starts_with(name)).map(|(_, &count)| count);
    let dropped = |place: &str| {
        let line = format!("spand_capture_packets_dropped_total{{interface=\"{device}\",place=\"{place}\"}}");
        counters.get(&line).copied()
    };
    let frames = get("spand_engine_frames_total").context("the gateway counts no frames")?;
    let row = Row {
        read: frames,
        lost_ring: dropped("kernel"),
        lost_backlog: get("spand_capture_backlog_dropped_total"),
        lost_queue: dropped("queue").context("the gateway counts no drops at its queue")?,
        processor,
        segments: get("spand_engine_segments_total"),
    };
    if let Some(waits) = waits {
        waits.print();
    }
    Ok((sent, row))
}

fn send(namespace: &Namespace, frames: Frames, time: Duration, rate: Option<u32>) -> Result<Sent> {
    let sending = namespace.spawn("sender", move || {
        stay_on(SENDER_CPU)?;
        sender::send(NEAR, frames, time, rate)
    })?;
    sending.join().map_err(|_| anyhow!("the sender panicked"))?
}

/// From the kernel's time stamp of a packet that comes alone to the packet in the reader's hands.
fn delays(arguments: &Arguments, namespace: &Namespace) -> Result<()> {
    println!("| backend | packets | p50 (ms) | p99 | max |\n| --- | --- | --- | --- | --- |");
    for &way in &arguments.backends {
        let time = Duration::from_secs(arguments.seconds);
        let (_, read) = measure(arguments, namespace, way, SHORTEST_BYTES, time, Some(SINGLE_RATE), false)?;
        let at = |per_cent: usize| {
            let index = (read.delays.len() * per_cent / 100).min(read.delays.len().saturating_sub(1));
            read.delays.get(index).map_or(f64::NAN, |delay| delay.as_secs_f64() * 1e3)
        };
        println!("| {} | {} | {:.3} | {:.3} | {:.3} |", backend(way), read.delays.len(), at(50), at(99), at(100));
    }
    Ok(())
}

fn options(arguments: &Arguments, way: Way) -> LiveOptions {
    LiveOptions {
        backend: Some(backend(way)),
        immediate: true,
        // As the gateway's.
        read_timeout: Micros::from_millis(100),
        pf_ring: PfRingOptions { library: arguments.pf_ring_library.clone(), cluster: None },
        ..LiveOptions::new(device(way))
    }
}

fn backend(way: Way) -> Backend {
    match way {
        Way::AfPacket => Backend::AfPacket,
        Way::Libpcap => Backend::Libpcap,
        Way::PfRing => Backend::PfRing,
    }
}

fn device(way: Way) -> String {
    match way {
        Way::AfPacket | Way::Libpcap => FAR.to_owned(),
        Way::PfRing => format!("pcap:{FAR}"),
    }
}

fn print(way: Way, load: Load, size: usize, sent: Sent, row: &Row) {
    let known = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
    let accounted = row.read + row.lost_ring.unwrap_or(0) + row.lost_backlog.unwrap_or(0) + row.lost_queue;
    let load = match load {
        Load::Read => "loop",
        Load::Engine => "engine, same thread",
        Load::Gateway => "gateway",
    };
    println!(
        "| {} | {load} | {size} | {:.3} | {} | {} | {} | {} | {} | {} | {:.0} | {} |",
        backend(way),
        sent.frames as f64 / sent.took.as_secs_f64() / 1e6,
        sent.frames,
        row.read,
        known(row.lost_ring),
        known(row.lost_backlog),
        row.lost_queue,
        i128::from(sent.frames) - i128::from(accounted),
        row.processor.as_nanos() as f64 / row.read.max(1) as f64,
        known(row.segments),
    );
}

/// Hands what arrives at the far end to the reader's core.
fn steer(namespace: &Namespace) -> Result<()> {
    namespace.enter(|| {
        // `/sys` shows the interfaces of the namespace it is mounted in: this thread gets one of its own.
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
        mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), None::<&str>)?;
        let cores = format!("{:x}", 1 << READER_CPU);
        let path = format!("/sys/class/net/{FAR}/queues/rx-0/rps_cpus");
        std::fs::write(&path, cores).with_context(|| format!("cannot write {path}"))
    })
}

/// Keeps the calling thread on one core.
fn stay_on(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core)?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("cannot run on core {core}"))
}
