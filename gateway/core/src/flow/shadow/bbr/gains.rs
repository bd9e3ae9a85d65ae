//! BBR's rate, its gains and its pacing rate, and the correction of the rate by the observed pace.

use spand_proto::units::Micros;

use super::delivery::Delivery;
use super::{Bbr, Mode, pace, rate};

/// Gain of window and pacing in STARTUP, 2 / ln 2, and of pacing in DRAIN; in 256ths.
pub(super) const START_GAIN: u64 = 739;
const DRAIN_GAIN: u64 = 88;
/// Window gain in `PROBE_BW` (`bbr_cwnd_gain`).
const GAIN: u64 = 2 * rate::UNIT;
/// Pacing gain of the even phases of `PROBE_BW`; window and pacing gain in `PROBE_RTT`.
pub(super) const EVEN_GAIN: u64 = rate::UNIT;
/// Gains of the cycle in `PROBE_BW` that differ from one (`bbr_pacing_gain`).
const CYCLE_GAINS: [u64; 2] = [rate::UNIT * 5 / 4, rate::UNIT * 3 / 4];
/// Rates that differ by less than this part are the same.
const RATE_PART: u32 = 32;
/// Round trip by timestamps that do not differ (`tcp_rtt_tsopt_us`).
const LEAST_RTT: Micros = Micros(1_000);

impl Bbr {
    /// The rate in use (`bbr_bw`).
    pub(super) fn rate(&self) -> u32 {
        if self.seen_rate > 0 { self.seen_rate } else { self.estimated_rate() }
    }

    fn estimated_rate(&self) -> u32 {
        self.long_term.rate().unwrap_or(self.rate.max())
    }

    /// The observed pace overrides the rate: the losses and round trips in the sender's own long-term sampling are not all visible at the
    /// tap.
    pub(super) fn correct_by_pace(&mut self) {
        let Some(seen) = self.min_rtt.and_then(|(rtt, _)| self.pace.held(rtt)) else { return };
        let alike = |rate: u32| pace::same(seen, rate, RATE_PART);
        let cycled = |rate: u32| CYCLE_GAINS.into_iter().any(|gain| alike(gained(rate, gain)));
        if alike(self.estimated_rate()) {
            self.seen_rate = 0;
        } else if self.long_term.rate().is_some() && (alike(self.rate.max()) || cycled(self.rate.max())) {
            self.long_term.forget();
            self.seen_rate = 0;
        } else if !cycled(self.rate()) {
            self.seen_rate = seen;
        }
    }

    /// Gains of window and pacing (`bbr_update_gains`); the cycle counts as a gain of one.
    pub(super) fn gains(&self) -> (u64, u64) {
        match self.mode {
            Mode::Startup => (START_GAIN, START_GAIN),
            Mode::Drain => (START_GAIN, DRAIN_GAIN),
            Mode::ProbeBandwidth => (GAIN, EVEN_GAIN),
            Mode::ProbeRtt { .. } => (EVEN_GAIN, EVEN_GAIN),
        }
    }

    pub(super) fn update_pacing(&mut self) {
        let paced = gained(self.rate(), self.gains().1);
        if self.is_full || paced > self.paced {
            self.paced = paced;
        }
    }

    /// The round trip as the sender measures it: a packet sent ahead of its pacing carries the time at which that would have released it
    /// (`tcp_update_skb_after_send`), so its round trip is shorter than the path's; a negative one is not taken.
    pub(super) fn as_stamped(&self, delivery: &Delivery) -> Delivery {
        let mut delivery = *delivery;
        if let (Some((left, due)), Some(rtt)) = (self.early, delivery.rtt)
            && rtt == delivery.at.since(left)
        {
            delivery.rtt = (delivery.at >= due).then(|| delivery.at.since(due).max(LEAST_RTT));
        }
        let least = [delivery.least_rtt, delivery.rtt, self.min_rtt.map(|(rtt, _)| rtt)];
        delivery.least_rtt = least.into_iter().flatten().min();
        delivery
    }
}

/// `rate` times `gain`.
pub(super) fn gained(rate: u32, gain: u64) -> u32 {
    u32::try_from(u64::from(rate) * gain / rate::UNIT).unwrap_or(u32::MAX)
}
