//! Senders beyond those that have a place: summed, not distinguished.

use spand_proto::units::{Micros, Timestamp};

use crate::types::Phase;
use crate::types::SenderState;

const SECOND_NANOS: u64 = 1_000_000_000;

/// Each reports once a round trip, so a report stands for one round trip of one sender: all those of a second together are how many
/// there were on average. So nothing is kept of any of them, and those that leave need not say so.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rest {
    /// The second under way.
    second: u64,
    now: Sums,
    /// Of the second before.
    before: Sums,
}

/// How many senders there are, and their windows in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sums {
    /// In slow start.
    pub(super) slow_starting: f64,
    /// Their windows.
    pub(super) slow_starting_bytes: f64,
    /// In congestion avoidance or recovery.
    pub(super) in_avoidance: f64,
    /// Their windows.
    pub(super) in_avoidance_bytes: f64,
}

impl Rest {
    /// Takes a report.
    pub(super) fn add(&mut self, at: Timestamp, state: &SenderState) {
        let second = at.0 / SECOND_NANOS;
        if second > self.second {
            self.before = if second == self.second + 1 { self.now } else { Sums::default() };
            (self.now, self.second) = (Sums::default(), second);
        }
        // Never longer than the time over which it is averaged.
        let part = state.rtt.min(Micros::from_secs(1)).as_secs_f64();
        let bytes = part * state.window.bytes();
        if state.phase == Phase::SlowStart {
            self.now.slow_starting += part;
            self.now.slow_starting_bytes += bytes;
        } else {
            self.now.in_avoidance += part;
            self.now.in_avoidance_bytes += bytes;
        }
    }

    /// Of the last whole second.
    pub(super) fn sums(&self, now: Timestamp) -> Sums {
        match (now.0 / SECOND_NANOS).saturating_sub(self.second) {
            0 => self.before,
            1 => self.now,
            _ => Sums::default(),
        }
    }
}
