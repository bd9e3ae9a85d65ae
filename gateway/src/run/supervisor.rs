//! What the service manager is sent (`sd_notify(3)`): that the gateway answers, which part is not ready, and signs of life.
//!
//! A sign of life needs every engine to have taken packets, or to have looked for some, since the last one, and the tasks that answer
//! to run. An engine looks ten times a second.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};

use super::capture::Captures;
use super::queue::FrameQueue;
use crate::publisher::Published;

/// How often the service manager is sent what changed, where it watches no more often.
const INTERVAL: Duration = Duration::from_secs(5);
/// Signs of life in the time after which the service manager acts on their absence.
const SIGNS: u32 = 3;

/// Sends them until it is dropped.
pub(super) async fn keep(published: Published, captures: Arc<Captures>) {
    let mut engines = Engines::default();
    let mut status = String::new();
    let watched = sd_notify::watchdog_enabled();
    let mut ticks = interval(watched.map_or(INTERVAL, |limit| INTERVAL.min(limit / SIGNS)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    send(&[NotifyState::Ready]);
    loop {
        ticks.tick().await;
        let now = describe(&published);
        if now != status {
            send(&[NotifyState::Status(&now)]);
            status = now;
        }
        if engines.are_alive(&captures.queues) && watched.is_some() {
            send(&[NotifyState::Watchdog]);
        }
    }
}

/// The gateway stops.
pub(super) fn stopping() {
    send(&[NotifyState::Stopping]);
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager takes no notification");
    }
}

fn describe(published: &Published) -> String {
    let reasons: Vec<_> =
        published.readiness().reasons().iter().map(|(part, why)| format!("{}: {why}", part.name())).collect();
    if reasons.is_empty() { "ready".to_owned() } else { format!("not ready: {}", reasons.join("; ")) }
}

/// How often each engine had looked for packets.
#[derive(Debug, Default)]
struct Engines(Vec<u64>);

impl Engines {
    /// Whether every one did since the last call.
    fn are_alive(&mut self, queues: &[FrameQueue]) -> bool {
        let now = queues.iter().map(FrameQueue::turns).collect();
        let before = std::mem::replace(&mut self.0, now);
        before.iter().zip(&self.0).all(|(before, now)| before != now)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Instant;

    use super::*;

    #[test]
    fn one_engine_that_hangs_ends_the_signs_of_life() {
        let queues = [NonZeroUsize::MIN; 2].map(FrameQueue::new);
        let turn = |engine: usize| queues[engine].take(&mut Vec::new(), Instant::now());
        let mut engines = Engines::default();
        assert!(engines.are_alive(&queues), "nothing is known of them yet");
        turn(0);
        turn(1);
        assert!(engines.are_alive(&queues));
        turn(0);
        assert!(!engines.are_alive(&queues));
    }
}
