//! HyStart: CUBIC's way out of slow start before a loss (Ha and Rhee 2011; `hystart_update` in `tcp_cubic.c`).
//!
//! A train of closely spaced acknowledgements longer than half the smallest round-trip time, or a round whose first
//! eight round-trip times all rose by an eighth of it, means that the queue fills.

use spand_proto::units::{Micros, Timestamp};

use super::cwnd::Cwnd;
use super::replica::Progress;
use crate::flow::maybe::MaybeMicros;

/// Below this window it is not active.
const LOW_WINDOW: u32 = 16;
/// Acknowledgements no further apart are of one train.
const TRAIN_GAP: Micros = Micros(2_000);
/// Allowance for the bursts of segmentation offload, capped by the kernel at 1 ms.
const BURST_ALLOWANCE: Micros = Micros(1_000);
/// Round-trip times used in each round.
const SAMPLES: u8 = 8;
/// Answered acknowledgements that confirm the end of slow start.
const ANSWERS: u8 = 8;
/// Least and largest rise of the round-trip time that counts.
const RISE_LEAST: Micros = Micros(4_000);
const RISE_MOST: Micros = Micros(16_000);

/// The current round.
#[derive(Clone, Debug, Default)]
pub(super) struct HyStart {
    round_start: Timestamp,
    last_ack: Timestamp,
    /// Position in the stream at which the round ends.
    round_end: u64,
    round_rtt: MaybeMicros,
    samples: u8,
    found: bool,
    /// Acknowledgements answered within the window since.
    confirmed: u8,
    /// The sender continued slow start past its end: it has no HyStart, or another one.
    refuted: bool,
}

impl HyStart {
    /// Takes a round-trip time; returns whether slow start ends here.
    pub(super) fn observe(&mut self, progress: &Progress, rtt: Micros, delay_min: Micros, cwnd: &Cwnd) -> bool {
        if self.found || self.refuted || !cwnd.in_slow_start() {
            return false;
        }
        let at = progress.at;
        // In every window, so that rounds begin where flights do (Linux from 6.14 on).
        if progress.una > self.round_end {
            *self = Self { round_start: at, last_ack: at, round_end: progress.nxt, ..Self::default() };
        }
        if cwnd.whole() < LOW_WINDOW {
            return false;
        }
        if at.since(self.last_ack) <= TRAIN_GAP {
            self.last_ack = at;
            // Pacing alone makes a train of half a round trip.
            let longest = delay_min.0 + BURST_ALLOWANCE.0;
            self.found = at.since(self.round_start).0 > if progress.spread { longest } else { longest / 2 };
        }
        let round_rtt = self.round_rtt.get().map_or(rtt, |least| least.min(rtt));
        self.round_rtt = MaybeMicros::some(round_rtt);
        if self.samples < SAMPLES {
            self.samples += 1;
        } else {
            let rise = (delay_min.0 / 8).clamp(RISE_LEAST.0, RISE_MOST.0);
            self.found |= round_rtt.0 > delay_min.0.saturating_add(rise);
        }
        self.found
    }

    /// The sender answered an acknowledgement and stayed within the window at the end of slow start.
    pub(super) fn confirm(&mut self) {
        if self.found {
            self.confirmed = self.confirmed.saturating_add(1);
        }
    }

    /// Whether the end of slow start was detected and is not yet confirmed by the sender.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.found && self.confirmed < ANSWERS
    }

    /// The sender continued slow start: returns whether its end had been detected.
    pub(super) fn refute(&mut self) -> bool {
        let claimed = std::mem::take(&mut self.found);
        self.refuted |= claimed;
        claimed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_begin_with_flights_from_the_first_one_on() {
        let delay_min = Micros(100_000);
        let mut hystart = HyStart::default();
        let mut cwnd = Cwnd::new(10);
        // Each flight begins with the smallest round-trip time and ends with its own queue: no sign of a full path.
        for flight in 0_u32..6 {
            let segments = 10_u64 << flight;
            let sent = 10 * ((1_u64 << flight) - 1);
            for n in 0..segments {
                let at = Timestamp::from_micros(u64::from(flight) * 100_000 + n * 100);
                let una = sent + n + 1;
                let progress =
                    Progress { at, delivered_segments: 1.0, una, nxt: una + segments + n, rtt: None, spread: false };
                let rtt = Micros(100_000 + if n >= segments / 4 { 30_000 } else { 0 });
                assert!(!hystart.observe(&progress, rtt, delay_min, &cwnd), "flight {flight}, segment {n}");
                cwnd.slow_start(1.0);
            }
        }
    }

    #[test]
    fn the_train_of_a_paced_sender_may_be_twice_as_long() {
        let found_after = |spread: bool| {
            let (mut hystart, cwnd) = (HyStart::default(), Cwnd::new(20));
            (1..=200_u64).find(|n| {
                let at = Timestamp::from_micros(n * 1_000);
                let progress = Progress { at, delivered_segments: 1.0, una: *n, nxt: 1_000, rtt: None, spread };
                hystart.observe(&progress, Micros(100_000), Micros(100_000), &cwnd)
            })
        };
        let (clocked, paced) = (found_after(false).unwrap(), found_after(true).unwrap());
        assert!((50..=53).contains(&clocked) && (101..=104).contains(&paced), "{clocked}, {paced} ms");
    }
}
