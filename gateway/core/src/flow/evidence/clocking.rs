//! The rules on what releases segments: acknowledgements, as with Reno and CUBIC, or BBR's pacing.

use spand_proto::start::DEFAULT_INITIAL_WINDOW as INITIAL_WINDOW;
use spand_proto::units::{Bytes, Micros, Timestamp};

use super::Evidence;
use super::bbr::Bbr;
use super::rounds::Signs;
use crate::flow::observation::{CaState, Sent};

/// Full-sized segments in a round trip from which on its clocking is evidence.
const CLOCKING_LEAST: u16 = 8;
/// Evidence of a round trip that is or is not ACK-clocked; and of one in which the application ran out of data after
/// [`CLOCKING_LEAST`] segments.
const CLOCKING_WEIGHT: f64 = 0.25;
const CLOCKING_THEN_DRY_WEIGHT: f64 = 0.125;
/// Lean towards BBR before a loss from which on unclocked segments add nothing.
const UNCLOCKED_MOST: f64 = 1.2;
/// Lean away from BBR before a loss, at most: it is not clear then.
const UNTRIED_MOST: f64 = 0.1;
/// Evidence of evenly spaced segments in a round trip for BBR, and its limit.
const PACED_WEIGHT: f64 = 0.2;
const PACED_MOST: f64 = 0.6;
/// Evidence against BBR: the kernel paces the window, as it does for Reno and CUBIC.
const BY_WINDOW_WEIGHT: f64 = 1.0;
/// After this many segments that passed the tap after one sent behind them, their order does not show what released a segment.
const LATE_MOST: u8 = 4;
/// A pace's bursts take at most this part of a round trip (twice that of `tcp_tso_autosize`), or have this many segments; over shorter
/// round trips they are larger (`tcp_tso_rtt_log`).
const BURST_MOST: Micros = Micros(2_000);
const BURST_LEAST: u64 = 4;
const BURSTS_SHOWN: Micros = Micros(8_000);

impl Evidence {
    /// Whether the tap shows the packets in another order than the sender sent and received them.
    fn is_disordered(&self) -> bool {
        self.late >= LATE_MOST
    }

    /// Reno and CUBIC are ACK-clocked, BBR paces. An application that writes at a steady rate does neither.
    pub(super) fn weigh_clocking(&mut self, at: Timestamp, ended: Signs) {
        let judged = self.clock.is_distinct()
            && !self.is_disordered()
            && ended.full_sized >= CLOCKING_LEAST
            && !ended.receiver_full
            && !ended.waited
            && (self.ca.is_open() || self.ca == CaState::Cwr);
        if !judged {
            return;
        }
        let share = f64::from(ended.clocked) / f64::from(ended.full_sized);
        if ended.ran_dry {
            if ended.clocked == ended.full_sized {
                self.lean_from_bbr(CLOCKING_THEN_DRY_WEIGHT);
            }
        } else if share > 0.7 {
            self.lean_from_bbr(CLOCKING_WEIGHT);
        } else if share < 0.4 {
            if self.pacing.is_by_window() {
                return;
            }
            // A pacing scheduler looks the same: losses distinguish it.
            let least = if self.reduced { f64::INFINITY } else { UNCLOCKED_MOST };
            self.lean_by_pace(at, CLOCKING_WEIGHT, least);
        }
    }

    /// ACK-clocked: evidence against BBR, but before a loss little, since BBR in STARTUP fills its window, too.
    fn lean_from_bbr(&mut self, by: f64) {
        let most = if self.reduced { by } else { (self.leaning.bbr() + UNTRIED_MOST).clamp(0.0, by) };
        self.lean_to_bbr(-most);
    }

    /// A full-sized packet, new or retransmitted: BBR paces during loss repair, too.
    pub(super) fn note_pace(&mut self, at: Timestamp, sent: &Sent) {
        let had_more = self.pacing.note_more(sent.full_sized || sent.new_bytes == 0);
        if !sent.full_sized || self.ca.is_loss() {
            return;
        }
        if self.clock.is_behind_queue() || self.is_disordered() {
            self.pacing.break_run();
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
        if self.first_flight || !self.ca.is_open() || !self.growth.is_slow_start() {
            self.pacing.forget_spread();
        } else {
            let segments = self.packets(u64::from(sent.new_bytes));
            self.pacing.spread(self.window_in_slow_start(), self.rtt.smoothed(), segments);
        }
        if paces && !std::mem::replace(&mut self.rounds.paced, true) {
            self.weigh_pacing(at);
        }
    }

    /// The window of a sender in its first slow start: it grows by what is acknowledged (RFC 5681 section 3.1).
    fn window_in_slow_start(&self) -> u32 {
        let acked = Bytes(self.delivered_bytes).segments_ceil(Bytes(u64::from(self.mss)));
        INITIAL_WINDOW.0.saturating_add(acked.0)
    }

    fn is_paced(&mut self, at: Timestamp, sent: &Sent, had_more: bool) -> bool {
        let (reaction, srtt) = (self.clock.reaction_known(), self.rtt.smoothed());
        !self.first_flight && self.pacing.paces(at, had_more && self.waits.moved(), reaction, sent.since_ack, srtt)
    }

    /// BBR spaces its segments evenly, independent of acknowledgements. So does CUBIC behind a pacing scheduler: this alone names
    /// BBR, but not for long against the evidence of losses.
    fn weigh_pacing(&mut self, at: Timestamp) {
        if self.growth.is_stepped() {
            return;
        }
        self.lean_by_pace(at, PACED_WEIGHT, PACED_MOST);
    }

    /// Evidence for BBR by what spaces the segments, up to `most`. An application, or a limit that it set, spaces them, too, and leaves
    /// the path room; BBR fills the path. So the evidence waits until the path is full, and a limit takes it back.
    #[expect(clippy::cast_possible_truncation, reason = "a few digits are enough")]
    fn lean_by_pace(&mut self, at: Timestamp, by: f64, most: f64) {
        self.follow_as_bbr(at);
        if self.holds_one_pace() || self.leaves_in_chunks() || self.leaning.bbr() >= most {
            return;
        }
        if !self.rounds.fills_path() {
            self.pace_waits = (self.pace_waits + by as f32).min(UNCLOCKED_MOST as f32);
            return;
        }
        self.pace_waits += by as f32;
        self.count_waiting_pace();
    }

    /// The path is full: the evidence that waited for that counts.
    pub(super) fn count_waiting_pace(&mut self) {
        let by = std::mem::take(&mut self.pace_waits);
        if by > 0.0 && !self.leaves_in_chunks() && !self.rounds.recent().waited {
            self.pace_counted += by;
            self.lean_to_bbr(by.into());
        }
    }

    /// Whether segments leave in larger bursts than those of a pace: the application writes so.
    fn leaves_in_chunks(&self) -> bool {
        let signs = self.rounds.recent();
        let Some(srtt) = self.rtt.smoothed().filter(|srtt| *srtt >= BURSTS_SHOWN) else { return false };
        let paced = u64::from(signs.pipe_max_segments) * BURST_MOST.0 / srtt.0;
        u64::from(signs.burst) > paced.max(BURST_LEAST)
    }

    /// Whether it kept one pace for longer than BBR does.
    pub(super) fn holds_one_pace(&self) -> bool {
        self.bbr.as_ref().is_some_and(|bbr| bbr.holds_one_pace())
    }

    /// A round trip ended: whether the path was full, and whether the pace was a limit's.
    pub(super) fn note_answer(&mut self, ended: Signs) {
        let full = self.rounds.note_full(ended, self.rtt.min());
        if full {
            self.count_waiting_pace();
        }
        if let Some(bbr) = &mut self.bbr {
            bbr.note_limit();
            if full {
                bbr.fill_path();
            }
        }
        if self.holds_one_pace() {
            self.pace_waits = 0.0;
            let counted = f64::from(std::mem::take(&mut self.pace_counted)).min(self.leaning.bbr());
            if counted > 0.0 {
                self.leaning.take_back(counted);
            }
        }
    }

    /// Starts to measure its delivery rate as BBR does.
    pub(super) fn follow_as_bbr(&mut self, at: Timestamp) {
        if self.bbr.is_none() {
            self.bbr = Some(Box::new(Bbr::new(at, self.delivered_bytes, self.rtt.min())));
        }
    }
}
