//! A slow-start threshold that a sender measures itself (Aron & Druschel 4.2.1): the rate of closely spaced acknowledgements times the
//! round trip, the smallest of a few.
//!
//! Whole numbers throughout, as in the agent's kernel programs. Knows nothing about windows: what to do with the threshold is the start's.

use crate::units::{Micros, Segments, Window};

/// Acknowledgements further apart than this part of a round trip do not belong together.
const CLOSE_PART: u64 = 8;
/// Segments that a rate is taken over, at least.
const FEWEST: u32 = 2;

/// The measurement of one connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OwnThreshold {
    /// The first acknowledgement of the group.
    began: Option<Micros>,
    /// The newest.
    last: Micros,
    /// What was acknowledged after the first.
    segments: u32,
    /// The last estimation, by the time of its acknowledgement.
    estimated: Option<Micros>,
    /// The smallest so far.
    minimum: Option<Segments>,
    /// Whether one came within a tenth of the smallest.
    settled: bool,
}

impl OwnThreshold {
    /// The smallest estimation so far.
    pub const fn minimum(&self) -> Option<Segments> {
        self.minimum
    }

    /// Whether there will be no further estimation.
    pub const fn settled(&self) -> bool {
        self.settled
    }

    /// An acknowledgement of `acked` new segments at the time `at`, with the round trip as it is known. Returns the threshold where
    /// it was estimated again.
    pub fn on_ack(&mut self, at: Micros, acked: Segments, rtt: Micros) -> Option<Segments> {
        if self.settled || rtt.0 == 0 {
            return None;
        }
        let Some(began) = self.began.filter(|_| at >= self.last && at.0 - self.last.0 <= rtt.0 / CLOSE_PART) else {
            self.begin(at);
            return None;
        };
        self.last = at;
        self.segments = self.segments.saturating_add(acked.0);
        let time = at.0 - began.0;
        let soon = self.estimated.is_some_and(|estimated| at.0.saturating_sub(estimated.0) < rtt.0);
        if self.segments < FEWEST || time == 0 || soon {
            return None;
        }
        let estimate = u128::from(self.segments) * u128::from(rtt.0) / u128::from(time);
        let estimate = Segments(u32::try_from(estimate).unwrap_or(u32::MAX).max(1));
        self.begin(at);
        self.estimated = Some(at);
        let before = self.minimum;
        self.minimum = Some(before.map_or(estimate, |before| before.min(estimate)));
        self.settled =
            before.is_some_and(|before| 10 * u64::from(estimate.0.abs_diff(before.0)) <= u64::from(before.0));
        self.minimum
    }

    fn begin(&mut self, at: Micros) {
        (self.began, self.last, self.segments) = (Some(at), at, 0);
    }
}

// Where slow start overflows a bottleneck's buffer (Barakat & Altman), and how large that buffer is.
//
// Buffer, pipe and windows have one unit, that of the arguments. `d` is slow start's growth: a round trip adds `1/d` of the
// window. It is 1 where every acknowledged segment counts, as on Linux, and 2 where a delayed acknowledgement counts once.

/// The window at which slow start first overflows a bottleneck with room for `buffer` and a `pipe` of rate times empty
/// round trip: `min(B + mu T, B (d + 1))`.
pub fn first_overflow(buffer: f64, pipe: f64, d: f64) -> f64 {
    first_overflow_among(buffer, pipe, d, 0.0)
}

/// The same where others already have `present` in the network: `min(Wmax - N, B (d + 1))`, never below zero.
pub fn first_overflow_among(buffer: f64, pipe: f64, d: f64, present: f64) -> f64 {
    (buffer + pipe - present).min(buffer * (d + 1.0)).max(0.0)
}

/// Most that this is where others have between half of the most that the path holds and all of it: `min(Wmax / 2, B (d + 1))`.
pub fn most_among_others(buffer: f64, pipe: f64, d: f64) -> f64 {
    f64::midpoint(buffer, pipe).min(buffer * (d + 1.0))
}

/// The buffer that slow start needs to fill the pipe: `mu T / d`.
pub fn buffer_that_fills(pipe: f64, d: f64) -> f64 {
    pipe / d
}

/// The fastest growth that does not overflow the buffer below the threshold `ssthresh`, as the smallest `d`: `min(Wth, Wmax - N) / B - 1`,
/// at least 0. Infinite without a buffer.
pub fn fastest_growth(buffer: f64, pipe: f64, ssthresh: f64, present: f64) -> f64 {
    if buffer <= 0.0 {
        return f64::INFINITY;
    }
    (ssthresh.min(buffer + pipe - present) / buffer - 1.0).max(0.0)
}

/// The buffer that a loss shows: the window filled pipe and buffer, and by the round trips, the part `RTTmin / RTT` of it was in
/// the pipe. `None` where a round trip is zero or the one at the loss is the shorter.
///
/// Not the paper's, which takes the buffer for known.
pub fn buffer_at_loss(window: Window, rtt_min: Micros, rtt_at_loss: Micros) -> Option<Window> {
    if rtt_min.0 == 0 || rtt_at_loss < rtt_min {
        return None;
    }
    Window::from_bytes(window.bytes() * (1.0 - rtt_min.0 as f64 / rtt_at_loss.0 as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A train of acknowledgements of one segment each, `gap` apart, from `at` on.
    fn train(own: &mut OwnThreshold, at: u64, gap: u64, acks: u64) -> Option<Segments> {
        (0..acks).filter_map(|n| own.on_ack(Micros(at + n * gap), Segments(1), Micros(580_000))).last()
    }

    #[test]
    fn the_rate_of_a_train_times_the_round_trip() {
        let mut own = OwnThreshold::default();
        // A segment each 2.73 ms over 580 ms: 212.
        assert_eq!(train(&mut own, 600_000, 2_730, 4), Some(Segments(212)));
        assert!(!own.settled());
        // Once a round trip, and the next one within a tenth ends it.
        assert_eq!(train(&mut own, 700_000, 1_000, 4), None);
        assert_eq!(train(&mut own, 1_300_000, 2_600, 4), Some(Segments(212)));
        assert!(own.settled());
        assert_eq!(train(&mut own, 2_600_000, 9_000, 9), None);
    }

    #[test]
    fn the_smallest_holds() {
        let mut own = OwnThreshold::default();
        assert_eq!(train(&mut own, 600_000, 1_000, 4), Some(Segments(580)));
        assert_eq!(train(&mut own, 1_200_000, 2_730, 4), Some(Segments(212)));
        assert_eq!(train(&mut own, 1_800_000, 2_000, 4), Some(Segments(212)));
        assert!(!own.settled(), "290 is no tenth from 212");
    }

    #[test]
    fn acknowledgements_far_apart_and_time_running_backwards_show_nothing() {
        let mut own = OwnThreshold::default();
        assert_eq!(train(&mut own, 600_000, 100_000, 20), None);
        assert_eq!(own.on_ack(Micros(5), Segments(4), Micros(580_000)), None);
        assert_eq!(own.on_ack(Micros(5), Segments(4), Micros(580_000)), None, "no time passed");
        assert_eq!(own.on_ack(Micros(u64::MAX), Segments(u32::MAX), Micros(0)), None);
        assert_eq!(own.minimum(), None);
    }
}
