//! The rules by which packets speak for or against a replica.

use spand_proto::units::{Micros, Timestamp};

use super::bbr::Bbr;
use super::evidence::Steady;
use super::limiter::Signs;
use super::observation::Sent;
use super::replica::Law;
use super::{Shadow, State};

/// With less room than this in the peer's window, in segments, a sender waits: it sends bursts of two at least.
const RECEIVER_ROOM: u64 = 2;
/// Full-sized segments in a round trip from which on its clocking says something.
const CLOCKING_LEAST: u16 = 8;
/// Contradiction of a round trip clocked, or not clocked, by acknowledgements.
const CLOCKING_WEIGHT: f64 = 0.25;
/// Full-sized segments in a round trip from which on the largest pipe of it says something.
const FILLING_LEAST: u16 = 3;
/// Part by which, and segments by how many, a full window may look smaller than it is: what it grew by since, and what waits
/// to go out in one burst.
const FILLING_SLACK: f64 = 0.1;
const BURST_HELD_BACK: f64 = 2.0;
/// A sender with a pipe of at least so many segments at a loss, and of at most this part of them in a round trip after it,
/// which is what Reno or CUBIC would make of it, backed off: BBR does not.
const BACK_OFF_LEAST: f64 = 8.0;
const BACK_OFF_PART: f64 = 0.85;
const BACK_OFF_WEIGHT: f64 = 0.2;
/// Contradiction of a round trip whose pipe is off by as much as it is large.
const FILLING_WEIGHT: f64 = 0.5;
/// Lead at which BBR is given up until its rivals are contradicted again.
const BBR_GIVEN_UP: f64 = 2.0;

impl Shadow {
    pub(super) fn note_signs(&mut self, at: Timestamp, sent: &Sent, pipe: u32, idle: bool) {
        let needed = sent.flight.saturating_add(RECEIVER_ROOM * u64::from(self.mss));
        let receiver_full = sent.peer_window.is_some_and(|window| window < needed);
        let open = self.state == State::Open;
        if idle {
            self.first_flight = true;
        }
        if sent.full_sized && !self.first_flight {
            self.clock.learn_reaction(at, self.rto.srtt());
        }
        let clocked = open && self.clock.on_sent(at, sent.full_sized, pipe);
        let judged = open && sent.full_sized && !self.first_flight;
        if receiver_full || !open {
            self.clock.break_run();
        }
        let signs = &mut self.rounds.current;
        signs.receiver_full |= receiver_full;
        signs.ran_dry |= !sent.full_sized || (idle && !clocked && self.last_sent.is_none());
        signs.full_sized = signs.full_sized.saturating_add(u16::from(judged));
        signs.clocked = signs.clocked.saturating_add(u16::from(judged && clocked));
        signs.pipe_max_segments = signs.pipe_max_segments.max(pipe);
    }

    /// Rule 1: a pipe above a window raises it.
    pub(super) fn weigh_pipe(&mut self, sent: &Sent, pipe: u32) {
        // A tail loss probe may carry one new segment beyond the window (RFC 8985 section 7.3).
        let late = match (sent.since_ack, self.rto.srtt()) {
            (Some(since), Some(srtt)) => since.0 > srtt.0.saturating_mul(2),
            _ => false,
        };
        let probe = late && f64::from(pipe) < self.best_segments() + 2.0;
        if !probe {
            let (reno, cubic) = (self.reno.raise(pipe), self.cubic.raise(pipe));
            let bbr = self.bbr.as_mut().map_or(reno.min(cubic), |bbr| bbr.raise(pipe));
            self.contradict(reno, cubic, bbr);
        }
    }

    /// Rule 2: a pipe that stays below a window although every acknowledgement is answered at once lowers it.
    pub(super) fn weigh_steady_pipe(&mut self, steady: &Steady) {
        let srtt = self.rto.srtt();
        let (pipe, ahead) = (steady.pipe_segments, self.packets(steady.behind_bytes));
        let (reno, cubic) = (self.reno.lower(pipe, ahead, srtt), self.cubic.lower(pipe, ahead, srtt));
        self.cubic.law.stayed_within();
        self.known = true;
        self.contradict(reno, cubic, reno.min(cubic));
    }

    /// Rule 3: Reno and CUBIC send on acknowledgements, BBR on its own pace. An application that writes at a steady rate
    /// does neither.
    pub(super) fn weigh_clocking(&mut self, at: Timestamp, ended: Signs) {
        let telling = self.clock.take_telling();
        let judged = telling && ended.full_sized >= CLOCKING_LEAST && !ended.ran_dry && !ended.receiver_full;
        if self.state != State::Open || !judged || self.bbr.as_ref().is_some_and(|bbr| bbr.probing()) {
            return;
        }
        let share = f64::from(ended.clocked) / f64::from(ended.full_sized);
        if share > 0.7 {
            self.contradict(0.0, 0.0, CLOCKING_WEIGHT);
            if self.contradictions.bbr >= BBR_GIVEN_UP {
                self.bbr = None;
            }
        } else if share < 0.4 && self.rounds.still() {
            self.contradict(0.0, 0.0, CLOCKING_WEIGHT);
        } else if share < 0.4 && self.rounds.searching() {
            self.contradict(CLOCKING_WEIGHT, CLOCKING_WEIGHT, 0.0);
            if self.bbr.is_none() {
                let window = self.best_segments();
                let reaction = self.clock.reaction().0;
                let min_rtt = self.min_rtt.map(|(rtt, since)| (Micros(rtt.0.saturating_add(reaction)), since));
                self.bbr = Some(Box::new(Bbr::new(at, self.delivered_bytes, window, min_rtt)));
            }
        }
    }

    /// Rule 4: a sender that its window holds back fills it. BBR has at least its share of the path in the network, and at
    /// most its window.
    pub(super) fn weigh_filling(&mut self, ended: Signs) {
        let judged = ended.full_sized >= FILLING_LEAST && !ended.ran_dry && !ended.receiver_full;
        if self.state != State::Open || !judged {
            return;
        }
        let pipe = f64::from(ended.pipe_max_segments);
        let outside = |least: f64, most: f64| {
            let (least, most) = (least * (1.0 - FILLING_SLACK) - BURST_HELD_BACK, most * (1.0 + FILLING_SLACK));
            FILLING_WEIGHT * (least - pipe).max(pipe - most).max(0.0) / pipe.max(1.0)
        };
        let (reno, cubic) = (self.reno.cwnd.segments(), self.cubic.cwnd.segments());
        let (reno, cubic) = (outside(reno, reno), outside(cubic, cubic));
        let bbr = match &self.bbr {
            Some(bbr) if !bbr.starting() && !bbr.probing() => outside(self.share_segments(), bbr.segments()),
            _ => 0.0,
        };
        // A pipe that fills neither window speaks for an application at a steady rate no less than for BBR.
        let both = reno.min(cubic);
        let at_loss = f64::from(std::mem::take(&mut self.pipe_at_loss));
        let backed_off = at_loss >= BACK_OFF_LEAST && pipe <= at_loss * BACK_OFF_PART && both <= 0.0;
        let bbr = (bbr - both).max(0.0) + if backed_off { BACK_OFF_WEIGHT } else { 0.0 };
        self.contradict(reno - both, cubic - both, bbr);
    }

    pub(super) fn contradict(&mut self, reno: f64, cubic: f64, bbr: f64) {
        if self.known {
            self.contradictions.add(reno, cubic, bbr);
        }
    }
}
