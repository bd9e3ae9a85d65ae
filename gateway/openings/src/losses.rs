//! The clock of losses (Yu & Newman, equations 3 and 4): when the last one was, and how far apart they are.

use spand_proto::units::{Micros, Timestamp};

/// Which losses count as one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LossCount {
    /// Those within a round trip of the first: one queue that overflows costs several connections a loss each.
    #[default]
    Episodes,
    /// None: every loss event of every connection counts. For comparison.
    PerEvent,
}

/// The last loss, and the smoothed interval between losses with a gain of 1/8; the first interval is taken as it is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct LossTimes {
    last: Timestamp,
    interval: Micros,
    count: u32,
}

impl LossTimes {
    /// Takes a loss of a sender whose round trip is `rtt`.
    pub(crate) fn add(&mut self, at: Timestamp, rtt: Micros, counted: LossCount) {
        let since = at.since(self.last);
        if self.count > 0 && counted == LossCount::Episodes && since <= rtt {
            return;
        }
        self.interval = match self.count {
            0 => Micros(0),
            1 => since,
            _ => Micros(self.interval.0.saturating_mul(7).saturating_add(since.0) / 8),
        };
        self.last = self.last.max(at);
        self.count = self.count.saturating_add(1);
    }

    /// When the last began; `None` where there was none.
    pub(crate) fn last(self) -> Option<Timestamp> {
        (self.count > 0).then_some(self.last)
    }

    /// The smoothed interval; `None` before the second loss.
    pub(crate) fn interval(self) -> Option<Micros> {
        (self.count > 1).then_some(self.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Micros = Micros::from_millis(100);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000).after(Micros::from_millis(ms))
    }

    fn times(losses_ms: &[u64], counted: LossCount) -> LossTimes {
        let mut times = LossTimes::default();
        for ms in losses_ms {
            times.add(at(*ms), RTT, counted);
        }
        times
    }

    #[test]
    fn the_interval_is_smoothed_with_a_gain_of_an_eighth() {
        let of = |losses_ms: &[u64]| times(losses_ms, LossCount::Episodes).interval();
        assert_eq!([of(&[]), of(&[1_000])], [None; 2]);
        assert_eq!(of(&[1_000, 5_000]), Some(Micros::from_secs(4)), "the first as it is");
        assert_eq!(of(&[1_000, 5_000, 17_000]), Some(Micros::from_secs(5)), "7/8 of 4 s and 1/8 of 12 s");
        assert_eq!(times(&[], LossCount::Episodes).last(), None);
    }

    #[test]
    fn losses_within_a_round_trip_of_the_first_are_one() {
        let losses = [1_000, 1_040, 1_100, 1_150, 5_000];
        let episodes = times(&losses, LossCount::Episodes);
        assert_eq!((episodes.count, episodes.last()), (3, Some(at(5_000))), "the fourth is further from the first");
        assert_eq!(times(&losses, LossCount::PerEvent).count, 5);
    }

    #[test]
    fn a_clock_that_runs_backwards_moves_nothing_back() {
        let mut times = times(&[1_000, 5_000], LossCount::PerEvent);
        times.add(at(0), RTT, LossCount::PerEvent);
        assert_eq!((times.last(), times.interval()), (Some(at(5_000)), Some(Micros::from_millis(3_500))));
        times.add(Timestamp(u64::MAX), RTT, LossCount::Episodes);
        times.add(Timestamp(u64::MAX), RTT, LossCount::PerEvent);
        assert_eq!(times.last(), Some(Timestamp(u64::MAX)));
    }
}
