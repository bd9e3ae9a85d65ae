//! The rules of evidence for and against BBR.

use spand_proto::units::{Micros, Timestamp};

use super::ack_clock::ANSWER_WITHIN;
use super::growth::Growth;
use super::observation::Sent;
use super::rounds::Signs;
use super::{Evidence, State};
use crate::types::Limiter;

/// Segments within this time leave at once.
const AT_ONCE: Micros = Micros(250);
/// With less room than this in the peer's window, in segments, a sender waits: its bursts have two at least.
const RECEIVER_ROOM: u64 = 2;
/// Part of the full-sized segments of a round trip that is ACK-clocked, from which on its largest pipe is the window.
pub(super) const CLOCKED_LEAST: f64 = 0.8;
/// Part of BBR's range, and segments, by which a pipe may lie outside of it: recent growth, and what waits for a burst.
const FILLING_SLACK: f64 = 0.1;
const BURST_HELD_BACK: f64 = 2.0;
/// Pipe at a loss from which on the pipe of a later round trip is evidence: up to the first part of it, as after a reduction by Reno
/// or CUBIC, the sender reduced; from the second part on it did not.
const BACK_OFF_LEAST: f64 = 5.0;
const BACK_OFF_PART: f64 = 0.82;
const STAYED_PART: f64 = 0.9;
/// Parts of the window to which Reno (RFC 5681) and CUBIC (RFC 9438) reduce it, and by which a reduced pipe may be off: segments, and a
/// part of it.
const REDUCED_TO: [f64; 2] = [0.5, 0.7];
const FILLED_NEARLY: f64 = 1.0;
const FILLED_PART: f64 = 0.05;
/// Round trips, as part of the window in segments, in which neither of them grows back that far: they take about twice as many.
const GROWN_BACK: f64 = 0.2;
const BACK_OFF_WEIGHT: f64 = 0.2;
const STAYED_WEIGHT: f64 = 0.15;
/// The largest evidence against BBR from a pipe outside of its range, and the upper end of that range without bursts, as a multiple of
/// the share.
const BBR_WRONG_MOST: f64 = 0.15;
const BBR_MOST: f64 = 2.1;
/// Evidence of a round trip whose pipe is off by its own size.
const FILLING_WEIGHT: f64 = 0.5;
/// Evidence of a pipe that grew by steps.
const GROWTH_WEIGHT: f64 = 0.75;
/// Pipe before a loss from which on segments sent in recovery are evidence; parts of the segments delivered that are sent by a sender
/// that reduces, and by one that does not; and the weight of that evidence.
const REDUCTION_LEAST: u32 = 16;
const REDUCED_PART: f64 = 0.8;
const CONSERVED_PART: f64 = 0.95;
const REDUCTION_EVIDENCE: f64 = 1.0;

impl Evidence {
    /// Whether one more segment would exceed the peer's window as of the sender, which `unknown` acknowledged bytes have not reached.
    pub(super) fn receiver_is_full(&self, sent: &Sent, unknown: u64) -> bool {
        let needed = sent.flight.saturating_add(unknown).saturating_add(RECEIVER_ROOM * u64::from(self.mss));
        sent.peer_window.is_some_and(|window| window < needed)
    }

    /// Records the signs of a segment of new data; returns whether an acknowledgement released it.
    pub(super) fn note_signs(
        &mut self,
        at: Timestamp,
        sent: &Sent,
        pipe: u32,
        idle: bool,
        since_sent: Option<Micros>,
        receiver_full: bool,
    ) -> bool {
        let open = self.state == State::Open || self.in_cwr();
        if idle {
            self.first_flight = true;
        }
        if sent.full_sized && !self.first_flight {
            self.clock.learn_reaction(at, self.rtt.smoothed());
        }
        let clocked = open && self.clock.on_sent(at, sent.full_sized);
        let judged = open && sent.full_sized && !self.first_flight;
        let waits = self.clock.is_behind_queue();
        self.rounds.dry = sent.ran_dry(self.mss);
        if judged && !clocked {
            let at_once = since_sent.is_some_and(|since| since < AT_ONCE);
            self.rounds.note_burst(self.packets(u64::from(sent.new_bytes)), at_once);
        }
        let resumes = idle && !clocked && self.resumes_unasked(sent);
        let signs = &mut self.rounds.current;
        signs.receiver_full |= receiver_full;
        signs.waited |= waits;
        signs.ran_dry |= !sent.full_sized || resumes;
        signs.pushed |= judged && !sent.more;
        signs.full_sized = signs.full_sized.saturating_add(u16::from(judged));
        signs.clocked = signs.clocked.saturating_add(u16::from(judged && clocked));
        signs.pipe_max_segments = signs.pipe_max_segments.max(pipe);
        judged && clocked
    }

    /// Whether new data with nothing outstanding answers no acknowledgement.
    fn resumes_unasked(&self, sent: &Sent) -> bool {
        let answers_within = self.clock.reaction().0.saturating_add(ANSWER_WITHIN.0);
        sent.since_ack.is_some_and(|since| since.0 > answers_within)
    }

    /// Whether new data is a tail loss probe, which may exceed the window by one segment (RFC 8985 section 7.3). Linux sends it two round
    /// trips after the last segment or acknowledgement, or when the lowest segment times out, if that is sooner
    /// (`tcp_schedule_loss_probe`).
    pub(super) fn is_probe_beyond(&self, sent: &Sent, pipe: u32, since_sent: Option<Micros>) -> bool {
        if pipe != self.rounds.recent().pipe_max_segments + 1 {
            return false;
        }
        let (Some(since_ack), Some(since_sent)) = (sent.since_ack, since_sent) else { return false };
        let Some(srtt) = self.rtt.smoothed() else { return false };
        let quiet = since_ack.min(since_sent);
        let timed_out = || {
            let unanswered = quiet.0 > self.clock.reaction().0.saturating_add(ANSWER_WITHIN.0);
            unanswered && sent.since_oldest.is_some_and(|since| since.0 >= self.rtt.timeout().0 / 4 * 3)
        };
        quiet.0 > srtt.0.saturating_mul(2) || timed_out()
    }

    /// Returns the range of segments that BBR has in the network once its rate stopped growing. It has at least its share, and at most twice
    /// that (`bbr_cwnd_gain`), a little for acknowledgements in clumps (`bbr_ack_aggregation_cwnd`) and three bursts
    /// (`bbr_quantization_budget`).
    fn bbr_holds(&self) -> Option<(f64, f64)> {
        let bbr = self.bbr.as_ref().filter(|bbr| !bbr.starting() && !bbr.probing())?;
        let share = bbr.share(self.clock.reaction())?;
        Some((share, BBR_MOST * share + 3.0 * bbr.burst()))
    }

    /// A round trip that only the window limited.
    pub(super) fn weigh_round(&mut self, at: Timestamp, ended: Signs) {
        if self.state != State::Open || !Growth::judges(ended) {
            return;
        }
        if f64::from(ended.clocked) >= CLOCKED_LEAST * f64::from(ended.full_sized) {
            self.known = true;
        }
        let pipe = f64::from(ended.pipe_max_segments);
        let outside = |(least, most): (f64, f64)| {
            let (least, most) = (least * (1.0 - FILLING_SLACK) - BURST_HELD_BACK, most * (1.0 + FILLING_SLACK));
            FILLING_WEIGHT * (least - pipe).max(pipe - most).max(0.0) / pipe.max(1.0)
        };
        let bbr = self.bbr_holds().map_or(0.0, outside);
        self.lean_to_bbr(-bbr.min(BBR_WRONG_MOST));
        self.weigh_back_off(at, ended.pipe_max_segments);
    }

    /// Reno and CUBIC reduce at a loss or ECN echo, BBR does not. `pipe_segments`: the largest pipe since.
    pub(super) fn weigh_back_off(&mut self, at: Timestamp, pipe_segments: u32) {
        let at_loss = std::mem::take(&mut self.pipe_at_loss);
        if at_loss > 0 {
            self.pipe_after_loss = pipe_segments;
        }
        let (before, after) = (f64::from(at_loss), f64::from(pipe_segments));
        if before < BACK_OFF_LEAST || !self.clock.is_near(self.rtt.smoothed()) {
            return;
        }
        let reduced = |part: f64| (after - before * part).abs() <= FILLED_NEARLY + before * part * FILLED_PART;
        if REDUCED_TO.into_iter().any(reduced) {
            self.lean_to_bbr(-BACK_OFF_WEIGHT);
        } else if after >= before * STAYED_PART && f64::from(self.rounds_since_loss) <= before * GROWN_BACK {
            self.lean_to_bbr(STAYED_WEIGHT);
            self.follow_as_bbr(at);
        }
    }

    /// A pipe that grows by small steps for several round trips is that of congestion avoidance, even if the segments are paced. BBR's
    /// is constant, or grows by a quarter and comes back.
    pub(super) fn weigh_growth(&mut self, ended: Signs) {
        if self.state == State::Open && self.growth.on_round(ended) {
            self.lean_to_bbr(-GROWTH_WEIGHT);
        }
    }

    /// In the first round trip of a recovery Reno and CUBIC send half or two thirds of what is delivered (RFC 6937,
    /// `tcp_cwnd_reduction`) while the pipe is above `ssthresh`; BBR in STARTUP sends all of it
    /// (`bbr_set_cwnd_to_recover_or_restore`).
    pub(super) fn weigh_reduction(&mut self, at: Timestamp, pipe_bytes: u64) {
        let before = u32::from(self.pipe_at_loss);
        let Some((sent, delivered)) = self.repair.counted().filter(|(_, delivered)| *delivered >= before) else {
            return;
        };
        let bbr_starts = self.bbr.as_ref().is_none_or(|bbr| bbr.starting());
        if !self.after_loss.as_mut().is_some_and(|after_loss| after_loss.judges())
            || before < REDUCTION_LEAST
            || self.by_ecn
            || !bbr_starts
            || (self.rounds.dry && self.held.limiter(at, self.round()) != Limiter::Window)
            || self.rounds.current.receiver_full
            || !self.clock.is_near(self.rtt.smoothed())
        {
            return;
        }
        let (sent, delivered, pipe) = (f64::from(sent), f64::from(delivered), f64::from(self.packets(pipe_bytes)));
        if sent <= delivered * REDUCED_PART {
            self.lean_to_bbr(-REDUCTION_EVIDENCE);
        } else if sent >= delivered * CONSERVED_PART && pipe >= f64::from(before) * BACK_OFF_PART {
            self.lean_to_bbr(REDUCTION_EVIDENCE);
            self.follow_as_bbr(at);
        }
    }

    pub(super) fn lean_to_bbr(&mut self, by: f64) {
        if self.known {
            self.leaning.lean_to_bbr(by);
        }
    }
}

/// Segments of the recovery under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Repair {
    delivered: u32,
    sent: u32,
}

impl Repair {
    /// Segments were sent, new or retransmitted; the first of them at once at the acknowledgement that began it.
    pub(super) fn sent(&mut self, segments: u32) {
        self.delivered = self.delivered.max(1);
        self.sent = self.sent.saturating_add(segments);
    }

    pub(super) fn delivered(&mut self, segments: u32) {
        self.delivered = self.delivered.saturating_add(segments);
    }

    /// Segments sent and delivered in it, if any was sent.
    fn counted(self) -> Option<(u32, u32)> {
        (self.sent > 0).then_some((self.sent, self.delivered))
    }
}
