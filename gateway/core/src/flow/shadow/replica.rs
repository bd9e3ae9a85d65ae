//! A replica of a loss-based sender: a window, its congestion control (Reno's is here), and whether the sender used the window.
//!
//! The state machine is Linux's (`tcp_cong_control`): grow on cumulative progress if the window was used, take `ssthresh`
//! from the congestion control at a loss, reduce to it in recovery ([`Reduction`]), restart after a timeout.

use spand_proto::units::{Micros, Timestamp};

use super::cwnd::{Cwnd, Reduction, ReductionStep, Usage};

/// An acknowledgement in segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) at: Timestamp,
    /// Newly acknowledged or SACKed.
    pub(super) delivered_segments: f32,
    /// Position of the highest acknowledgement in the stream of new bytes.
    pub(super) una: u64,
    /// Position of the highest byte sent.
    pub(super) nxt: u64,
    pub(super) rtt: Option<Micros>,
    /// The kernel paces the window.
    pub(super) spread: bool,
}

/// The operations of a loss-based congestion control (`struct tcp_congestion_ops`).
pub(super) trait Law {
    /// Processes an acknowledgement before the window grows; true ends slow start.
    fn observe(&mut self, _progress: &Progress, _cwnd: &Cwnd) -> bool {
        false
    }

    /// Acknowledged segments per segment of growth in congestion avoidance.
    fn price(&mut self, at: Timestamp, cwnd: &Cwnd, acked_segments: f32) -> u32;

    /// The threshold after a loss.
    fn reduced(&mut self, cwnd: &Cwnd) -> u32;

    /// A timeout clears its state of the path.
    fn timed_out(&mut self) {}

    /// Sending resumes after `idle` with nothing outstanding.
    fn resumed(&mut self, _at: Timestamp, _idle: Micros) {}

    /// The sender answered an acknowledgement within the window.
    fn stayed_within(&mut self) {}

    /// Whether it left slow start without a loss, and that is not yet confirmed.
    fn exit_unconfirmed(&self) -> bool {
        false
    }

    /// Whether no loss has shown the size of the path: until then it grows about as in slow start.
    fn before_first_loss(&self) -> bool {
        false
    }

    /// The sender exceeded the window; returns whether a slow-start exit without a loss was wrong.
    fn exceeded(&mut self) -> bool {
        false
    }
}

/// Reno (RFC 5681): one segment per window acknowledged, half after a loss. It has no state of its own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reno;

impl Law for Reno {
    fn price(&mut self, _at: Timestamp, cwnd: &Cwnd, _acked_segments: f32) -> u32 {
        cwnd.whole()
    }

    fn reduced(&mut self, cwnd: &Cwnd) -> u32 {
        (cwnd.whole() / 2).max(2)
    }
}

/// Segments, and part of the window, that a full one may lack: recent growth, and what waits for the rest of a burst.
const HELD_BACK: u32 = 1;
const HELD_BACK_PART: u32 = 64;
/// Segments of growth from which on it is evidence that the pipe follows: BBR's pipe changes by a few.
const GROWN_LEAST: u32 = 6;

/// A window with its congestion control.
#[derive(Clone, Debug)]
pub(super) struct Replica<L> {
    pub(super) cwnd: Cwnd,
    pub(super) usage: Usage,
    pub(super) law: L,
    /// Segments by which the packets corrected it in this round trip.
    corrected: u8,
    /// Window at which the growth began that the pipe has followed since, to the segment and without corrections; 0 if it does not
    /// follow.
    fits_from: u16,
    /// It grew by at least [`GROWN_LEAST`] in that time.
    fits: bool,
}

impl<L: Law> Replica<L> {
    pub(super) const fn new(initial: u32, law: L) -> Self {
        Self { cwnd: Cwnd::new(initial), usage: Usage::new(), law, corrected: 0, fits_from: 0, fits: false }
    }

    /// Whether the sender is, or may still be, in slow start.
    pub(super) fn in_slow_start(&self) -> bool {
        self.cwnd.in_slow_start() || self.law.exit_unconfirmed()
    }

    /// The congestion control processes an acknowledgement that measured a round trip (`pkts_acked`).
    pub(super) fn observe(&mut self, progress: &Progress) {
        if self.law.observe(progress, &self.cwnd) {
            self.cwnd.end_slow_start();
        }
    }

    /// Growth by an acknowledgement outside recovery; returns the growth earned in congestion avoidance, in segments.
    pub(super) fn grow(&mut self, progress: &Progress) -> f64 {
        if !self.usage.may_grow(&self.cwnd) {
            return 0.0;
        }
        let mut left = progress.delivered_segments;
        if self.cwnd.in_slow_start() {
            left = self.cwnd.slow_start(left);
            if left <= 0.0 {
                return 0.0;
            }
        }
        let before = self.cwnd.segments();
        let price = self.law.price(progress.at, &self.cwnd, left);
        self.cwnd.avoid(price, left);
        if self.law.before_first_loss() { 0.0 } else { (self.cwnd.segments() - before).max(0.0) }
    }

    /// A loss or ECN echo sets `ssthresh`; the window follows the pipe until recovery ends.
    pub(super) fn enter_recovery(&mut self) {
        let threshold = self.law.reduced(&self.cwnd);
        self.cwnd.reduce(threshold);
    }

    /// An acknowledgement in recovery.
    pub(super) fn reduce_on(&mut self, step: &ReductionStep, reduction: Reduction) {
        let window = reduction.window(step, &self.cwnd);
        self.cwnd.set(window);
    }

    /// Recovery is over.
    pub(super) fn leave_recovery(&mut self) {
        self.cwnd.set(self.cwnd.threshold());
    }

    /// A timeout; `reduces` if no reduction was under way.
    pub(super) fn time_out(&mut self, reduces: bool) {
        if reduces {
            let threshold = self.law.reduced(&self.cwnd);
            self.cwnd.reduce(threshold);
        }
        self.law.timed_out();
        self.cwnd.set(1);
    }

    /// Sending resumes with nothing outstanding.
    pub(super) fn resume(&mut self, at: Timestamp, idle: Micros, rto: Micros, restarts: bool) {
        if restarts {
            self.cwnd.restart(idle, rto);
        }
        self.law.resumed(at, idle);
    }

    /// A round trip ended with up to `pipe_segments` in the network; returns whether these followed the growth in congestion
    /// avoidance again.
    pub(super) fn follows(&mut self, pipe_segments: u32) -> bool {
        let (whole, slack) = (self.cwnd.whole(), self.slack());
        let avoids = self.cwnd.has_threshold() && !self.cwnd.in_slow_start();
        let full = whole.checked_sub(pipe_segments).is_some_and(|lacks| lacks <= slack);
        if u32::from(std::mem::take(&mut self.corrected)) > slack || !avoids || !full {
            (self.fits_from, self.fits) = (0, false);
            return false;
        }
        let grew = self.fits_from > 0 && whole >= u32::from(self.fits_from) + GROWN_LEAST.max(2 * slack);
        if self.fits_from == 0 || grew {
            self.fits_from = u16::try_from(whole).unwrap_or(0);
        }
        self.fits |= grew;
        grew
    }

    fn note_correction(&mut self, pipe_segments: u32) {
        let by = u8::try_from(self.cwnd.whole().abs_diff(pipe_segments)).unwrap_or(u8::MAX);
        self.corrected = self.corrected.saturating_add(by);
    }

    /// Segments that a full window may lack.
    const fn slack(&self) -> u32 {
        HELD_BACK + self.cwnd.whole() / HELD_BACK_PART
    }

    /// Whether the pipe follows its growth.
    pub(super) const fn fits(&self) -> bool {
        self.fits
    }

    /// The packets show a larger window; returns the error as part of the replica's.
    pub(super) fn raise(&mut self, pipe_segments: u32) -> f64 {
        if pipe_segments <= self.cwnd.whole() {
            return 0.0;
        }
        let wrong = f64::from(pipe_segments - self.cwnd.whole()) / f64::from(self.cwnd.whole().max(1));
        let was_slow_start = self.cwnd.in_slow_start();
        self.note_correction(pipe_segments);
        self.cwnd.set(pipe_segments);
        if !was_slow_start && self.law.exceeded() {
            self.cwnd.forget_threshold();
        }
        wrong
    }

    /// Lowers the window to what the packets show, if that is smaller by more than a burst. Returns the error as a part of the replica's
    /// window. `ahead` counts the segments that were acknowledged at the tap and not yet at the sender.
    pub(super) fn lower(&mut self, pipe_segments: u32, ahead: u32, srtt: Option<Micros>) -> f64 {
        if pipe_segments.saturating_add(self.held_back(ahead, srtt)) >= self.cwnd.whole() {
            return 0.0;
        }
        let wrong = f64::from(self.cwnd.whole().saturating_sub(pipe_segments)) / f64::from(self.cwnd.whole().max(1));
        let was_slow_start = self.cwnd.in_slow_start();
        self.note_correction(pipe_segments);
        self.cwnd.set(pipe_segments);
        if was_slow_start {
            self.cwnd.end_slow_start();
        }
        wrong
    }

    /// Segments that a window-limited sender may lack while it waits for a burst (`tcp_tso_should_defer`): one if the window
    /// hardly moves; in slow start those of a millisecond at twice the window per round trip.
    fn held_back(&self, ahead: u32, srtt: Option<Micros>) -> u32 {
        match srtt {
            Some(srtt) if self.cwnd.in_slow_start() => {
                let burst = u64::from(self.cwnd.whole()) * 2_000 / srtt.0.max(1);
                u32::try_from(burst).unwrap_or(u32::MAX).saturating_add(2).saturating_add(ahead)
            }
            _ => 1,
        }
    }
}
