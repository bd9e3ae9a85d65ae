//! The rules on what releases segments: acknowledgements, as with Reno and CUBIC, or BBR's pacing.

use spand_proto::units::Timestamp;

use super::bbr::Bbr;
use super::observation::Sent;
use super::rounds::Signs;
use super::{Shadow, State};

/// Full-sized segments in a round trip from which on its clocking is evidence.
const CLOCKING_LEAST: u16 = 8;
/// Evidence of a round trip that is or is not ACK-clocked; and of one in which the application ran out of data after
/// [`CLOCKING_LEAST`] segments.
const CLOCKING_WEIGHT: f64 = 0.25;
const CLOCKING_THEN_DRY_WEIGHT: f64 = 0.125;
/// Evidence of a round trip with fewer full-sized segments, if all or none of them were ACK-clocked.
const FEW_CLOCKED_WEIGHT: f64 = 0.05;
const FEW_UNCLOCKED_WEIGHT: f64 = 0.1;
/// Lean towards BBR before a loss from which on unclocked segments add nothing.
const UNCLOCKED_MOST: f64 = 1.2;
/// Lean away from BBR before a loss, at most: it is not clear then.
const UNTRIED_MOST: f64 = 0.1;
/// BBR's smallest window (`bbr_cwnd_min_target`): with it BBR is ACK-clocked, too.
const BBR_LEAST: u32 = 4;
/// Segments that one acknowledgement covers at most: above this, fewer acknowledgements than segments are in flight.
const LET_GO_TOGETHER: u32 = 2;
/// Evidence of evenly spaced segments in a round trip for BBR, and its limit.
const PACED_WEIGHT: f64 = 0.2;
const PACED_MOST: f64 = 0.6;
/// Evidence against BBR: the kernel paces the window, as it does for Reno and CUBIC.
const BY_WINDOW_WEIGHT: f64 = 1.0;
/// Lead of its rivals at which BBR is dropped until they are contradicted again.
const BBR_DROPPED: f64 = 2.0;

impl Shadow {
    /// Rule 3: Reno and CUBIC are ACK-clocked, BBR paces. An application that writes at a steady rate does neither.
    pub(super) fn weigh_clocking(&mut self, at: Timestamp, ended: Signs) {
        let judged = self.clock.take_distinct() && ended.full_sized > 0 && !ended.receiver_full;
        if !(self.state == State::Open || self.in_cwr())
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
            if self.leaning.bbr() <= -BBR_DROPPED {
                self.bbr = None;
            }
        } else if share < 0.4 && self.rounds.still() {
            self.lean_to_bbr(-CLOCKING_WEIGHT);
        } else if share < 0.4 && self.rounds.searching() {
            if self.pacing.is_by_window() {
                return;
            }
            // A pacing scheduler looks the same: losses distinguish it.
            if self.tooth.is_some() || self.leaning.bbr() < UNCLOCKED_MOST {
                self.lean_to_bbr(CLOCKING_WEIGHT);
            }
            self.follow_as_bbr(at);
        }
    }

    /// A reduction after an ECN echo: nothing is retransmitted, so all data is new and ACK-clocked or paced as before.
    pub(super) fn in_cwr(&self) -> bool {
        self.by_ecn && matches!(self.state, State::Recovery(_))
    }

    /// ACK-clocked: evidence against BBR, but before a loss little, since BBR in STARTUP fills its window, too.
    fn lean_from_bbr(&mut self, by: f64) {
        let most = if self.tooth.is_some() { by } else { (self.leaning.bbr() + UNTRIED_MOST).clamp(0.0, by) };
        self.lean_to_bbr(-most);
    }

    /// Rule 3 for a small window: with ACK clocking every acknowledgement finds it full, and BBR's is at least four segments; a sender
    /// with data that answers no acknowledgement paces.
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

    /// A full-sized packet, new or retransmitted: BBR paces during loss repair, too.
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

    /// Rule 6: BBR spaces its segments evenly, independent of acknowledgements. So does CUBIC behind a pacing scheduler: this alone names
    /// BBR, but not for long against the evidence of losses.
    fn weigh_pacing(&mut self, at: Timestamp) {
        if self.follows_growth() {
            return;
        }
        if self.leaning.bbr() < PACED_MOST {
            self.lean_to_bbr(PACED_WEIGHT);
        }
        self.follow_as_bbr(at);
    }

    /// Starts a BBR replica beside the others.
    pub(super) fn follow_as_bbr(&mut self, at: Timestamp) {
        if self.bbr.is_none() {
            let window = self.best_segments();
            self.bbr = Some(Box::new(Bbr::new(at, self.delivered_bytes, window, self.least_rtt())));
        }
    }
}
