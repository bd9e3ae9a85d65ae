//! How many connections send to a network at once.

use spand_proto::units::{Micros, Timestamp};

/// Transfers under way, and the most there were in the span under way and in the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parallel {
    now: u32,
    most: u32,
    most_before: u32,
    began: Timestamp,
}

impl Parallel {
    /// A transfer begins.
    pub(super) fn begin(&mut self, at: Timestamp, span: Micros) {
        self.turn(at, span);
        self.now = self.now.saturating_add(1);
        self.most = self.most.max(self.now);
    }

    /// A transfer that began here ends.
    pub(super) fn end(&mut self, at: Timestamp, span: Micros) {
        self.turn(at, span);
        self.now = self.now.saturating_sub(1);
    }

    /// The most at once in the last one to two spans.
    pub(super) fn most(mut self, at: Timestamp, span: Micros) -> u32 {
        self.turn(at, span);
        self.most.max(self.most_before)
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
        (0..3).for_each(|_| parallel.begin(at(0), span));
        (0..2).for_each(|_| parallel.end(at(1), span));
        assert_eq!(parallel.most(at(9), span), 3);
        parallel.begin(at(12), span);
        assert_eq!(parallel.most(at(19), span), 3);
        assert_eq!(parallel.most(at(23), span), 2);
        assert_eq!(parallel.most(at(3_000), span), 2, "two still send");
    }
}
