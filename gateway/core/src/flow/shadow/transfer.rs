//! The transfer that is under way: what its end will say (`docs/definitions.md`, "Samples").

use crate::types::{Limiter, Phase};

/// Since everything was last acknowledged.
#[derive(Clone, Debug, Default)]
pub(super) struct Transfer {
    pub(super) lost: bool,
    /// As of the last new byte; `None` before the first.
    pub(super) end: Option<End>,
    /// A new byte was sent since `end` was taken down: the sender is still as it was then.
    pub(super) end_waits: bool,
    /// Segments acknowledged at the tap that the sender of the last new byte had not heard of.
    pub(super) ahead: u32,
    /// Most bytes in the network.
    pub(super) pipe_max_bytes: u32,
}

/// The sender when it sent the last new byte so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// Its window in segments, plus what acknowledgements earned in congestion avoidance since.
    pub(super) window_segments: f64,
    pub(super) limiter: Limiter,
    pub(super) phase: Phase,
}

impl Transfer {
    /// A new byte was sent with so many in the network; `ahead`: see [`Self::ahead`].
    pub(super) fn on_sent(&mut self, pipe_bytes: u64, ahead: u32) {
        self.end_waits = true;
        self.ahead = ahead;
        self.pipe_max_bytes = self.pipe_max_bytes.max(u32::try_from(pipe_bytes).unwrap_or(u32::MAX));
    }

    /// Growth in congestion avoidance. (The last acknowledgements of a slow start double the window with nothing left
    /// to send; that was never tried, so it does not count.)
    pub(super) fn on_growth(&mut self, segments: f64) {
        if let Some(end) = &mut self.end {
            end.window_segments += segments;
        }
    }
}
