//! The sender's retransmission timeout, as Linux computes it (`tcp_rtt_estimator`): idle longer than that, it restarts
//! with a smaller window.
//!
//! Differs from RFC 6298 in what is added to the smoothed round-trip time: the largest variation of a round trip, at
//! least 200 ms, which decays by a quarter of its excess per round trip.

use spand_proto::units::Micros;

use crate::flow::maybe::MaybeMicros;

/// Least variation term (`TCP_RTO_MIN`), and the timeout before any sample (RFC 6298 section 2.1).
const VARIATION_LEAST_US: u32 = 200_000;
pub(super) const INITIAL: Micros = Micros(1_000_000);

/// Smoothed time and variation; the variations are four times the mean deviation.
#[derive(Clone, Debug, Default)]
pub(super) struct Rto {
    srtt: MaybeMicros,
    deviation_us: u32,
    round_max_us: u32,
    variation_us: u32,
    /// Position in the stream whose acknowledgement ends the round.
    round_end: u64,
}

impl Rto {
    /// One round-trip time, measured by an acknowledgement up to `una` when `nxt` was sent.
    pub(super) fn add(&mut self, rtt: Micros, una: u64, nxt: u64) {
        let rtt_us = u32::try_from(rtt.0).unwrap_or(u32::MAX);
        let Some(srtt) = self.srtt.get() else {
            self.srtt = MaybeMicros::some(rtt);
            self.deviation_us = rtt_us.saturating_mul(2);
            self.variation_us = self.deviation_us.max(VARIATION_LEAST_US);
            self.round_max_us = self.variation_us;
            self.round_end = nxt;
            return;
        };
        let error = u32::try_from(rtt.0.abs_diff(srtt.0)).unwrap_or(u32::MAX);
        // A falling time widens the variation eight times more slowly than a rising one.
        let widen = error.saturating_sub(self.deviation_us / 4);
        let widen = if rtt < srtt { widen / 8 } else { widen };
        let narrow = (self.deviation_us / 4).saturating_sub(error);
        self.deviation_us = self.deviation_us.saturating_add(widen).saturating_sub(narrow);
        self.srtt = MaybeMicros::some(Micros((srtt.0 * 7 + u64::from(rtt_us)) / 8));
        self.round_max_us = self.round_max_us.max(self.deviation_us);
        self.variation_us = self.variation_us.max(self.round_max_us);
        if una > self.round_end {
            self.variation_us -= self.variation_us.saturating_sub(self.round_max_us) / 4;
            self.round_end = nxt;
            self.round_max_us = VARIATION_LEAST_US;
        }
    }

    /// Smoothed round-trip time.
    pub(super) fn srtt(&self) -> Option<Micros> {
        self.srtt.get()
    }

    /// The timeout.
    pub(super) fn get(&self) -> Micros {
        self.srtt().map_or(INITIAL, |srtt| Micros(srtt.0 + u64::from(self.variation_us)))
    }
}
