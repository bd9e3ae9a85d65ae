//! Samples by connection and address. They show random losses, addresses that differ, and a path that fell (`docs/explain/definitions.md`, "Marks").
//! It makes no estimate.

use std::cmp::Reverse;
use std::net::IpAddr;

use smallvec::SmallVec;
use spand_proto::units::Window;

use super::buffer::median;
use super::remotes::{self, Two};
use crate::window::bucket::{Contribution, QueueSum, Source};
use crate::window::record::WindowSlice;

/// What one connection gave, or one address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    /// Who; of an address its first connection.
    pub(super) source: Source,
    /// Samples, and their sum in bytes.
    samples: u32,
    bytes: f64,
    /// Those that a loss gave: their number, sum, and sum of squares in bytes.
    losses: f64,
    loss_bytes: f64,
    loss_squares: f64,
    pub(super) queued: QueueSum,
}

impl Given {
    fn of(part: &Contribution) -> Option<Self> {
        let losses = f64::from(part.loss_samples);
        // The squares are of all samples: where some are no losses, the mean stands for each of these.
        let loss_squares = match part.loss_samples {
            0 => 0.0,
            all if all == part.samples => part.squares,
            _ => part.loss_bytes * part.loss_bytes / losses,
        };
        Some(Self {
            source: part.source?,
            samples: part.samples,
            bytes: part.sum_bytes,
            losses,
            loss_bytes: part.loss_bytes,
            loss_squares,
            queued: part.queued,
        })
    }

    fn with(mut self, other: &Self) -> Self {
        self.samples = self.samples.saturating_add(other.samples);
        self.bytes += other.bytes;
        self.losses += other.losses;
        self.loss_bytes += other.loss_bytes;
        self.loss_squares += other.loss_squares;
        self.queued = self.queued.with(other.queued);
        self
    }

    /// Mean of the samples.
    fn mean(&self) -> f64 {
        self.bytes / f64::from(self.samples)
    }

    /// The part of the window that waited in the queue when a packet was lost, on average.
    fn queued_part(&self) -> f64 {
        let losses = f64::from(self.queued.losses);
        self.queued.bytes / losses / (self.loss_bytes / self.losses)
    }
}

/// Merges neighbours of the same source.
fn together(given: &mut SmallVec<[Given; 32]>, same: impl Fn(&Given, &Given) -> bool) {
    given.dedup_by(|next, kept| {
        let is_same = same(next, kept);
        if is_same {
            *kept = kept.with(next);
        }
        is_same
    });
}

/// What each connection with samples gave, in order of addresses; those beyond a bucket's room are left out.
pub(super) fn connections(slice: WindowSlice<'_>) -> SmallVec<[Given; 32]> {
    let parts = slice.contributions.iter().filter(|part| part.samples > 0);
    let mut given: SmallVec<[Given; 32]> = parts.filter_map(Given::of).collect();
    // Each bucket is in this order already.
    given.sort_by_key(|one| one.source);
    together(&mut given, |one, next| one.source == next.source);
    given
}

/// What each address gave, in their order.
fn addresses(slice: WindowSlice<'_>) -> SmallVec<[Given; 32]> {
    by_address(connections(slice))
}

fn by_address(mut given: SmallVec<[Given; 32]>) -> SmallVec<[Given; 32]> {
    together(&mut given, |one, next| one.source.remote == next.source.remote);
    given
}

/// Losses and connections that show them, at least.
const FEWEST_LOSSES: u32 = 3;
const FEWEST_CONNECTIONS: usize = 2;
/// A queue shows where more than this part of the window waits in it, about as in HyStart.
const QUEUE: f64 = 0.125;
/// Losses whose windows have this standard deviation, as part of their mean, do not depend on the window.
const SCATTER: f64 = 0.25;

/// Whether packets are lost at random: at windows that scatter, and without a queue. A shallow queue or a policer loses without a visible
/// queue as well, but each time at about the same window.
///
/// Every address counts once; in a network of one address, every connection does. The median decides: of an even number, the larger of the
/// middle two.
pub(super) fn loses_at_random(slice: WindowSlice<'_>) -> bool {
    let losses = slice.contributions.iter().fold(0_u32, |sum, part| sum.saturating_add(part.queued.losses));
    if losses < FEWEST_LOSSES {
        return false;
    }
    let mut voices = connections(slice);
    voices.retain(|one| one.queued.losses > 0);
    if voices.len() < FEWEST_CONNECTIONS {
        return false;
    }
    if voices.first().zip(voices.last()).is_some_and(|(one, last)| one.source.remote != last.source.remote) {
        voices = by_address(voices);
    }
    let mut queues: SmallVec<[f64; 32]> = voices.iter().map(Given::queued_part).collect();
    median(&mut queues).is_some_and(|queue| queue <= QUEUE)
        && scatter(&voices).is_some_and(|scatter| scatter >= SCATTER)
}

/// Standard deviation of the windows at losses as part of their mean, in the median over voices with two losses or more; where there are
/// none, of the voices' means.
fn scatter(voices: &[Given]) -> Option<f64> {
    let of = |(losses, bytes, squares): (f64, f64, f64)| {
        let mean = bytes / losses;
        ((squares / losses - mean * mean).max(0.0) * losses / (losses - 1.0)).sqrt() / mean
    };
    let several = voices.iter().filter(|one| one.losses > 1.0);
    let mut own: SmallVec<[f64; 32]> = several.map(|one| of((one.losses, one.loss_bytes, one.loss_squares))).collect();
    median(&mut own).or_else(|| {
        let add =
            |sum: (f64, f64, f64), one: &Given| (sum.0 + one.losses, sum.1 + one.loss_bytes, sum.2 + one.loss_squares);
        (voices.len() > 1).then(|| of(voices.iter().fold((0.0, 0.0, 0.0), add)))
    })
}

/// An address with fewer samples has no share of its own.
const FEWEST_SAMPLES: u32 = 3;
/// Addresses differ where the upper quartile of their shares is above this many times the lower one.
const FACTOR: f64 = 2.0;
/// The same of fewer than four, by the largest and the smallest.
const FACTOR_OF_FEW: f64 = 2.5;

/// The share where a network's addresses have shares far apart: between `share` and that of the lower quartile. It is the quartile's where
/// they are one and a half times as far apart as the limit. The steps between keep one more sample from moving the share by much.
///
/// A single address of four or more is no quartile. A single one of fewer can be the lowest, so the share is at least half of the median.
pub(super) fn lower_part(slice: WindowSlice<'_>, share: Window) -> Option<Window> {
    let given = addresses(slice);
    let mut shares: SmallVec<[f64; 32]> =
        given.iter().filter(|one| one.samples >= FEWEST_SAMPLES).map(Given::mean).collect();
    shares.sort_unstable_by(f64::total_cmp);
    let last = shares.len().checked_sub(1)?;
    let quarter = shares.len() / 4;
    let (lower, upper) = (*shares.get(quarter)?, *shares.get(last - quarter)?);
    let factor = if quarter == 0 { FACTOR_OF_FEW } else { FACTOR };
    if upper <= factor * lower {
        return None;
    }
    let lowest = lower.max(shares.get(last / 2)? / 2.0).min(share.bytes());
    let part = (2.0 * (upper / (factor * lower) - 1.0)).min(1.0);
    Window::from_bytes(share.bytes() - part * (share.bytes() - lowest))
}

/// The share of a path that fell, and the contributions since. It fell where two addresses lost below half of `share`, and no two carried
/// half of it since. In a network of one address, two connections count.
pub(super) fn fallen(slice: WindowSlice<'_>, share: Window) -> Option<(Window, WindowSlice<'_>)> {
    let all = slice.contributions;
    let several = remotes::are_several(all.iter());
    let (mut carried, mut newest) = (Two::default(), all.len());
    for bucket in all.chunk_by(|one, next| one.bucket == next.bucket).rev() {
        for part in bucket {
            if let (Some(source), Some(window)) = (part.source, remotes::carried_by(part)) {
                carried.add((source.remote, (!several).then_some(source.connection)), window);
            }
        }
        if carried.second.is_some_and(|carried| 2.0 * carried.bytes() >= share.bytes()) {
            break;
        }
        newest -= bucket.len();
    }
    let newest = WindowSlice { contributions: all.get(newest..)?, ..slice };
    if newest.contributions.iter().all(|part| part.loss_samples == 0) {
        return None;
    }
    let mut voices = connections(newest);
    voices.retain(|one| one.losses > 0.0);
    if several {
        voices = by_address(voices);
    }
    let mut windows: SmallVec<[f64; 32]> = voices.iter().map(|one| one.loss_bytes / one.losses).collect();
    let window = if windows.len() < 2 { None } else { median(&mut windows) };
    let window = window.filter(|window| 2.0 * window < share.bytes())?;
    Some((Window::from_bytes(window)?, newest))
}

/// The share of one address, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddressShare {
    /// The address.
    pub address: IpAddr,
    /// Mean of its samples.
    pub share: Window,
    /// How many.
    pub samples: u32,
    /// Whether the estimate rests on it: it has a share of its own, no larger than that of the lower part.
    pub is_lower: bool,
}

/// Addresses that are named to people.
const NAMED: usize = 16;

/// The shares of the addresses with the most samples, the largest share first; `share` is that of the estimate.
pub(crate) fn address_shares(slice: WindowSlice<'_>, share: Window) -> Vec<AddressShare> {
    let mut given = addresses(slice);
    given.sort_by_key(|one| Reverse(one.samples));
    given.truncate(NAMED);
    given.sort_by(|one, next| next.mean().total_cmp(&one.mean()));
    let of = |one: &Given| {
        Some(AddressShare {
            address: one.source.remote,
            share: Window::from_bytes(one.mean())?,
            samples: one.samples,
            is_lower: one.samples >= FEWEST_SAMPLES && one.mean() <= share.bytes() * (1.0 + f64::EPSILON),
        })
    };
    given.iter().filter_map(of).collect()
}
