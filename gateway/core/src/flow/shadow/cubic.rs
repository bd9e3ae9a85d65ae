//! CUBIC (RFC 9438) in the integer arithmetic of Linux's `tcp_cubic.c`, whose rounding is visible in small windows.

use spand_proto::units::{Micros, Timestamp};

use super::cwnd::{Cwnd, whole_segments};
use super::hystart::HyStart;
use super::replica::{Law, Progress};
use crate::flow::maybe::{MaybeMicros, MaybeTime};
use crate::mem::boxed;

/// Multiplicative decrease and its scale: 0.7.
const BETA: u64 = 717;
const BETA_SCALE: u64 = 1024;
/// `C` = 410 / 1024 = 0.4 segments per second cubed; time is counted in 1/1024 s.
const C_SCALED: u64 = 410;
const TICKS_PER_SECOND: u64 = 1024;
/// Largest distance from the plateau in the calculation, 128 s: beyond it the price has its minimum anyway.
const DISTANCE_MOST: u64 = 128 * TICKS_PER_SECOND;
/// Acknowledged segments per segment of the Reno-friendly window, in eighths of the window: 8 (1 + β) / 3 (1 − β).
const FRIENDLY_EIGHTHS: u64 = 15;
/// Lifetime of a price while the window does not change.
const PRICE_AGE: Micros = Micros(1_000_000 / 32);
/// Largest price before the first loss.
const PRICE_BEFORE_LOSS: u32 = 20;
/// Smallest price: half a window per round trip.
const PRICE_LEAST: u32 = 2;
/// Time after a reduction in which no smallest round-trip time is taken.
const DELAY_SETTLES: Micros = Micros(1_000_000);

/// State that outlasts an epoch, and slow start.
#[derive(Clone, Debug, Default)]
pub(super) struct Cubic {
    /// Allocated in congestion avoidance, which few transfers reach.
    curve: Option<Box<Curve>>,
    /// `last_max_cwnd`: the window before the last reduction, less with fast convergence.
    last_max: u32,
    delay_min: MaybeMicros,
    hystart: HyStart,
}

/// One epoch of growth, and the price of a segment of window.
#[derive(Clone, Debug, Default)]
struct Curve {
    /// Start of the epoch; `None` from a reduction to the next growth.
    epoch: MaybeTime,
    /// Plateau of the curve in segments.
    origin: u32,
    /// Time from the epoch's start to the plateau, in 1/1024 s.
    k_ticks: u64,
    /// Reno-friendly window.
    friendly: u32,
    /// Segments acknowledged but not yet part of it.
    friendly_credit: f32,
    price: u32,
    priced_window: u32,
    priced_at: Timestamp,
}

impl Cubic {
    /// Memory allocated beside it.
    pub(super) fn held_bytes(&self) -> usize {
        if self.curve.is_some() { const { boxed::<Curve>() } } else { 0 }
    }
}

impl Curve {
    fn start_epoch(&mut self, at: Timestamp, window: u32, last_max: u32, acked_segments: f32) {
        self.epoch = MaybeTime::some(at);
        self.friendly_credit = acked_segments;
        self.friendly = window;
        if last_max <= window {
            self.k_ticks = 0;
            self.origin = window;
        } else {
            let factor = (1u64 << 40) / C_SCALED;
            self.k_ticks = cube_root(factor.saturating_mul(u64::from(last_max - window)));
            self.origin = last_max;
        }
    }

    /// The window of the curve one round trip from now.
    fn target(&self, at: Timestamp, epoch: Timestamp, delay_min: Micros) -> u64 {
        let ahead = at.since(epoch).0.saturating_add(delay_min.0);
        let ticks = ahead.saturating_mul(TICKS_PER_SECOND) / 1_000_000;
        let distance = ticks.abs_diff(self.k_ticks).min(DISTANCE_MOST);
        let delta = (C_SCALED * distance * distance * distance) >> 40;
        if ticks < self.k_ticks {
            u64::from(self.origin).saturating_sub(delta)
        } else {
            u64::from(self.origin).saturating_add(delta)
        }
    }

    fn price_by(target: u64, window: u32, last_max: u32) -> u32 {
        let above = target.saturating_sub(u64::from(window));
        let price = match u64::from(window).checked_div(above) {
            Some(price) => u32::try_from(price).unwrap_or(u32::MAX),
            None => window.saturating_mul(100),
        };
        if last_max == 0 { price.min(PRICE_BEFORE_LOSS) } else { price }
    }

    fn friendly_price(&mut self, window: u32) -> Option<u32> {
        let step = u64::from(window).saturating_mul(FRIENDLY_EIGHTHS) / 8;
        let step = (step as f32).max(1.0);
        // It takes a step when more than that was acknowledged.
        let earned = whole_segments((self.friendly_credit / step).ceil() - 1.0);
        self.friendly_credit -= earned as f32 * step;
        self.friendly = self.friendly.saturating_add(earned);
        window.checked_div(self.friendly.saturating_sub(window))
    }
}

impl Cubic {
    fn epoch(&self) -> Option<Timestamp> {
        self.curve.as_ref()?.epoch.get()
    }
}

impl Law for Cubic {
    fn observe(&mut self, progress: &Progress, cwnd: &Cwnd) -> bool {
        let Some(rtt) = progress.rtt else { return false };
        if self.epoch().is_some_and(|epoch| progress.at.since(epoch) < DELAY_SETTLES) {
            return false;
        }
        let delay_min = self.delay_min.get().map_or(rtt, |min| min.min(rtt));
        self.delay_min = MaybeMicros::some(delay_min);
        self.hystart.observe(progress, rtt, delay_min, cwnd)
    }

    fn price(&mut self, at: Timestamp, cwnd: &Cwnd, acked_segments: f32) -> u32 {
        let window = cwnd.whole();
        let (last_max, delay_min) = (self.last_max, self.delay_min.get().unwrap_or_default());
        let curve = self.curve.get_or_insert_default();
        curve.friendly_credit += acked_segments;
        // Also one of the epoch before: a reduction ends the epoch, not the price (`bictcp_update`).
        if curve.priced_window == window && at.since(curve.priced_at) <= PRICE_AGE {
            return curve.price;
        }
        curve.priced_window = window;
        curve.priced_at = at;
        let epoch = curve.epoch.get().unwrap_or_else(|| {
            curve.start_epoch(at, window, last_max, acked_segments);
            at
        });
        let mut price = Curve::price_by(curve.target(at, epoch, delay_min), window, last_max);
        if let Some(friendly) = curve.friendly_price(window) {
            price = price.min(friendly);
        }
        curve.price = price.max(PRICE_LEAST);
        curve.price
    }

    fn reduced(&mut self, cwnd: &Cwnd) -> u32 {
        let window = u64::from(cwnd.whole());
        if let Some(curve) = &mut self.curve {
            curve.epoch = MaybeTime::NONE;
        }
        let kept = if cwnd.whole() < self.last_max { window * (BETA_SCALE + BETA) / (2 * BETA_SCALE) } else { window };
        self.last_max = u32::try_from(kept).unwrap_or(u32::MAX);
        u32::try_from((window * BETA / BETA_SCALE).max(2)).unwrap_or(u32::MAX)
    }

    fn timed_out(&mut self) {
        *self = Self::default();
    }

    fn resumed(&mut self, at: Timestamp, idle: Micros) {
        // Idle time does not advance the curve.
        if let Some(curve) = &mut self.curve
            && let Some(epoch) = curve.epoch.get()
        {
            curve.epoch = MaybeTime::some(epoch.after(idle).min(at));
        }
    }

    fn stayed_within(&mut self) {
        self.hystart.confirm();
    }

    fn exit_unconfirmed(&self) -> bool {
        self.last_max == 0 && self.hystart.is_unconfirmed()
    }

    fn before_first_loss(&self) -> bool {
        self.last_max == 0
    }

    fn exceeded(&mut self) -> bool {
        self.last_max == 0 && self.hystart.refute()
    }
}

/// The whole cube root.
fn cube_root(n: u64) -> u64 {
    let mut low = 0u64;
    let mut high = 1 << 21;
    while low < high {
        let middle = (low + high).div_ceil(2);
        if middle * middle * middle <= n { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(segments: u32) -> Cwnd {
        Cwnd::new(segments)
    }

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_micros(ms * 1_000)
    }

    #[test]
    fn a_price_outlives_a_reduction_that_leaves_the_window_as_it_was() {
        let mut cubic = Cubic::default();
        let least = window(2);
        assert_eq!(cubic.price(ms(1_000), &least, 1.0), PRICE_BEFORE_LOSS);
        assert_eq!(cubic.reduced(&least), 2);
        assert_eq!(cubic.price(ms(1_031), &least, 1.0), PRICE_BEFORE_LOSS);
        assert_eq!(cubic.price(ms(1_033), &least, 1.0), 200, "the plateau is reached");
    }

    #[test]
    fn the_friendly_window_grows_when_more_than_its_step_was_acknowledged() {
        let mut cubic = Cubic::default();
        let four = window(4);
        cubic.reduced(&four);
        assert_eq!(cubic.price(ms(1_000), &four, 1.0), 400);
        // 4 segments times 15 eighths: 7.
        assert_eq!(cubic.price(ms(1_040), &four, 6.0), 400);
        assert_eq!(cubic.price(ms(1_080), &four, 1.0), 4);
        let curve = cubic.curve.unwrap();
        assert_eq!((curve.friendly, curve.friendly_credit), (5, 1.0));
    }
}
