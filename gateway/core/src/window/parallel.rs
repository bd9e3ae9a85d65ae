//! How many connections send to a network at once.

use spand_proto::units::{Micros, Timestamp};

use crate::types::{LeastRate, SampleRate};

/// Transfers under way, the most there were in the span under way and in the one before, and the fewest among which a window was sampled:
/// in 256ths, each with the weight of its connection ([`SampleRate::weight`]).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parallel {
    now: u32,
    most: u32,
    most_before: u32,
    began: Timestamp,
    /// Since `least_began`; 0 where no window was sampled.
    least: u32,
    least_before: u32,
    least_began: Timestamp,
    /// The part of the network's starts that is followed.
    pub(crate) rate: LeastRate,
}

/// The weight of a transfer where every connection is followed.
const ONE: u32 = 256;

/// Spans for which the minimum is kept.
const LEAST_SPANS: u64 = 4;

impl Parallel {
    /// A transfer begins, of a connection of which this part is followed.
    pub(crate) fn begin(&mut self, at: Timestamp, span: Micros, rate: SampleRate) {
        self.turn(at, span);
        self.now = self.now.saturating_add(rate.weight());
        self.most = self.most.max(self.now);
    }

    /// A transfer that began here ends.
    pub(crate) fn end(&mut self, at: Timestamp, span: Micros, rate: SampleRate) {
        self.turn(at, span);
        self.now = self.now.saturating_sub(rate.weight());
    }

    /// The most at once in the last one to two spans.
    pub(crate) fn most(mut self, at: Timestamp, span: Micros) -> u32 {
        self.turn(at, span);
        self.most.max(self.most_before).div_ceil(ONE)
    }

    /// A window was sampled on a connection with this weight. The connection counts as one: whether others like it were sending is not known.
    pub(crate) fn sampled(&mut self, at: Timestamp, span: Micros, weight: u32) {
        let (now, passed) = (self.now.saturating_sub(weight) + ONE, at.since(self.least_began).0 / span.0.max(1));
        if passed >= LEAST_SPANS || self.least == 0 {
            self.least_before = if passed < 2 * LEAST_SPANS { self.least } else { 0 };
            (self.least, self.least_began) = (now, at);
        }
        self.least = self.least.min(now);
    }

    /// The fewest among which a window was sampled in the last four to eight spans that had samples: this many had the share in parallel. At
    /// least one.
    pub(crate) fn at_samples(self) -> u32 {
        let least = match (self.least, self.least_before) {
            (least, 0) => least.max(ONE),
            (least, before) => least.min(before),
        };
        least.div_ceil(ONE)
    }

    fn turn(&mut self, at: Timestamp, span: Micros) {
        let passed = at.since(self.began).0;
        if passed >= span.0 {
            self.most_before = if passed < span.0.saturating_mul(2) { self.most } else { self.now };
            self.most = self.now;
            self.began = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_remembered_for_one_to_two_spans_and_what_goes_on_for_ever() {
        let (span, at) = (Micros::from_secs(10), |s: u64| Timestamp::default().after(Micros::from_secs(100 + s)));
        let mut parallel = Parallel::default();
        (0..3).for_each(|_| parallel.begin(at(0), span, SampleRate::ALL));
        (0..2).for_each(|_| parallel.end(at(1), span, SampleRate::ALL));
        assert_eq!(parallel.most(at(9), span), 3);
        parallel.begin(at(12), span, SampleRate::ALL);
        assert_eq!(parallel.most(at(19), span), 3);
        assert_eq!(parallel.most(at(23), span), 2);
        assert_eq!(parallel.most(at(3_000), span), 2, "two still send");
    }

    #[test]
    fn transfers_count_with_their_weight_and_the_sampled_one_for_itself() {
        let (span, at) = (Micros::from_secs(10), Timestamp::default().after(Micros::from_secs(100)));
        let quarter = SampleRate::of_256(64);
        let mut parallel = Parallel::default();
        (0..3).for_each(|_| parallel.begin(at, span, quarter));
        parallel.begin(at, span, SampleRate::ALL);
        parallel.sampled(at, span, quarter.weight());
        assert_eq!((parallel.most(at, span), parallel.at_samples()), (13, 1 + 2 * 4 + 1));
        (0..3).for_each(|_| parallel.end(at, span, quarter));
        assert_eq!(parallel.now, ONE);
    }

    #[test]
    fn a_crowd_counts_with_a_share_once_windows_were_sampled_in_it_only() {
        let (span, at) = (Micros::from_secs(10), |s: u64| Timestamp::default().after(Micros::from_secs(100 + s)));
        let mut parallel = Parallel::default();
        let sampled = |parallel: &mut Parallel, s: u64| {
            parallel.sampled(at(s), span, ONE);
            parallel.at_samples()
        };
        assert_eq!(parallel.at_samples(), 1);
        parallel.begin(at(0), span, SampleRate::ALL);
        assert_eq!(sampled(&mut parallel, 0), 1);
        (0..199).for_each(|_| parallel.begin(at(1), span, SampleRate::ALL));
        assert_eq!(sampled(&mut parallel, 1), 1);
        assert_eq!(sampled(&mut parallel, 41), 1, "one had it for itself in the four spans before");
        assert_eq!(sampled(&mut parallel, 82), 200);
        (0..190).for_each(|_| parallel.end(at(83), span, SampleRate::ALL));
        assert_eq!(sampled(&mut parallel, 84), 10, "most are gone");
        assert_eq!(sampled(&mut parallel, 1_000), 10);
        (0..90).for_each(|_| parallel.begin(at(1_001), span, SampleRate::ALL));
        assert_eq!(sampled(&mut parallel, 1_090), 100, "what was long before does not count");
    }
}
