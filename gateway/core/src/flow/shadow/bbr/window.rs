//! BBR's window: its target, and the effect of losses and their repair.

use spand_proto::units::{Micros, Timestamp};

use super::super::cwnd::INITIAL;
use super::delivery::Delivery;
use super::{Bbr, EVEN_GAIN, probe, rate};

/// Rate in bytes per second below which a burst may be one segment; then the largest burst in segments and in bytes.
const BURST_RATE: u64 = 150_000;
const BURST_MOST: u64 = 127;
const BURST_MOST_BYTES: u64 = 65_215;

/// Its window is larger by this in one phase of eight of its gain cycle (`bbr_quantization_budget`); which one is unknown.
const PHASE_SEGMENTS: f64 = 2.0;

impl Bbr {
    /// Segments for `gain` times the share at `rate`, `extra` ones, and one burst in each of three places; then rounded up to even
    /// (`bbr_inflight`, `bbr_quantization_budget`).
    pub(super) fn budget(&self, rate: u32, gain: u64, extra: u32) -> u32 {
        // Without a rate the start is unlimited.
        let Some((min_rtt, _)) = self.min_rtt.filter(|_| rate > 0) else { return u32::MAX / 2 };
        let min_rtt = Micros(min_rtt.0.saturating_add(self.reaction.0));
        let paced = rate::paced(self.paced, self.mss, EVEN_GAIN);
        let least = if paced < BURST_RATE { 1 } else { 2 };
        let burst = ((paced >> 10).min(BURST_MOST_BYTES) / u64::from(self.mss.max(1))).clamp(least, BURST_MOST);
        let burst = u32::try_from(burst).unwrap_or(u32::MAX);
        let segments = rate::product(rate, min_rtt, gain).saturating_add(extra).saturating_add(3 * burst);
        segments.saturating_add(1) & !1
    }

    /// `bbr_set_cwnd`.
    pub(super) fn update_window(&mut self, delivery: &Delivery) {
        if delivery.newly_bytes > 0 {
            let acked = self.packets(delivery.newly_bytes);
            let in_network = self.packets(delivery.pipe_bytes).saturating_add(acked);
            self.follow_recovery(delivery, in_network);
            if self.conserving {
                self.segments = self.segments.max(in_network);
            } else {
                self.follow_target(delivery, acked);
            }
        }
        if self.probing() {
            self.segments = self.segments.min(probe::WINDOW);
        }
    }

    fn follow_target(&mut self, delivery: &Delivery, acked: u32) {
        let rate = self.rate();
        let extra = if self.is_full { self.aggregation.extra_segments(rate) } else { 0 };
        let target = self.budget(rate, self.gains().0, extra);
        let young = delivery.delivered_bytes < u64::from(INITIAL) * u64::from(delivery.mss);
        if self.is_full {
            self.segments = self.segments.saturating_add(acked).min(target);
        } else if self.segments < target || young {
            self.segments = self.segments.saturating_add(acked);
        }
        self.segments = self.segments.max(probe::WINDOW);
    }

    /// Losses reduce the window; at the begin of a recovery it becomes the pipe, and at the end what it was before
    /// (`bbr_set_cwnd_to_recover_or_restore`). A recovery right after another one is not new; one after a timeout is.
    fn follow_recovery(&mut self, delivery: &Delivery, in_network: u32) {
        let begins = !self.was_recovering || (self.was_timed_out && !delivery.timed_out);
        let begins = begins && delivery.recovering && !delivery.timed_out;
        // Within a reduction after an ECN echo the window before that is kept (`tcp_enter_recovery`).
        if begins && !self.reducing {
            self.save();
        }
        self.segments = self.segments.saturating_sub(self.packets(delivery.lost_bytes)).max(1);
        if begins {
            self.conserving = true;
            self.rate.start_round();
            self.segments = in_network;
        } else if self.was_recovering && !delivery.recovering {
            self.conserving = false;
            self.segments = self.segments.max(self.prior_segments);
        }
        self.was_recovering = delivery.recovering;
        self.was_timed_out = delivery.timed_out;
    }

    /// Saves the window before a loss or a probe; while either reduces it, the larger one (`bbr_save_cwnd`).
    pub(super) fn save(&mut self) {
        let cut = self.was_recovering || self.probing();
        self.prior_segments = if cut { self.prior_segments.max(self.segments) } else { self.segments };
    }

    /// A loss or ECN echo: the acknowledgements show its effect. An ECN echo does not reduce the window.
    pub(in super::super) fn lose(&mut self, by_ecn: bool) {
        self.save();
        self.fill_path();
        self.pace.restart();
        self.reducing = by_ecn;
    }

    /// Data outstanding at a loss or ECN echo is acknowledged.
    pub(in super::super) fn repaired(&mut self) {
        self.reducing = false;
    }

    /// The packets show a larger window; returns the error as part of its own.
    pub(in super::super) fn raise(&mut self, pipe_segments: u32) -> f64 {
        if self.probing() {
            return 0.0;
        }
        // Data sent before the loss was detected was within the window before it, so it does not show the reduced one.
        let before = if self.was_recovering { self.prior_segments.max(self.segments) } else { self.segments };
        let (pipe, segments) = (f64::from(pipe_segments), f64::from(before));
        let wrong = ((pipe - segments - PHASE_SEGMENTS) / segments.max(1.0)).max(0.0);
        if !self.was_recovering {
            self.segments = self.segments.max(pipe_segments);
        }
        wrong
    }
}

/// Round trips that one of the two slots of the largest excess covers.
const SLOT_ROUNDS: u8 = 5;
/// Upper bound of the excess: the delivery in this time.
const EXCESS_MOST: Micros = Micros(100_000);

/// Clumps of acknowledgements, beyond the delivery rate: BBR adds the largest recent excess to its window
/// (`bbr_update_ack_aggregation`).
#[derive(Clone, Debug)]
pub(super) struct Aggregation {
    since: Timestamp,
    acked_segments: u32,
    excess_segments: [u32; 2],
    rounds: u8,
}

impl Aggregation {
    pub(super) fn new(at: Timestamp) -> Self {
        Self { since: at, acked_segments: 0, excess_segments: [0; 2], rounds: 0 }
    }

    /// Sending resumes after an idle time.
    pub(super) fn resume(&mut self, at: Timestamp) {
        self.since = at;
        self.acked_segments = 0;
    }

    pub(super) fn on_round(&mut self) {
        self.rounds += 1;
        if self.rounds >= SLOT_ROUNDS {
            self.rounds = 0;
            self.excess_segments = [0, self.excess_segments[0]];
        }
    }

    pub(super) fn on_ack(&mut self, at: Timestamp, newly_segments: u32, rate: u32, window_segments: u32) {
        let mut expected = rate::packets_in(rate, at.since(self.since));
        if self.acked_segments <= expected {
            self.resume(at);
            expected = 0;
        }
        self.acked_segments = self.acked_segments.saturating_add(newly_segments);
        let excess = (self.acked_segments - expected).min(window_segments);
        self.excess_segments[0] = self.excess_segments[0].max(excess);
    }

    /// The additional window at `rate`.
    pub(super) fn extra_segments(&self, rate: u32) -> u32 {
        self.excess_segments[0].max(self.excess_segments[1]).min(rate::packets_in(rate, EXCESS_MOST))
    }
}
