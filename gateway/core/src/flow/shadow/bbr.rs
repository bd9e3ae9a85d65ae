//! BBR, first version (Cardwell et al. 2016; `tcp_bbr.c`): the window is twice rate times smallest round-trip time.
//!
//! BBR paces, so its flight stays at about half its window and says nothing about it; what the packets do show is the
//! delivery rate. Left out: the long-term rate of policed paths, and the gain cycle,
//! whose phase is random and moves the window by two segments.

use arrayvec::ArrayVec;
use spand_proto::units::{Micros, Timestamp};

use super::aggregation::Aggregation;
use super::cwnd::INITIAL;
use super::max_filter::MaxFilter;

/// Window gain while starting: 2 / ln 2.
const START_GAIN: f64 = 2.885;
/// Window gain afterwards.
const GAIN: f64 = 2.0;
/// Round trips that a rate counts for.
const RATE_ROUNDS: u32 = 10;
/// The pipe is full after three round trips in which the rate grew by less than a quarter.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u8 = 3;
/// Age of the smallest round-trip time at which the sender empties the pipe to measure it anew.
const MIN_RTT_AGE: Micros = Micros(10_000_000);
/// Window then, and for how long at least.
const PROBE_WINDOW: f64 = 4.0;
const PROBE_TIME: Micros = Micros(200_000);
/// Segments beyond that window that are still no sign of another mode.
const PROBE_SLACK: f64 = 4.0;
/// Share of the rate that it paces at.
const PACING_MARGIN: f64 = 0.99;
/// Below this rate a burst may be one segment; a burst has at most so many.
const BURST_RATE_BITS: f64 = 1.2e6;
const BURST_MOST: f64 = 127.0;
/// Packets whose sending is remembered at a time.
const MARKS: usize = 16;

/// A packet sent, with the delivery account of that moment (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug)]
struct Mark {
    nxt: u64,
    delivered_bytes: u64,
    delivered_at: Timestamp,
    app_limited: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth,
    /// `before`: what was known of the smallest round-trip time when it began.
    ProbeRtt {
        since: Timestamp,
        until: Option<Timestamp>,
        before: (Micros, Timestamp),
    },
}

/// A packet of new data as BBR sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    /// Position of its end in the stream.
    pub(super) nxt: u64,
    pub(super) flight_bytes: u64,
    pub(super) pipe_segments: u32,
    /// Nothing was outstanding before it.
    pub(super) idle: bool,
    /// The application had no more after it.
    pub(super) dry: bool,
}

/// An acknowledgement as BBR sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    pub(super) at: Timestamp,
    /// Position in the stream up to which everything arrived or is deemed lost.
    pub(super) edge: u64,
    pub(super) delivered_bytes: u64,
    pub(super) newly_bytes: u64,
    pub(super) pipe_bytes: u64,
    pub(super) rtt: Option<Micros>,
    pub(super) mss: u32,
    pub(super) recovering: bool,
}

/// A BBR sender.
#[derive(Clone, Debug)]
pub(super) struct Bbr {
    marks: ArrayVec<Mark, MARKS>,
    delivered_bytes: u64,
    delivered_at: Timestamp,
    app_limited_until: u64,
    round: u32,
    round_end_delivered: u64,
    rate_bytes_per_second: MaxFilter,
    full_rate: f64,
    full_rounds: u8,
    min_rtt: Option<(Micros, Timestamp)>,
    aggregation: Aggregation,
    mode: Mode,
    segments: f64,
    prior_segments: f64,
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
            marks: ArrayVec::new(),
            delivered_bytes,
            delivered_at: at,
            app_limited_until: 0,
            round: 0,
            round_end_delivered: delivered_bytes,
            rate_bytes_per_second: MaxFilter::default(),
            full_rate: 0.0,
            full_rounds: 0,
            min_rtt,
            aggregation: Aggregation::new(at),
            mode: Mode::Startup,
            segments,
            prior_segments: segments,
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

    /// Its share of the path: delivery rate times smallest round-trip time, in bytes.
    pub(super) fn share_bytes(&self) -> Option<f64> {
        let rate = self.rate_bytes_per_second.max()?;
        let (min_rtt, _) = self.min_rtt?;
        Some(rate * min_rtt.as_secs_f64())
    }

    /// A packet of new data.
    pub(super) fn on_sent(&mut self, at: Timestamp, sent: &Departure) {
        let Departure { nxt, flight_bytes, pipe_segments, idle, dry } = *sent;
        self.contest_probe(at, f64::from(pipe_segments));
        if idle {
            self.delivered_at = at;
        }
        // With the pipe all but empty under a large window it probes, whether or not that was foreseen.
        let emptied = f64::from(pipe_segments) <= PROBE_WINDOW && self.segments > 4.0 * PROBE_WINDOW;
        if dry || idle || emptied || self.probing() {
            self.app_limited_until = nxt;
        }
        let spacing = flight_bytes / (MARKS as u64 - 4);
        if self.marks.last().is_none_or(|last| nxt >= last.nxt.saturating_add(spacing)) {
            // With no room the newest packets go unmarked until acknowledgements make some.
            let mark = Mark {
                nxt,
                delivered_bytes: self.delivered_bytes,
                delivered_at: self.delivered_at,
                app_limited: self.app_limited_until > 0,
            };
            let _full = self.marks.try_push(mark);
        }
    }

    /// An acknowledgement.
    pub(super) fn on_ack(&mut self, delivery: &Delivery) {
        self.delivered_bytes = delivery.delivered_bytes;
        self.delivered_at = delivery.at;
        if delivery.edge >= self.app_limited_until {
            self.app_limited_until = 0;
        }
        let acked = self.marks.iter().take_while(|mark| mark.nxt <= delivery.edge).count();
        let newest = self.marks.drain(..acked).last();
        let new_round = newest.is_some_and(|mark| mark.delivered_bytes >= self.round_end_delivered);
        if new_round {
            self.round += 1;
            self.round_end_delivered = delivery.delivered_bytes;
            self.conserving = false;
            self.aggregation.on_round();
        }
        if let Some(mark) = newest {
            self.sample_rate(delivery, &mark);
        }
        let mss = f64::from(delivery.mss.max(1));
        let rate = self.rate_bytes_per_second.max().unwrap_or(0.0) / mss;
        self.aggregation.on_ack(delivery.at, delivery.newly_bytes as f64 / mss, rate, self.segments);
        self.check_full(new_round, newest.is_some_and(|mark| mark.app_limited));
        self.check_drained(delivery);
        self.update_min_rtt(delivery, new_round);
        self.update_window(delivery);
    }

    fn sample_rate(&mut self, delivery: &Delivery, mark: &Mark) {
        let seconds = delivery.at.since(mark.delivered_at).as_secs_f64();
        let shortest = self.min_rtt.map_or(0.0, |(min, _)| min.as_secs_f64());
        if seconds <= 0.0 || seconds < shortest {
            return;
        }
        let rate = delivery.delivered_bytes.saturating_sub(mark.delivered_bytes) as f64 / seconds;
        if !mark.app_limited || self.rate_bytes_per_second.max().is_none_or(|max| rate >= max) {
            self.rate_bytes_per_second.add(self.round, RATE_ROUNDS, rate);
        }
    }

    fn check_full(&mut self, new_round: bool, app_limited: bool) {
        if !new_round || app_limited || !matches!(self.mode, Mode::Startup) {
            return;
        }
        let rate = self.rate_bytes_per_second.max().unwrap_or(0.0);
        if rate >= self.full_rate * FULL_GROWTH {
            self.full_rate = rate;
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        if self.full_rounds >= FULL_ROUNDS {
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

    fn update_min_rtt(&mut self, delivery: &Delivery, new_round: bool) {
        let before = self.min_rtt;
        let expired = before.filter(|(_, since)| delivery.at.since(*since) > MIN_RTT_AGE);
        if let Some(rtt) = delivery.rtt
            && before.is_none_or(|(min, _)| rtt < min || expired.is_some())
        {
            self.min_rtt = Some((rtt, delivery.at));
        }
        match (self.mode, expired) {
            (Mode::ProbeRtt { since, until: None, before }, _)
                if delivery.pipe_bytes <= 4 * u64::from(delivery.mss) =>
            {
                self.mode = Mode::ProbeRtt { since, until: Some(delivery.at.after(PROBE_TIME)), before };
            }
            (Mode::ProbeRtt { until: Some(until), .. }, _) if delivery.at > until && new_round => {
                self.end_probe(delivery.at);
            }
            (Mode::Startup | Mode::Drain | Mode::ProbeBandwidth, Some(before)) => {
                self.save(delivery.recovering);
                self.mode = Mode::ProbeRtt { since: delivery.at, until: None, before };
            }
            _ => {}
        }
    }

    fn target(&self, mss: u32) -> f64 {
        let gain = if matches!(self.mode, Mode::Startup | Mode::Drain) { START_GAIN } else { GAIN };
        let rate = self.rate_bytes_per_second.max().unwrap_or(0.0);
        let extra = if self.full() { self.aggregation.extra_segments(rate / f64::from(mss.max(1))) } else { 0.0 };
        self.budget(gain, extra, mss)
    }

    /// Segments for `gain` times the share, `extra` ones, and bursts.
    fn budget(&self, gain: f64, extra_segments: f64, mss: u32) -> f64 {
        let mss = f64::from(mss.max(1));
        // No rate yet: nothing holds the start back.
        let Some(share) = self.share_bytes() else { return f64::INFINITY };
        let rate = self.rate_bytes_per_second.max().unwrap_or(0.0);
        // One offload burst, 1 ms at the pacing rate and at least two segments, in each of three places; then even.
        let least = if rate * 8.0 < BURST_RATE_BITS { 1.0 } else { 2.0 };
        let burst = (rate * PACING_MARGIN / 1024.0 / mss).floor().clamp(least, BURST_MOST);
        let segments = (share / mss * gain).ceil() + extra_segments + 3.0 * burst;
        (segments / 2.0).ceil() * 2.0
    }

    fn update_window(&mut self, delivery: &Delivery) {
        let mss = f64::from(delivery.mss.max(1));
        let acked = delivery.newly_bytes as f64 / mss;
        let target = self.target(delivery.mss);
        if delivery.recovering && self.conserving {
            self.segments = delivery.pipe_bytes as f64 / mss + acked;
        } else if self.full() {
            self.segments = (self.segments + acked).min(target);
        } else if self.segments < target || delivery.delivered_bytes < u64::from(INITIAL) * u64::from(delivery.mss) {
            self.segments += acked;
        }
        self.segments = self.segments.max(PROBE_WINDOW);
        if matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.segments = self.segments.min(PROBE_WINDOW);
        }
    }

    /// The smallest round-trip time counts as measured at `at`.
    fn end_probe(&mut self, at: Timestamp) {
        self.mode = if self.full() { Mode::ProbeBandwidth } else { Mode::Startup };
        self.segments = self.segments.max(self.prior_segments);
        self.min_rtt = self.min_rtt.map(|(min, _)| (min, at));
    }

    /// A segment with `pipe_segments` in the network while it is thought to keep the pipe empty.
    fn contest_probe(&mut self, at: Timestamp, pipe_segments: f64) {
        let Mode::ProbeRtt { since, until, before: (min, known) } = self.mode else { return };
        if pipe_segments <= PROBE_WINDOW + PROBE_SLACK {
            return;
        }
        if until.is_some() {
            self.end_probe(at);
        } else if at.since(since).0 > min.0 / 4 {
            // More than the paced segments that may still follow: it knows a younger one. Try again in a round trip.
            self.end_probe(at);
            self.min_rtt = Some((min, known.after(min)));
        }
    }

    /// Whether it empties the pipe at this time: its window is then full and says nothing about its rivals.
    pub(super) fn probing(&self) -> bool {
        matches!(self.mode, Mode::ProbeRtt { .. })
    }

    /// Keeps the window for after a loss or a probe; while either cuts it, the larger one.
    fn save(&mut self, cut: bool) {
        self.prior_segments = if cut { self.prior_segments.max(self.segments) } else { self.segments };
    }

    /// A loss: for one round trip only as much is sent as was delivered.
    pub(super) fn enter_recovery(&mut self, pipe_segments: f64) {
        self.save(self.probing());
        self.conserving = true;
        self.round_end_delivered = self.delivered_bytes;
        self.segments = pipe_segments.max(1.0);
    }

    /// Recovery is over: the window is what it was.
    pub(super) fn leave_recovery(&mut self) {
        self.conserving = false;
        self.segments = self.segments.max(self.prior_segments);
    }

    /// A timeout.
    pub(super) fn time_out(&mut self) {
        self.save(self.probing());
        self.full_rate = 0.0;
        self.segments = 1.0;
    }

    /// The packets show a larger window; returns by how much of its own it was wrong.
    pub(super) fn raise(&mut self, pipe_segments: u32) -> f64 {
        let pipe = f64::from(pipe_segments);
        if self.probing() {
            return 0.0;
        }
        let wrong = ((pipe - self.segments) / self.segments.max(1.0)).max(0.0);
        self.segments = self.segments.max(pipe);
        wrong
    }
}
