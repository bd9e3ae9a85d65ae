//! One reader of an interface: reads packets, gives them the packet clock's time, and queues them.
//!
//! What the kernel has ready travels as one batch; a packet that comes alone travels at once. An interface that vanishes
//! is a warning and is tried again until the gateway stops.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use spand_capture::{Backend, LiveCapture, LiveOptions, Next, PacketSource, SourceStats};
use spand_core::wire::Frame;

use super::Captures;
use super::interface::{fault_of, is_mirror};
use crate::publisher::MonotonicClock;
use crate::run::clock::StampClock;
use crate::run::grouping::Groups;
use crate::run::order::Distributor;
use crate::run::queue::BATCH_PACKETS;

/// An interface that gave nothing for so long is looked at.
const SILENCE: Duration = Duration::from_secs(1);
/// Longest sleep of a thread that has to notice the stop.
const NAP: Duration = Duration::from_millis(100);

/// What one thread captures with.
pub(super) struct Reader {
    shared: Arc<Captures>,
    /// Among all readers.
    number: u32,
    /// Its interface.
    input: u32,
    options: LiveOptions,
    clock: StampClock<MonotonicClock>,
    batches: Distributor,
    /// In force when it last handed over.
    groups: Arc<Groups>,
    /// Packets dropped at the queue.
    dropped: u64,
    /// Times the interface was lost.
    losses: u64,
    /// Whether its interface is a mirror port, as of the last look.
    is_mirror: bool,
    /// Numbers of captures that have ended: each starts from zero.
    earlier: SourceStats,
    backend: Option<Backend>,
}

impl Reader {
    /// Reader number `number` of those that share.
    pub(super) fn new(shared: &Arc<Captures>, number: u32, options: LiveOptions) -> Self {
        let per_interface = u32::try_from(shared.readers.get()).unwrap_or(u32::MAX);
        Self {
            shared: Arc::clone(shared),
            number,
            input: number / per_interface,
            options,
            clock: StampClock::new(shared.clock),
            batches: Distributor::new(number, shared.queues.len()),
            groups: shared.grouping.in_force(),
            dropped: 0,
            losses: 0,
            is_mirror: false,
            earlier: SourceStats::default(),
            backend: None,
        }
    }

    /// Reads until the gateway stops.
    pub(super) fn run(mut self, live: LiveCapture) {
        let mut open = Some(live);
        while let Some(mut live) = open {
            self.backend = Some(live.backend());
            let why = self.read(&mut live);
            self.flush();
            self.earlier = sum(self.earlier, live.stats());
            // Closed before the next is opened: the kernel ties the group in which an interface's readers share it to the
            // interface that was (`fanout_add`) until the last of them has left, and the ring's memory is wanted again.
            drop(live);
            let Some(why) = why else { return };
            self.losses += 1;
            tracing::warn!(interface = %self.options.interface, %why, "capture lost; trying again");
            self.report(SourceStats::default(), Some(why));
            open = self.reopen();
        }
    }

    /// Reads until the gateway stops (`None`) or the interface does (why).
    fn read(&mut self, live: &mut LiveCapture) -> Option<String> {
        self.is_mirror = is_mirror(&self.options.interface);
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
                    self.batches.push(&self.groups.partition, packet.timestamp, &frame);
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
    fn look(&mut self, looked: &mut (Instant, Option<String>)) {
        if looked.0.elapsed() >= SILENCE {
            self.is_mirror = is_mirror(&self.options.interface);
            self.note(&mut looked.1, fault_of(&self.options.interface));
            looked.0 = Instant::now();
        }
    }

    /// Says what became of an interface where that changed; one that gives packets is up.
    fn note(&self, known: &mut Option<String>, why: Option<String>) {
        if *known != why {
            tracing::warn!(interface = %self.options.interface, down = why.is_some(), "the interface went up or down");
            *known = why;
        }
    }

    /// Queues what was read.
    fn flush(&mut self) {
        self.shared.grouping.renew(&mut self.groups);
        if self.batches.waiting() == 0 {
            return;
        }
        let (now, stepped) = self.clock.check();
        if stepped {
            tracing::info!(interface = %self.options.interface, "the wall clock was stepped; packet times are not affected");
        }
        let clock = &self.clock;
        self.dropped += self.batches.flush(&self.shared.queues, |stamp| clock.map(stamp, now)) as u64;
    }

    fn reopen(&self) -> Option<LiveCapture> {
        let mut logged: Option<String> = None;
        loop {
            let until = Instant::now() + self.shared.retry;
            while Instant::now() < until {
                if self.shared.stopping() {
                    return None;
                }
                thread::sleep(NAP.min(self.shared.retry));
            }
            match LiveCapture::open(&self.options) {
                Ok(live) => {
                    tracing::info!(interface = %self.options.interface, backend = %live.backend(), "capture resumed");
                    return Some(live);
                }
                // The same reason every few seconds would drown the log.
                Err(error) if logged.as_deref() == Some(error.to_string().as_str()) => {}
                Err(error) => {
                    tracing::warn!(%error, "capture still lost");
                    logged = Some(error.to_string());
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
        state.status.is_mirror = self.is_mirror;
        state.fault = fault;
    }
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
