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
        let judged = ended.full_sized >= CLOCKING_LEAST && !ended.ran_dry && !ended.receiver_full;
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

    pub(super) fn contradict(&mut self, reno: f64, cubic: f64, bbr: f64) {
        if self.known {
            self.contradictions.add(reno, cubic, bbr);
        }
    }
}
