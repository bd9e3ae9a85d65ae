//! `run`: the daemon, from the mirror port to the hosts.
//!
//! ```text
//! capture threads ─ FrameQueues ─► engine threads ─ Published ─► API tasks (tokio)
//!  of each interface   bounded         │ changed networks
//!                                      └─► store writer (a thread of its own)
//! ```
//!
//! Everything that can fail for the operator (ports, store, interfaces, privilege) is tried before a packet is read, and
//! ends the program with one sentence, but a store whose disk fails. After that nothing does but the signals: an interface that
//! vanishes is retried, a store that fails is counted, and both make `/readyz` say so.
//!
//! What needs privileges comes first, on the only thread there is: interfaces and ports are opened, then the process drops
//! the rest ([`needs`]). The capture threads start next, since they alone keep what opens an interface again; every other
//! thread is started by one that has nothing left to pass on.

mod capture;
mod clock;
mod engine_thread;
mod grouping;
mod needs;
mod order;
mod own;
mod queue;
mod reload;
mod reported;
mod restoring;
mod serve;
mod shedding;
mod socket;
mod supervisor;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use spand_capture::{LiveCapture, LiveError, LiveOptions};
use spand_cells::Shares;
use spand_core::config::{EngineConfig, Shard};
use spand_core::engine::Engine;
use spand_core::shard::Partition;
use spand_proto::operator::Failure;
use spand_proto::units::{Bytes, Micros};

use self::capture::{Captured, Captures};
pub(crate) use self::capture::{fault_of, is_mirror};
use self::engine_thread::EngineThread;
use self::grouping::{Grouping, Groups};
use self::queue::FrameQueue;
pub(crate) use self::queue::{BATCH_PACKETS, queue_bytes};
use self::reload::Reload;
pub(crate) use self::reported::reported_bytes;
use self::restoring::{Restored, restore};
use self::serve::{Ports, Servers};
use crate::api::{Access, Api};
use crate::config::{Capture, Config, EngineOptions, Share, renamed_warnings};
use crate::descriptors;
use crate::publisher::{MonotonicClock, Part, Published};
use crate::sharing::{self, EngineEnd, Sharing};

/// Size in which a kernel buffer is handed over.
const RING_BLOCK: Bytes = Bytes(128 << 10);
/// Longest wait of a capture thread without packets; also what a stop may take.
const READ_TIMEOUT: Micros = Micros::from_millis(100);

/// Runs the gateway until SIGTERM or SIGINT, with the configuration of `file`, which SIGHUP has it read again.
pub fn run(config: &Config, file: &Path) -> Result<(), Failure> {
    run_with(config, file, sharing::start)
}

/// The same, sharing as the caller starts it, for engines of a configuration and with a number drawn at each start: for experiments.
pub fn run_with(
    config: &Config,
    file: &Path,
    share: impl FnOnce(
        (&Share, Option<spand_cells::Sharing>),
        (&EngineConfig, Partition, u64),
        &Published,
    ) -> io::Result<Option<(Sharing, Vec<EngineEnd>)>>,
) -> Result<(), Failure> {
    config.log.start();
    let own = config.share.sharing().map_err(|error| Failure::Environment(error.to_string()))?;
    let Divided { groups, first, engines } = divided(config, own)?;
    let (partition, seed) = (groups.partition.clone(), first.hash_seed);
    if config.traffic.internal.is_empty() {
        tracing::warn!("traffic.internal is empty: both ends of every connection count as inside");
    }
    let warnings = renamed_warnings(file).into_iter().chain(config.traffic.wide_tunnels());
    for warning in warnings.chain(config.exposed_secrets()) {
        tracing::warn!("{warning}");
    }
    if let Some(warning) = descriptors::too_few(config, descriptors::allow_many()) {
        tracing::warn!("{warning}");
    }
    let workers = serve::workers();
    let opened = open(&config.capture)?;
    let ports = Ports::bind(config)?;
    let mut confined = spand_confine::confine(&config.process, &needs::needs(config, file))?;

    let clock = MonotonicClock::from_wall_clock();
    let queues = engines.iter().map(|_| FrameQueue::new(config.capture.queue_packets)).collect();
    let retry = Duration::from_secs(config.capture.retry_s.get());
    let captures = Arc::new(Captures::new(
        queues,
        Grouping::new(groups),
        clock,
        retry,
        &config.capture.interfaces,
        config.capture.readers.into(),
    ));
    let captured = Captured::start(&captures, opened)?;
    confined.keep_none_here();

    let access = Access::open(config)?;
    let published = Published::new(config.publisher(), clock);
    let servers = Servers::start(ports, workers)?;
    let Restored { engines, store, totals } = restore(config, engines, &partition, &published)?;
    let stored = store.as_ref().map(|store| store.measures().clone());
    let started = share((&config.share, own), (&first, partition.clone(), draw_seed()), &published);
    let (sharing, ends) = started.map_err(|error| cannot_start_a_thread(&error))?.unzip();
    let share = sharing.as_ref().map(|sharing| sharing.status().clone());
    let api = Api::with_access(config.api(), access, published.clone(), (stored, share), &confined);
    for warning in api.name_networks(&config.names)? {
        tracing::warn!("{warning}");
    }
    api.continue_totals(totals);
    let reload = Reload::new(config, file, seed, &captures, &published, api.names().clone());
    let workers = EngineThread::each(engines, &published, &captures, store.as_ref(), ends.unwrap_or_default());
    let watched = Arc::clone(&captures);
    let threads = Threads::start(workers, captured, captures)?;
    published.readiness().ready(Part::Engine);
    confined.say();

    let ended = servers.run(api.clone(), &published, reload, &watched, store.as_ref());
    if let Some(store) = store {
        // The last engine's thread ends the store.
        api.save_totals(&store);
    }
    threads.stop();
    if let Some(sharing) = sharing {
        // What has not left yet is in the store, and leaves after the next start.
        sharing.stop();
    }
    ended
}

/// A secret number. The standard library draws its hash keys from the system; a hash of nothing under them is one.
fn draw_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The engines, how networks are divided among them, and the configuration of the first.
struct Divided {
    groups: Groups,
    first: EngineConfig,
    engines: Vec<Engine>,
}

fn divided(config: &Config, own: Option<spand_cells::Sharing>) -> Result<Divided, Failure> {
    let count = config.engine.threads;
    let (first, engines) = parts(config)?;
    let groups = Groups::of(&first, Partition::new(&first, count));
    let engines = engines.map(|config| Engine::new(config).sharing(own)).collect();
    Ok(Divided { groups, first, engines })
}

/// The configuration of each engine; that of the first is returned twice. All have the same list of prefixes, which is read once: one that
/// is replaced meanwhile would make them disagree about the owner of a network.
fn parts(config: &Config) -> Result<(EngineConfig, impl Iterator<Item = EngineConfig>), Failure> {
    let count = config.engine.threads;
    let shard = Shard { index: 0, count };
    let options = EngineOptions { hash_seed: draw_seed(), shard, ..EngineOptions::default() };
    let first = EngineConfig { own_listeners: own::listeners(config), ..config.engine(options)? };
    let all = first.clone();
    let part = move |index| EngineConfig { shard: Shard { index, count }, ..all.clone() };
    Ok((first, (0..count.get()).map(part)))
}

/// Opens every interface, as often as it has readers.
fn open(capture: &Capture) -> Result<Vec<(LiveCapture, LiveOptions)>, Failure> {
    let readers = usize::from(capture.readers.get());
    let drawn = draw_seed();
    let shared = (0..).zip(live_options(capture)).flat_map(|(interface, options)| {
        let group = (readers > 1).then(|| group(drawn, interface));
        std::iter::repeat_n(LiveOptions { group, ..options }, readers)
    });
    let open = |options: LiveOptions| {
        let live = LiveCapture::open(&options).map_err(|error| cannot_capture(&error))?;
        Ok((live, options))
    };
    shared.map(open).collect()
}

/// How each interface is captured from by one reader.
pub(crate) fn live_options(capture: &Capture) -> impl Iterator<Item = LiveOptions> {
    capture.interfaces.iter().map(|interface| LiveOptions {
        interface: interface.clone(),
        backend: capture.backend.named(),
        filter: (!capture.filter.is_empty()).then(|| capture.filter.clone()),
        snap_len: capture.snap_length_bytes,
        buffer: Bytes(u64::from(NonZeroU32::get(capture.buffer_mib)) << 20),
        block: RING_BLOCK,
        // Mirrored packets are addressed to others, and a block that fills up first would delay starts.
        immediate: true,
        promiscuous: true,
        read_timeout: READ_TIMEOUT,
        group: None,
        pf_ring: capture.pf_ring(),
    })
}

/// The number under which an interface's readers share its packets out, for a number that was drawn. Two gateways in one
/// namespace must not have the same, and a reader that opens the interface again must. In containers that share the host's
/// network the number of the process would be the same in all.
fn group(drawn: u64, interface: u16) -> u16 {
    const INTERFACES: u16 = 16;
    let [a, b, ..] = drawn.to_le_bytes();
    (u16::from_le_bytes([a, b]) / INTERFACES * INTERFACES) | interface
}

fn cannot_capture(error: &LiveError) -> Failure {
    match error {
        LiveError::BadFilter { .. } | LiveError::BadOption { .. } => Failure::Usage(error.to_string()),
        _ => Failure::Environment(error.to_string()),
    }
}

fn cannot_start_a_thread(error: &io::Error) -> Failure {
    Failure::Environment(format!("cannot start a thread: {error}; raise the limit of tasks (ulimit -u, TasksMax=)"))
}

/// The threads that packets run through.
struct Threads {
    shared: Arc<Captures>,
    captures: Vec<JoinHandle<()>>,
    engines: Vec<JoinHandle<()>>,
}

impl Threads {
    fn start(workers: Vec<EngineThread>, captured: Captured, shared: Arc<Captures>) -> Result<Self, Failure> {
        let mut engines = Vec::new();
        for (index, worker) in workers.into_iter().enumerate() {
            let ended = shared.ends_with();
            let engine = thread::Builder::new().name(format!("engine-{index}")).spawn(move || {
                worker.run();
                drop(ended);
            });
            engines.push(engine.map_err(|error| cannot_start_a_thread(&error))?);
        }
        Ok(Self { shared, captures: captured.go(), engines })
    }

    /// Stops capturing, lets the engines take what is queued, and saves everything.
    fn stop(self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for capture in self.captures {
            // A thread that panicked has logged it; the others still end in order.
            drop(capture.join());
        }
        self.shared.queues.iter().for_each(FrameQueue::close);
        for engine in self.engines {
            drop(engine.join());
        }
        tracing::info!("stopped");
    }
}
