//! Simulates congestion controls by their RFCs and papers, in fractions. It shares no code with the gateway's model of a sender.

/// The congestion control of a simulated sender.
#[derive(Clone, Debug, Default)]
pub(super) enum Algorithm {
    #[default]
    Reno,
    Cubic(CubicState),
    Bbr(BbrState),
}

/// RFC 9438, without HyStart.
#[derive(Clone, Debug, Default)]
pub(super) struct CubicState {
    epoch_s: Option<f64>,
    w_max: f64,
    k_s: f64,
    w_est: f64,
    lost: bool,
}

/// Rate and gains of Cardwell et al. 2016.
#[derive(Clone, Debug, Default)]
pub(super) struct BbrState {
    /// Rates in segments per second, newest last, one per round trip.
    rates: Vec<f64>,
    full_rate: f64,
    full_rounds: u32,
    draining: bool,
    phase_end_s: f64,
    phase: usize,
    pub(super) min_rtt_s: f64,
}

impl CubicState {
    pub(super) fn grow(&mut self, now_s: f64, rtt_s: f64, window: f64, acked: f64) -> f64 {
        let epoch = *self.epoch_s.get_or_insert_with(|| {
            self.w_est = window;
            self.w_max = self.w_max.max(window);
            self.k_s = ((self.w_max - window) / 0.4).cbrt();
            now_s
        });
        let ahead = now_s - epoch + rtt_s - self.k_s;
        let target = (0.4 * ahead.powi(3) + self.w_max).clamp(window, 1.5 * window);
        let alpha = if self.w_est < self.w_max { 3.0 * 0.3 / 1.7 } else { 1.0 };
        self.w_est += alpha * acked / window;
        if self.w_est > target { self.w_est } else { window + acked * (target - window) / window }
    }

    pub(super) fn reduce(&mut self, window: f64) -> f64 {
        self.w_max = if self.lost && window < self.w_max { window * 0.85 } else { window };
        self.lost = true;
        self.epoch_s = None;
        (window * 0.7).max(2.0)
    }
}

impl BbrState {
    pub(super) fn rate(&self) -> Option<f64> {
        self.rates.iter().rev().take(10).copied().reduce(f64::max)
    }

    /// Bandwidth-delay product in segments.
    pub(super) fn product(&self) -> f64 {
        self.rate().map_or(10.0, |rate| rate * self.min_rtt_s)
    }

    fn started(&self) -> bool {
        self.full_rounds >= 3
    }

    pub(super) fn round(&mut self, now_s: f64, rate: f64, pipe: f64) {
        self.rates.push(rate);
        if !self.started() {
            if rate > self.full_rate * 1.25 {
                self.full_rate = rate;
                self.full_rounds = 0;
            } else {
                self.full_rounds += 1;
                self.draining = self.started();
            }
        }
        self.draining &= pipe > self.product();
        if now_s >= self.phase_end_s {
            self.phase = (self.phase + 1) % 8;
            self.phase_end_s = now_s + self.min_rtt_s;
        }
    }

    pub(super) fn window(&self, sent: f64) -> f64 {
        if self.started() { 2.0 * self.product() + 6.0 } else { (10.0 + sent).min(2.885 * self.product() + 6.0) }
    }

    /// Segments per second.
    pub(super) fn pacing(&self) -> f64 {
        let gain = match (self.started(), self.draining, self.phase) {
            (false, ..) => 2.885,
            (_, true, _) => 1.0 / 2.885,
            (.., 0) => 1.25,
            (.., 1) => 0.75,
            _ => 1.0,
        };
        gain * self.rate().unwrap_or(10.0 / self.min_rtt_s)
    }
}
