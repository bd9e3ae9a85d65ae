//! One row: what is sent, what reads it, and what became of it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use spand_capture::{Backend, LiveCapture, LiveOptions, Next, PacketSource, PfRingOptions, SourceStats};
use spand_core::config::EngineConfig;
use spand_core::engine::Engine;
use spand_core::wire::Frame;
use spand_proto::units::Micros;
use spand_tests::lab::namespace::Namespace;
use spand_tests::product;
use spand_tests::product::{Asking, MeasuredGateway};

use super::frames::{Frames, Sent};
use super::{Arguments, FAR, Load, NEAR, READER_CPU, Way, frames};

const SENDER_CPU: usize = 0;

/// One line of the table.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) read: u64,
    pub(super) lost_ring: Option<u64>,
    pub(super) lost_backlog: Option<u64>,
    pub(super) lost_queue: u64,
    pub(super) processor: Duration,
    pub(super) segments: Option<u64>,
}

/// A row of what a thread of this process takes.
pub(super) fn in_process(
    arguments: &Arguments,
    namespace: &Namespace,
    way: Way,
    load: Load,
    size: usize,
) -> Result<(Sent, Row)> {
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

/// Sends for that time; what was sent, and read by a thread of this process.
pub(super) fn measure(
    arguments: &Arguments,
    namespace: &Namespace,
    way: Way,
    size: usize,
    time: Duration,
    rate: Option<u32>,
    with_engine: bool,
) -> Result<(Sent, Read)> {
    let options = options(arguments, way);
    let stop = Arc::new(AtomicBool::new(false));
    let (ready, opened) = mpsc::channel();
    let with_delays = arguments.delay;
    let stopped = Arc::clone(&stop);
    let reading = namespace.spawn("reader", move || {
        stay_on(READER_CPU)?;
        read(&options, with_engine, with_delays, &stopped, || {
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

/// A row of what the gateway takes.
pub(super) fn with_gateway(arguments: &Arguments, namespace: &Namespace, way: Way, size: usize) -> Result<(Sent, Row)> {
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
        frames::send(NEAR, frames, time, rate)
    })?;
    sending.join().map_err(|_| anyhow!("the sender panicked"))?
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

pub(super) fn backend(way: Way) -> Backend {
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

/// Keeps the calling thread on one core.
pub(super) fn stay_on(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core)?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("cannot run on core {core}"))
}

// The reading end in this process: a backend alone, or with the engine in the same thread.

/// What was read.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) stats: SourceStats,
    /// Processor time of the reading thread, waiting in the kernel included.
    pub(super) processor: Duration,
    /// Packets that the engine took for TCP segments.
    pub(super) segments: Option<u64>,
    /// From the kernel's time stamp to the packet in hand, sorted; only where asked for.
    pub(super) delays: Vec<Duration>,
}

/// Reading goes on for so long after the last frame: the host's counters are read once a second.
const AFTER: Duration = Duration::from_millis(1_500);

/// Reads until `stop` and a while longer. `ready` is signalled when the capture is open.
pub(super) fn read(
    options: &LiveOptions,
    with_engine: bool,
    with_delays: bool,
    stop: &AtomicBool,
    ready: impl FnOnce(),
) -> Result<Read> {
    let mut capture = LiveCapture::open(options)?;
    let internal = vec!["10.0.0.0/8".parse()?];
    let mut engine = with_engine.then(|| Engine::new(EngineConfig { internal, ..EngineConfig::default() }));
    let mut delays = Vec::new();
    ready();
    let before = processor_time()?;
    let mut stopped: Option<Instant> = None;
    loop {
        match capture.next_packet()? {
            Next::Packet(packet) => {
                if let Some(engine) = &mut engine {
                    let link_type = packet.link_type.0;
                    let frame = Frame { link_type, wire_len: packet.wire_len, input: 0, data: packet.data };
                    engine.handle_frame(packet.timestamp, &frame);
                    while engine.poll_event().is_some() {}
                }
                if with_delays {
                    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
                    delays.push(now.saturating_sub(Duration::from_nanos(packet.timestamp.0)));
                }
            }
            Next::Idle | Next::End => {
                if stop.load(Ordering::Relaxed) && stopped.get_or_insert_with(Instant::now).elapsed() > AFTER {
                    break;
                }
            }
        }
    }
    delays.sort_unstable();
    let segments = engine.map(|engine| engine.counters().segments);
    Ok(Read { stats: capture.stats(), processor: processor_time()?.saturating_sub(before), segments, delays })
}

fn processor_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("no clock of the thread")?.into())
}
