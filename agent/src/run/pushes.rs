//! Whether the starts of announced connections were in force in time.
//!
//! A start counts as in time where its window was in force before its connection's handshake could end: before the smallest
//! round trip of the network had passed since the packet that announced it. Whether the connection met it, it does not say (see
//! `seen`). The delay from the gateway is not counted, since clocks need not agree. Data on an idle connection can leave at
//! once: there the window must have been in force already.

use spand_proto::network::Network;
use spand_proto::push::{ImminentStart, Trigger};
use spand_proto::report::PushCount;
use spand_proto::units::{Micros, Timestamp};
use tokio::sync::watch;

use crate::control::Pushes;

/// Announcements that wait for their window at one time; those beyond are judged at once.
const MOST_WAITING: usize = 1_024;

/// Counts announcements.
#[derive(Debug, Default)]
pub(super) struct PushWatch {
    counts: Pushes,
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    network: Network,
    /// How long the connection will take to its first data at least, from the packet that announced it.
    allowed: Micros,
    /// What had passed of it at `arrived`.
    delay: Micros,
    arrived: Timestamp,
}

impl PushWatch {
    /// An announcement arrived; `in_force`: whether its window already was.
    pub(super) fn on_push(&mut self, start: &ImminentStart, arrived: Timestamp, in_force: bool) {
        self.counts.received += 1;
        if in_force {
            self.counts.in_time += 1;
            return;
        }
        let estimate = &start.estimate.estimate;
        let allowed = match start.trigger {
            Trigger::Idle => Micros(0),
            Trigger::PassiveOpen | Trigger::ActiveOpen => estimate.rtt_min.unwrap_or_default(),
        };
        if self.waiting.len() >= MOST_WAITING {
            self.counts.late += 1;
            return;
        }
        self.waiting.push(Waiting { network: estimate.network, allowed, delay: start.delay, arrived });
    }

    /// Changes were made by `now`; `in_force`: whether a network's window is now.
    pub(super) fn on_applied(&mut self, now: Timestamp, in_force: impl Fn(Network) -> bool) {
        for waiting in self.waiting.drain(..) {
            let passed = waiting.delay.0.saturating_add(now.since(waiting.arrived).0);
            let count = if !in_force(waiting.network) {
                &mut self.counts.not_applied
            } else if passed < waiting.allowed.0 {
                &mut self.counts.in_time
            } else {
                &mut self.counts.late
            };
            *count += 1;
        }
    }

    /// Hands them on to be reported, where they grew, with those whose connections were not seen. What was not applied is in none of
    /// the contract's classes but the first.
    pub(super) fn publish(&self, unmatched: u64, to: &watch::Sender<PushCount>) {
        let Pushes { received, in_time, late, .. } = self.counts;
        let now = PushCount { received, in_time, late, unmatched };
        to.send_if_modified(|known| std::mem::replace(known, now) != now);
    }

    /// What became of them so far.
    pub(super) const fn counts(&self) -> Pushes {
        self.counts
    }
}
