//! BBR, first version (Cardwell et al. 2016; `tcp_bbr.c`): the window is twice rate times smallest round-trip time.
//!
//! BBR paces, so its flight stays at about half its window and says nothing about it; what the packets do show is the
//! delivery rate ([`delivery`]) and when it empties the pipe ([`probe`]). Left out: the long-term rate of policed paths,
//! and the gain cycle, whose phase is random and moves the window by two segments.

mod aggregation;
mod delivery;
mod max_filter;
mod probe;

use spand_proto::units::{Micros, Timestamp};

use self::aggregation::Aggregation;
use self::delivery::DeliveryRate;
pub(super) use self::delivery::{Delivery, Departure};
use super::cwnd::INITIAL;

/// Window gain while starting: 2 / ln 2.
const START_GAIN: f64 = 2.885;
/// Window gain afterwards.
const GAIN: f64 = 2.0;
/// The pipe is full after three round trips in which the rate grew by less than a quarter.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u8 = 3;
/// Share of the rate that it paces at.
const PACING_MARGIN: f64 = 0.99;
/// Below this rate a burst may be one segment; a burst has at most so many.
const BURST_RATE_BITS: f64 = 1.2e6;
const BURST_MOST: f64 = 127.0;

/// Its window is larger by this in one of eight phases of its gain cycle (`bbr_quantization_budget`); which one is not known.
const PHASE_SEGMENTS: f64 = 2.0;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth,
    /// `until` once the pipe is empty; `before`: what was known of the smallest round-trip time when it began.
    ProbeRtt {
        since: Timestamp,
        until: Option<Timestamp>,
        before: (Micros, Timestamp),
    },
}

/// A BBR sender.
#[derive(Clone, Debug)]
pub(super) struct Bbr {
    rate: DeliveryRate,
    /// Rate at which the pipe may be full, and round trips since it grew.
    full_rate: f64,
    full_rounds: u8,
    /// Smallest round-trip time at the tap, and since when it is that.
    min_rtt: Option<(Micros, Timestamp)>,
    /// How much longer it takes the sender.
    reaction: Micros,
    aggregation: Aggregation,
    mode: Mode,
    segments: f64,
    /// Window before a loss or a probe cut it.
    prior_segments: f64,
    /// Losses were being repaired at the acknowledgement before.
    was_recovering: bool,
    /// Those of a timeout.
    was_timed_out: bool,
    /// In the first round trip of a recovery.
    conserving: bool,
}

impl Bbr {
    /// A sender whose window is `segments` now, with the smallest round-trip time so far and since when it is known.
    pub(super) fn new(
        at: Timestamp,
        delivered_bytes: u64,
        segments: f64,
        min_rtt: Option<(Micros, Timestamp)>,
    ) -> Self {
        Self {
            rate: DeliveryRate::new(at, delivered_bytes),
            full_rate: 0.0,
            full_rounds: 0,
            min_rtt,
            reaction: Micros(0),
            aggregation: Aggregation::new(at),
            mode: Mode::Startup,
            segments,
            prior_segments: segments,
            was_recovering: false,
            was_timed_out: false,
            conserving: false,
        }
    }

    /// The window in segments.
    pub(super) fn segments(&self) -> f64 {
        self.segments
    }

    /// Whether it still looks for the rate.
    pub(super) fn starting(&self) -> bool {
        matches!(self.mode, Mode::Startup)
    }

    /// Its delivery rate times `min_rtt`, in bytes.
    pub(super) fn delivered_in(&self, min_rtt: Micros) -> Option<f64> {
        Some(self.rate.max()? * min_rtt.as_secs_f64())
    }

    /// What its window is made of: delivery rate times the smallest round-trip time of late, in bytes.
    fn share_bytes(&self) -> Option<f64> {
        let (min_rtt, _) = self.min_rtt?;
        self.delivered_in(Micros(min_rtt.0.saturating_add(self.reaction.0)))
    }

    /// A packet with payload.
    pub(super) fn on_sent(&mut self, at: Timestamp, sent: &Departure) {
        let pipe = f64::from(sent.pipe_segments);
        if sent.new {
            self.contest_probe(at, pipe);
        }
        // With the pipe all but empty under a large window it probes, whether or not that was foreseen.
        let emptied = sent.new && pipe <= probe::WINDOW && self.segments > 4.0 * probe::WINDOW;
        if sent.idle || emptied || self.probing() {
            self.rate.limit_by_application(sent.pipe_bytes);
        }
        self.rate.on_sent(at, sent);
        if sent.dry {
            self.rate.limit_by_application(sent.pipe_bytes);
        }
    }

    /// An acknowledgement.
    pub(super) fn on_ack(&mut self, delivery: &Delivery) {
        self.reaction = delivery.reaction;
        let shortest = self.min_rtt.map_or(Micros(0), |(min, _)| min);
        let turn = self.rate.on_ack(delivery, shortest);
        if turn.new_round {
            self.conserving = false;
            self.aggregation.on_round();
        }
        let mss = f64::from(delivery.mss.max(1));
        let rate = self.rate.max().unwrap_or(0.0) / mss;
        self.aggregation.on_ack(delivery.at, delivery.newly_bytes as f64 / mss, rate, self.segments);
        if turn.new_round && !turn.app_limited {
            self.check_full();
        }
        self.check_drained(delivery);
        self.update_min_rtt(delivery, turn.new_round);
        self.update_window(delivery);
    }

    fn check_full(&mut self) {
        if self.mode != Mode::Startup {
            return;
        }
        let rate = self.rate.max().unwrap_or(0.0);
        if rate >= self.full_rate * FULL_GROWTH {
            self.full_rate = rate;
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        if self.full() {
            self.mode = Mode::Drain;
        }
    }

    fn full(&self) -> bool {
        self.full_rounds >= FULL_ROUNDS
    }

    fn check_drained(&mut self, delivery: &Delivery) {
        let pipe = delivery.pipe_bytes as f64 / f64::from(delivery.mss.max(1));
        if self.mode == Mode::Drain && pipe <= self.budget(1.0, 0.0, delivery.mss) {
            self.mode = Mode::ProbeBandwidth;
        }
    }

    fn target(&self, mss: u32) -> f64 {
        let gain = if matches!(self.mode, Mode::Startup | Mode::Drain) { START_GAIN } else { GAIN };
        let rate = self.rate.max().unwrap_or(0.0);
        let extra = if self.full() { self.aggregation.extra_segments(rate / f64::from(mss.max(1))) } else { 0.0 };
        self.budget(gain, extra, mss)
    }

    /// Segments for `gain` times the share, `extra` ones, and bursts (`bbr_quantization_budget`).
    fn budget(&self, gain: f64, extra_segments: f64, mss: u32) -> f64 {
        let mss = f64::from(mss.max(1));
        // No rate yet: nothing holds the start back.
        let Some(share) = self.share_bytes() else { return f64::INFINITY };
        let rate = self.rate.max().unwrap_or(0.0);
        // One offload burst, 1 ms at the pacing rate and at least two segments, in each of three places; then even.
        let least = if rate * 8.0 < BURST_RATE_BITS { 1.0 } else { 2.0 };
        let burst = (rate * PACING_MARGIN / 1024.0 / mss).floor().clamp(least, BURST_MOST);
        let segments = (share / mss * gain).ceil() + extra_segments + 3.0 * burst;
        (segments / 2.0).ceil() * 2.0
    }

    fn update_window(&mut self, delivery: &Delivery) {
        if delivery.newly_bytes == 0 {
            return;
        }
        let mss = f64::from(delivery.mss.max(1));
        let acked = delivery.newly_bytes as f64 / mss;
        let target = self.target(delivery.mss);
        let in_network = delivery.pipe_bytes as f64 / mss + acked;
        self.follow_recovery(delivery, in_network);
        if self.conserving {
            self.segments = self.segments.max(in_network);
            return;
        }
        if self.full() {
            self.segments = (self.segments + acked).min(target);
        } else if self.segments < target || delivery.delivered_bytes < u64::from(INITIAL) * u64::from(delivery.mss) {
            self.segments += acked;
        }
        self.segments = self.segments.max(probe::WINDOW);
        if self.probing() {
            self.segments = self.segments.min(probe::WINDOW);
        }
    }

    /// Losses take from the window; at the beginning of a recovery it is what is in the network, and at the end what it was
    /// (`bbr_set_cwnd_to_recover_or_restore`). A recovery that follows another one at once is no new one; one that follows a timeout is.
    fn follow_recovery(&mut self, delivery: &Delivery, in_network: f64) {
        let lost = delivery.lost_bytes as f64 / f64::from(delivery.mss.max(1));
        self.segments = (self.segments - lost).max(1.0);
        let begins = !self.was_recovering || (self.was_timed_out && !delivery.timed_out);
        if delivery.recovering && !delivery.timed_out && begins {
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

    /// Keeps the window for after a loss or a probe; while either cuts it, the larger one.
    fn save(&mut self, cut: bool) {
        self.prior_segments = if cut { self.prior_segments.max(self.segments) } else { self.segments };
    }

    /// A loss or mark: what follows of it shows at the acknowledgements.
    pub(super) fn lose(&mut self) {
        self.save(self.was_recovering || self.probing());
    }

    /// A timeout.
    pub(super) fn time_out(&mut self) {
        self.lose();
        self.was_recovering = true;
        self.was_timed_out = true;
        self.conserving = false;
        self.full_rate = 0.0;
        self.segments = 1.0;
    }

    /// The packets show a larger window; returns by how much of its own it was wrong.
    pub(super) fn raise(&mut self, pipe_segments: u32) -> f64 {
        let pipe = f64::from(pipe_segments);
        if self.probing() {
            return 0.0;
        }
        let wrong = ((pipe - self.segments - PHASE_SEGMENTS) / self.segments.max(1.0)).max(0.0);
        self.segments = self.segments.max(pipe);
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(bbr: &mut Bbr, pipe: u64, lost: u64, recovering: bool) -> String {
        bbr.on_ack(&Delivery {
            at: Timestamp::from_micros(1_000),
            newest: None,
            delivered_bytes: 20_000,
            newly_bytes: 1_000,
            pipe_bytes: pipe * 1_000,
            reaction: Micros(0),
            mss: 1_000,
            recovering,
            timed_out: false,
            lost_bytes: lost * 1_000,
        });
        bbr.segments.to_string()
    }

    #[test]
    fn a_recovery_conserves_and_one_right_after_it_does_not_begin_anew() {
        let mut bbr = Bbr::new(Timestamp(0), 0, 40.0, Some((Micros(100_000), Timestamp(0))));
        assert_eq!(ack(&mut bbr, 40, 0, false), "41");
        bbr.lose();
        let during = [(20, 5), (15, 2), (9, 0)].map(|(pipe, lost)| ack(&mut bbr, pipe, lost, true));
        assert_eq!(during, ["21", "19", "19"], "what is in the network and was just delivered; less what is lost");
        bbr.lose();
        assert_eq!(ack(&mut bbr, 9, 0, true), "19", "more losses above the recovery point are the same recovery");
        assert_eq!(ack(&mut bbr, 10, 0, false), "42", "afterwards it is what it was");
    }

    #[test]
    fn a_recovery_that_follows_a_timeout_conserves_anew() {
        let mut bbr = Bbr::new(Timestamp(0), 0, 40.0, Some((Micros(100_000), Timestamp(0))));
        bbr.time_out();
        assert_eq!(ack(&mut bbr, 6, 0, true), "7", "in the network and just delivered");
        assert_eq!(ack(&mut bbr, 5, 0, true), "7", "once");
    }

    #[test]
    fn a_pipe_that_one_phase_of_its_gains_explains_was_no_mistake() {
        let mut bbr = Bbr::new(Timestamp(0), 0, 40.0, None);
        assert_eq!((bbr.raise(42).to_string(), bbr.segments().to_string()), ("0".to_owned(), "42".to_owned()));
        assert!(bbr.raise(45) > 0.0);
    }
}
