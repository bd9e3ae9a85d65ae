//! Units as types. A raw number elsewhere ends in its unit; these never mix by accident.
//!
//! Time is counted in whole nanoseconds where captures give it ([`Timestamp`]) and in whole microseconds where a
//! duration is meant ([`Micros`]). No arithmetic here panics: differences saturate at zero, sums at the maximum.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A count of full-sized segments, as in a congestion window of ten segments (RFC 6928).
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Segments(pub u32);

/// A count of bytes.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A duration in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Micros(pub u64);

/// A rate in bytes per second.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct BytesPerSecond(pub u64);

/// A moment: nanoseconds since 1970-01-01 00:00 UTC as the capture saw it, good until the year 2554.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

/// A congestion window in bytes, with the fraction that a whole number of segments would lose.
///
/// Averaging windows cut to whole segments makes an estimate drift down, so the fraction is kept
/// until someone asks in segments. Always finite and never negative.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Window(f64);

impl Segments {
    /// What this many segments of `mss` bytes carry.
    pub fn bytes(self, mss: Bytes) -> Bytes {
        Bytes(u64::from(self.0).saturating_mul(mss.0))
    }
}

impl Bytes {
    /// Segments needed to carry this many bytes, `ceil(bytes / mss)` (the `F` of the start model); zero where `mss` is.
    pub fn segments_ceil(self, mss: Self) -> Segments {
        if mss.0 == 0 {
            return Segments(0);
        }
        Segments(u32::try_from(self.0.div_ceil(mss.0)).unwrap_or(u32::MAX))
    }

    /// Whole segments that fit into this many bytes; zero where `mss` is.
    pub fn segments_floor(self, mss: Self) -> Segments {
        Segments(self.0.checked_div(mss.0).map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX)))
    }
}

impl Micros {
    /// A duration of whole milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000))
    }

    /// A duration of whole seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000))
    }

    /// The same in milliseconds, for people and tables.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1_000.0
    }

    /// The same in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1_000_000.0
    }
}

impl From<Duration> for Micros {
    fn from(d: Duration) -> Self {
        Self(u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<Micros> for Duration {
    fn from(us: Micros) -> Self {
        Self::from_micros(us.0)
    }
}

impl Timestamp {
    /// A moment given in microseconds since the epoch.
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// Time passed since `earlier`; zero where `earlier` is in fact later.
    pub const fn since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0) / 1_000)
    }

    /// The moment `later` after this one.
    #[must_use]
    pub const fn after(self, later: Micros) -> Self {
        Self(self.0.saturating_add(later.0.saturating_mul(1_000)))
    }

    /// The moment `earlier` before this one; the epoch where that would be before it.
    #[must_use]
    pub const fn before(self, earlier: Micros) -> Self {
        Self(self.0.saturating_sub(earlier.0.saturating_mul(1_000)))
    }

    /// Seconds since the epoch.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Window {
    /// A window of `bytes`; `None` where that is negative, infinite or not a number.
    pub fn from_bytes(bytes: f64) -> Option<Self> {
        (bytes.is_finite() && bytes >= 0.0).then_some(Self(bytes))
    }

    /// A window of whole segments.
    pub fn from_segments(segments: Segments, mss: Bytes) -> Self {
        Self(f64::from(segments.0) * mss.0 as f64)
    }

    /// The window in bytes, with its fraction.
    pub fn bytes(self) -> f64 {
        self.0
    }

    /// The window in half bytes, rounded down: whole numbers that give the same [`Self::segments`] for every segment size,
    /// since a segment is rounded at its half.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "never negative; `as` saturates at u64::MAX"
    )]
    pub fn half_bytes(self) -> u64 {
        (self.0 * 2.0) as u64
    }

    /// The window in segments of `mss`, with its fraction; zero where `mss` is.
    pub fn segments_f64(self, mss: Bytes) -> f64 {
        if mss.0 == 0 { 0.0 } else { self.0 / mss.0 as f64 }
    }

    /// The window at the asker's segment size, rounded to nearest: rounding down costs up to 15 % (evaluation 2.5).
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "never negative; `as` saturates at u32::MAX"
    )]
    pub fn segments(self, mss: Bytes) -> Segments {
        Segments(self.segments_f64(mss).round() as u32)
    }
}

/// A number that cannot be a [`Window`].
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a window cannot be {0} bytes: it is a finite number and not negative")]
pub struct NotAWindow(f64);

impl TryFrom<f64> for Window {
    type Error = NotAWindow;

    fn try_from(bytes: f64) -> Result<Self, NotAWindow> {
        Self::from_bytes(bytes).ok_or(NotAWindow(bytes))
    }
}

impl From<Window> for f64 {
    fn from(window: Window) -> Self {
        window.0
    }
}

impl fmt::Display for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} segments", self.0)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms", self.as_millis_f64())
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} Mbit/s", self.0 as f64 * 8.0 / 1e6)
    }
}

/// A number with its noun: one, or several.
pub fn counted<N: Copy + fmt::Display + From<u8> + PartialEq>(count: N, one: &str, several: &str) -> String {
    format!("{count} {}", if count == N::from(1) { one } else { several })
}

/// The value with this number of decimal places, for output: a computed value has up to 17 digits, and most of them mean nothing.
pub fn rounded(value: f64, places: i32) -> f64 {
    let unit = 10f64.powi(places);
    (value * unit).round() / unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_round_as_their_name_says() {
        let mss = Bytes(1_448);
        assert_eq!(Bytes(1_449).segments_ceil(mss), Segments(2));
        assert_eq!(Bytes(1_449).segments_floor(mss), Segments(1));
        assert_eq!(Bytes(1).segments_ceil(Bytes(0)), Segments(0));
        assert_eq!(Bytes(u64::MAX).segments_floor(Bytes(1)), Segments(u32::MAX));
    }

    #[test]
    fn time_running_backwards_is_zero_and_not_a_panic() {
        assert_eq!(Timestamp(5).since(Timestamp(9_000)), Micros(0));
        assert_eq!(Timestamp(u64::MAX).after(Micros(1)), Timestamp(u64::MAX));
        assert_eq!(Timestamp(5_000).before(Micros(2)), Timestamp(3_000));
        assert_eq!(Timestamp(5_000).before(Micros(u64::MAX)), Timestamp(0));
    }

    #[test]
    fn a_window_rounds_to_the_nearest_segment() {
        let window = Window::from_bytes(14.6 * 1_000.0).unwrap();
        assert_eq!(window.segments(Bytes(1_000)), Segments(15));
        assert_eq!(window.segments(Bytes(0)), Segments(0));
        assert_eq!(Window::from_bytes(f64::MAX).unwrap().segments(Bytes(1)), Segments(u32::MAX));
    }

    #[test]
    fn nonsense_is_no_window() {
        assert!(Window::from_bytes(f64::NAN).is_none());
        assert!(Window::from_bytes(-0.1).is_none());
        assert!(serde_json::from_str::<Window>("-1.0").is_err());
    }
}
