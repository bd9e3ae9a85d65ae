//! Samples by remote address: no single one gives more than half of an estimate (`docs/explain/decisions/estimate.md`).
//!
//! Each answer takes one or two passes over the window in the order of time, without a table of addresses: an estimate is
//! made of every sample that comes.

use std::net::IpAddr;

use spand_proto::units::Window;

use crate::window::bucket::{Contribution, larger};
use crate::window::record::{WindowSlice, majority_candidate};

/// Which address a contribution is of; the common rest of full buckets counts as one more.
pub(super) fn address(contribution: &Contribution) -> Option<IpAddr> {
    contribution.source.map(|source| source.remote)
}

/// The average of all samples, each with the same weight, except those of an address that would have more than half: they
/// weigh together as much as all others. A window that knows one address only has no others, and is averaged as it is.
pub(super) fn average(slice: WindowSlice<'_>) -> Option<Window> {
    let sum = |of: &dyn Fn(&Contribution) -> bool| {
        slice
            .contributions
            .iter()
            .filter(|contribution| of(contribution))
            .fold((0, 0.0), |(samples, bytes), part| (samples + u64::from(part.samples), bytes + part.sum_bytes))
    };
    let (samples, bytes) = sum(&|_| true);
    if samples == 0 {
        return None;
    }
    // The common rest is of many addresses: never capped as if it were one.
    let named = slice.contributions.iter().filter_map(|part| Some((address(part)?, u64::from(part.samples))));
    if let Some(heaviest) = majority_candidate(named) {
        let (own, own_bytes) = sum(&|part| address(part) == Some(heaviest));
        let others = samples - own;
        if own > others && others > 0 {
            let (_, rest) = sum(&|part| address(part) != Some(heaviest));
            return Window::from_bytes(0.5 * own_bytes / own as f64 + 0.5 * rest / others as f64);
        }
    }
    Window::from_bytes(bytes / samples as f64)
}

/// The lower bound that may raise an estimate: the largest that two addresses attest, so that one host's fast line is not
/// taken for everybody's. Where the window knows one address only, its own. The common rest attests nothing: it may hold
/// the same address.
pub(super) fn lower_bound(contributions: &[Contribution]) -> Option<Window> {
    attested(contributions, |part| part.largest_bound)
}

/// The largest value that two addresses attest; where only one is known, its own.
pub(super) fn attested(
    contributions: &[Contribution],
    value: impl Fn(&Contribution) -> Option<Window>,
) -> Option<Window> {
    let Two { first, second } = Two::of(contributions.iter().filter_map(|part| address(part).zip(value(part))));
    if are_several(contributions.iter()) { second } else { first.map(|(_, most)| most) }
}

/// The largest window that two addresses carried without loss, a loss's sample among them; where only one is known, two connections.
pub(super) fn carried(contributions: &[Contribution]) -> Option<Window> {
    if are_several(contributions.iter()) {
        return attested(contributions, carried_by);
    }
    Two::of(contributions.iter().filter_map(|part| part.source.zip(carried_by(part)))).second
}

/// The largest window that a contribution shows as carried.
pub(super) fn carried_by(part: &Contribution) -> Option<Window> {
    part.largest_bound.map(|bound| larger(part.carried, bound)).or(part.carried)
}

/// The largest value, and the largest that anyone else gave.
#[derive(Debug)]
pub(super) struct Two<T> {
    first: Option<(T, Window)>,
    pub(super) second: Option<Window>,
}

impl<T> Default for Two<T> {
    fn default() -> Self {
        Self { first: None, second: None }
    }
}

impl<T: PartialEq> Two<T> {
    fn of(named: impl Iterator<Item = (T, Window)>) -> Self {
        named.fold(Self::default(), |mut two, (who, value)| {
            two.add(who, value);
            two
        })
    }

    pub(super) fn add(&mut self, who: T, value: Window) {
        self.first = match self.first.take() {
            Some((holder, most)) if holder == who => Some((holder, larger(Some(most), value))),
            Some((_, most)) if value > most => {
                self.second = Some(most);
                Some((who, value))
            }
            Some(kept) => {
                self.second = Some(larger(self.second, value));
                Some(kept)
            }
            None => Some((who, value)),
        };
    }
}

/// Whether samples at a full path are of two addresses; where all samples are of one, of two connections.
pub(super) fn show_full_path(contributions: &[Contribution]) -> bool {
    let several = are_several(contributions.iter().filter(|part| part.samples > 0));
    let mut full = contributions.iter().filter(|part| part.full.samples > 0);
    let same = |one: &Contribution, next: &Contribution| {
        if several { address(one) == address(next) } else { one.source == next.source }
    };
    full.next().is_some_and(|first| full.any(|next| !same(first, next)))
}

/// Whether contributions are of more than one address.
pub(super) fn are_several<'a>(contributions: impl Iterator<Item = &'a Contribution>) -> bool {
    let mut addresses = contributions.map(address);
    let first = addresses.next();
    addresses.any(|address| Some(address) != first)
}
