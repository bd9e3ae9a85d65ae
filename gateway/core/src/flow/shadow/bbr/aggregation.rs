//! Acknowledgements that come in clumps: BBR adds the largest recent excess to its window (`bbr_update_ack_aggregation`).

use spand_proto::units::{Micros, Timestamp};

use super::rate;

/// Round trips that one of the two slots of the largest excess covers.
const SLOT_ROUNDS: u8 = 5;
/// The excess counts for at most this long at the delivery rate.
const EXCESS_MOST: Micros = Micros(100_000);

/// Acknowledged beyond what the rate explains.
#[derive(Clone, Debug)]
pub(super) struct Aggregation {
    since: Timestamp,
    acked_segments: u32,
    excess_segments: [u32; 2],
    rounds: u8,
}

impl Aggregation {
    pub(super) fn new(at: Timestamp) -> Self {
        Self { since: at, acked_segments: 0, excess_segments: [0; 2], rounds: 0 }
    }

    /// Sending resumes after an idle time.
    pub(super) fn resume(&mut self, at: Timestamp) {
        self.since = at;
        self.acked_segments = 0;
    }

    pub(super) fn on_round(&mut self) {
        self.rounds += 1;
        if self.rounds >= SLOT_ROUNDS {
            self.rounds = 0;
            self.excess_segments = [0, self.excess_segments[0]];
        }
    }

    pub(super) fn on_ack(&mut self, at: Timestamp, newly_segments: u32, rate: u32, window_segments: u32) {
        let mut expected = rate::packets_in(rate, at.since(self.since));
        if self.acked_segments <= expected {
            self.resume(at);
            expected = 0;
        }
        self.acked_segments = self.acked_segments.saturating_add(newly_segments);
        let excess = (self.acked_segments - expected).min(window_segments);
        self.excess_segments[0] = self.excess_segments[0].max(excess);
    }

    /// What the window grows by at `rate`.
    pub(super) fn extra_segments(&self, rate: u32) -> u32 {
        self.excess_segments[0].max(self.excess_segments[1]).min(rate::packets_in(rate, EXCESS_MOST))
    }
}
