//! The reading end in this process: a backend alone, or with the engine in the same thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use spand_capture::{LiveCapture, LiveOptions, Next, PacketSource, SourceStats};
use spand_core::config::EngineConfig;
use spand_core::engine::Engine;
use spand_core::wire::Frame;

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
