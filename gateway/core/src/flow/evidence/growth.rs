//! Tracks how a sender's pipe grows: the growth shows whether the sender is in slow start. No window is computed.
//!
//! In slow start the pipe grows by one segment per segment delivered. With delayed acknowledgements and without byte counting it grows by
//! half of that (RFC 5681 section 4.2). In congestion avoidance it grows by about one segment per window.

use super::rounds::Signs;

/// Growth per segment delivered from which on the pipe doubles.
const DOUBLING: f64 = 0.4;
/// Growth is judged over a span of this many delivered segments, or of this part of the pipe where that is more. Bursts are shorter.
const SPAN_LEAST: u32 = 8;
const SPAN_PART: u32 = 8;
/// Full-sized segments in a round trip from which on its largest pipe is evidence.
const FILLING_LEAST: u16 = 3;
/// A step of congestion avoidance is no larger than this part of the pipe, or this many segments.
const STEP_PART: u32 = 8;
const STEP_LEAST: u32 = 2;
/// This many steps in a row are evidence if the pipe grew by this many segments and this part of itself. The pipe of BBR grows by a quarter.
const STEPS: u8 = 4;
const GROWN_LEAST: u32 = 6;
const GROWN_PART: u32 = 3;

/// Growth of one sender's pipe.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is seen by itself")]
pub(super) struct Growth {
    /// The pipe did not double in the last round trip that only the window limited.
    left: bool,
    /// The pipe did not double in the last span.
    flat: bool,
    /// Something was lost.
    lost: bool,
    /// Largest pipe of the span before; 0 without one.
    peak_before: u32,
    /// Largest pipe of the span under way.
    peak: u32,
    /// Segments delivered when the span under way began.
    began: u32,
    /// Largest pipe of the last round trip that only the window limited; 0 before the first.
    pipe: u32,
    /// The pipe at which the steps began.
    from: u32,
    /// Number of steps since.
    steps: u8,
    /// The last round trips completed a growth by steps.
    stepped: bool,
}

impl Growth {
    /// Returns whether only the window limited the sender in a round trip, as far as packets show.
    pub(super) fn judges(ended: Signs) -> bool {
        ended.full_sized >= FILLING_LEAST && !ended.ran_dry && !ended.receiver_full
    }

    /// Takes new data with `pipe` segments in the network after it. `limited`: something else than the window limited the sender.
    pub(super) fn on_sent(&mut self, pipe: u32, delivered: u32, limited: bool) {
        if limited {
            (self.peak_before, self.peak) = (0, 0);
            return;
        }
        if self.peak_before == 0 && self.peak == 0 {
            self.began = delivered;
        }
        self.peak = self.peak.max(pipe);
    }

    /// Takes an acknowledgement. The sender has answered all `delivered` segments before it.
    pub(super) fn on_ack(&mut self, delivered: u32) {
        let arrived = delivered.wrapping_sub(self.began);
        if self.peak == 0 || arrived < SPAN_LEAST.max(self.peak / SPAN_PART) {
            return;
        }
        if self.peak_before > 0 {
            let grown = f64::from(self.peak.saturating_sub(self.peak_before));
            self.flat = grown < DOUBLING * f64::from(arrived);
        }
        (self.peak_before, self.peak, self.began) = (self.peak, 0, delivered);
    }

    /// Takes a round trip that ended outside of recovery. Returns whether it completes a growth by steps.
    pub(super) fn on_round(&mut self, ended: Signs) -> bool {
        if !Self::judges(ended) {
            (self.from, self.steps) = (0, 0);
            return false;
        }
        let (before, pipe) = (std::mem::replace(&mut self.pipe, ended.pipe_max_segments), ended.pipe_max_segments);
        if before > 0 {
            self.left = f64::from(pipe) < (1.0 + DOUBLING) * f64::from(before);
        }
        let step = pipe.checked_sub(before).is_some_and(|step| step <= (before / STEP_PART).max(STEP_LEAST));
        if !step || before == 0 {
            (self.from, self.steps, self.stepped) = (0, 0, false);
            return false;
        }
        if self.steps == 0 {
            self.from = before;
        }
        self.steps = self.steps.saturating_add(1);
        let grew = self.steps >= STEPS && pipe >= self.from + GROWN_LEAST.max(self.from / GROWN_PART);
        if grew {
            (self.from, self.steps, self.stepped) = (0, 0, true);
        }
        grew
    }

    /// Whether the last round trips grew by steps.
    pub(super) fn is_stepped(self) -> bool {
        self.stepped
    }

    /// Whether its pipe still doubles, as far as is seen.
    pub(super) fn is_slow_start(self) -> bool {
        !(self.lost || self.left || self.flat)
    }

    /// Something was lost.
    pub(super) fn lose(&mut self) {
        *self = Self { lost: true, ..Self::default() };
    }

    /// Slow start begins again: after a timeout, or an idle time.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }
}
