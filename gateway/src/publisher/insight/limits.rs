//! Limits that were reached, derived from counters: the first increase is logged at once, later ones as a sum over ten seconds.

use std::collections::{BTreeMap, BTreeSet};

use spand_core::counters::Ignored;
use spand_proto::units::{Micros, Timestamp};

use crate::publisher::{CaptureStatus, EngineStatus, Part};

/// Shortest time between two entries about the same limit.
const AGAIN: Micros = Micros::from_secs(10);

/// What is ignored because a table or queue of the engine is full. Its other reasons are about what was seen.
const FULL: [Ignored; 9] = [
    Ignored::Shed,
    Ignored::NoRoom,
    Ignored::NoRoomNetwork,
    Ignored::NoRoomHost,
    Ignored::NoRoomService,
    Ignored::EventQueueFull,
    Ignored::AdviceForgotten,
    Ignored::SegmentMemory,
    Ignored::Unacknowledged,
];

/// A limit that was reached, and how often since it was logged last.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Reached {
    pub(super) what: &'static str,
    pub(super) subject: String,
    pub(super) count: u64,
}

/// The counters as they were.
#[derive(Debug, Default)]
pub(super) struct Limits {
    known: BTreeMap<(&'static str, String), Known>,
    /// `None` before the first reading: a part that has not started yet is not logged.
    not_ready: Option<Vec<(Part, String)>>,
    /// Parts that were noted as not ready: their return is worth an entry, a start is not.
    failed: BTreeSet<Part>,
}

#[derive(Debug, Default)]
struct Known {
    logged: u64,
    at: Option<Timestamp>,
}

impl Limits {
    pub(super) fn engine(&mut self, now: Timestamp, engine: &EngineStatus) -> Vec<Reached> {
        let counters = &engine.counters;
        let full = FULL.iter().map(|reason| (reason.name(), counters.ignored(*reason)));
        let established = ("established_evicted", counters.established_evicted);
        full.chain([established]).filter_map(|(what, count)| self.look(now, what, String::new(), count)).collect()
    }

    /// Interfaces are those configured, so their names are bounded.
    pub(super) fn captures(&mut self, now: Timestamp, captures: &[CaptureStatus]) -> Vec<Reached> {
        let mut reached = Vec::new();
        for capture in captures {
            let counts = [
                ("capture_dropped_kernel", capture.dropped_kernel),
                ("capture_dropped_interface", capture.dropped_interface),
                ("capture_dropped_queue", capture.dropped_queue),
                ("capture_lost", capture.losses),
                ("capture_dropped_backlog", capture.dropped_backlog),
                ("capture_ring_freeze", capture.ring_freezes),
            ];
            let entries = counts.map(|(what, count)| self.look(now, what, capture.interface.clone(), count));
            reached.extend(entries.into_iter().flatten());
        }
        reached
    }

    pub(super) fn counts(&mut self, now: Timestamp, counts: &[(&'static str, u64)]) -> Vec<Reached> {
        counts.iter().filter_map(|(what, count)| self.look(now, what, String::new(), *count)).collect()
    }

    /// Which parts stopped working, with why, and which work again.
    pub(super) fn readiness(&mut self, not_ready: &[(Part, String)]) -> Vec<(&'static str, String)> {
        let Some(known) = self.not_ready.replace(not_ready.to_vec()) else { return Vec::new() };
        let gone: Vec<_> = not_ready.iter().filter(|now| !known.contains(now)).collect();
        self.failed.extend(gone.iter().map(|(part, _)| *part));
        let fails = |part: &Part| not_ready.iter().any(|(now, _)| now == part);
        let back: Vec<_> =
            self.failed.iter().filter(|part| !fails(part)).map(|part| ("ready", part.name().to_owned())).collect();
        self.failed.retain(fails);
        let gone = gone.into_iter().map(|(part, why)| ("not_ready", format!("{}: {why}", part.name())));
        gone.chain(back).collect()
    }

    fn look(&mut self, now: Timestamp, what: &'static str, subject: String, count: u64) -> Option<Reached> {
        let known = self.known.entry((what, subject.clone())).or_default();
        let more = count.saturating_sub(known.logged);
        let waits = known.at.is_some_and(|at| now.since(at) < AGAIN);
        if more == 0 || waits {
            return None;
        }
        *known = Known { logged: count, at: Some(now) };
        Some(Reached { what, subject, count: more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_logged_at_once_and_then_at_most_every_ten_seconds() {
        let mut limits = Limits::default();
        let mut look = |second: u64, count| {
            let reached = limits.counts(Timestamp(second * 1_000_000_000), &[("subscriptions_refused", count)]);
            reached.first().map(|reached| reached.count)
        };
        assert_eq!(look(0, 0), None);
        assert_eq!(look(1, 1), Some(1));
        assert_eq!(look(2, 50), None);
        assert_eq!(look(11, 51), Some(50));
        assert_eq!(look(60, 51), None);
    }

    #[test]
    fn parts_are_logged_when_they_change() {
        let mut limits = Limits::default();
        let down = |why: &str| vec![(Part::Capture, why.to_owned())];
        assert_eq!(limits.readiness(&[]), []);
        assert_eq!(limits.readiness(&down("eth0 is gone")), [("not_ready", "capture: eth0 is gone".to_owned())]);
        assert_eq!(limits.readiness(&down("eth0 is gone")), []);
        assert_eq!(limits.readiness(&down("eth0 is down")), [("not_ready", "capture: eth0 is down".to_owned())]);
        assert_eq!(limits.readiness(&[]), [("ready", "capture".to_owned())]);
    }

    #[test]
    fn a_start_is_no_return() {
        let mut limits = Limits::default();
        let starting = vec![(Part::Engine, "it has not started yet".to_owned()), (Part::Store, "starting".to_owned())];
        assert_eq!(limits.readiness(&starting), []);
        let full = vec![(Part::Store, "the disk is full".to_owned())];
        assert_eq!(limits.readiness(&full), [("not_ready", "store: the disk is full".to_owned())]);
        assert_eq!(limits.readiness(&[]), [("ready", "store".to_owned())], "the engine only started");
    }
}
