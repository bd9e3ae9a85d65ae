//! Reads the programs' events on its own thread: a few times a second, or when the kernel wakes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle, RingBufferBuilder};
use spand_proto::operator::Failure;
use spand_proto::report::{Arm, ConnectionReport, FirstFlightLoss, LimitedBy, Transport};
use spand_proto::units::{Bytes, Micros, Segments};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::error;

use super::layout::Event;
use super::networks;
use crate::apply::ApplyCounts;

/// Connections that wait to be taken; those beyond are counted.
const QUEUE: usize = 16_384;

/// Longest wait for events that wake nobody, and for the thread to stop.
const PATIENCE: Duration = Duration::from_millis(200);

/// What became of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The report for the gateway; its age is that of `at`.
    pub report: ConnectionReport,
    /// When the event was read.
    pub at: Instant,
    /// Most of its first flight was lost just now, and it goes on: the gateway must know at once.
    pub urgent: bool,
}

/// The reading thread.
pub(super) struct Events {
    ended: mpsc::Receiver<Ended>,
    lost: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Events {
    /// Starts to read the ring buffer `table`.
    pub(super) fn read(table: MapHandle) -> Result<Self, Failure> {
        let (sender, ended) = mpsc::channel(QUEUE);
        let stop = Arc::new(AtomicBool::new(false));
        let lost = Arc::new(AtomicU64::new(0));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&lost));
        let thread = thread::Builder::new()
            .name("bpf-events".to_owned())
            .spawn(move || {
                let mut builder = RingBufferBuilder::new();
                let take = |bytes: &[u8]| {
                    let event = Event::read(bytes).map(ended_of);
                    if event.is_none_or(|ended| sender.try_send(ended).is_err()) {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    0
                };
                let ring = builder.add(&table, take).map(|_| ()).and_then(|()| builder.build());
                let ring = match ring {
                    Ok(ring) => ring,
                    Err(error) => return error!(%error, "cannot read the events of the kernel programs"),
                };
                while !stopped.load(Ordering::Relaxed) {
                    // What came without waking anybody is not among what a poll takes.
                    if let Err(error) = ring.poll(PATIENCE).and_then(|()| ring.consume())
                        && error.kind() != libbpf_rs::ErrorKind::Interrupted
                    {
                        return error!(%error, "cannot read the events of the kernel programs");
                    }
                }
            })
            .map_err(Failure::environment)?;
        Ok(Self { ended, lost, stop, thread: Some(thread) })
    }

    /// Waits for some, and takes all that came by then.
    pub(super) async fn next(&mut self) -> Vec<Ended> {
        let mut taken = Vec::new();
        if self.ended.recv_many(&mut taken, QUEUE).await == 0 {
            // The thread has ended and logged why: no more events.
            std::future::pending::<()>().await;
        }
        taken
    }

    /// What could not be read, or found no room.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It logs its own errors.
            drop(thread.join());
        }
    }
}

fn ended_of(event: Event) -> Ended {
    let arm = match event.arm {
        _ if event.paused => None,
        _ if networks::is_held_out(event.refusal) => Some(Arm::Control),
        1 => Some(Arm::Advised),
        2 => Some(Arm::Control),
        _ => None,
    };
    let known_us = |us: u32| (us > 0).then_some(Micros(us.into()));
    let report = ConnectionReport {
        host: event.local,
        remote: event.remote,
        ended_ago: Micros(0),
        duration: (event.bytes > 0 && !event.first_flight_loss).then_some(Micros(event.busy_us)),
        end_window: Some(Bytes(u64::from(event.cwnd) * u64::from(event.mss))),
        mss: Some(Bytes(event.mss.into())),
        srtt: known_us(event.srtt_us),
        // The kernel's "none yet" is all ones.
        rtt_min: known_us(event.rtt_min_us).filter(|rtt| rtt.0 != u64::from(u32::MAX)),
        acknowledged: Bytes(event.bytes),
        retransmitted: Segments(event.retransmitted),
        first_flight_loss: Some(event.lost_first),
        first_flight: (event.granted > 0 && event.lost_first)
            .then_some(FirstFlightLoss { sent: Segments(event.first_sent), lost: Segments(event.first_lost) }),
        limited_by: event.window_limited.then_some(LimitedBy::Window),
        arm,
        advised: (event.granted > 0).then_some(Segments(event.granted)),
        refusal: networks::reason(event.refusal).filter(|_| !event.paused),
        paused: event.paused,
        transport: Transport::Tcp,
        loss_window: None,
        congestion_events: 0,
        ended_in_slow_start: None,
        careful_resume: event.careful_resume,
    };
    Ended { report, at: Instant::now(), urgent: event.first_flight_loss }
}

// The programs' counters by name.

/// `enum count` of `bpf/tables.h`, in its order.
pub(super) const NAMES: [&str; 41] = [
    "started",
    "restarted",
    "control",
    "no_estimate",
    "expired",
    "refused",
    "no_rtt",
    "rtt_mismatch",
    "retreated",
    "mptcp",
    "own_congestion_control",
    "retransmitted_syn",
    "other_congestion_control",
    "not_set",
    "no_room",
    "kept_window",
    "event_lost",
    "clipped_peer_window",
    "clipped_budget",
    "stated_size",
    "first_flight_loss",
    "reconnected",
    "paused",
    "seen_accepted",
    "seen_opened",
    "no_opening",
    "loss_overdue",
    "other_namespace",
    "share_too_high",
    "share_too_low",
    "bbr_seeded",
    "bbr_too_high",
    "bbr_too_low",
    "bbr_handed_over",
    "resume_reconnaissance",
    "resume_unvalidated",
    "resume_validating",
    "resume_safe_retreat",
    "resume_rtt_mismatch",
    "resume_in_use",
    "resume_no_gain",
];

/// Adds the programs' counters to `counts`; those that are zero are left out.
pub(super) fn add(table: &MapHandle, counts: &mut ApplyCounts) {
    for (place, name) in (0_u32..).zip(NAMES) {
        let Ok(Some(per_cpu)) = table.lookup_percpu(&place.to_ne_bytes(), MapFlags::ANY) else { continue };
        let number = |bytes: &Vec<u8>| bytes.first_chunk().map_or(0, |n| u64::from_ne_bytes(*n));
        let sum: u64 = per_cpu.iter().map(number).sum();
        if sum > 0 {
            *counts.entry(name).or_default() += sum;
        }
    }
}
