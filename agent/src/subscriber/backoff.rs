//! Pauses between attempts to reach the gateway.

use std::time::Duration;

/// Doubling pauses with full jitter: hosts that lost one gateway together do not come back together.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// Pauses from `min` up to `max`.
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, failures: 0 }
    }

    /// The pause after one more failure; `jitter` is a random number from 0 to 1. Never below half of the bound, so
    /// that a run of small draws does not become a storm.
    pub fn next(&mut self, jitter: f64) -> Duration {
        let bound = self.min.saturating_mul(2u32.saturating_pow(self.failures.min(20))).min(self.max);
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0))
    }

    /// Starts over after a success.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_bound_and_start_over() {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
        let longest: Vec<u128> = (0..10).map(|_| backoff.next(1.0).as_millis()).collect();
        assert_eq!(longest, [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
        backoff.reset();
        assert_eq!(backoff.next(0.0), Duration::from_millis(100));
    }

    #[test]
    fn a_gateway_gone_for_ever_does_not_overflow() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::MAX);
        for _ in 0..100 {
            assert!(backoff.next(1.0) <= Duration::MAX);
        }
    }
}
