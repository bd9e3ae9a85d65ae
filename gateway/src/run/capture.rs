//! One thread per reader, of which an interface has one or several: reads packets, gives them the packet clock's time, and queues them.
//!
//! What the kernel has ready travels as one batch; a packet that comes alone travels at once. An interface that vanishes
//! is a warning and is tried again until the gateway stops.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use parking_lot::Mutex;
use spand_capture::{Backend, LiveCapture, LiveOptions, Next, PacketSource, SourceStats};
use spand_core::shard::Partition;
use spand_core::wire::Frame;
use spand_proto::operator::Failure;
use tokio::sync::Notify;

use super::clock::StampClock;
use super::distribute::Distributor;
use super::queue::{BATCH_PACKETS, FrameQueue};
use crate::publisher::{CaptureStatus, MonotonicClock};

/// What the capture threads of one gateway share.
#[derive(Debug)]
pub(super) struct Captures {
    /// One for each engine.
    pub(super) queues: Vec<FrameQueue>,
    /// Which of them a packet goes to.
    pub(super) partition: Partition,
    pub(super) clock: MonotonicClock,
    pub(super) stop: AtomicBool,
    pub(super) retry: Duration,
    /// Told when a thread ends, by whatever way: before a stop that is a fault.
    pub(super) thread_ended: Arc<Notify>,
    /// One for each reader: those of an interface side by side.
    states: Mutex<Vec<InterfaceState>>,
    /// Readers of each interface.
    readers: NonZeroUsize,
}

/// One interface as its thread sees it.
#[derive(Clone, Debug)]
pub(super) struct InterfaceState {
    /// Its numbers since the start.
    pub(super) status: CaptureStatus,
    /// Why it gives no packets now, where it gives none.
    pub(super) fault: Option<String>,
}

/// An interface that gave nothing for so long is looked at.
const SILENCE: Duration = Duration::from_secs(1);
/// Longest sleep of a thread that has to notice the stop.
const NAP: Duration = Duration::from_millis(100);

impl Captures {
    pub(super) fn new(
        queues: Vec<FrameQueue>,
        partition: Partition,
        clock: MonotonicClock,
        retry: Duration,
        interfaces: &[String],
        readers: NonZeroUsize,
    ) -> Self {
        let state = |interface: &String| InterfaceState {
            status: CaptureStatus { interface: interface.clone(), ..CaptureStatus::default() },
            fault: None,
        };
        let states = interfaces.iter().flat_map(|interface| (0..readers.get()).map(move |_| state(interface)));
        let states = Mutex::new(states.collect());
        let stop = AtomicBool::new(false);
        Self { queues, partition, clock, stop, retry, thread_ended: Arc::default(), states, readers }
    }

    /// Every interface, in the order of the configuration.
    pub(super) fn states(&self) -> Vec<InterfaceState> {
        self.states.lock().chunks(self.readers.get()).filter_map(together).collect()
    }

    /// To be dropped at the end of a thread, by whatever way it ends.
    pub(super) fn ends_with(&self) -> Ended {
        Ended(Arc::clone(&self.thread_ended))
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Starts the thread of reader number `reader`, already open as `live`. It reads once `go` says so, and ends where that
    /// is dropped before.
    fn start(
        self: &Arc<Self>,
        reader: u32,
        live: LiveCapture,
        options: LiveOptions,
        go: Receiver<()>,
    ) -> io::Result<JoinHandle<()>> {
        let per_interface = u32::try_from(self.readers.get()).unwrap_or(u32::MAX);
        let name = format!("capture-{reader}");
        let reader = Reader {
            shared: Arc::clone(self),
            number: reader,
            input: reader / per_interface,
            options,
            clock: StampClock::new(self.clock),
            batches: Distributor::new(reader, self.queues.len()),
            dropped: 0,
            losses: 0,
            earlier: SourceStats::default(),
            backend: None,
        };
        let ended = self.ends_with();
        thread::Builder::new().name(name).spawn(move || {
            if go.recv().is_ok() {
                reader.run(live);
            }
            drop(ended);
        })
    }
}

/// Capture threads that wait until there is somebody to take what they read. Dropping them ends them.
#[derive(Debug)]
pub(super) struct Captured(Vec<Waiting>);

#[derive(Debug)]
struct Waiting {
    interface: String,
    backend: Backend,
    go: Sender<()>,
    thread: JoinHandle<()>,
}

impl Captured {
    /// Starts a thread for each reader, in the order of the configuration.
    pub(super) fn start(shared: &Arc<Captures>, opened: Vec<(LiveCapture, LiveOptions)>) -> Result<Self, Failure> {
        let mut waiting = Vec::new();
        for (reader, (live, options)) in (0..).zip(opened) {
            let (interface, backend) = (options.interface.clone(), live.backend());
            let (go, told) = mpsc::channel();
            let thread = shared.start(reader, live, options, told);
            let thread = thread.map_err(|error| super::cannot_start_a_thread(&error))?;
            waiting.push(Waiting { interface, backend, go, thread });
        }
        Ok(Self(waiting))
    }

    /// Has them read.
    pub(super) fn go(self) -> Vec<JoinHandle<()>> {
        let begin = |Waiting { interface, backend, go, thread }| {
            tracing::info!(%interface, %backend, "capturing");
            // One that has ended has told so.
            _ = go.send(());
            thread
        };
        self.0.into_iter().map(begin).collect()
    }
}

/// Tells of the end of a thread when it is dropped.
#[derive(Debug)]
pub(super) struct Ended(Arc<Notify>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

struct Reader {
    shared: Arc<Captures>,
    /// Among all readers.
    number: u32,
    /// Its interface.
    input: u32,
    options: LiveOptions,
    clock: StampClock<MonotonicClock>,
    batches: Distributor,
    /// Packets dropped at the queue.
    dropped: u64,
    /// Times the interface was lost.
    losses: u64,
    /// Numbers of captures that have ended: each starts from zero.
    earlier: SourceStats,
    backend: Option<Backend>,
}

impl Reader {
    fn run(mut self, live: LiveCapture) {
        let mut live = live;
        loop {
            self.backend = Some(live.backend());
            let why = self.read(&mut live);
            self.flush();
            self.earlier = sum(self.earlier, live.stats());
            let Some(why) = why else { return };
            self.losses += 1;
            tracing::warn!(interface = %self.options.interface, %why, "capture lost; trying again");
            self.report(SourceStats::default(), Some(why));
            match self.reopen() {
                Some(reopened) => live = reopened,
                None => return,
            }
            tracing::info!(interface = %self.options.interface, backend = %live.backend(), "capturing again");
        }
    }

    /// Reads until the gateway stops (`None`) or the interface does (why).
    fn read(&mut self, live: &mut LiveCapture) -> Option<String> {
        self.report(live.stats(), None);
        let mut heard = Instant::now();
        let mut looked = (Instant::now(), None);
        while !self.shared.stopping() {
            match live.next_packet() {
                Ok(Next::Packet(packet)) => {
                    let frame = Frame {
                        link_type: packet.link_type.0,
                        wire_len: packet.wire_len,
                        input: self.input,
                        data: packet.data,
                    };
                    self.batches.push(&self.shared.partition, packet.timestamp, &frame);
                    if self.batches.waiting() >= BATCH_PACKETS {
                        self.flush();
                        self.note(&mut looked.1, None);
                        self.report(live.stats(), None);
                    }
                }
                Ok(Next::Idle) => {
                    if self.batches.waiting() > 0 {
                        heard = Instant::now();
                    }
                    self.flush();
                    if heard.elapsed() >= SILENCE {
                        self.look(&mut looked);
                    } else {
                        self.note(&mut looked.1, None);
                    }
                    self.report(live.stats(), looked.1.clone());
                }
                Ok(Next::End) => return Some("it ended".to_owned()),
                Err(error) => return Some(error.to_string()),
            }
        }
        None
    }

    /// Whether a silent interface is silent because it is down; libpcap says nothing then, since it may come back. Looked up
    /// once a second; `looked` keeps the moment and why.
    fn look(&self, looked: &mut (Instant, Option<String>)) {
        if looked.0.elapsed() >= SILENCE {
            let interface = &self.options.interface;
            self.note(&mut looked.1, is_down(interface).then(|| format!("interface {interface} is down")));
            looked.0 = Instant::now();
        }
    }

    /// Says what became of an interface where that changed; one that gives packets is up.
    fn note(&self, known: &mut Option<String>, why: Option<String>) {
        if *known != why {
            tracing::warn!(interface = %self.options.interface, down = why.is_some(), "the interface changed");
            *known = why;
        }
    }

    /// Queues what was read.
    fn flush(&mut self) {
        if self.batches.waiting() == 0 {
            return;
        }
        let (now, stepped) = self.clock.check();
        if stepped {
            tracing::info!(interface = %self.options.interface, "the wall clock was stepped; packet times go on as before");
        }
        let clock = &self.clock;
        self.dropped += self.batches.flush(&self.shared.queues, |stamp| clock.map(stamp, now)) as u64;
    }

    fn reopen(&self) -> Option<LiveCapture> {
        let mut told: Option<String> = None;
        loop {
            let until = Instant::now() + self.shared.retry;
            while Instant::now() < until {
                if self.shared.stopping() {
                    return None;
                }
                thread::sleep(NAP.min(self.shared.retry));
            }
            match LiveCapture::open(&self.options) {
                Ok(live) => return Some(live),
                // The same reason every few seconds would drown the log.
                Err(error) if told.as_deref() == Some(error.to_string().as_str()) => {}
                Err(error) => {
                    tracing::warn!(%error, "capture still lost");
                    told = Some(error.to_string());
                }
            }
        }
    }

    fn report(&self, stats: SourceStats, fault: Option<String>) {
        let total = sum(self.earlier, stats);
        let mut states = self.shared.states.lock();
        let Some(state) = usize::try_from(self.number).ok().and_then(|number| states.get_mut(number)) else { return };
        state.status.backend = self.backend;
        state.status.received = total.received.unwrap_or(total.packets);
        state.status.dropped_kernel = total.dropped_by_kernel.unwrap_or(0);
        state.status.dropped_interface = total.dropped_by_interface.unwrap_or(0);
        state.status.ring_freezes = total.ring_freezes.unwrap_or(0);
        state.status.dropped_backlog = total.dropped_by_backlog.unwrap_or(0);
        state.status.interface_rx_dropped = total.interface_rx_dropped.unwrap_or(0);
        state.status.interface_rx_missed = total.interface_rx_missed.unwrap_or(0);
        state.status.interface_rx_fifo = total.interface_rx_fifo.unwrap_or(0);
        state.status.dropped_queue = self.dropped;
        state.status.losses = self.losses;
        state.fault = fault;
    }
}

/// One interface as all its readers see it: what each counts for itself is added up; what the kernel counts for the interface
/// or the host, all of them read.
fn together(readers: &[InterfaceState]) -> Option<InterfaceState> {
    let (first, others) = readers.split_first()?;
    let mut all = first.clone();
    for InterfaceState { status, fault } in others {
        let total = &mut all.status;
        total.received += status.received;
        total.dropped_kernel += status.dropped_kernel;
        total.dropped_queue += status.dropped_queue;
        total.ring_freezes += status.ring_freezes;
        total.losses += status.losses;
        total.dropped_interface = total.dropped_interface.max(status.dropped_interface);
        total.dropped_backlog = total.dropped_backlog.max(status.dropped_backlog);
        total.interface_rx_dropped = total.interface_rx_dropped.max(status.interface_rx_dropped);
        total.interface_rx_missed = total.interface_rx_missed.max(status.interface_rx_missed);
        total.interface_rx_fifo = total.interface_rx_fifo.max(status.interface_rx_fifo);
        all.fault = all.fault.or_else(|| fault.clone());
    }
    Some(all)
}

/// Whether an interface is there and down.
fn is_down(interface: &str) -> bool {
    let Ok(addresses) = getifaddrs() else { return false };
    let mut flags = addresses.filter(|address| address.interface_name == interface).map(|address| address.flags);
    flags.next().is_some_and(|flags| !flags.contains(InterfaceFlags::IFF_UP))
}

fn sum(a: SourceStats, b: SourceStats) -> SourceStats {
    let add = |a: Option<u64>, b: Option<u64>| a.or(b).map(|_| a.unwrap_or(0) + b.unwrap_or(0));
    SourceStats {
        packets: a.packets + b.packets,
        bytes: a.bytes + b.bytes,
        backwards: a.backwards + b.backwards,
        untimed: a.untimed + b.untimed,
        unreadable: a.unreadable + b.unreadable,
        received: add(a.received, b.received),
        dropped_by_kernel: add(a.dropped_by_kernel, b.dropped_by_kernel),
        dropped_by_interface: add(a.dropped_by_interface, b.dropped_by_interface),
        ring_freezes: add(a.ring_freezes, b.ring_freezes),
        dropped_by_backlog: add(a.dropped_by_backlog, b.dropped_by_backlog),
        interface_rx_dropped: add(a.interface_rx_dropped, b.interface_rx_dropped),
        interface_rx_missed: add(a.interface_rx_missed, b.interface_rx_missed),
        interface_rx_fifo: add(a.interface_rx_fifo, b.interface_rx_fifo),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_an_interface_are_told_of_as_one() {
        let state = |received, dropped_backlog, fault: Option<&str>| InterfaceState {
            status: CaptureStatus { received, dropped_kernel: 1, dropped_backlog, ..CaptureStatus::default() },
            fault: fault.map(str::to_owned),
        };
        let all = together(&[state(5, 3, None), state(7, 4, Some("gone"))]).unwrap();
        assert_eq!((all.status.received, all.status.dropped_kernel), (12, 2));
        assert_eq!((all.status.dropped_backlog, all.fault.as_deref()), (4, Some("gone")), "the host's is no one's own");
    }
}
