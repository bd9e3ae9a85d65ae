//! A congestion window as in Linux: its segments, whether the sender used them, and its reduction.
//!
//! [`Cwnd`] has the window, and the acknowledged segments that count towards the next: growth in slow start and by one
//! segment per N acknowledged (`tcp_slow_start`, `tcp_cong_avoid_ai`), the restart after idle time
//! (`tcp_cwnd_restart`), and the state that an undo restores (`tcp_undo_cwnd_reduction`). N and the window after a loss
//! come from the congestion control ([`super::replica::Law`]).

use spand_proto::units::Micros;

/// The initial window in segments (RFC 6928).
pub(super) const INITIAL: u32 = 10;

/// `ssthresh` of a connection without congestion so far (`TCP_INFINITE_SSTHRESH`).
const NO_THRESHOLD: u32 = u32::MAX;

/// `cwnd` and `ssthresh`, and both before the last reduction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cwnd {
    whole: u32,
    /// Fraction of a segment, from slow start.
    fraction: f32,
    /// Segments acknowledged in congestion avoidance and not yet part of the window (`cwnd_cnt`).
    credit: f32,
    /// Acknowledged segments that the next one takes there, as of the last growth.
    price: u32,
    threshold: u32,
    prior: u32,
    prior_threshold: u32,
}

impl Cwnd {
    pub(super) const fn new(initial: u32) -> Self {
        Self {
            whole: initial,
            fraction: 0.0,
            credit: 0.0,
            price: 1,
            threshold: NO_THRESHOLD,
            prior: initial,
            prior_threshold: NO_THRESHOLD,
        }
    }

    /// Whole segments, as the sender's `cwnd`.
    pub(super) const fn whole(&self) -> u32 {
        self.whole
    }

    /// Segments and the fraction towards the next.
    pub(super) fn segments(&self) -> f64 {
        let fraction = if self.in_slow_start() { self.fraction } else { self.credit / self.price as f32 };
        f64::from(self.whole) + f64::from(fraction).clamp(0.0, 0.999)
    }

    /// The window before the last reduction or restart.
    pub(super) const fn prior(&self) -> u32 {
        self.prior
    }

    pub(super) const fn threshold(&self) -> u32 {
        self.threshold
    }

    pub(super) const fn has_threshold(&self) -> bool {
        self.threshold != NO_THRESHOLD
    }

    pub(super) const fn in_slow_start(&self) -> bool {
        self.whole < self.threshold
    }

    /// Grows by what was acknowledged, up to `ssthresh`; returns the rest.
    pub(super) fn slow_start(&mut self, acked_segments: f32) -> f32 {
        let room = self.threshold.saturating_sub(self.whole) as f32;
        let used = acked_segments.min(room);
        let grown = whole_segments(self.fraction + used);
        self.fraction += used - grown as f32;
        self.whole = self.whole.saturating_add(grown);
        acked_segments - used
    }

    /// Grows by one segment for every `price` acknowledged.
    pub(super) fn avoid(&mut self, price: u32, acked_segments: f32) {
        self.price = price.max(1);
        let price = self.price as f32;
        // A count above a higher price gives one segment, not several.
        if self.credit >= price {
            self.credit = 0.0;
            self.whole = self.whole.saturating_add(1);
        }
        self.credit += acked_segments;
        let bought = whole_segments(self.credit / price);
        self.credit -= bought as f32 * price;
        self.whole = self.whole.saturating_add(bought);
    }

    /// Starts a reduction, and keeps the state for an undo.
    pub(super) fn reduce(&mut self, threshold: u32) {
        self.prior = self.whole;
        self.prior_threshold = self.threshold;
        self.threshold = threshold;
        self.fraction = 0.0;
        self.credit = 0.0;
    }

    /// Sets the window to one that the packets show.
    pub(super) fn set(&mut self, whole: u32) {
        self.whole = whole.max(1);
        self.fraction = 0.0;
        self.credit = 0.0;
    }

    /// Ends slow start here.
    pub(super) fn end_slow_start(&mut self) {
        self.threshold = self.whole;
    }

    /// Undoes [`Self::end_slow_start`] or an `ssthresh` that was set without a loss and proved wrong.
    pub(super) fn forget_threshold(&mut self) {
        self.threshold = NO_THRESHOLD;
    }

    /// Undoes the last reduction.
    pub(super) fn undo(&mut self) {
        self.whole = self.whole.max(self.prior);
        self.threshold = self.threshold.max(self.prior_threshold);
    }

    /// After an idle time longer than the RTO: half per RTO, down to the initial window (RFC 2861); an undo restores the window.
    pub(super) fn restart(&mut self, idle: Micros, rto: Micros) {
        let floor = INITIAL.min(self.whole);
        (self.prior, self.prior_threshold) = (self.whole, self.threshold);
        self.threshold = self.threshold.max(self.whole / 2 + self.whole / 4);
        let mut left = idle.0;
        let rto = rto.0.max(1);
        while left > rto && self.whole > floor {
            left -= rto;
            self.whole /= 2;
        }
        self.whole = self.whole.max(floor);
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "never negative; `as` saturates at u32::MAX"
)]
pub(super) fn whole_segments(segments: f32) -> u32 {
    segments as u32
}

/// Whether a sender used its window over one window of data: a window grows only then (`tcp_cwnd_validate`,
/// `tcp_is_cwnd_limited`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    limited: bool,
    /// When the window was filled, the sender had received every acknowledgement that the tap had seen.
    received: bool,
    /// Most segments outstanding in this window of data (`max_packets_out`).
    outstanding_max: u32,
    /// Position in the stream at which this window of data ends.
    until: u64,
}

impl Usage {
    pub(super) const fn new() -> Self {
        Self { limited: false, received: true, outstanding_max: 0, until: 0 }
    }

    /// After a packet: `outstanding` and `pipe` in segments, `una` and `nxt` as positions in the stream. `ahead`: segments whose
    /// acknowledgements are on their way from the tap, so that in slow start the sender's window has not grown by them.
    pub(super) fn record(&mut self, cwnd: &Cwnd, [outstanding, pipe, ahead]: [u32; 3], una: u64, nxt: u64) {
        let ahead = if cwnd.in_slow_start() { ahead } else { 0 };
        let limited = pipe.saturating_add(ahead) >= cwnd.whole();
        if una >= self.until || limited || (!self.limited && outstanding > self.outstanding_max) {
            (self.limited, self.received) = (limited, ahead == 0);
            self.outstanding_max = outstanding;
            self.until = nxt;
        }
    }

    /// Whether an acknowledgement may raise the window: it was filled, or in slow start at least half used. In slow start a filled
    /// window doubles before the sender's next check; with a distant tap more is acknowledged before that is seen.
    pub(super) const fn may_grow(&self, cwnd: &Cwnd) -> bool {
        let half_used = cwnd.in_slow_start() && cwnd.whole() < self.outstanding_max.saturating_mul(2);
        half_used || (self.limited && (self.received || !cwnd.in_slow_start()))
    }
}

/// Proportional rate reduction as in Linux (`tcp_cwnd_reduction`, after RFC 6937), in fast recovery and after an ECN echo.
///
/// It counts segments, from the first transmission or acknowledgement after its begin. A distant tap sees segments late: they are
/// missing both from the pipe and from what was sent, so the window is right there, too.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reduction {
    delivered: u32,
    sent: u32,
}

/// An acknowledgement during a reduction, in segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReductionStep {
    /// In the network after it.
    pub(super) pipe: u32,
    /// Newly acknowledged or SACKed.
    pub(super) newly: u32,
    /// The cumulative acknowledgement advanced, and no further loss was detected.
    pub(super) clean: bool,
}

impl Reduction {
    /// Segments were sent, new or retransmitted; the first of them at once at the acknowledgement that began it.
    pub(super) fn sent(&mut self, segments: u32) {
        self.delivered = self.delivered.max(1);
        self.sent = self.sent.saturating_add(segments);
    }

    /// Whether nothing was sent in it.
    pub(super) const fn is_fresh(self) -> bool {
        self.sent == 0
    }

    pub(super) fn delivered(&mut self, segments: u32) {
        self.delivered = self.delivered.saturating_add(segments);
    }

    /// Segments sent and delivered in it, if any was sent.
    pub(super) fn counted(self) -> Option<(u32, u32)> {
        (self.sent > 0).then_some((self.sent, self.delivered))
    }

    /// The window after `step`, of a sender with the window and `ssthresh` in `cwnd` when the reduction began.
    pub(super) fn window(self, step: &ReductionStep, cwnd: &Cwnd) -> u32 {
        let (delivered, sent) = (i64::from(self.delivered), i64::from(self.sent));
        let (threshold, prior) = (i64::from(cwnd.threshold()), i64::from(cwnd.prior().max(1)));
        let room = threshold - i64::from(step.pipe);
        let more = if room < 0 {
            threshold.saturating_mul(delivered).saturating_add(prior - 1) / prior - sent
        } else {
            room.min((delivered - sent).max(i64::from(step.newly)) + i64::from(step.clean))
        };
        let more = more.max(i64::from(self.is_fresh()));
        u32::try_from(i64::from(step.pipe) + more).unwrap_or(u32::MAX)
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
            // The peer's window is full: the sender sends no more than these at a time, and has just filled its own.
            usage.record(&cwnd, [20 - ahead, 20 - ahead, ahead], 0, 20);
            while usage.may_grow(&cwnd) && cwnd.whole() < 100 {
                cwnd.set(cwnd.whole() + 1);
            }
            cwnd.whole()
        };
        assert_eq!(grows_to(4), 32);
        assert_eq!(grows_to(0), 100, "beside the tap the sender is seen to fill it no more");
    }

    /// A window of 11 reduced to 5, in Linux's counting.
    fn reduced() -> Cwnd {
        let mut cwnd = Cwnd::new(11);
        cwnd.reduce(5);
        cwnd
    }

    fn step(pipe: u32, newly: u32, clean: bool) -> ReductionStep {
        ReductionStep { pipe, newly, clean }
    }

    #[test]
    fn segments_leave_in_proportion_to_those_that_arrive() {
        let (cwnd, mut reduction) = (reduced(), Reduction::default());
        reduction.delivered(1);
        assert_eq!(reduction.window(&step(8, 1, false), &cwnd), 9, "the repeat at least");
        reduction.sent(1);
        let windows: Vec<u32> = (0..3)
            .map(|n| {
                reduction.delivered(1);
                reduction.window(&step(8 - n, 1, false), &cwnd)
            })
            .collect();
        assert_eq!(windows, [8, 8, 7], "5 of 11 that arrive");
    }

    #[test]
    fn below_the_threshold_it_fills_up_again() {
        let (cwnd, mut reduction) = (reduced(), Reduction::default());
        reduction.sent(1);
        reduction.delivered(1);
        assert_eq!(reduction.window(&step(1, 1, true), &cwnd), 3, "one more than arrived, where nothing more is lost");
        assert_eq!(reduction.window(&step(1, 1, false), &cwnd), 2);
        reduction.delivered(9);
        assert_eq!(reduction.window(&step(0, 1, false), &cwnd), 5, "nothing to send: up to the threshold");
    }
}
