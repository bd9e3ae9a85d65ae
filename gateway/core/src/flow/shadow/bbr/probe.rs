//! The smallest round-trip time, and the mode in which BBR empties the pipe to measure it anew.
//!
//! Whether that mode begins hangs on single round-trip times, so the packets have the last word.

use spand_proto::units::{Micros, Timestamp};

use super::delivery::Delivery;
use super::{Bbr, Mode};

/// Age of the smallest round-trip time at which it is measured anew.
const MIN_RTT_AGE: Micros = Micros(10_000_000);
/// Window then, and for how long at least.
pub(super) const WINDOW: f64 = 4.0;
const TIME: Micros = Micros(200_000);
/// Segments beyond that window that are still no sign of another mode.
const SLACK: f64 = 4.0;

impl Bbr {
    /// Whether it empties the pipe at this time: its window is then full and says nothing about its rivals.
    pub(in super::super) fn probing(&self) -> bool {
        matches!(self.mode, Mode::ProbeRtt { .. })
    }

    pub(super) fn update_min_rtt(&mut self, delivery: &Delivery, new_round: bool) {
        let before = self.min_rtt;
        let expired = before.filter(|(_, since)| delivery.at.since(*since) > MIN_RTT_AGE);
        let rtt = delivery.newest.filter(|newest| !newest.again).map(|newest| delivery.at.since(newest.sent_at));
        if let Some(rtt) = rtt
            && before.is_none_or(|(min, _)| rtt < min || expired.is_some())
        {
            self.min_rtt = Some((rtt, delivery.at));
        }
        let empty = delivery.pipe_bytes as f64 <= WINDOW * f64::from(delivery.mss);
        match (self.mode, expired) {
            (Mode::ProbeRtt { since, until: None, before }, _) if empty => {
                self.mode = Mode::ProbeRtt { since, until: Some(delivery.at.after(TIME)), before };
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

    /// A segment with `pipe_segments` in the network while it is thought to keep the pipe empty.
    pub(super) fn contest_probe(&mut self, at: Timestamp, pipe_segments: f64) {
        let Mode::ProbeRtt { since, until, before: (min, known) } = self.mode else { return };
        if pipe_segments <= WINDOW + SLACK {
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

    /// The smallest round-trip time counts as measured at `at`.
    fn end_probe(&mut self, at: Timestamp) {
        self.mode = if self.full() { Mode::ProbeBandwidth } else { Mode::Startup };
        self.segments = self.segments.max(self.prior_segments);
        self.min_rtt = self.min_rtt.map(|(min, _)| (min, at));
    }
}
