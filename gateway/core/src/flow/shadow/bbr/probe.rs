//! The smallest round-trip time, and `PROBE_RTT`, in which BBR empties the pipe to measure it again.
//!
//! The start of that mode depends on single round-trip times, so the packets decide.

use spand_proto::units::{Micros, Timestamp};

use super::delivery::Delivery;
use super::{Bbr, Mode};

/// Age of the smallest round-trip time at which it is measured again.
const MIN_RTT_AGE: Micros = Micros(10_000_000);
/// Window then, and shortest duration.
pub(super) const WINDOW: u32 = 4;
const TIME: Micros = Micros(200_000);
/// Packets sent before its begin pass the tap within this time.
const STOPS_WITHIN: Micros = Micros(2_000);
/// Segments beyond that window that do not contradict the mode.
const SLACK: u32 = 4;

impl Bbr {
    /// Whether it empties the pipe: its window is then full, which is no evidence on its rivals.
    pub(in super::super) fn probing(&self) -> bool {
        matches!(self.mode, Mode::ProbeRtt { .. })
    }

    /// `bbr_update_min_rtt`.
    pub(super) fn update_min_rtt(&mut self, delivery: &Delivery, new_round: bool) {
        let before = self.min_rtt;
        let expired = before.filter(|(_, since)| delivery.at.since(*since) > MIN_RTT_AGE);
        if let Some(rtt) = delivery.rtt
            && before.is_none_or(|(min, _)| rtt < min || expired.is_some())
        {
            self.min_rtt = Some((rtt, delivery.at));
        }
        // Data sent after an idle time measured it without a probe.
        if let Some(before) = expired.filter(|_| !self.idle_restart && !self.probing()) {
            let windows = [self.segments, self.prior_segments];
            self.save();
            self.mode = Mode::ProbeRtt { since: delivery.at, until: None, round_done: false, before, windows };
        }
        if let Mode::ProbeRtt { since, until, round_done, before, windows } = self.mode {
            self.rate.limit_by_application(delivery.pipe_bytes);
            let empty = delivery.pipe_bytes <= u64::from(WINDOW) * u64::from(delivery.mss);
            let round_done = round_done || new_round;
            match until {
                None if empty => {
                    let until = Some(delivery.at.after(TIME));
                    self.mode = Mode::ProbeRtt { since, until, round_done: false, before, windows };
                    self.rate.start_round();
                }
                Some(until) if round_done && delivery.at > until => self.end_probe(delivery.at),
                None => {}
                Some(_) => self.mode = Mode::ProbeRtt { since, until, round_done, before, windows },
            }
        }
    }

    /// Sending resumes after an idle time in which the pipe was empty for long enough.
    pub(super) fn resume_probe(&mut self, at: Timestamp) {
        if let Mode::ProbeRtt { until: Some(until), .. } = self.mode
            && at > until
        {
            self.end_probe(at);
        }
    }

    /// A segment sent with `pipe_segments` in the network during an assumed `PROBE_RTT`.
    pub(super) fn contest_probe(&mut self, at: Timestamp, pipe_segments: u32) {
        let Mode::ProbeRtt { since, until, before: (min, known), windows, .. } = self.mode else { return };
        if pipe_segments <= WINDOW + SLACK {
            return;
        }
        if until.is_some() {
            self.end_probe(at);
        } else if at.since(since).0 > self.reaction.0.saturating_add(STOPS_WITHIN.0) {
            // More than the paced segments that may still follow: its measurement is more recent. Try again in a round trip.
            self.end_probe(at);
            self.min_rtt = Some((min, known.after(min)));
            // Without a probe nothing limited it, and the window of a recovery under way was not reduced.
            self.rate.lift_limit();
            [self.segments, self.prior_segments] = windows;
        }
    }

    /// The smallest round-trip time counts as measured at `at`.
    fn end_probe(&mut self, at: Timestamp) {
        self.mode = if self.full() { Mode::ProbeBandwidth } else { Mode::Startup };
        self.segments = self.segments.max(self.prior_segments);
        self.min_rtt = self.min_rtt.map(|(min, _)| (min, at));
    }
}
