//! How a window grows in slow start: decreasing byte counting (Barakat & Altman) and Burst TCP (Gonçalves) beside the standard
//! rule, as whole-number arithmetic that the agent's kernel programs repeat to the bit.
//!
//! Knows no acknowledgement, no clock and no loss: who calls it does so below the threshold, before the first loss, and
//! where the window limits the sender. [`threshold`] says where slow start should end.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::start::NO_THRESHOLD;
use crate::units::Segments;

#[cfg(test)]
mod tests;
pub mod threshold;

/// Parts of a segment are counted in 2^-20.
pub const FRACTION_BITS: u32 = 20;

/// Where Burst TCP ends (its `mice_t`).
pub const MICE_SEGMENTS: u32 = 32;

/// Largest window and threshold that growth is computed for; a scaled window of 2^30 bytes holds no more at any usual segment size.
pub const MOST_SEGMENTS: u32 = 0xffff;

/// Most segments that one acknowledgement counts for.
pub const MOST_ACKED: u32 = 1 << 10;

/// A congestion window with the part of a segment that the kernel's `snd_cwnd` has no room for.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct GrownWindow {
    /// Whole segments.
    pub whole: u32,
    /// The rest, in 2^-20 segments.
    pub fraction: u32,
}

impl GrownWindow {
    /// Whole segments and nothing more.
    pub const fn of(segments: Segments) -> Self {
        Self { whole: segments.0, fraction: 0 }
    }

    /// The nearest window; `None` where that is negative, not a number or above [`MOST_SEGMENTS`].
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked before")]
    pub fn from_f64(segments: f64) -> Option<Self> {
        (segments >= 0.0 && segments <= f64::from(MOST_SEGMENTS))
            .then(|| Self::from_parts((segments * f64::from(1u32 << FRACTION_BITS)).round() as u64))
    }

    /// The window as one number.
    pub fn as_f64(self) -> f64 {
        f64::from(self.whole) + f64::from(self.fraction) / f64::from(1u32 << FRACTION_BITS)
    }

    /// In 2^-20 segments.
    const fn parts(self) -> u64 {
        ((self.whole as u64) << FRACTION_BITS) + self.fraction as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "no window here has 2^32 segments; the rest is masked")]
    const fn from_parts(parts: u64) -> Self {
        Self { whole: (parts >> FRACTION_BITS) as u32, fraction: (parts & ((1 << FRACTION_BITS) - 1)) as u32 }
    }
}

/// Slow start's rule.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "growth")]
pub enum Growth {
    /// The kernel's own.
    #[default]
    Standard,
    /// Decreasing byte counting: the window grows by `1/d` of what is acknowledged, where `d` rises from 1 at a window of one
    /// segment to `dmax` at the threshold.
    Dbc {
        /// `d` at the threshold.
        dmax: NonZeroU32,
    },
    /// Burst TCP: up to [`MICE_SEGMENTS`], the smaller the window, the more an acknowledgement adds.
    Burst {
        /// Its `f`: an acknowledged segment adds `(32 - W) / f` windows' parts, at least one.
        f: NonZeroU32,
    },
}

impl Growth {
    /// The window after `acked` segments were acknowledged, never beyond `ssthresh`. `None` where the standard rule holds:
    /// always for [`Self::Standard`], at or above the threshold, for byte counting where there is none, and for Burst TCP from
    /// [`MICE_SEGMENTS`] on.
    ///
    /// Byte counting counts `acked` as it is given: the paper's `min(covered, 2)` is the caller's, since a
    /// host that merges acknowledgements would crawl by it.
    pub fn grow(self, window: GrownWindow, ssthresh: Segments, acked: Segments) -> Option<GrownWindow> {
        if window.whole == 0 || window.whole >= ssthresh.0.min(MOST_SEGMENTS) {
            return None;
        }
        let acked = acked.0.min(MOST_ACKED);
        let grown = match self {
            Self::Standard => return None,
            Self::Dbc { dmax } => dbc(window, ssthresh, acked, dmax)?,
            Self::Burst { f } => burst(window, acked, f)?,
        };
        Some(grown.min(GrownWindow::of(ssthresh)))
    }
}

/// `W += acked / (dmax + (1 - dmax) * (W - Wth) / (1 - Wth))`, with both sides of the division times `Wth - 1`.
fn dbc(window: GrownWindow, ssthresh: Segments, acked: u32, dmax: NonZeroU32) -> Option<GrownWindow> {
    if ssthresh >= NO_THRESHOLD {
        return None;
    }
    let threshold = u64::from(ssthresh.0.min(MOST_SEGMENTS));
    let dmax = u64::from(dmax.get().min(MOST_ACKED));
    let parts = window.parts();
    let below = (threshold << FRACTION_BITS) - parts;
    // In 2^-20: between Wth - 1 (d = 1) and dmax * (Wth - 1).
    let divisor = dmax * ((threshold - 1) << FRACTION_BITS) - (dmax - 1) * below.min((threshold - 1) << FRACTION_BITS);
    // A threshold of one segment leaves no window below it.
    let step = (((threshold - 1) << FRACTION_BITS) << FRACTION_BITS).checked_div(divisor)?;
    Some(GrownWindow::from_parts(parts + step * u64::from(acked)))
}

/// `W += max(1, floor((32 - W) / f)) / W` for each acknowledged segment, all at the window before.
fn burst(window: GrownWindow, acked: u32, f: NonZeroU32) -> Option<GrownWindow> {
    let parts = window.parts();
    let left = (u64::from(MICE_SEGMENTS) << FRACTION_BITS).checked_sub(parts).filter(|left| *left > 0)?;
    let increment = ((left / u64::from(f.get())) >> FRACTION_BITS).max(1);
    let step = ((increment << FRACTION_BITS) << FRACTION_BITS) / parts;
    Some(GrownWindow::from_parts(parts + step * u64::from(acked)))
}

/// What one acknowledged segment adds to a window by Burst TCP with another end than [`MICE_SEGMENTS`], for comparisons in the simulator;
/// from `mice` on one segment a round trip.
pub fn burst_increment(window: f64, mice: u32, f: NonZeroU32) -> f64 {
    ((f64::from(mice) - window) / f64::from(f.get())).floor().max(1.0) / window
}
