//! How long to wait before something is tried again.

use std::time::Duration;

/// Doubles from `first` to `most`; each wait is anything up to that, so that not all gateways come at once.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, next: first }
    }

    /// It worked.
    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }

    /// The next wait.
    pub(super) fn wait(&mut self) -> Duration {
        self.wait_at_most(self.most)
    }

    /// The next wait, where it is to be no longer than this.
    pub(super) fn wait_at_most(&mut self, most: Duration) -> Duration {
        let longest = self.next.min(most);
        self.next = (self.next * 2).min(self.most);
        longest.mul_f64(rand::random())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_spread_and_bounded() {
        let (first, most) = (Duration::from_millis(100), Duration::from_secs(5));
        let mut backoff = Backoff::new(first, most);
        let waits: Vec<Duration> = (0..200).map(|_| backoff.wait()).collect();
        assert!(waits.iter().all(|wait| *wait <= most));
        assert!(waits.iter().skip(10).any(|wait| *wait < most / 4), "jitter down to nothing");
        assert!(waits.iter().any(|wait| *wait > most / 2));
        backoff.reset();
        assert!(backoff.wait() <= first);
    }
}
