//! The start model of TCP/SPAND section 4 (`docs/explain/definitions.md`, "The start"): which window carries a transfer in the fewest round
//! trips on a path whose share is known, as arithmetic.
//!
//! Knows no bytes, no round-trip time and no limit: those are the start function's ([`crate::start`]). Every function is
//! total over `u32` and takes a number of steps in the order of the logarithm of its arguments. The largest product is
//! `k * Wc^2 < 2^96`, hence `u128`.

use std::num::NonZeroU32;

use crate::units::Segments;

#[cfg(test)]
mod tests;

/// Segments acknowledged per acknowledgement on Linux, whose window grows by acknowledged segments: the `k` of the
/// model is 1 there whatever the receiver delays.
pub const LINUX_SEGMENTS_PER_ACK: NonZeroU32 = NonZeroU32::MIN;

/// The sawtooth of a Reno sender on a path with share `Wc`: the window climbs from `ceil(Wc/2)` to `Wc` by one segment
/// every `k` round trips, loses one packet at `Wc + 1`, and halves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Epoch {
    /// `Wc`, at least 1.
    share: u32,
    /// `k`.
    segments_per_ack: u32,
}

/// The windows that the model computes for one transfer, in the order in which it does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OptimalWindow {
    /// `f`: the segments of the transfer's last epoch.
    pub remainder: u128,
    /// `W` of equation 3.
    pub optimal: Segments,
    /// Round trips that `f` takes from `W`, without loss.
    pub rounds: u64,
    /// `W'`: the smallest window with the same round trips.
    pub shifted: Segments,
}

impl Epoch {
    /// The sawtooth for a share `Wc` and `k` segments per acknowledgement. A share below one segment counts as one: a
    /// window cannot be smaller.
    pub fn new(share: Segments, segments_per_ack: NonZeroU32) -> Self {
        Self { share: share.0.max(1), segments_per_ack: segments_per_ack.get() }
    }

    /// Segments sent in one epoch: `S = k * sum(ceil(Wc/2) ..= Wc) + 2 Wc + 1` (`Wc` more leave between the lost packet
    /// and the third duplicate acknowledgement).
    pub fn length(self) -> u128 {
        self.loss_free(self.bottom()) + 2 * u128::from(self.share) + 1
    }

    /// `f`: what is left of a transfer of `size` after whole epochs, `F mod S`, and `S` where that is 0.
    pub fn remainder(self, size: Segments) -> u128 {
        match u128::from(size.0) % self.length() {
            0 => self.length(),
            rest => rest,
        }
    }

    /// `W` of equation 3: the largest window in `ceil(Wc/2) ..= Wc` from which `remainder` leaves without passing `Wc`;
    /// the smallest of them where none does (the tail of an epoch).
    pub fn optimal(self, remainder: u128) -> Segments {
        Segments(
            largest(self.bottom(), self.share, |window| self.loss_free(window) >= remainder).unwrap_or(self.bottom()),
        )
    }

    /// Equation 4 as published: `W` less the shift `floor((k * sum(W ..= Wc) - f) / (k * (Wc - W + 1)))`, at least 1.
    ///
    /// Exact for `k = 1`, where it equals [`Self::shifted`]; for larger `k` it may cost a round trip. In the tail of an
    /// epoch, where it would raise the window, it is not applied. Kept for comparison with the paper.
    pub fn shifted_by_equation_4(self, remainder: u128) -> Segments {
        let window = self.optimal(remainder).0;
        let Some(spare) = self.loss_free(window).checked_sub(remainder) else { return Segments(window) };
        let shift = spare / (u128::from(self.segments_per_ack) * u128::from(self.share - window + 1));
        Segments(window.saturating_sub(u32::try_from(shift).unwrap_or(u32::MAX)).max(1))
    }

    /// Round trips in which `segments` leave when the window starts at `window`, grows by one every `k` round trips and
    /// stays at `Wc` once there. A window of 0 counts as 1, one above `Wc` as `Wc`.
    pub fn rounds(self, window: Segments, segments: u128) -> u64 {
        let window = window.0.clamp(1, self.share);
        // At `window` segments or more per round trip, this many are enough.
        let enough = u64::try_from(segments.div_ceil(u128::from(window))).unwrap_or(u64::MAX);
        smallest(0, enough, |rounds| self.sent(window, rounds) >= segments)
    }

    /// `W'`, the shift by its purpose: the smallest window that takes no more round trips than `W` of equation 3 does.
    /// Exact for every `k`, in the tail of an epoch too.
    pub fn shifted(self, remainder: u128) -> OptimalWindow {
        let optimal = self.optimal(remainder);
        let rounds = self.rounds(optimal, remainder);
        let shifted = smallest(1, u64::from(optimal.0), |window| self.sent_from(window, rounds) >= remainder);
        OptimalWindow { remainder, optimal, rounds, shifted: Segments(u32::try_from(shifted).unwrap_or(optimal.0)) }
    }

    /// The windows for a transfer of `size`.
    pub fn window_for(self, size: Segments) -> OptimalWindow {
        self.shifted(self.remainder(size))
    }

    /// `ceil(Wc/2)`, where an epoch starts.
    fn bottom(self) -> u32 {
        self.share.div_ceil(2)
    }

    /// `k * sum(window ..= Wc)`: what leaves from `window` up to the last round trip at `Wc`.
    fn loss_free(self, window: u32) -> u128 {
        let (first, last) = (u128::from(window), u128::from(self.share));
        u128::from(self.segments_per_ack) * ((first + last) * (last + 1 - first) / 2)
    }

    /// Segments that leave in `rounds` round trips from `window`, at least 1 and at most `Wc`.
    fn sent(self, window: u32, rounds: u64) -> u128 {
        let k = u128::from(self.segments_per_ack);
        let (first, rounds) = (u128::from(window), u128::from(rounds));
        let climbing = rounds.min(k * u128::from(self.share - window));
        let (steps, rest) = (climbing / k, climbing % k);
        // Whole steps of k round trips each, the begun step, and the round trips at the top.
        k * (steps * first + steps * steps.saturating_sub(1) / 2)
            + rest * (first + steps)
            + (rounds - climbing) * u128::from(self.share)
    }

    /// [`Self::sent`] from a window found by bisection.
    fn sent_from(self, window: u64, rounds: u64) -> u128 {
        self.sent(u32::try_from(window).unwrap_or(u32::MAX).clamp(1, self.share), rounds)
    }
}

/// The largest value in `low ..= high` that satisfies `holds`, which holds up to some value and not beyond; `None` where
/// `low` does not.
fn largest(low: u32, high: u32, holds: impl Fn(u32) -> bool) -> Option<u32> {
    if !holds(low) {
        return None;
    }
    let (mut low, mut high) = (low, high);
    while low < high {
        let middle = high - (high - low) / 2;
        if holds(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Some(low)
}

/// The smallest value in `low ..= high` that satisfies `holds`, which holds from some value on; `high` where none below
/// it does.
fn smallest(low: u64, high: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (low, high);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}
