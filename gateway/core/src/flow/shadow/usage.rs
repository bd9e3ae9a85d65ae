//! Whether a sender used the window it had: a window grows only then (`tcp_cwnd_validate`, `tcp_is_cwnd_limited`).

use super::cwnd::Cwnd;

/// Use of the window over one window of data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    limited: bool,
    /// Most segments outstanding in this window of data.
    outstanding_max: u32,
    /// Position in the stream up to which this window of data reaches.
    until: u64,
}

impl Usage {
    pub(super) const fn new() -> Self {
        Self { limited: false, outstanding_max: 0, until: 0 }
    }

    /// After a packet: `outstanding` and `pipe` in segments, `una` and `nxt` as positions in the stream.
    pub(super) fn record(&mut self, cwnd: &Cwnd, outstanding: u32, pipe: u32, una: u64, nxt: u64) {
        let limited = pipe >= cwnd.whole();
        if una >= self.until || limited || (!self.limited && outstanding > self.outstanding_max) {
            self.limited = limited;
            self.outstanding_max = outstanding;
            self.until = nxt;
        }
    }

    /// Whether an acknowledgement may raise the window: it was filled, or in slow start at least half used.
    pub(super) const fn may_grow(&self, cwnd: &Cwnd) -> bool {
        self.limited || (cwnd.in_slow_start() && cwnd.whole() < self.outstanding_max.saturating_mul(2))
    }
}
