//! Pacing: evenly spaced segments, independent of acknowledgements, as by Linux's BBR and its internal pacing
//! (`tcp_update_skb_after_send`). Answers have the spacing of acknowledgements; other evenly spaced segments are paced.

use spand_proto::units::{Micros, Timestamp};

use super::ack_clock::JITTER;
use crate::flow::sequence::low_half;

/// Gaps in a row of one length (with this tolerance) that are the sender's pacing.
const PACED_RUN: u8 = 2;
const PACED_PART: u32 = 8;
/// Bursts in between that may answer acknowledgements.
const PACED_ANSWERS: u8 = 2;
/// In slow start Linux paces Reno and CUBIC at twice the window per round trip (`tcp_update_pacing_rate`). BBR paces at 2.9 times the
/// delivery per round trip, which is at most half of what is in flight. A sender is of the first kind after this many gaps that
/// match the expected one with this tolerance.
const BY_WINDOW_GAIN: u64 = 2;
const BY_WINDOW_RUN: u8 = 5;
const BY_WINDOW_PART: u32 = 16;

/// Start times of bursts, low half in microseconds, and their spacing.
#[derive(Clone, Copy, Debug, Default)]
struct Bursts {
    last_us: u32,
    /// The last gap that no acknowledgement explains; 0 before the first.
    spacing_us: u32,
}

impl Bursts {
    fn gap_us(self, now_us: u32) -> u32 {
        now_us.wrapping_sub(self.last_us)
    }

    fn as_far(self, gap_us: u32) -> bool {
        gap_us.abs_diff(self.spacing_us) <= self.spacing_us / PACED_PART
    }
}

/// Tracks the spacing of a sender's segments.
#[derive(Clone, Debug, Default)]
pub(super) struct Pacing {
    /// Bursts without an acknowledgement in between.
    bursts: Bursts,
    /// Equal gaps in a row.
    evenly: u8,
    /// Bursts since then that answered an acknowledgement.
    answers: u8,
    /// Gaps as long as the pacing of Reno or CUBIC makes them, less others; it stays at [`BY_WINDOW_RUN`].
    by_window: u8,
    /// Microseconds of the current burst at that pace; 0 if unknown, or out of range.
    due_us: u16,
    /// The last segment was full-sized or retransmitted: the application may have had more data.
    had_more: bool,
}

impl Pacing {
    /// A packet leaves; returns whether the application may have had more data after the one before.
    pub(super) fn note_more(&mut self, full_sized_or_repeated: bool) -> bool {
        std::mem::replace(&mut self.had_more, full_sized_or_repeated)
    }

    /// Whether a full-sized segment shows pacing: equal gaps in a row without an acknowledgement in between. `had_more`: the segment
    /// before was full-sized. `reaction`: time from an acknowledgement at the tap to its answer there. `since_ack`: time since one passed
    /// the tap, of new data or not.
    pub(super) fn paces(
        &mut self,
        at: Timestamp,
        had_more: bool,
        reaction: Option<Micros>,
        since_ack: Option<Micros>,
        srtt: Option<Micros>,
    ) -> bool {
        let (Some(reaction), Some(since_ack), Some(srtt)) = (reaction, since_ack, srtt) else { return false };
        let now_us = low_half(at.0 / 1_000);
        let gap_us = self.bursts.gap_us(now_us);
        let gap = u64::from(gap_us);
        // Within twice the jitter of its answers it is one burst.
        if gap < (reaction.0 / 8 + JITTER.0) * 2 {
            return false;
        }
        self.bursts.last_us = now_us;
        let due_us = std::mem::take(&mut self.due_us);
        if had_more && due_us > 0 && since_ack.0 > reaction.0 + JITTER.0 {
            self.count_gap(gap_us, due_us.into());
        }
        if !had_more {
            // The application may have been the limit.
            return false;
        }
        // A gap longer than a round trip ends in a tail loss probe (RFC 8985 section 7).
        if gap > srtt.0 || since_ack.0 + JITTER.0 < gap + reaction.0 {
            self.answers = self.answers.saturating_add(1);
            return false;
        }
        // Captures miss an acknowledgement now and then.
        if std::mem::take(&mut self.answers) > PACED_ANSWERS {
            self.evenly = 0;
        }
        self.evenly = if self.bursts.as_far(gap_us) { self.evenly.saturating_add(1) } else { 0 };
        self.bursts.spacing_us = gap_us;
        self.evenly >= PACED_RUN
    }

    /// New `segments` are sent in slow start with this `window`.
    pub(super) fn spread(&mut self, window: u32, srtt: Option<Micros>, segments: u32) {
        let us = srtt.map_or(0, |srtt| srtt.0 * u64::from(segments) / BY_WINDOW_GAIN / u64::from(window.max(1)));
        self.due_us = if us == 0 { 0 } else { u16::try_from(us + u64::from(self.due_us)).unwrap_or(0) };
    }

    /// Something else spaces the segments.
    pub(super) fn break_run(&mut self) {
        (self.evenly, self.due_us) = (0, 0);
    }

    /// Something is sent outside of slow start.
    pub(super) fn forget_spread(&mut self) {
        self.due_us = 0;
    }

    fn count_gap(&mut self, gap_us: u32, due_us: u32) {
        if self.is_by_window() {
            return;
        }
        let as_due = gap_us.abs_diff(due_us) <= due_us / BY_WINDOW_PART;
        self.by_window = if as_due { self.by_window + 1 } else { self.by_window.saturating_sub(1) };
    }

    /// Whether the kernel paces this sender's window, so that pacing is not evidence for BBR.
    pub(super) fn is_by_window(&self) -> bool {
        self.by_window >= BY_WINDOW_RUN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRTT: Option<Micros> = Some(Micros(100_000));

    /// Bursts with these gaps; an acknowledgement, of new data or not, right before each that has one.
    fn paced(reaction_us: u64, bursts: &[(u64, bool)]) -> bool {
        let mut pacing = Pacing::default();
        let reaction = Some(Micros(reaction_us));
        let (mut at_us, mut ack_us, mut paced) = (100_000, 0, false);
        for (gap_us, answers) in bursts {
            at_us += gap_us;
            if *answers {
                ack_us = at_us - reaction_us;
            }
            for n in 0..2 {
                paced |=
                    pacing.paces(Timestamp::from_micros(at_us + n), true, reaction, Some(Micros(at_us - ack_us)), SRTT);
            }
        }
        paced
    }

    #[test]
    fn a_sender_with_even_gaps_paces() {
        let evenly = [(2_000, false); 6];
        assert!(paced(50, &evenly));
        assert!(!paced(10_000, &evenly), "at a distance an answer varies by more");
        assert!(paced(10_000, &[(6_000, false); 6]));
        assert!(!paced(50, &[2_000, 3_000, 2_000, 1_000, 4_000, 2_500].map(|gap| (gap, false))), "an application");
        assert!(!paced(50, &[(2_000, true); 6]), "each answers an acknowledgement");
        assert!(!paced(50, &[(150_000, false); 6]), "probes of the tail");
        assert!(paced(50, &[(3_000, true), (2_000, false)].repeat(6)), "every second one");
        let lost = [vec![(2_000, true); 20], vec![(2_000, false)]].concat().repeat(6);
        assert!(!paced(50, &lost), "the capture misses an acknowledgement now and then");
    }

    #[test]
    fn a_window_spread_over_the_round_trip_as_the_kernel_does_it_is_not_a_pace_of_its_own() {
        // A flight of bursts of two, `gain_percent` of 20 segments per round trip; acknowledgements come 1.3 ms apart.
        let by_window = |gain_percent: u64, grows: bool| {
            let mut pacing = Pacing::default();
            let mut at_us = 1_000_000;
            for n in 0..12_u64 {
                at_us += 100_000 * 2 * 100 / (20 * gain_percent);
                let since_ack = Some(Micros(300 + at_us % 1_300));
                pacing.paces(Timestamp::from_micros(at_us), true, Some(Micros(50)), since_ack, SRTT);
                let window = if grows { 12 + u32::try_from(n).unwrap() } else { 20 };
                for _ in 0..2 {
                    pacing.spread(window, SRTT, 1);
                }
            }
            pacing.is_by_window()
        };
        assert!(by_window(200, false));
        assert!(!by_window(144, false), "BBR's first rate, its first flight acknowledged");
        assert!(!by_window(200, true), "as fast by chance, while the window grew");
        assert!(!by_window(120, false), "congestion avoidance, or anything");
    }
}
