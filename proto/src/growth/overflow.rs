//! Where slow start overflows a bottleneck's buffer (Barakat & Altman), and how large that buffer is.
//!
//! All in the unit of the arguments, which is the same for buffer, pipe and windows. `d` is slow start's growth: a round trip
//! adds `1/d` of the window; 1 where every segment counts as on Linux, 2 with delayed acknowledgements that are counted one by one.

use crate::units::{Micros, Window};

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
