//! The thread that carries packets between TUN devices when their time has come.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use spand_proto::units::BytesPerSecond;

use super::config::{PathConfig, Queue};
use super::ip;
use super::kernel::Counts;
use super::link::{Arrival, Drop as LinkDrop, Link, Packet};

/// Packets that one direction may hold at a time, in queue and delay together.
const IN_FLIGHT_LIMIT: usize = 200_000;
/// Packets taken from one device before others get their turn.
const BATCH: usize = 64;
/// Largest IP packet.
const PACKET_MAX: usize = 65_535;
/// Longest sleep: how late a stop is noticed.
const SLEEP_MAX_NS: u64 = 20_000_000;

/// The TUN devices at both ends of a path, and what lies between them.
#[derive(Debug)]
pub struct PathEnds {
    /// The server's side.
    pub server: OwnedFd,
    /// The clients' side.
    pub clients: OwnedFd,
    /// What lies between.
    pub config: PathConfig,
}

/// What one direction has done. All counts only rise.
#[derive(Debug, Default)]
pub struct LinkCounters {
    /// Packets delivered.
    pub delivered: AtomicU64,
    /// IP bytes delivered.
    pub delivered_bytes: AtomicU64,
    /// Packets dropped at the full queue.
    pub tail_drops: AtomicU64,
    /// Packets lost at random, singly or in bursts.
    pub random_drops: AtomicU64,
    /// Packets lost in outages.
    pub outage_drops: AtomicU64,
    /// Packets longer than the path's MTU.
    pub too_big_drops: AtomicU64,
    /// Packets marked (CE).
    pub marked: AtomicU64,
    /// Packets that were overtaken.
    pub overtaken: AtomicU64,
    /// Copies delivered beside their originals.
    pub duplicates: AtomicU64,
    /// Packets the emulator itself had no room for, or could not write: zero, or the run means nothing.
    pub emulator_drops: AtomicU64,
    /// Packets delivered over a millisecond late.
    pub late_1ms: AtomicU64,
    /// Sum of all lateness in nanoseconds.
    pub late_sum_ns: AtomicU64,
    /// Largest lateness in nanoseconds.
    pub late_max_ns: AtomicU64,
}

impl LinkCounters {
    /// Those that every kind of path has.
    pub fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let others = [&self.random_drops, &self.outage_drops, &self.too_big_drops];
        Counts {
            delivered: of(&self.delivered),
            queue_drops: of(&self.tail_drops),
            other_drops: others.into_iter().map(of).sum(),
        }
    }
}

/// Both directions of one path.
#[derive(Debug, Default)]
pub struct PathCounters {
    /// From the server to the clients.
    pub down: LinkCounters,
    /// From the clients to the server.
    pub up: LinkCounters,
    /// The bottleneck's rate towards the clients from now on; zero: as it was.
    rate: AtomicU64,
}

/// The running emulator; it stops when this is dropped.
#[derive(Debug)]
pub struct Emulator {
    counters: Vec<Arc<PathCounters>>,
    real_time: bool,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Emulator {
    /// Starts carrying packets on all `paths`.
    pub fn start(paths: Vec<PathEnds>) -> Result<Self> {
        let is_fq = |path: &PathEnds| path.config.down.hops().any(|hop| hop.queue == Queue::FqCodel);
        ensure!(!paths.iter().any(is_fq), "the emulator has no fq_codel: use the kernel's paths");
        let counters: Vec<_> = paths.iter().map(|_| Arc::new(PathCounters::default())).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, started) = mpsc::sync_channel(1);
        let paths: Vec<_> = paths.into_iter().zip(counters.iter().map(Arc::clone)).map(Path::new).collect();
        let thread = thread::Builder::new()
            .name("path".to_owned())
            .spawn({
                let stop = Arc::clone(&stop);
                move || {
                    if ready.send(real_time_priority(10)).is_ok() {
                        run(paths, &stop);
                    }
                }
            })
            .context("cannot start the emulator's thread")?;
        let real_time = started.recv().context("the emulator's thread did not begin")?;
        Ok(Self { counters, real_time, stop, thread: Some(thread) })
    }

    /// Counters of each path, in the order given at the start.
    pub fn counters(&self) -> &[Arc<PathCounters>] {
        &self.counters
    }

    /// Makes the last bottleneck of a path as fast as this from now on. What waits leaves as it would have.
    pub fn set_rate(&self, path: usize, rate: BytesPerSecond) {
        if let Some(path) = self.counters.get(path) {
            path.rate.store(rate.0, Ordering::Relaxed);
        }
    }

    /// Whether the kernel let its thread run under `SCHED_FIFO`.
    pub fn is_real_time(&self) -> bool {
        self.real_time
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed by its own hook; dropping must go on.
            drop(thread.join());
        }
    }
}

/// Asks for `SCHED_FIFO` and exact timers for this thread; whether it got the former.
pub(in crate::lab) fn real_time_priority(priority: libc::c_int) -> bool {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: both calls read their arguments only and concern the calling thread; a refusal is harmless.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0);
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) == 0
    }
}

/// A packet on its way, in order of arrival and then of sending.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
struct OnItsWay {
    due_ns: u64,
    number: u64,
    packet: Vec<u8>,
}

/// One direction: its arithmetic, and the packets on their way.
struct Carrier {
    link: Link,
    in_flight: BinaryHeap<Reverse<OnItsWay>>,
    taken: u64,
}

struct Path {
    ends: PathEnds,
    down: Carrier,
    up: Carrier,
    counters: Arc<PathCounters>,
}

impl Path {
    fn new((ends, counters): (PathEnds, Arc<PathCounters>)) -> Self {
        let carrier =
            |config: &_, seed| Carrier { link: Link::new(config, seed), in_flight: BinaryHeap::new(), taken: 0 };
        let PathConfig { down, up, seed } = &ends.config;
        let seed = *seed;
        // The two directions throw dice of their own.
        Self { down: carrier(down, seed), up: carrier(up, !seed), ends, counters }
    }

    fn carry(&mut self, buffer: &mut [u8], spare: &mut Vec<Vec<u8>>) {
        match self.counters.rate.swap(0, Ordering::Relaxed) {
            0 => {}
            rate => self.down.link.set_rate(BytesPerSecond(rate)),
        }
        self.down.take(&self.ends.server, &self.counters.down, buffer, spare);
        self.up.take(&self.ends.clients, &self.counters.up, buffer, spare);
        self.down.deliver(&self.ends.clients, &self.counters.down, spare);
        self.up.deliver(&self.ends.server, &self.counters.up, spare);
    }

    fn next_due_ns(&self) -> Option<u64> {
        [&self.down, &self.up].iter().filter_map(|c| c.in_flight.peek().map(|next| next.0.due_ns)).min()
    }
}

impl Carrier {
    fn take(&mut self, from: &OwnedFd, counters: &LinkCounters, buffer: &mut [u8], spare: &mut Vec<Vec<u8>>) {
        for _ in 0..BATCH {
            let Ok(length) = nix::unistd::read(from, buffer) else { return };
            let Some(packet) = buffer.get_mut(..length) else { return };
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            let offered = Packet { length, ecn: ip::is_ecn_capable(packet), push: ip::has_push(packet) };
            match self.link.offer(monotonic_ns(), offered) {
                Err(LinkDrop::Tail) => count(&counters.tail_drops),
                Err(LinkDrop::Random) => count(&counters.random_drops),
                Err(LinkDrop::Outage) => count(&counters.outage_drops),
                Err(LinkDrop::TooBig(mtu)) => {
                    count(&counters.too_big_drops);
                    // The router before the narrow link answers, and its answer crosses no path.
                    let answer = ip::too_big(packet, mtu);
                    if answer.is_none_or(|answer| nix::unistd::write(from, &answer).is_err()) {
                        count(&counters.emulator_drops);
                    }
                }
                Ok(_) if self.in_flight.len() >= IN_FLIGHT_LIMIT => count(&counters.emulator_drops),
                Ok(arrival) => self.send(packet, arrival, counters, spare),
            }
        }
    }

    fn send(&mut self, packet: &mut [u8], arrival: Arrival, counters: &LinkCounters, spare: &mut Vec<Vec<u8>>) {
        if arrival.marked {
            ip::mark(packet);
            count(&counters.marked);
        }
        counters.overtaken.fetch_add(u64::from(arrival.overtaken), Ordering::Relaxed);
        counters.duplicates.fetch_add(u64::from(arrival.duplicated), Ordering::Relaxed);
        for _ in 0..=u8::from(arrival.duplicated) {
            let mut copy = spare.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(packet);
            self.taken += 1;
            self.in_flight.push(Reverse(OnItsWay { due_ns: arrival.due_ns, number: self.taken, packet: copy }));
        }
    }

    fn deliver(&mut self, to: &OwnedFd, counters: &LinkCounters, spare: &mut Vec<Vec<u8>>) {
        while let Some(Reverse(next)) = self.in_flight.peek() {
            let Some(late_ns) = monotonic_ns().checked_sub(next.due_ns) else { return };
            let Some(Reverse(OnItsWay { packet, .. })) = self.in_flight.pop() else { return };
            match nix::unistd::write(to, &packet) {
                Ok(written) => {
                    count(&counters.delivered);
                    counters.delivered_bytes.fetch_add(written as u64, Ordering::Relaxed);
                }
                // A packet for an address the namespace does not have is still delivered: the kernel drops it later.
                Err(_) => count(&counters.emulator_drops),
            }
            counters.late_sum_ns.fetch_add(late_ns, Ordering::Relaxed);
            counters.late_max_ns.fetch_max(late_ns, Ordering::Relaxed);
            if late_ns > 1_000_000 {
                count(&counters.late_1ms);
            }
            if spare.len() < BATCH {
                spare.push(packet);
            }
        }
    }
}

fn run(mut paths: Vec<Path>, stop: &AtomicBool) {
    let mut buffer = vec![0; PACKET_MAX];
    let mut spare = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let due_ns = paths.iter().filter_map(Path::next_due_ns).min();
        let sleep_ns = due_ns.map_or(SLEEP_MAX_NS, |due| due.saturating_sub(monotonic_ns()).min(SLEEP_MAX_NS));
        let mut readable: Vec<_> = paths
            .iter()
            .flat_map(|path| [&path.ends.server, &path.ends.clients])
            .map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN))
            .collect();
        match ppoll(&mut readable, Some(TimeSpec::from_duration(Duration::from_nanos(sleep_ns))), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => {
                eprintln!("the path emulator stops: {}", io::Error::from(error));
                return;
            }
        }
        for path in &mut paths {
            path.carry(&mut buffer, &mut spare);
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

pub(in crate::lab) fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, nanoseconds)
}

/// A clock's reading in nanoseconds.
pub(in crate::lab) fn nanoseconds(time: TimeSpec) -> u64 {
    u64::try_from(time.tv_sec()).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
}
