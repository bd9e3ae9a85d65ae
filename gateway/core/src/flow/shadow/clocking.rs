//! The rules on what lets segments go: acknowledgements, as with Reno and CUBIC, or BBR's own pace.

use spand_proto::units::Timestamp;

use super::bbr::Bbr;
use super::observation::Sent;
use super::rounds::Signs;
use super::{Shadow, State};

/// Full-sized segments in a round trip from which on its clocking says something.
const CLOCKING_LEAST: u16 = 8;
/// Contradiction of a round trip clocked, or not clocked, by acknowledgements; and of one in which the application ran out of data
/// after so many.
const CLOCKING_WEIGHT: f64 = 0.25;
const CLOCKING_THEN_DRY_WEIGHT: f64 = 0.125;
/// The same of one with fewer full-sized segments, all or none of them clocked.
const FEW_CLOCKED_WEIGHT: f64 = 0.05;
const FEW_UNCLOCKED_WEIGHT: f64 = 0.1;
/// Lean towards BBR before a loss from which on segments that no acknowledgement released add nothing.
const UNCLOCKED_MOST: f64 = 1.2;
/// Furthest that it leans from BBR before a loss: it is not clear then.
const UNTRIED_MOST: f64 = 0.1;
/// BBR's smallest window (`bbr_cwnd_min_target`): there acknowledgements let its segments go, too.
const BBR_LEAST: u32 = 4;
/// Acknowledgements are for up to two segments: of a larger window so many fewer answer them than are in the network.
const LET_GO_TOGETHER: u32 = 2;
/// A round trip with evenly spaced segments speaks for BBR, up to this.
const PACED_WEIGHT: f64 = 0.2;
const PACED_MOST: f64 = 0.6;
/// Evidence against BBR: the kernel paces the sender's window, as it does for Reno and CUBIC.
const BY_WINDOW_WEIGHT: f64 = 1.0;
/// Lead at which BBR is given up until its rivals are contradicted again.
const BBR_GIVEN_UP: f64 = 2.0;

impl Shadow {
    /// Rule 3: Reno and CUBIC send on acknowledgements, BBR on its own pace. An application that writes at a steady rate
    /// does neither.
    pub(super) fn weigh_clocking(&mut self, at: Timestamp, ended: Signs) {
        let judged = self.clock.take_telling() && ended.full_sized > 0 && !ended.receiver_full;
        if !(self.state == State::Open || self.answers_mark())
            || !judged
            || self.bbr.as_ref().is_some_and(|bbr| bbr.probing())
        {
            return;
        }
        if ended.full_sized < CLOCKING_LEAST {
            self.weigh_few(at, ended);
            return;
        }
        let share = f64::from(ended.clocked) / f64::from(ended.full_sized);
        if ended.ran_dry {
            if ended.clocked == ended.full_sized {
                self.lean_from_bbr(CLOCKING_THEN_DRY_WEIGHT);
            }
        } else if share > 0.7 {
            self.lean_from_bbr(CLOCKING_WEIGHT);
            if self.leaning.bbr() <= -BBR_GIVEN_UP {
                self.bbr = None;
            }
        } else if share < 0.4 && self.rounds.still() {
            self.lean_to_bbr(-CLOCKING_WEIGHT);
        } else if share < 0.4 && self.rounds.searching() {
            if self.pacing.is_by_window() {
                return;
            }
            // So does what a scheduler paces: its losses tell.
            if self.tooth.is_some() || self.leaning.bbr() < UNCLOCKED_MOST {
                self.lean_to_bbr(CLOCKING_WEIGHT);
            }
            self.follow_as_bbr(at);
        }
    }

    /// A mark is answered: nothing is repeated, so what leaves is new and answers acknowledgements, or does not, as ever.
    pub(super) fn answers_mark(&self) -> bool {
        self.by_mark && matches!(self.state, State::Recovery(_))
    }

    /// Acknowledgements let segments go. BBR's too while it fills its window as it starts up, so that before a loss this says little.
    fn lean_from_bbr(&mut self, by: f64) {
        let most = if self.tooth.is_some() { by } else { (self.leaning.bbr() + UNTRIED_MOST).clamp(0.0, by) };
        self.lean_to_bbr(-most);
    }

    /// Rule 3 for a small window: one that acknowledgements fill is full whenever one of them came, and BBR's is not smaller than four
    /// segments; a sender with more to send that lets all of them pass unanswered paces.
    fn weigh_few(&mut self, at: Timestamp, ended: Signs) {
        let pipe = ended.pipe_max_segments;
        let fills = pipe < BBR_LEAST || (pipe > BBR_LEAST && u32::from(ended.full_sized) + LET_GO_TOGETHER >= pipe);
        if ended.ran_dry {
            return;
        }
        if ended.clocked == ended.full_sized && fills {
            self.lean_from_bbr(FEW_CLOCKED_WEIGHT);
        } else if ended.clocked == 0 && !ended.pushed && self.leaning.bbr() < PACED_MOST {
            self.lean_to_bbr(FEW_UNCLOCKED_WEIGHT);
            self.follow_as_bbr(at);
        }
    }

    /// A packet of full size, new or not: while losses are repaired BBR paces as ever.
    pub(super) fn note_pace(&mut self, at: Timestamp, sent: &Sent) {
        let had_more = self.pacing.note_more(sent.full_sized || sent.new_bytes == 0);
        if !sent.full_sized || matches!(self.state, State::Loss { .. }) {
            return;
        }
        if self.pacing.is_by_window() {
            return;
        }
        let paces = self.is_paced(at, sent, had_more);
        if self.pacing.is_by_window() {
            self.lean_to_bbr(-BY_WINDOW_WEIGHT);
            return;
        }
        if self.first_flight || self.state != State::Open || !(self.reno.in_slow_start() || self.cubic.in_slow_start())
        {
            self.pacing.forget_spread();
        } else {
            let segments = self.packets(u64::from(sent.new_bytes));
            self.pacing.spread(self.window_in_slow_start(), self.rto.srtt(), segments);
        }
        if paces && !std::mem::replace(&mut self.rounds.paced, true) {
            self.weigh_pacing(at);
        }
    }

    fn window_in_slow_start(&self) -> u32 {
        if self.reno.in_slow_start() { self.reno.cwnd.whole() } else { self.cubic.cwnd.whole() }
    }

    fn is_paced(&mut self, at: Timestamp, sent: &Sent, had_more: bool) -> bool {
        let (reaction, srtt) = (self.clock.reaction_known(), self.rto.srtt());
        if self.first_flight {
            self.pacing.paces_unanswered(at, sent.more, reaction, sent.since_ack, srtt)
        } else {
            self.pacing.paces(at, had_more, reaction, sent.since_ack, srtt)
        }
    }

    /// Rule 6: BBR spaces its segments evenly, whatever comes back. So does CUBIC behind a scheduler that paces: this alone names BBR, but
    /// not for long against what its losses show.
    fn weigh_pacing(&mut self, at: Timestamp) {
        if self.follows_growth() {
            return;
        }
        if self.leaning.bbr() < PACED_MOST {
            self.lean_to_bbr(PACED_WEIGHT);
        }
        self.follow_as_bbr(at);
    }

    /// From here on a replica of BBR runs beside the others.
    pub(super) fn follow_as_bbr(&mut self, at: Timestamp) {
        if self.bbr.is_none() {
            let window = self.best_segments();
            self.bbr = Some(Box::new(Bbr::new(at, self.delivered_bytes, window, self.least_rtt())));
        }
    }
}
