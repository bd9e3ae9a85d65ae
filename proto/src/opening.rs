//! What a network's live senders say of one more (Yu & Newman 2011): the slow-start threshold at which it has its fair share, and the
//! window by the times of losses.
//!
//! Pure arithmetic. Which senders there are is the gateway's to know.

use serde::{Deserialize, Serialize};

use crate::estimate::RuleKind;
use crate::growth::MOST_SEGMENTS;
use crate::units::{Micros, Segments, Timestamp, Window};

/// What a new connection to a network may open with, by a rule that watches the senders under way there.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Opening {
    /// The rule.
    pub rule: RuleKind,
    /// The slow-start threshold.
    pub threshold: Window,
    /// The times of losses, where the rule is about them.
    pub losses: Option<LossClock>,
}

/// The senders that share a network's path, as one more would find them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sharing {
    /// `S`: the windows of those in slow start, together, in bytes.
    pub slow_starting: f64,
    /// `L`: how many are in congestion avoidance.
    pub in_avoidance: u32,
    /// `w_o`: the window of the oldest of those, in bytes.
    pub oldest: f64,
}

impl Sharing {
    /// Equation 2: `(S + L w) / (L + S / w + 1)`, always less than `w`. `None` where nobody is in congestion
    /// avoidance, or the windows are no windows.
    pub fn fair_share(&self) -> Option<Window> {
        let (slow, count, oldest) = (self.slow_starting, f64::from(self.in_avoidance), self.oldest);
        let sound = oldest.is_finite() && oldest > 0.0 && slow.is_finite() && slow >= 0.0;
        if self.in_avoidance == 0 || !sound {
            return None;
        }
        Window::from_bytes((slow + count * oldest) / (count + slow / oldest + 1.0)).filter(|share| share.bytes() > 0.0)
    }
}

/// The share of one more connection where `sharing` have `window` each: `K b / (K + 1)`.
pub fn share_of_one_more(window: f64, sharing: u32) -> f64 {
    let sharing = f64::from(sharing);
    sharing * window / (sharing + 1.0)
}

/// How often the connections of a network lose a segment, and how often the oldest of them does.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LossClock {
    /// `tau`: the smoothed interval between losses of all.
    pub interval: Micros,
    /// `gamma`: that of the oldest.
    pub oldest_interval: Micros,
    /// `t_l`: the last loss of any.
    pub last: Timestamp,
}

impl LossClock {
    /// Equation 5 in segments: `gamma (tau - (t_c - t_l)) / (tau R)`. `None` where the next loss is overdue, nothing is known of
    /// intervals or the round trip, or the clock runs before the last loss.
    pub fn window(&self, now: Timestamp, rtt: Micros) -> Option<f64> {
        if self.interval.0 == 0 || rtt.0 == 0 || now < self.last {
            return None;
        }
        let left = self.interval.0.checked_sub(now.since(self.last).0)?;
        let window = self.oldest_interval.0 as f64 * (left as f64 / self.interval.0 as f64) / rtt.0 as f64;
        (window > 0.0).then_some(window)
    }

    /// The same in whole segments, rounded down, with intervals and round trip of at most 2^32 microseconds, as the agent's
    /// kernel programs compute it.
    pub fn segments(&self, now: Timestamp, rtt: Micros) -> Option<Segments> {
        let [interval, oldest, rtt] =
            [self.interval, self.oldest_interval, rtt].map(|time| time.0.min(u32::MAX.into()));
        if interval == 0 || rtt == 0 || now < self.last {
            return None;
        }
        let left = interval.checked_sub(now.since(self.last).0)?;
        let window = oldest * left / (interval * rtt);
        (window > 0).then(|| Segments(u32::try_from(window).unwrap_or(u32::MAX).min(MOST_SEGMENTS)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// V3, in segments of one byte.
    #[test]
    fn one_more_gets_what_equation_2_gives() {
        for (slow_starting, in_avoidance, oldest, share) in
            [(0.0, 1, 20.0, 10.0), (0.0, 4, 20.0, 16.0), (20.0, 1, 20.0, 13.3333), (10.0, 3, 16.0, 12.5405)]
        {
            let sharing = Sharing { slow_starting, in_avoidance, oldest };
            let given = sharing.fair_share().unwrap().bytes();
            assert!((given - share).abs() < 5e-5, "{sharing:?}: {given}");
        }
        assert_eq!(share_of_one_more(20.0, 4).to_bits(), 16f64.to_bits());
    }

    /// V3: equation 5 falls with the time since the last loss, and says nothing once the next is overdue.
    #[test]
    fn the_window_shrinks_until_the_next_loss_is_due() {
        let last = Timestamp::from_micros(7_000_000);
        let clock = LossClock { interval: Micros::from_secs(5), oldest_interval: Micros::from_secs(20), last };
        let at = |ms| clock.window(last.after(Micros::from_millis(ms)), Micros::from_millis(200));
        assert_eq!(at(0), Some(100.0));
        assert_eq!(at(2_500), Some(50.0));
        assert_eq!(
            clock.segments(last.after(Micros::from_millis(2_510)), Micros::from_millis(200)),
            Some(Segments(49))
        );
        assert_eq!(at(5_000), None);
        assert_eq!(at(6_000), None);
        assert_eq!(clock.window(last.before(Micros(1)), Micros::from_millis(200)), None);
        assert_eq!(clock.window(last, Micros(0)), None);
        assert_eq!(LossClock { interval: Micros(0), ..clock }.window(last, Micros(1)), None);
    }

    proptest! {
        #[test]
        fn a_share_is_below_the_oldest_window_or_none(
            slow_starting in proptest::num::f64::ANY, in_avoidance: u32, oldest in proptest::num::f64::ANY,
        ) {
            let sharing = Sharing { slow_starting, in_avoidance, oldest };
            let usual = in_avoidance > 0 && (1.0..1e12).contains(&oldest) && (0.0..1e12).contains(&slow_starting);
            match sharing.fair_share() {
                Some(share) => prop_assert!(in_avoidance > 0 && share.bytes() > 0.0 && share.bytes() <= oldest * (1.0 + 1e-12)),
                None => prop_assert!(!usual),
            }
        }

        #[test]
        fn equation_5_is_total(interval: u64, oldest: u64, last: u64, now: u64, rtt: u64) {
            let clock = LossClock { interval: Micros(interval), oldest_interval: Micros(oldest), last: Timestamp(last) };
            if let Some(window) = clock.window(Timestamp(now), Micros(rtt)) {
                prop_assert!(window.is_finite() && window > 0.0);
            }
            if let Some(Segments(window)) = clock.segments(Timestamp(now), Micros(rtt)) {
                prop_assert!((1..=MOST_SEGMENTS).contains(&window));
            }
        }
    }
}
