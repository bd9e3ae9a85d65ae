//! Pauses between attempts to reach a gateway.

use std::time::Duration;

/// Doubling pauses with full jitter: hosts that lost one gateway together do not come back together, however long it is
/// gone. A part of each pause that is the same for all would keep them together by as much.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// Pauses below bounds from `min` up to `max`.
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, failures: 0 }
    }

    /// The pause after one more failure; `jitter` is a random number from 0 to 1. Never below a quarter of `min`, so that a run
    /// of small draws does not become a storm.
    pub fn next(&mut self, jitter: f64) -> Duration {
        let bound = self.min.saturating_mul(2u32.saturating_pow(self.failures.min(20))).min(self.max);
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(jitter.clamp(0.0, 1.0)).max(self.min.min(bound) / 4)
    }

    /// Starts over after a success.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }
}

// Times that are no matter of configuration.

/// How soon a dead gateway is noticed, and how hosts spread out. Tests take shorter ones.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timing {
    /// Silence on an open stream after which the gateway is asked for a sign of life (HTTP/2 PING).
    pub ping_after: Duration,
    /// How long it may take to give one.
    pub ping_timeout: Duration,
    /// Hosts that lost a gateway together come to another one within this time, but never later than `gateway.retry_max_ms`.
    pub spread: Duration,
    /// Mean time between two looks at a gateway that is preferred to the one in use.
    pub look: Duration,
    /// How long such a one has to have been up before this host returns to it, and how much longer at most.
    pub up: [Duration; 2],
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            ping_after: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(5),
            spread: Duration::from_secs(2),
            look: Duration::from_secs(10),
            up: [Duration::from_secs(120); 2],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_double_up_to_the_longest_and_start_over() {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
        let longest: Vec<u128> = (0..10).map(|_| backoff.next(1.0).as_millis()).collect();
        assert_eq!(longest, [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
        backoff.reset();
        assert_eq!(backoff.next(0.5), Duration::from_millis(100));
    }

    #[test]
    fn jitter_is_full_at_the_longest_bound_too_and_never_a_storm() {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
        (0..20).for_each(|_| _ = backoff.next(1.0));
        assert_eq!(backoff.next(0.25), Duration::from_millis(7_500));
        assert_eq!(backoff.next(0.0), Duration::from_millis(50));
    }

    #[test]
    fn a_gateway_gone_for_ever_does_not_overflow() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::MAX);
        for _ in 0..100 {
            assert!(backoff.next(1.0) <= Duration::MAX);
        }
    }
}
