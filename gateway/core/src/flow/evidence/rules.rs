//! The rules of evidence for and against BBR.

use spand_proto::units::{Micros, Timestamp};

use super::Evidence;
use super::ack_clock::ANSWER_WITHIN;
use super::growth::Growth;
use super::rounds::Signs;
use crate::flow::observation::{CaState, Sent};

/// Segments within this time leave at once.
const AT_ONCE: Micros = Micros(250);
/// With less room than this in the peer's window, in segments, a sender waits: its bursts have two at least.
const RECEIVER_ROOM: u64 = 2;
/// Part of the full-sized segments of a round trip that is ACK-clocked, from which on its largest pipe is the window.
pub(super) const CLOCKED_LEAST: f64 = 0.8;
/// Pipe at a loss from which on the pipe of a later round trip is evidence, and the part of it from which on the sender did not reduce.
const BACK_OFF_LEAST: f64 = 5.0;
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
/// Evidence of a pipe that grew by steps.
const GROWTH_WEIGHT: f64 = 0.75;
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
        let open = self.ca.is_open() || self.ca == CaState::Cwr;
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

    /// A round trip that only the window limited.
    pub(super) fn weigh_round(&mut self, at: Timestamp, ended: Signs) {
        if !self.ca.is_open() || !Growth::judges(ended) {
            return;
        }
        if f64::from(ended.clocked) >= CLOCKED_LEAST * f64::from(ended.full_sized) {
            self.known = true;
        }
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
        if self.ca.is_open() && self.growth.on_round(ended) {
            self.lean_to_bbr(-GROWTH_WEIGHT);
        }
    }

    pub(super) fn lean_to_bbr(&mut self, by: f64) {
        if self.known {
            self.leaning.lean_to_bbr(by);
        }
    }
}
