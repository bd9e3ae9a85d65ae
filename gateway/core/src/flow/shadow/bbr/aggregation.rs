//! Acknowledgements that come in clumps: BBR adds the largest recent excess to its window (`bbr_update_ack_aggregation`).

use spand_proto::units::Timestamp;

/// Round trips that one of the two slots of the largest excess covers.
const SLOT_ROUNDS: u8 = 5;
/// The excess counts for at most this long at the delivery rate.
const EXCESS_MOST_SECONDS: f64 = 0.1;

/// Acknowledged beyond what the rate explains.
#[derive(Clone, Debug)]
pub(super) struct Aggregation {
    since: Timestamp,
    acked_segments: f64,
    excess_segments: [f64; 2],
    rounds: u8,
}

impl Aggregation {
    pub(super) fn new(at: Timestamp) -> Self {
        Self { since: at, acked_segments: 0.0, excess_segments: [0.0; 2], rounds: 0 }
    }

    pub(super) fn on_round(&mut self) {
        self.rounds += 1;
        if self.rounds >= SLOT_ROUNDS {
            self.rounds = 0;
            self.excess_segments = [0.0, self.excess_segments[0]];
        }
    }

    /// `rate` in segments per second.
    pub(super) fn on_ack(&mut self, at: Timestamp, newly_segments: f64, rate: f64, window_segments: f64) {
        if newly_segments <= 0.0 {
            return;
        }
        let mut expected = (rate * at.since(self.since).as_secs_f64()).floor();
        if self.acked_segments <= expected {
            self.acked_segments = 0.0;
            self.since = at;
            expected = 0.0;
        }
        self.acked_segments += newly_segments;
        let excess = (self.acked_segments - expected).min(window_segments);
        self.excess_segments[0] = self.excess_segments[0].max(excess);
    }

    /// What the window grows by at `rate` segments per second.
    pub(super) fn extra_segments(&self, rate: f64) -> f64 {
        self.excess_segments[0].max(self.excess_segments[1]).min((rate * EXCESS_MOST_SECONDS).floor()).floor()
    }
}
