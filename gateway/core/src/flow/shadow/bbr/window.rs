//! BBR's window: what its target is made of, and what losses and their repair make of it.

use spand_proto::units::{Micros, Timestamp};

use super::super::cwnd::INITIAL;
use super::delivery::Delivery;
use super::{Bbr, EVEN_GAIN, probe, rate};

/// Below this rate in bytes a second a burst may be one segment; a burst has at most so many, or so many bytes.
const BURST_RATE: u64 = 150_000;
const BURST_MOST: u64 = 127;
const BURST_MOST_BYTES: u64 = 65_215;

/// Its window is larger by this in one of eight phases of its gain cycle (`bbr_quantization_budget`); which one is not known.
const PHASE_SEGMENTS: f64 = 2.0;

impl Bbr {
    /// Segments for `gain` times the share at `rate`, `extra` ones, and one burst in each of three places; then even
    /// (`bbr_inflight`, `bbr_quantization_budget`).
    pub(super) fn budget(&self, rate: u32, gain: u64, extra: u32) -> u32 {
        // No rate yet: nothing holds the start back.
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

    /// Losses take from the window; at the beginning of a recovery it is what is in the network, and at the end what it was
    /// (`bbr_set_cwnd_to_recover_or_restore`). A recovery that follows another one at once is no new one; one that follows a timeout is.
    fn follow_recovery(&mut self, delivery: &Delivery, in_network: u32) {
        let begins = !self.was_recovering || (self.was_timed_out && !delivery.timed_out);
        let begins = begins && delivery.recovering && !delivery.timed_out;
        // Within a reduction after a mark the window before that is kept (`tcp_enter_recovery`).
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

    /// Keeps the window for after a loss or a probe; while either cuts it, the larger one (`bbr_save_cwnd`).
    pub(super) fn save(&mut self) {
        let cut = self.was_recovering || self.probing();
        self.prior_segments = if cut { self.prior_segments.max(self.segments) } else { self.segments };
    }

    /// A loss or mark: what follows of it shows at the acknowledgements. A reduction after a mark takes nothing from the window.
    pub(in super::super) fn lose(&mut self, by_mark: bool) {
        self.save();
        self.reducing = by_mark;
    }

    /// What was outstanding at a loss or mark is acknowledged.
    pub(in super::super) fn repaired(&mut self) {
        self.reducing = false;
    }

    /// The packets show a larger window; returns by how much of its own it was wrong.
    pub(in super::super) fn raise(&mut self, pipe_segments: u32) -> f64 {
        if self.probing() {
            return 0.0;
        }
        // What was sent before a loss was known was within the window before it, and says nothing of what is left of that.
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
/// The excess counts for at most this long at the delivery rate.
const EXCESS_MOST: Micros = Micros(100_000);

/// Acknowledgements that come in clumps, beyond what the rate explains: BBR adds the largest recent excess to its window
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

    /// What the window grows by at `rate`.
    pub(super) fn extra_segments(&self, rate: u32) -> u32 {
        self.excess_segments[0].max(self.excess_segments[1]).min(rate::packets_in(rate, EXCESS_MOST))
    }
}
