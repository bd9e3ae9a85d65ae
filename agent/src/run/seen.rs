//! Whether the programs in the kernel see the connections whose starts are announced.
//!
//! A start is in force once the table of networks holds it. That does not mean that the programs ever see the connection: a
//! socket stays in the cgroup that it was made in, and one of another cgroup starts as plain TCP without a trace. So announced
//! starts are compared with the connections that the programs saw established, by direction, over [`SPAN_S`]. A direction counts as
//! unseen where at least [`LEAST`] were announced and fewer than one in [`LEAST_SHARE`] was seen: some handshakes never complete.

use std::collections::VecDeque;

use spand_proto::operator::rfc3339_unix_s;
use spand_proto::push::Trigger;
use spand_proto::units::Timestamp;

use crate::apply::ByDirection;
use crate::clock;
use crate::control::{ConnectionsSeen, DirectionSeen, SeenState};

/// How far back is looked, in seconds.
const SPAN_S: u64 = 120;
/// Length of a slot of that span, in seconds.
const SLOT_S: u64 = 2;
/// Announced starts in the span below which the state is `too_few`.
const LEAST: u64 = 10;
/// One in N has to be seen.
const LEAST_SHARE: u64 = 10;
const NS_PER_S: u64 = 1_000_000_000;

/// Compares announced starts with connections seen.
#[derive(Debug, Default)]
pub(super) struct SeenWatch {
    /// Those before the newest, the oldest first. What is announced in the last of them and in the newest may still be in its
    /// handshake.
    slots: VecDeque<Slot>,
    newest: Slot,
    /// Of the applier at the last look.
    last: Option<ByDirection<u64>>,
    announced: ByDirection<u64>,
    seen: ByDirection<u64>,
    unseen: ByDirection<bool>,
    since_unix_s: Option<u64>,
    missed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    began: Timestamp,
    accepted: Numbers,
    opened: Numbers,
}

#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    announced: u64,
    seen: u64,
    /// Of those announced, the ones that are among the missed.
    missed: u64,
}

impl SeenWatch {
    /// A start was announced to a network whose connections the applier looks at already.
    pub(super) fn on_announced(&mut self, trigger: Trigger, now: Timestamp) {
        match trigger {
            Trigger::PassiveOpen => {
                self.announced.accepted += 1;
                self.slot(now).accepted.announced += 1;
            }
            Trigger::ActiveOpen => {
                self.announced.opened += 1;
                self.slot(now).opened.announced += 1;
            }
            // Established long ago.
            Trigger::Idle => {}
        }
    }

    /// Takes the applier's counters; `None` if it sees no connections.
    pub(super) fn on_tick(&mut self, seen: Option<ByDirection<u64>>, now: Timestamp) {
        let last = std::mem::replace(&mut self.last, seen);
        let Some(seen) = seen else { return };
        let last = last.unwrap_or_default();
        self.seen = seen;
        let slot = self.slot(now);
        slot.accepted.seen += seen.accepted.saturating_sub(last.accepted);
        slot.opened.seen += seen.opened.saturating_sub(last.opened);
        self.unseen = ByDirection {
            accepted: is_unseen(self.in_span(|slot| slot.accepted)),
            opened: is_unseen(self.in_span(|slot| slot.opened)),
        };
        let settled = self.slots.len().saturating_sub(1);
        for slot in self.slots.iter_mut().take(settled) {
            for (unseen, numbers) in
                [(self.unseen.accepted, &mut slot.accepted), (self.unseen.opened, &mut slot.opened)]
            {
                let missed = numbers.announced.saturating_sub(numbers.seen);
                if unseen && missed > numbers.missed {
                    self.missed += missed - numbers.missed;
                    numbers.missed = missed;
                }
            }
        }
        match (self.unseen.accepted || self.unseen.opened, self.since_unix_s) {
            (true, None) => self.since_unix_s = Some(clock::wall_unix_s()),
            (false, Some(_)) => self.since_unix_s = None,
            _ => {}
        }
    }

    /// Announced starts whose connections the programs did not see; counted while a direction is unseen.
    pub(super) const fn missed(&self) -> u64 {
        self.missed
    }

    /// As `status` shows it.
    pub(super) fn shown(&self) -> ConnectionsSeen {
        let direction = |[announced, seen]: [u64; 2], unseen, announced_total, seen_total| DirectionSeen {
            unseen,
            announced,
            seen,
            announced_total,
            seen_total,
        };
        let (accepted, opened) = (self.in_span(|slot| slot.accepted), self.in_span(|slot| slot.opened));
        let state = match (self.last, self.since_unix_s) {
            (None, _) => SeenState::CannotBeSeen,
            (_, Some(_)) => SeenState::Unseen,
            _ if accepted[0] < LEAST && opened[0] < LEAST => SeenState::TooFew,
            _ => SeenState::Ok,
        };
        ConnectionsSeen {
            state,
            unseen_since: self.since_unix_s.map(rfc3339_unix_s),
            span_s: SPAN_S,
            accepted: direction(accepted, self.unseen.accepted, self.announced.accepted, self.seen.accepted),
            opened: direction(opened, self.unseen.opened, self.announced.opened, self.seen.opened),
        }
    }

    /// What was announced in the span, but for the last moments, and what was seen in it.
    fn in_span(&self, of: impl Fn(&Slot) -> Numbers) -> [u64; 2] {
        let settled = self.slots.len().saturating_sub(1);
        let announced = self.slots.iter().take(settled).map(|slot| of(slot).announced).sum();
        let seen: u64 = self.slots.iter().map(|slot| of(slot).seen).sum();
        [announced, seen + of(&self.newest).seen]
    }

    /// The slot of now, made where it has begun since; those before the span go.
    fn slot(&mut self, now: Timestamp) -> &mut Slot {
        let age_s = |slot: &Slot| now.0.saturating_sub(slot.began.0) / NS_PER_S;
        if age_s(&self.newest) >= SLOT_S {
            self.slots.push_back(std::mem::replace(&mut self.newest, Slot { began: now, ..Slot::default() }));
        }
        while self.slots.front().is_some_and(|slot| age_s(slot) >= SPAN_S) {
            self.slots.pop_front();
        }
        &mut self.newest
    }
}

const fn is_unseen([announced, seen]: [u64; 2]) -> bool {
    announced >= LEAST && seen.saturating_mul(LEAST_SHARE) < announced
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(second: u64) -> Timestamp {
        Timestamp(second * NS_PER_S)
    }

    /// Looks each second from `from` to `to`, with N announced and seen in each; totals continue.
    fn run(
        watch: &mut SeenWatch,
        total: &mut ByDirection<u64>,
        seconds: std::ops::Range<u64>,
        (announced, seen): (u64, u64),
    ) {
        for second in seconds {
            for _ in 0..announced {
                watch.on_announced(Trigger::PassiveOpen, at(second));
            }
            total.accepted += seen;
            watch.on_tick(Some(*total), at(second));
        }
    }

    fn state(watch: &SeenWatch) -> SeenState {
        watch.shown().state
    }

    #[test]
    fn announced_and_never_seen_is_at_fault_until_it_is_seen() {
        let (mut watch, mut total) = (SeenWatch::default(), ByDirection::default());
        run(&mut watch, &mut total, 0..4, (3, 0));
        assert_eq!(state(&watch), SeenState::TooFew, "their handshakes may still be under way");
        assert_eq!(watch.missed(), 0);
        run(&mut watch, &mut total, 4..20, (3, 0));
        let shown = watch.shown();
        assert_eq!((shown.state, shown.accepted.unseen, shown.opened.unseen), (SeenState::Unseen, true, false));
        assert!(shown.unseen_since.is_some_and(|since| since.ends_with('Z')));
        let missed = watch.missed();
        assert!((42..=60).contains(&missed), "{missed}: all but those of the last seconds, once each");
        // The service was restarted.
        run(&mut watch, &mut total, 20..30, (3, 3));
        assert_eq!((state(&watch), watch.shown().unseen_since), (SeenState::Ok, None));
        let missed = watch.missed();
        run(&mut watch, &mut total, 30..200, (3, 3));
        assert_eq!(watch.missed(), missed);
    }

    #[test]
    fn few_announced_none_announced_and_some_unfinished_handshakes_are_no_fault() {
        let (mut watch, mut total) = (SeenWatch::default(), ByDirection::default());
        run(&mut watch, &mut total, 0..300, (0, 0));
        assert_eq!(state(&watch), SeenState::TooFew, "idle");
        run(&mut watch, &mut total, 300..303, (3, 0));
        run(&mut watch, &mut total, 303..420, (0, 0));
        assert_eq!((state(&watch), watch.missed()), (SeenState::TooFew, 0), "nine");
        run(&mut watch, &mut total, 500..600, (5, 1));
        assert_eq!((state(&watch), watch.missed()), (SeenState::Ok, 0), "one in five is seen");
        run(&mut watch, &mut total, 600..602, (0, 0));
        let before = watch.shown().accepted.announced;
        run(&mut watch, &mut total, 700..724, (0, 0));
        assert!(watch.shown().accepted.announced < before, "the span moves on");
        run(&mut watch, &mut total, 900..902, (0, 0));
        assert_eq!((state(&watch), watch.shown().accepted.announced), (SeenState::TooFew, 0));
    }

    #[test]
    fn connections_that_the_host_opens_do_not_hide_those_that_it_accepts() {
        let (mut watch, mut total) = (SeenWatch::default(), ByDirection::default());
        for second in 0..20 {
            for trigger in [Trigger::PassiveOpen, Trigger::ActiveOpen, Trigger::Idle] {
                watch.on_announced(trigger, at(second));
            }
            total.opened += 1;
            watch.on_tick(Some(total), at(second));
        }
        let shown = watch.shown();
        assert_eq!((shown.state, shown.accepted.unseen, shown.opened.unseen), (SeenState::Unseen, true, false));
        assert_eq!((shown.opened.announced_total, shown.opened.seen_total), (20, 20), "idle ones are in neither");
    }

    #[test]
    fn a_method_that_sees_no_connections_reports_that() {
        let mut watch = SeenWatch::default();
        for second in 0..200 {
            watch.on_announced(Trigger::PassiveOpen, at(second));
            watch.on_tick(None, at(second));
        }
        assert_eq!((state(&watch), watch.missed()), (SeenState::CannotBeSeen, 0));
    }
}
