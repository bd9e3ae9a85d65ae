//! How many connections an engine follows that does not keep up.
//!
//! Left to itself, a queue that overflows loses packets of every connection, and every window rebuilt from the rest would be
//! wrong. So before it overflows the engine follows fewer connections, each of them completely.

use std::time::{Duration, Instant};

use spand_core::types::SampleRate;

/// A queue filled by one part in this many is full enough to do something about it.
const FULL_PART: usize = 2;
/// How long, and at how many looks in a row, it has to be so: once is a moment without the processor, after which an engine
/// that keeps up works off what has gathered.
const FULL_FOR: Duration = Duration::from_millis(250);
const FULL_LOOKS: u32 = 4;
/// Time after a change after which more are followed; doubled each time that was too early.
const BEFORE_MORE: Duration = Duration::from_secs(10);
const BEFORE_MORE_MOST: Duration = Duration::from_secs(320);

/// Decides from how full the queue is.
#[derive(Debug)]
pub(super) struct Shedding {
    kept: SampleRate,
    changed: Instant,
    /// The last change was to follow more.
    rose: bool,
    /// Since when, and at how many looks, the queue has been full.
    full: Option<(Instant, u32)>,
    patience: Duration,
}

impl Shedding {
    pub(super) fn new(now: Instant) -> Self {
        Self { kept: SampleRate::ALL, changed: now, rose: false, full: None, patience: BEFORE_MORE }
    }

    /// Looks at a queue in which `waiting` of at most `limit` packets waited; gives what to follow from now on, where that
    /// changes.
    pub(super) fn look(&mut self, waiting: usize, limit: usize, now: Instant) -> Option<SampleRate> {
        if waiting >= limit / FULL_PART {
            let (since, looks) = self.full.map_or((now, 1), |(since, looks)| (since, looks + 1));
            self.full = Some((since, looks));
            if looks < FULL_LOOKS || now.duration_since(since) < FULL_FOR {
                return None;
            }
            if self.rose {
                self.patience = (self.patience * 2).min(BEFORE_MORE_MOST);
            }
            return self.change(self.kept.parts() * 3 / 4, false, now);
        }
        self.full = None;
        if self.kept < SampleRate::ALL && now.duration_since(self.changed) >= self.patience {
            return self.change(self.kept.parts() * 5 / 4 + 1, true, now);
        }
        None
    }

    fn change(&mut self, parts: u16, rose: bool, now: Instant) -> Option<SampleRate> {
        let before = std::mem::replace(&mut self.kept, SampleRate::of_256(parts));
        (self.changed, self.rose, self.full) = (now, rose, None);
        if self.kept == SampleRate::ALL {
            self.patience = BEFORE_MORE;
        }
        (before != self.kept).then_some(self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks every 50 ms from `from` to `to`, both in milliseconds; gives the changes with their times.
    fn looks(shedding: &mut Shedding, start: Instant, waiting: usize, from: u64, to: u64) -> Vec<(u64, u16)> {
        let look = |ms| shedding.look(waiting, 1_000, start + Duration::from_millis(ms)).map(|kept| (ms, kept.parts()));
        (from..=to).step_by(50).filter_map(look).collect()
    }

    #[test]
    fn a_queue_that_stays_full_is_relieved_step_by_step_and_more_is_tried_again() {
        let start = Instant::now();
        let mut shedding = Shedding::new(start);
        assert_eq!(looks(&mut shedding, start, 499, 0, 5_000), []);
        assert_eq!(looks(&mut shedding, start, 500, 5_050, 5_650), [(5_300, 192), (5_600, 144)]);
        assert_eq!(
            looks(&mut shedding, start, 499, 5_700, 16_000),
            [(15_600, 181)],
            "ten seconds after the last change"
        );
        assert_eq!(looks(&mut shedding, start, 900, 16_050, 16_300), [(16_300, 135)], "too early");
        assert_eq!(looks(&mut shedding, start, 0, 16_350, 37_000), [(36_300, 169)], "so twice as patient");
    }

    #[test]
    fn a_moment_without_the_processor_is_no_overload() {
        let start = Instant::now();
        let mut shedding = Shedding::new(start);
        for second in 0..60 {
            let at = |ms: u64| start + Duration::from_millis(second * 1_000 + ms);
            // What gathered in a stall is there at one look, and still half of it at the next two.
            for (waiting, ms) in [(1_000, 300), (800, 330), (600, 360), (400, 390)] {
                assert_eq!(shedding.look(waiting, 1_000, at(ms)), None);
            }
        }
        let at = |ms| start + Duration::from_secs(60) + Duration::from_millis(ms);
        for (waiting, ms) in [(1_000, 0), (1_000, 900), (400, 930)] {
            assert_eq!(shedding.look(waiting, 1_000, at(ms)), None, "two looks, however far apart, are one stall");
        }
    }

    #[test]
    fn it_waits_twice_as_long_each_time_up_to_five_minutes_and_a_third() {
        let mut now = Instant::now();
        let mut shedding = Shedding::new(now);
        for wait_s in [10, 20, 40, 80, 160, 320, 320] {
            let full = looks(&mut shedding, now, 1_000, 0, 250);
            assert_eq!(full.len(), 1, "{full:?}");
            now += Duration::from_millis(250);
            assert_eq!(shedding.look(0, 1_000, now + Duration::from_millis(wait_s * 1_000 - 1)), None, "{wait_s} s");
            now += Duration::from_secs(wait_s);
            assert!(shedding.look(0, 1_000, now).is_some(), "{wait_s} s");
        }
    }

    #[test]
    fn it_never_follows_nothing_and_comes_back_to_all() {
        let start = Instant::now();
        let mut shedding = Shedding::new(start);
        looks(&mut shedding, start, 1_000, 0, 60_000);
        assert_eq!(shedding.kept, SampleRate::LEAST);
        let mut now = start + Duration::from_secs(60);
        for _ in 0..100 {
            now += BEFORE_MORE_MOST;
            shedding.look(0, 1_000, now);
        }
        assert_eq!((shedding.kept, shedding.patience), (SampleRate::ALL, BEFORE_MORE));
        assert_eq!(shedding.look(0, 1_000, now + BEFORE_MORE_MOST), None);
    }
}
