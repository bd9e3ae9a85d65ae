//! How many connections an engine follows that does not keep up.
//!
//! Left to itself, a queue that overflows loses packets of every connection, and every window rebuilt from the rest would be
//! wrong. So before it overflows the engine is told to follow fewer connections, each of them whole.

use std::time::{Duration, Instant};

use spand_core::flow::kept::Kept;

/// A queue filled by one part in this many has to be relieved.
const FULL_PART: usize = 2;
/// Filled by less than one part in this many it has room.
const ROOM_PART: usize = 16;
/// Time that relief takes to show: what waits has to be worked off first.
const AFTER_LESS: Duration = Duration::from_millis(250);
/// Time with room after which more are followed; doubled each time that was too early.
const BEFORE_MORE: Duration = Duration::from_secs(10);
const BEFORE_MORE_MOST: Duration = Duration::from_secs(320);

/// Decides from how full the queue is.
#[derive(Debug)]
pub(super) struct Shedding {
    kept: Kept,
    changed: Instant,
    /// The last change was to follow more.
    rose: bool,
    /// Since when there has been room.
    room_since: Option<Instant>,
    patience: Duration,
}

impl Shedding {
    pub(super) fn new(now: Instant) -> Self {
        Self { kept: Kept::ALL, changed: now, rose: false, room_since: None, patience: BEFORE_MORE }
    }

    /// Looks at a queue in which `waiting` of at most `limit` packets waited; gives what to follow from now on, where that
    /// changes.
    pub(super) fn look(&mut self, waiting: usize, limit: usize, now: Instant) -> Option<Kept> {
        if waiting >= limit / ROOM_PART {
            self.room_since = None;
        }
        if waiting >= limit / FULL_PART && now.duration_since(self.changed) >= AFTER_LESS {
            self.patience = if self.rose { (self.patience * 2).min(BEFORE_MORE_MOST) } else { self.patience };
            return self.change(self.kept.parts() * 3 / 4, false, now);
        }
        if waiting < limit / ROOM_PART && self.kept < Kept::ALL {
            let since = *self.room_since.get_or_insert(now);
            if now.duration_since(since) >= self.patience {
                return self.change(self.kept.parts() * 5 / 4 + 1, true, now);
            }
        }
        None
    }

    fn change(&mut self, parts: u16, rose: bool, now: Instant) -> Option<Kept> {
        let before = std::mem::replace(&mut self.kept, Kept::of_256(parts));
        (self.changed, self.rose, self.room_since) = (now, rose, None);
        if self.kept == Kept::ALL {
            self.patience = BEFORE_MORE;
        }
        (before != self.kept).then_some(self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_relieved_step_by_step_and_room_is_used_again() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut shedding = Shedding::new(start);
        let mut look = |waiting, ms| shedding.look(waiting, 1_000, at(ms)).map(Kept::parts);
        assert_eq!(look(499, 1_000), None);
        assert_eq!(look(500, 1_000), Some(192));
        assert_eq!(look(900, 1_100), None, "what was done has to show first");
        assert_eq!(look(900, 1_250), Some(144));
        assert_eq!(look(0, 2_000), None);
        assert_eq!(look(62, 11_000), None, "no room in between");
        assert_eq!(look(0, 12_000), None);
        assert_eq!(look(0, 21_999), None);
        assert_eq!(look(0, 22_000), Some(181));
        assert_eq!(look(700, 23_000), Some(135), "too early");
        assert_eq!(look(0, 24_000), None);
        assert_eq!(look(0, 43_999), None);
        assert_eq!(look(0, 44_000), Some(169), "twice as patient");
    }

    #[test]
    fn it_never_follows_nothing_and_comes_back_to_all() {
        let start = Instant::now();
        let mut shedding = Shedding::new(start);
        let mut now = start;
        for _ in 0..100 {
            now += AFTER_LESS;
            shedding.look(1_000, 1_000, now);
        }
        assert_eq!(shedding.kept, Kept::LEAST);
        for _ in 0..100 {
            now += BEFORE_MORE_MOST;
            shedding.look(0, 1_000, now);
        }
        assert_eq!((shedding.kept, shedding.patience), (Kept::ALL, BEFORE_MORE));
        assert_eq!(shedding.look(0, 1_000, now + BEFORE_MORE_MOST), None);
    }
}
