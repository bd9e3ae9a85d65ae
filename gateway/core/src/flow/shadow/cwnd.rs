//! A congestion window as Linux keeps it: whole segments, and the acknowledged segments that count towards the next.
//!
//! Growth in slow start and by one segment per so many acknowledged (`tcp_slow_start`, `tcp_cong_avoid_ai`), the
//! restart after idle time (`tcp_cwnd_restart`), and what an undo restores (`tcp_undo_cwnd_reduction`). How many
//! segments one more costs, and what a loss leaves, is the law's business ([`super::replica::Law`]).

use spand_proto::units::Micros;

/// The initial window in segments (RFC 6928).
pub(super) const INITIAL: u32 = 10;

/// Slow-start threshold of a connection that has seen no congestion.
const NO_THRESHOLD: u32 = u32::MAX;

/// A window, its threshold, and both as they were before the last reduction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cwnd {
    whole: u32,
    /// Fraction of a segment earned in slow start.
    fraction: f32,
    /// Segments acknowledged in congestion avoidance and not yet turned into window.
    credit: f32,
    /// Acknowledged segments that the next one costs there, as of the last growth.
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

    /// Whole segments: what the sender compares its flight with.
    pub(super) const fn whole(&self) -> u32 {
        self.whole
    }

    /// Segments with the fraction earned towards the next.
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

    /// Grows by what was acknowledged, up to the threshold; returns what is left.
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
        // Credit gathered at a higher price buys one segment, not several.
        if self.credit >= price {
            self.credit = 0.0;
            self.whole = self.whole.saturating_add(1);
        }
        self.credit += acked_segments;
        let bought = whole_segments(self.credit / price);
        self.credit -= bought as f32 * price;
        self.whole = self.whole.saturating_add(bought);
    }

    /// The start of a reduction: what an undo would restore is kept.
    pub(super) fn reduce(&mut self, threshold: u32) {
        self.prior = self.whole;
        self.prior_threshold = self.threshold;
        self.threshold = threshold;
        self.fraction = 0.0;
        self.credit = 0.0;
    }

    /// Takes a value that the packets show.
    pub(super) fn set(&mut self, whole: u32) {
        self.whole = whole.max(1);
        self.fraction = 0.0;
        self.credit = 0.0;
    }

    /// Ends slow start here.
    pub(super) fn end_slow_start(&mut self) {
        self.threshold = self.whole;
    }

    /// Takes back [`Self::end_slow_start`] or a loss-free threshold that proved wrong.
    pub(super) fn forget_threshold(&mut self) {
        self.threshold = NO_THRESHOLD;
    }

    /// The reduction was wrong.
    pub(super) fn undo(&mut self) {
        self.whole = self.whole.max(self.prior);
        self.threshold = self.threshold.max(self.prior_threshold);
    }

    /// Idle for longer than the RTO: half per RTO, down to the initial window (RFC 2861); an undo takes that back.
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

/// The whole part of a count of segments.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "never negative; `as` saturates at u32::MAX"
)]
pub(super) fn whole_segments(segments: f32) -> u32 {
    segments as u32
}
