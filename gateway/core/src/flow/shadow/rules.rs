//! The rules of evidence for and against a replica.

use spand_proto::units::{Micros, Timestamp};

use super::evidence::{ANSWER_WITHIN, Steady};
use super::flavour::Flavour;
use super::observation::Sent;
use super::replica::Law;
use super::rounds::Signs;
use super::{Shadow, State};
use crate::types::Limiter;

/// Segments within this time leave at once.
const AT_ONCE: Micros = Micros(250);
/// With less room than this in the peer's window, in segments, a sender waits: its bursts have two at least.
const RECEIVER_ROOM: u64 = 2;
/// Full-sized segments in a round trip from which on its largest pipe is evidence.
const FILLING_LEAST: u16 = 3;
/// Part of a full window, and segments of it, that the pipe may lack: recent growth, and what waits for a burst.
const FILLING_SLACK: f64 = 0.1;
const BURST_HELD_BACK: f64 = 2.0;
/// Pipe at a loss from which on the pipe of a later round trip is evidence: up to the first part of it, as after a reduction by Reno
/// or CUBIC, the sender reduced; from the second part on it did not.
const BACK_OFF_LEAST: f64 = 5.0;
const BACK_OFF_PART: f64 = 0.82;
const STAYED_PART: f64 = 0.9;
/// Round trips, as part of the window in segments, in which neither of them grows back that far: they take about twice as many.
const GROWN_BACK: f64 = 0.2;
/// Up to the first number of segments Reno and CUBIC reduce to equal windows; from the second on these differ by two or more.
const ALIKE_UP_TO: f64 = 2.0;
const DISTINCT_FROM: f64 = 10.0;
/// A first flight counts as larger than a restarted window from this part of it on.
const RESTART_SLACK_PART: u32 = 4;
/// Segments that a filled window may lack if nothing waits for a burst.
const FILLED_NEARLY: f64 = 1.0;
const FILLED_PART: f64 = 0.05;
const BACK_OFF_WEIGHT: f64 = 0.2;
const STAYED_WEIGHT: f64 = 0.15;
/// The largest evidence against BBR from a pipe outside of its range, and the upper end of that range without bursts, as a multiple of
/// the share.
const BBR_WRONG_MOST: f64 = 0.15;
const BBR_MOST: f64 = 2.1;
/// Evidence of a round trip whose pipe is off by its own size.
const FILLING_WEIGHT: f64 = 0.5;
/// Evidence of a pipe that follows a window's growth.
const GROWTH_WEIGHT: f64 = 0.75;
/// Pipe before a loss from which on segments sent in recovery are evidence; parts of the segments delivered that are sent by a sender
/// that reduces, and by one that does not; and the weight of that evidence.
const REDUCTION_LEAST: u32 = 16;
const REDUCED_PART: f64 = 0.8;
const CONSERVED_PART: f64 = 0.95;
const REDUCTION_EVIDENCE: f64 = 1.0;
/// Part of a window's error in recovery that counts: there many acknowledgements repeat the evidence.
const REDUCTION_WEIGHT: f64 = 0.25;
/// Part of a window from which on a smaller pipe, by the acknowledgements, is evidence against Reno and CUBIC, and its weight: a
/// smaller difference may wait for a burst.
const LOWERED_LEAST: f64 = 0.1;
const LOWERED_WEIGHT: f64 = 0.1;

impl Shadow {
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
            self.clock.learn_reaction(at, self.rto.srtt());
        }
        let clocked = open && self.clock.on_sent(at, sent.full_sized, pipe);
        let judged = open && sent.full_sized && !self.first_flight;
        let waits = self.clock.is_behind_queue();
        if receiver_full || waits || self.state != State::Open {
            self.clock.break_run();
        }
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

    /// Rule 1: a pipe above a window raises it.
    pub(super) fn weigh_pipe(&mut self, pipe: u32) {
        if pipe > self.reno.cwnd.whole().min(self.cubic.cwnd.whole()) || self.bbr.is_some() {
            self.weigh_raise(pipe);
        }
    }

    /// Whether new data is a tail loss probe, which may exceed the window by one segment (RFC 8985 section 7.3). Linux sends it two round
    /// trips after the last segment or acknowledgement, or when the lowest segment times out, if that is sooner
    /// (`tcp_schedule_loss_probe`).
    pub(super) fn is_probe_beyond(&self, sent: &Sent, pipe: u32, since_sent: Option<Micros>) -> bool {
        let beyond = f64::from(pipe) - self.best_whole();
        if !(0.5..1.5).contains(&beyond) {
            return false;
        }
        let (Some(since_ack), Some(since_sent)) = (sent.since_ack, since_sent) else { return false };
        let Some(srtt) = self.rto.srtt() else { return false };
        let quiet = since_ack.min(since_sent);
        let timed_out = || {
            let unanswered = quiet.0 > self.clock.reaction().0.saturating_add(ANSWER_WITHIN.0);
            unanswered && sent.since_oldest.is_some_and(|since| since.0 >= self.rto.get().0 / 4 * 3)
        };
        quiet.0 > srtt.0.saturating_mul(2) || timed_out()
    }

    /// Rule 10: a sender keeps its window over an idle time if its first flight is larger than the restarted window, and not larger than
    /// the window before. BBR always keeps its window. A flight on advice may have any size.
    pub(super) fn weigh_restart(&mut self, pipe: u32) {
        if !matches!(self.flavour(), Flavour::Reno | Flavour::Cubic) {
            return;
        }
        let (reno, cubic) = (&mut self.reno.cwnd, &mut self.cubic.cwnd);
        let restarted = u32::from(self.restarted);
        // An acknowledgement missed by the capture makes a flight look a little larger.
        if pipe > restarted + restarted / RESTART_SLACK_PART && pipe <= reno.prior().max(cubic.prior()) {
            reno.undo();
            cubic.undo();
            (self.restarted, self.kept_window) = (0, self.kept_window.saturating_add(1));
        }
    }

    /// An equal error of both replicas is theirs, not evidence of the sender: the difference counts.
    pub(super) fn weigh_raise(&mut self, pipe: u32) {
        let (reno, cubic) = (self.reno.raise(pipe), self.cubic.raise(pipe));
        self.compare(reno, cubic);
    }

    /// Returns the range of segments that BBR has in the network once its rate stopped growing. It has at least its share, and at most twice
    /// that (`bbr_cwnd_gain`), a little for acknowledgements in clumps (`bbr_ack_aggregation_cwnd`) and three bursts
    /// (`bbr_quantization_budget`).
    fn bbr_holds(&self) -> Option<(f64, f64)> {
        let bbr = self.bbr.as_ref().filter(|bbr| !bbr.starting() && !bbr.probing())?;
        let share = bbr.share(self.clock.reaction())?;
        Some((share, BBR_MOST * share + 3.0 * bbr.burst()))
    }

    /// Rule 2: a pipe that stays below a window although every acknowledgement is answered at once lowers it.
    pub(super) fn weigh_steady_pipe(&mut self, steady: &Steady) {
        let srtt = self.rto.srtt();
        let (pipe, ahead) = (steady.pipe_segments, self.packets(steady.behind_bytes));
        let avoids = !self.reno.cwnd.in_slow_start() && !self.cubic.cwnd.in_slow_start();
        let (reno, cubic) = (self.reno.lower(pipe, ahead, srtt), self.cubic.lower(pipe, ahead, srtt));
        self.cubic.law.stayed_within();
        self.known = true;
        // Neither reduces without a cause; BBR does, once its path is measured, and in `PROBE_RTT`.
        if avoids && reno.min(cubic) >= LOWERED_LEAST {
            self.lean_to_bbr(LOWERED_WEIGHT * reno.min(cubic));
        }
        self.compare(reno, cubic);
    }

    /// Rule 4: a window-limited sender fills its window.
    pub(super) fn weigh_filling(&mut self, at: Timestamp, ended: Signs) {
        let judged = ended.full_sized >= FILLING_LEAST && !ended.ran_dry && !ended.receiver_full;
        if self.state != State::Open || !judged {
            return;
        }
        let pipe = f64::from(ended.pipe_max_segments);
        let outside = |least: f64, most: f64, slack: f64, held_back: f64| {
            let (least, most) = (least * (1.0 - slack) - held_back, most * (1.0 + slack));
            FILLING_WEIGHT * (least - pipe).max(pipe - most).max(0.0) / pipe.max(1.0)
        };
        let (reno, cubic) = (f64::from(self.reno.cwnd.whole()), f64::from(self.cubic.cwnd.whole()));
        // If one of them is filled to the segment, the other one's tolerance is small, too.
        let near = reno.min(cubic) - pipe <= FILLED_NEARLY;
        let (slack, held_back) = if near { (0.0, FILLED_NEARLY) } else { (FILLING_SLACK, BURST_HELD_BACK) };
        let (reno, cubic) = (outside(reno, reno, slack, held_back), outside(cubic, cubic, slack, held_back));
        let bbr = self.bbr_holds().map_or(0.0, |(least, most)| outside(least, most, FILLING_SLACK, BURST_HELD_BACK));
        // A pipe that fills neither window may come from an application with a steady rate.
        let neither = reno.min(cubic);
        if neither <= 0.0 {
            self.compare(reno, cubic);
        }
        self.lean_to_bbr(-(bbr - neither).clamp(0.0, BBR_WRONG_MOST));
        self.weigh_back_off(at, ended.pipe_max_segments);
    }

    /// Rule 5: Reno and CUBIC reduce at a loss or ECN echo, BBR does not. `pipe_segments`: the largest pipe since.
    pub(super) fn weigh_back_off(&mut self, at: Timestamp, pipe_segments: u32) {
        let (before, after) = (f64::from(std::mem::take(&mut self.pipe_at_loss)), f64::from(pipe_segments));
        if before < BACK_OFF_LEAST || !self.clock.is_near(self.rto.srtt()) {
            return;
        }
        let (reno, cubic) = (f64::from(self.reno.cwnd.whole()), f64::from(self.cubic.cwnd.whole()));
        let fills = |window: f64| (0.0..=FILLED_NEARLY + window * FILLED_PART).contains(&(window - after));
        let filled = fills(reno) || fills(cubic);
        if after <= before * BACK_OFF_PART && filled {
            self.lean_to_bbr(-BACK_OFF_WEIGHT);
        } else if after >= before * STAYED_PART && f64::from(self.rounds_since_loss) <= before * GROWN_BACK {
            self.lean_to_bbr(STAYED_WEIGHT);
            self.follow_as_bbr(at);
        }
    }

    /// Rule 8: a sender whose pipe grows as the window of Reno or CUBIC does in congestion avoidance, to the segment, runs that, even if
    /// its segments are paced. BBR's pipe is constant, or grows by a quarter.
    pub(super) fn weigh_growth(&mut self, ended: Signs) {
        if self.state != State::Open || ended.full_sized < FILLING_LEAST || ended.receiver_full || ended.ran_dry {
            return;
        }
        let pipe = ended.pipe_max_segments;
        let (reno, cubic) = (self.reno.follows(pipe), self.cubic.follows(pipe));
        if reno || cubic {
            self.lean_to_bbr(-GROWTH_WEIGHT);
        }
    }

    /// Whether the last round trips followed a window of Reno or CUBIC.
    pub(super) fn follows_growth(&self) -> bool {
        self.reno.fits() || self.cubic.fits()
    }

    /// Rule 9: in the first round trip of a recovery Reno and CUBIC send half or two thirds of what is delivered
    /// ([`super::cwnd::Reduction`]) while the pipe is above `ssthresh`; BBR in STARTUP sends all of it
    /// (`bbr_set_cwnd_to_recover_or_restore`).
    pub(super) fn weigh_reduction(&mut self, at: Timestamp, pipe_bytes: u64) {
        let before = u32::from(self.pipe_at_loss);
        let Some((sent, delivered)) = self.reduction.counted().filter(|(_, delivered)| *delivered >= before) else {
            return;
        };
        let bbr_starts = self.bbr.as_ref().is_none_or(|bbr| bbr.starting());
        if !self.after_loss.as_mut().is_some_and(|after_loss| after_loss.judges())
            || before < REDUCTION_LEAST
            || self.by_ecn
            || !bbr_starts
            || (self.rounds.dry && self.held.limiter(at, self.round()) != Limiter::Window)
            || self.rounds.current.receiver_full
            || !self.clock.is_near(self.rto.srtt())
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

    /// Rule 7: in recovery a sender fills its reduced window at once, and nothing waits for a burst (`tcp_tso_should_defer`): its pipe
    /// never exceeds that window, and stops at it.
    pub(super) fn weigh_sent_in_recovery(&mut self, pipe: u32) {
        let beyond = |window: u32| f64::from(pipe.saturating_sub(window)) / f64::from(window.max(1));
        let (reno, cubic) = (self.reno.cwnd.whole(), self.cubic.cwnd.whole());
        self.reached = if pipe <= reno.min(cubic) { u16::try_from(pipe).unwrap_or(0) } else { 0 };
        if pipe > reno.min(cubic) {
            self.compare(beyond(reno) * REDUCTION_WEIGHT, beyond(cubic) * REDUCTION_WEIGHT);
            self.reno.cwnd.set(pipe.max(reno));
            self.cubic.cwnd.set(pipe.max(cubic));
        }
    }

    pub(super) fn weigh_stop_in_recovery(&mut self) {
        let reached = u32::from(std::mem::take(&mut self.reached));
        let (reno, cubic) = (self.reno.cwnd.whole(), self.cubic.cwnd.whole());
        if reached > 0 && reached == reno.min(cubic) && !self.by_ecn {
            let short = |window: u32| f64::from(window - reached) / f64::from(window);
            self.compare(short(reno) * REDUCTION_WEIGHT, short(cubic) * REDUCTION_WEIGHT);
        }
    }

    /// Weighs the errors of the Reno and CUBIC replicas. Small windows of the two hardly differ, so a segment more or less is little
    /// evidence.
    pub(super) fn compare(&mut self, reno: f64, cubic: f64) {
        // Equal errors, mostly none, are no evidence.
        if self.known && reno.to_bits() != cubic.to_bits() {
            let window = f64::from(self.reno.cwnd.whole().max(self.cubic.cwnd.whole()));
            let weight = ((window - ALIKE_UP_TO) / (DISTINCT_FROM - ALIKE_UP_TO)).clamp(0.0, 1.0);
            self.leaning.compare(reno * weight, cubic * weight);
        }
    }

    pub(super) fn lean_to_bbr(&mut self, by: f64) {
        if self.known {
            self.leaning.lean_to_bbr(by);
        }
    }
}
