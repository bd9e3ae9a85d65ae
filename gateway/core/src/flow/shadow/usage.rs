//! Whether a sender used the window it had: a window grows only then (`tcp_cwnd_validate`, `tcp_is_cwnd_limited`).

use super::cwnd::Cwnd;

/// Use of the window over one window of data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    limited: bool,
    /// It had heard of all that was acknowledged when it filled the window.
    heard: bool,
    /// Most segments outstanding in this window of data.
    outstanding_max: u32,
    /// Position in the stream up to which this window of data reaches.
    until: u64,
}

impl Usage {
    pub(super) const fn new() -> Self {
        Self { limited: false, heard: true, outstanding_max: 0, until: 0 }
    }

    /// After a packet: `outstanding` and `pipe` in segments, `una` and `nxt` as positions in the stream. `ahead`: segments
    /// acknowledged at the tap of which the sender does not know yet, so that in slow start its window did not grow by them.
    pub(super) fn record(&mut self, cwnd: &Cwnd, [outstanding, pipe, ahead]: [u32; 3], una: u64, nxt: u64) {
        let ahead = if cwnd.in_slow_start() { ahead } else { 0 };
        let limited = pipe.saturating_add(ahead) >= cwnd.whole();
        if una >= self.until || limited || (!self.limited && outstanding > self.outstanding_max) {
            (self.limited, self.heard) = (limited, ahead == 0);
            self.outstanding_max = outstanding;
            self.until = nxt;
        }
    }

    /// Whether an acknowledgement may raise the window: it was filled, or in slow start at least half used. A window that was
    /// filled in slow start has doubled when the sender looks again; from afar more is acknowledged before that is seen.
    pub(super) const fn may_grow(&self, cwnd: &Cwnd) -> bool {
        let half_used = cwnd.in_slow_start() && cwnd.whole() < self.outstanding_max.saturating_mul(2);
        half_used || (self.limited && (self.heard || !cwnd.in_slow_start()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_a_far_sender_does_not_have_yet_need_not_be_filled() {
        let last_flight = |ahead: u32, threshold: Option<u32>, later: u32| {
            let (mut cwnd, mut usage) = (Cwnd::new(20), Usage::new());
            if let Some(threshold) = threshold {
                cwnd.reduce(threshold);
            }
            usage.record(&cwnd, [11, 11, ahead], 0, 21);
            cwnd.set(later);
            usage.may_grow(&cwnd)
        };
        assert!(last_flight(9, None, 21), "it had 11 when it sent these, and acknowledgements of 9 were on their way");
        assert!(!last_flight(0, None, 30));
        assert!(!last_flight(9, Some(20), 30), "in congestion avoidance they hardly open it");
    }

    #[test]
    fn a_window_that_a_far_sender_filled_in_slow_start_doubles_at_most() {
        let grows_to = |ahead: u32| {
            let (mut cwnd, mut usage) = (Cwnd::new(20), Usage::new());
            // Its peer's window is full: it sends no more than these at a time, and its own was just filled.
            usage.record(&cwnd, [20 - ahead, 20 - ahead, ahead], 0, 20);
            while usage.may_grow(&cwnd) && cwnd.whole() < 100 {
                cwnd.set(cwnd.whole() + 1);
            }
            cwnd.whole()
        };
        assert_eq!(grows_to(4), 32);
        assert_eq!(grows_to(0), 100, "beside the tap the sender is seen to fill it no more");
    }
}
