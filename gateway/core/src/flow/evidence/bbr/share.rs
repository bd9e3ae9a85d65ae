//! BBR's share of the path: its delivery rate times the smallest round-trip time, and how often that is a sample.
//!
//! BBR's own smallest round-trip time expires after ten seconds and is measured again, perhaps through a queue of other traffic, which
//! does not make the path longer. So the one here is kept longer, but not for ever: a change of the path shows.

use spand_proto::units::{Micros, Timestamp};

use super::{Bbr, rate};

/// Shortest period of the smallest round-trip time; the longest is twice this.
const PERIOD: Micros = Micros(15_000_000);
/// Round trips between two samples: the delivery rate is the largest of as many. And the shortest time.
const SAMPLE_ROUNDS: u8 = 10;
const SAMPLE_APART: Micros = Micros(1_000_000);

/// The inputs of the share beside the rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// Smallest round-trip time at the tap, of this period and of the one before.
    least: [Option<Micros>; 2],
    since: Timestamp,
    /// Round trips without a sample that neither application nor receiver limited.
    rounds: u8,
    sampled_at: Option<Timestamp>,
    /// The path was full, or lost something, since that sample.
    answered: bool,
}

impl Share {
    pub(super) const fn new(at: Timestamp) -> Self {
        Self { least: [None; 2], since: at, rounds: 0, sampled_at: None, answered: false }
    }

    /// A round trip took `rtt`.
    pub(super) fn observe(&mut self, at: Timestamp, rtt: Micros) {
        if at.since(self.since) > PERIOD {
            (self.least, self.since) = ([None, self.least[0]], at);
        }
        let [now, _] = &mut self.least;
        *now = Some(now.map_or(rtt, |least| least.min(rtt)));
    }

    pub(super) fn least(&self) -> Option<Micros> {
        self.least.into_iter().flatten().min()
    }
}

impl Bbr {
    /// Its share in segments, with `reaction` between the tap and its sender.
    pub(in super::super) fn share(&self, reaction: Micros) -> Option<f64> {
        let least = self.share.least().filter(|_| self.rate.max() > 0)?;
        Some(rate::segments_in(self.rate.max(), Micros(least.0.saturating_add(reaction.0))))
    }

    /// A round trip ended that neither application nor receiver limited.
    pub(in super::super) fn count_round(&mut self) {
        self.share.rounds = self.share.rounds.saturating_add(1);
    }

    /// The path is full.
    pub(in super::super) fn fill_path(&mut self) {
        self.share.answered = true;
    }

    /// Whether the path answered since the last sample, and its sender kept no pace of its own choice: else it carries more than the share.
    pub(in super::super) fn take_answered(&mut self) -> bool {
        std::mem::take(&mut self.share.answered) && !self.holds_one_pace()
    }

    /// Whether it kept one pace for longer than a cycle of gains does.
    pub(in super::super) fn holds_one_pace(&self) -> bool {
        self.pace.has_limit()
    }

    /// A round trip ended.
    pub(in super::super) fn note_limit(&mut self) {
        if let Some(rtt) = self.share.least() {
            self.pace.note_limit(rtt);
        }
    }

    /// Whether its share is a sample: first with a full pipe, then some round trips apart.
    pub(in super::super) fn take_rate_due(&mut self, at: Timestamp) -> bool {
        let Share { rounds, sampled_at, .. } = self.share;
        let due = match sampled_at {
            None => rounds > 0,
            Some(sampled_at) => rounds >= SAMPLE_ROUNDS && at.since(sampled_at) >= SAMPLE_APART,
        };
        let due = due && self.is_full && !self.rate.is_app_limited();
        if due {
            (self.share.rounds, self.share.sampled_at) = (0, Some(at));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: u64) -> Timestamp {
        Timestamp::from_micros(s * 1_000_000)
    }

    #[test]
    fn a_path_that_got_longer_shows_after_a_while_and_one_that_got_shorter_at_once() {
        let mut share = Share::new(seconds(0));
        let mut least = |from: u64, rtt_ms: u64| {
            (from..from + 20).for_each(|s| share.observe(seconds(s), Micros(rtt_ms * 1_000)));
            share.least().map(|rtt| rtt.0 / 1_000)
        };
        assert_eq!(least(0, 40), Some(40));
        assert_eq!(least(20, 90), Some(40), "a queue of others may last as long");
        assert_eq!(least(40, 90), Some(90));
        assert_eq!(least(60, 30), Some(30));
    }

    #[test]
    fn samples_of_the_rate_are_round_trips_and_a_second_apart() {
        let mut bbr = Bbr::new(seconds(0), 0, None);
        bbr.count_round();
        assert!(!bbr.take_rate_due(seconds(1)), "it starts up");
        bbr.is_full = true;
        assert!(bbr.take_rate_due(seconds(1)) && !bbr.take_rate_due(seconds(3)));
        (0..9).for_each(|_| bbr.count_round());
        assert!(!bbr.take_rate_due(seconds(3)));
        bbr.count_round();
        assert!(bbr.take_rate_due(seconds(3)));
        (0..20).for_each(|_| bbr.count_round());
        assert!(!bbr.take_rate_due(Timestamp::from_micros(3_900_000)));
    }
}
