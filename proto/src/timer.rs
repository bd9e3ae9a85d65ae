//! The retransmission timer of 1998 (Aron & Druschel 4.1) and its paced slow start's spacing, to compare with the paper.
//!
//! Linux measures in microseconds and has a floor of 200 ms under the variance, which is the paper's own proposal; nothing here is
//! applied to a host.

/// BSD's estimators of a retransmission timeout in whole ticks of some clock: the mean scaled by 8, the deviation by 4.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BsdTimer {
    /// `sa`; zero before the first measurement.
    mean_scaled: i64,
    /// `sd`.
    deviation_scaled: i64,
}

impl BsdTimer {
    /// Counts a measured round trip in ticks and returns the timeout in ticks. BSD counts from one: the first measurement
    /// enters as one tick more than it was.
    pub fn measured(&mut self, ticks: u32) -> u64 {
        let ticks = i64::from(ticks);
        if *self == Self::default() {
            self.mean_scaled = (ticks + 1) << 3;
            self.deviation_scaled = (ticks + 1) << 1;
        } else {
            let error = ticks - (self.mean_scaled >> 3);
            self.mean_scaled += error;
            self.deviation_scaled += error.abs() - (self.deviation_scaled >> 2);
        }
        u64::try_from((self.mean_scaled >> 3) + self.deviation_scaled).unwrap_or(0)
    }
}

/// Equation 2: a timeout measured by a clock of `measuring_hz`, in ticks of the one of `event_hz` that it is scheduled by. Never below
/// two ticks; a clock of zero counts as one of 1 Hz.
pub fn scheduled(timeout_ticks: u64, measuring_hz: u32, event_hz: u32) -> u64 {
    let ticks = u128::from(timeout_ticks) * u128::from(event_hz);
    let ticks = u64::try_from(ticks.div_ceil(u128::from(measuring_hz.max(1)))).unwrap_or(u64::MAX);
    ticks.saturating_add(1).max(2)
}

/// How many segments a paced slow start sends in its round trip, and how far apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacedRound {
    /// `N`.
    pub segments: u32,
    /// `T` in seconds.
    pub spacing_s: f64,
}

/// `N = min(p - d, RTT * f_ev)` and `T = max(1 / f_ev, 1 / bw)` (section 4.2.2).
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, and NaN is 0")]
pub fn paced_round(target: u32, sent: u32, rtt_s: f64, event_hz: f64, segments_per_s: f64) -> PacedRound {
    PacedRound {
        // A round trip of exactly N ticks is not one less by the last bit of a product.
        segments: target.saturating_sub(sent).min((rtt_s * event_hz + 1e-9) as u32),
        spacing_s: (1.0 / event_hz).max(1.0 / segments_per_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// V1: the three columns of figure 6.
    #[test]
    fn timeouts_are_those_of_figure_6() {
        let (mut coarse, mut fine) = (BsdTimer::default(), BsdTimer::default());
        let rows = [
            (0, 3, 60, 183),
            (0, 3, 150, 253),
            (1, 5, 60, 218),
            (0, 4, 60, 190),
            (0, 3, 61, 167),
            (0, 3, 60, 150),
            (0, 3, 61, 135),
            (0, 3, 60, 123),
            (0, 3, 60, 114),
            (0, 3, 61, 105),
            (0, 3, 60, 99),
            (1, 5, 61, 93),
        ];
        for (row, (coarse_rtt, original, fine_rtt, new)) in rows.into_iter().enumerate() {
            assert_eq!(coarse.measured(coarse_rtt), original, "RTO_O of row {row}");
            let timeout = fine.measured(fine_rtt);
            assert_eq!(timeout, new, "RTO_Nf of row {row}");
            assert_eq!(scheduled(timeout, 1_000, 2), 2, "RTO_Nc of row {row}");
        }
    }

    /// V2.
    #[test]
    fn paced_slow_start_sends_as_published() {
        let wan = 155e6 / 8.0 / 1_500.0;
        let satellite = 1.5e6 / 8.0 / 512.0;
        for (target, sent, rtt_s, hz, rate, segments, spacing_s) in [
            (387, 3, 0.06, 500.0, wan, 30, 0.002),
            (387, 3, 0.06, 100.0, wan, 6, 0.01),
            (40, 3, 0.58, 100.0, satellite, 37, 0.01),
        ] {
            assert_eq!(paced_round(target, sent, rtt_s, hz, rate), PacedRound { segments, spacing_s });
        }
    }

    #[test]
    fn nonsense_gives_numbers() {
        assert_eq!(BsdTimer::default().measured(u32::MAX), 3 * (u64::from(u32::MAX) + 1));
        assert_eq!(scheduled(u64::MAX, 0, u32::MAX), u64::MAX);
        assert_eq!(paced_round(1, 2, f64::NAN, 0.0, 0.0).segments, 0);
    }
}
