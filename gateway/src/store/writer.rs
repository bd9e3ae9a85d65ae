//! Saves changes of networks and of the history of the whole once a second, on a thread of its own.
//!
//! The engine's thread hands over changed networks and goes on; a network that changes again before it was written is
//! written once. What waits has a limit. A crash loses what was not flushed: a network that changes all the time is handed
//! over about once a second, and waits for the next write.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use super::sled_store::CACHE_BYTES;
use super::waiting::Waiting;
use super::{Change, EstimateStore, Refused, RefusedLabels, StoreError};
use crate::totals::TotalsChange;

/// Writes to a store until stopped.
#[derive(Debug)]
pub struct StoreWriter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the writer counts and times. Clones share the same numbers.
#[derive(Clone, Debug)]
pub struct StoreMeasures {
    /// Networks written or removed.
    pub saved: Counter,
    /// Writes that failed; what they held is tried again.
    pub failures: Counter,
    /// Changes let go: too many waited, or the store is broken.
    pub dropped: Counter,
    /// Networks that did not come back at the start, by reason.
    pub refused: Family<RefusedLabels, Counter>,
    /// Time of one write with its flush, in seconds.
    pub write_seconds: Histogram,
    state: Arc<Mutex<Pending>>,
}

#[derive(Debug, Default)]
struct Pending {
    waiting: Waiting,
    totals: TotalsChange,
    /// When the oldest change was handed over that is not on the disk yet, being written ones included.
    oldest: Option<Instant>,
    writing_oldest: Option<Instant>,
    last_error: Option<StoreError>,
    stop: bool,
}

impl Pending {
    fn is_broken(&self) -> bool {
        matches!(self.last_error, Some(StoreError::Broken { .. }))
    }
}

#[derive(Debug)]
struct Shared {
    measures: StoreMeasures,
    wake: Condvar,
    interval: Duration,
    /// Bytes of changes that may wait. They wait for long only while writes fail.
    limit_bytes: NonZeroUsize,
}

/// Bounds in seconds from 1 ms to 10 s: the target is a write well under one second.
const SECONDS: [f64; 13] = [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

impl StoreWriter {
    /// Default limit of the bytes of waiting changes.
    pub const WAITING_BYTES: NonZeroUsize = NonZeroUsize::new(256 << 20).unwrap();

    /// The most that the store takes: its cache, what waits, and what is being written and has been made ready for that.
    pub(crate) fn most_bytes(waiting: NonZeroUsize) -> usize {
        usize::try_from(CACHE_BYTES).unwrap_or(usize::MAX).saturating_add(waiting.get().saturating_mul(3))
    }

    /// Starts writing to `store`, every `interval` at most.
    pub fn start(store: impl EstimateStore, interval: Duration) -> std::io::Result<Self> {
        Self::start_within(store, interval, Self::WAITING_BYTES, None)
    }

    /// The same with a limit in bytes for changes that wait; one beyond is dropped, counted, and saved with its network's next change.
    /// A store that has failed already is tried again, also while nothing waits.
    pub fn start_within(
        store: impl EstimateStore,
        interval: Duration,
        limit_bytes: NonZeroUsize,
        failure: Option<StoreError>,
    ) -> std::io::Result<Self> {
        let measures = StoreMeasures::default();
        measures.failures.inc_by(u64::from(failure.is_some()));
        measures.state.lock().last_error = failure;
        let shared = Shared { measures, wake: Condvar::new(), interval, limit_bytes };
        let shared = Arc::new(shared);
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || its.run(store))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Hands over changes; the newest of a network counts.
    pub fn submit(&self, changes: impl IntoIterator<Item = Change>) {
        let measures = &self.shared.measures;
        let mut pending = measures.state.lock();
        let broken = pending.is_broken();
        for (network, record) in changes {
            if broken || !pending.waiting.put(network, record, self.shared.limit_bytes) {
                measures.dropped.inc();
            }
        }
        if !pending.waiting.is_empty() {
            pending.oldest.get_or_insert_with(Instant::now);
        }
    }

    /// Hands over steps of the history of the whole that changed; with those that wait already, each is written once. At most as
    /// many as are kept.
    pub fn submit_totals(&self, change: TotalsChange) {
        let mut pending = self.shared.measures.state.lock();
        if !pending.is_broken() {
            pending.totals.extend(change);
        }
    }

    /// Whether steps wait: while writes fail no more should be handed over.
    pub fn totals_wait(&self) -> bool {
        !self.shared.measures.state.lock().totals.is_empty()
    }

    /// Counters and histograms.
    pub fn measures(&self) -> &StoreMeasures {
        &self.shared.measures
    }

    /// Why the last write failed; `None` when it did not.
    pub fn last_error(&self) -> Option<StoreError> {
        self.shared.measures.state.lock().last_error.clone()
    }

    /// Writes what waits and ends. The error of that last write, where it failed.
    pub fn stop(mut self) -> Result<(), StoreError> {
        self.join();
        self.last_error().map_or(Ok(()), Err)
    }

    fn join(&mut self) {
        self.shared.measures.state.lock().stop = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread contains the store's panics; one of our own is reported by the panic hook already.
            drop(thread.join());
        }
    }
}

impl Drop for StoreWriter {
    fn drop(&mut self) {
        self.join();
    }
}

impl Default for StoreMeasures {
    fn default() -> Self {
        Self {
            saved: Counter::default(),
            failures: Counter::default(),
            dropped: Counter::default(),
            refused: Refused::counts(),
            write_seconds: Histogram::new(SECONDS),
            state: Arc::default(),
        }
    }
}

impl StoreMeasures {
    /// Counts networks that did not come back at the start.
    pub(crate) fn refuse(&self, reason: Refused, networks: u64) {
        self.refused.get_or_create(&reason.labels()).inc_by(networks);
    }

    /// Changes waiting to be written.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Whether nothing more is saved until the gateway restarts.
    pub fn is_broken(&self) -> bool {
        self.state.lock().is_broken()
    }

    /// How far the disk is behind: age of the oldest change that is not on it.
    pub fn lag(&self) -> Duration {
        let pending = self.state.lock();
        let oldest = pending.writing_oldest.or(pending.oldest);
        oldest.map_or(Duration::ZERO, |oldest| oldest.elapsed())
    }
}

impl Shared {
    fn run(&self, mut store: impl EstimateStore) {
        let mut next_write = Instant::now() + self.interval;
        loop {
            let (changes, totals, retry, stop) = self.next(next_write);
            // From the beginning of one write to that of the next, so that the time of a write does not add to the lag.
            next_write = Instant::now() + self.interval;
            if retry || !changes.is_empty() || !totals.is_empty() {
                self.write(&mut store, changes, totals);
            }
            if stop {
                return;
            }
        }
    }

    /// Waits for the next write's time, or the end, and takes what waits. Gives whether the store is tried again in any case, and whether
    /// this is the end.
    fn next(&self, until: Instant) -> (Vec<Change>, TotalsChange, bool, bool) {
        let mut pending = self.measures.state.lock();
        while !pending.stop && !self.wake.wait_until(&mut pending, until).timed_out() {}
        pending.writing_oldest = pending.oldest.take();
        let retry = pending.last_error.is_some() && !pending.is_broken();
        (pending.waiting.take(), std::mem::take(&mut pending.totals), retry, pending.stop)
    }

    fn write(&self, store: &mut impl EstimateStore, changes: Vec<Change>, mut totals: TotalsChange) {
        let began = Instant::now();
        let written = store.save(&changes).and_then(|()| store.save_totals(&totals)).and_then(|()| store.flush());
        self.measures.write_seconds.observe(began.elapsed().as_secs_f64());
        let mut pending = self.measures.state.lock();
        let oldest = pending.writing_oldest.take();
        let Err(error) = written else {
            self.measures.saved.inc_by(changes.len() as u64);
            if pending.last_error.take().is_some() {
                tracing::info!("the store is open again, and estimates are saved");
            }
            return;
        };
        self.measures.failures.inc();
        let networks = changes.len();
        if matches!(error, StoreError::Broken { .. }) {
            tracing::error!(%error, networks, "estimates not saved");
            self.measures.dropped.inc_by((networks + pending.waiting.take().len()) as u64);
            pending.totals.clear();
        } else {
            if pending.last_error.is_none() {
                tracing::error!(%error, networks, "estimates not saved; trying again");
            }
            pending.oldest = oldest.or(pending.oldest);
            self.measures.dropped.inc_by(pending.waiting.put_back(changes, self.limit_bytes));
            totals.append(&mut pending.totals);
            pending.totals = totals;
        }
        pending.last_error = Some(error);
    }
}
