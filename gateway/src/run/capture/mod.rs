//! The capture threads, one for each reader, of which an interface has one or several; what they share, and what is reported
//! of each interface.

mod interface;
mod reader;
#[cfg(test)]
mod tests;

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use spand_capture::{Backend, LiveCapture, LiveOptions};
use spand_proto::operator::Failure;
use tokio::sync::Notify;

pub(crate) use self::interface::{fault_of, is_mirror};
use self::reader::Reader;
use super::grouping::Grouping;
use super::queue::FrameQueue;
use crate::publisher::{CaptureStatus, MonotonicClock};

/// What the capture threads of one gateway share.
#[derive(Debug)]
pub(super) struct Captures {
    /// One for each engine.
    pub(super) queues: Vec<FrameQueue>,
    /// Which engine a packet belongs to, and the prefixes in force: read periodically, since it may be replaced.
    pub(super) grouping: Grouping,
    pub(super) clock: MonotonicClock,
    pub(super) stop: AtomicBool,
    pub(super) retry: Duration,
    /// Notified when a thread ends, for any reason: before a stop that is a fault.
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

impl Captures {
    pub(super) fn new(
        queues: Vec<FrameQueue>,
        grouping: Grouping,
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
        Self { queues, grouping, clock, stop, retry, thread_ended: Arc::default(), states, readers }
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
        let name = format!("capture-{reader}");
        let reader = Reader::new(self, reader, options);
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
            let (go, started) = mpsc::channel();
            let thread = shared.start(reader, live, options, started);
            let thread = thread.map_err(|error| super::cannot_start_a_thread(&error))?;
            waiting.push(Waiting { interface, backend, go, thread });
        }
        Ok(Self(waiting))
    }

    /// Has them read.
    pub(super) fn go(self) -> Vec<JoinHandle<()>> {
        let begin = |Waiting { interface, backend, go, thread }| {
            tracing::info!(%interface, %backend, "capturing");
            // A thread that has ended has logged why.
            _ = go.send(());
            thread
        };
        self.0.into_iter().map(begin).collect()
    }
}

/// Notifies of the end of a thread when dropped.
#[derive(Debug)]
pub(super) struct Ended(Arc<Notify>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.notify_one();
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
