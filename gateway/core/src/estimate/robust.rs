//! The bounded average: what one loss, one connection, one address, an application that sends little or our own advice can
//! do to the share is limited, and an old state of the path is left behind once there is enough of the new one.

use std::net::IpAddr;

use smallvec::SmallVec;
use spand_proto::estimate::RuleKind;
use spand_proto::units::Window;

use super::votes::{Reach, Vote, balance};
use super::{Admitted, Known, ProbeRule, Rule, remotes};
use crate::types::{SampleReason, WindowSample};
use crate::window::bucket::Contribution;
use crate::window::record::WindowSlice;

/// The rule; its numbers were chosen by figures (docs/decisions/robust-rule.md).
///
/// 1. Only the last [`Self::span`] buckets count, and as many before as hold [`Self::enough`] samples together ([`newest_part`]).
/// 2. A connection weighs as much as [`Self::per_connection`] samples at most, an address [`Self::per_address`] of all where
///    there are others.
/// 3. The share is where values balance, each pulling with at most [`Self::reach`] of it ([`balance`]).
/// 4. A loss shows a peak of the sawtooth, which is what the share is about; the end of a transfer stands anywhere in it,
///    and those that lost something on the way give none. The more losses there are, the less ends count.
/// 5. A lower bound that two addresses attest raises a share below it, by the part [`Self::lift`] of that at most.
/// 6. All samples of one address pull at most [`Self::alone`] of its weight: an address that agrees with no other has no further
///    influence, in either direction.
/// 7. A transfer that started on our advice and lost nothing is no evidence against that advice: it counts at least as the
///    share in force, and probes upwards as under [`ProbeRule`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RobustRule {
    /// Samples that are enough for a share.
    pub enough: u32,
    /// Buckets that count even where fewer hold enough: 4 are the last 30 to 40 s.
    pub span: u64,
    /// Most samples of one connection that count.
    pub per_connection: u32,
    /// Largest part of all weight that one address has, where that is more than one connection may have.
    pub per_address: f64,
    /// Furthest distance at which a value pulls harder, as part of the share.
    pub reach: f64,
    /// Losses at which an end weighs half as much as one of them.
    pub half: f64,
    /// Most that lower bounds add, as part of the share.
    pub lift: f64,
    /// Hardest that one address pulls where there are others, as part of the share.
    pub alone: f64,
    /// Whether an advised end counts at least as the share in force.
    pub holds: bool,
}

impl RobustRule {
    /// The defaults, chosen by the comparison of rules in `docs/decisions/robust-rule.md` (`make rules`).
    pub const DEFAULT: Self = Self {
        enough: 48,
        span: 4,
        per_connection: 12,
        per_address: 0.125,
        reach: 0.5,
        half: 30.0,
        lift: 0.1,
        alone: 0.25,
        holds: true,
    };
}

impl Rule for RobustRule {
    fn kind(&self) -> RuleKind {
        RuleKind::Robust
    }

    fn admit(&self, sample: &WindowSample, known: &Known) -> Admitted {
        let probing = ProbeRule.admit(sample, known);
        if probing.raised || !self.holds || !sample.advised || sample.reason != SampleReason::End {
            return probing;
        }
        // Never above what was carried: a share that lags behind a path that got worse must not sustain itself.
        let held = known.share.zip(known.carried).map(|(share, carried)| if share < carried { share } else { carried });
        let window = held.filter(|held| *held > sample.window).unwrap_or(sample.window);
        Admitted { window, raised: false }
    }

    fn share(&self, slice: WindowSlice<'_>) -> Option<Window> {
        let newest = newest_part(slice, self.enough, self.span);
        let parts = self.weigh(newest);
        let end = self.end_weight(&parts);
        let mut votes = SmallVec::<[Vote; 128]>::new();
        // After each address, how many votes there are by then.
        let mut addresses = SmallVec::<[usize; 64]>::new();
        for address in parts.chunk_by(|one, next| one.remote() == next.remote()) {
            for part in address {
                part.vote(end, &mut votes);
            }
            addresses.push(votes.len());
        }
        let share = balance(&votes, &addresses, Reach { vote: self.reach, source: self.alone })?;
        let bound = remotes::lower_bound(newest.contributions).map_or(0.0, Window::bytes);
        Window::from_bytes(share.max(bound.min(share * (1.0 + self.lift))))
    }

    fn carried(&self, slice: WindowSlice<'_>, of: IpAddr) -> Option<Window> {
        // What only a single other address carried is not confirmed.
        let own = || slice.contributions.iter().all(|part| part.source.is_some_and(|source| source.remote == of));
        let attested = remotes::attested(slice.contributions, |part| part.carried);
        attested.filter(|_| remotes::are_several(slice.contributions.iter()) || own())
    }
}

/// Number of other addresses from which on one address weighs no more than each of them on average: one false
/// address among six then moves the share by at most a tenth (`docs/decisions/robust-rule.md`).
const WITNESSES: usize = 5;

/// A contribution and the weight of each of its samples.
struct Part<'a> {
    of: &'a Contribution,
    weight: f64,
}

impl Part<'_> {
    /// Adds what it says, each of its ends weighing `end`.
    fn vote(&self, end: f64, votes: &mut SmallVec<[Vote; 128]>) {
        let Self { of, weight } = self;
        let ends = of.samples - of.loss_samples.min(of.samples);
        if of.loss_samples > 0 {
            let losses = f64::from(of.loss_samples);
            votes.push(Vote { value: of.loss_bytes / losses, weight: weight * losses });
        }
        if ends > 0 {
            let ends = f64::from(ends);
            let value = (of.sum_bytes - of.loss_bytes).max(0.0) / ends;
            votes.push(Vote { value, weight: weight * ends * end });
        }
    }

    /// Its address; `None` for the common rest.
    fn remote(&self) -> Option<IpAddr> {
        self.of.source.map(|source| source.remote)
    }
}

impl RobustRule {
    /// Contributions with samples, by address and connection, weighed.
    fn weigh<'a>(&self, newest: Newest<'a>) -> SmallVec<[Part<'a>; 64]> {
        let oldest = newest.contributions.first().map(|part| part.bucket);
        let wanted = |of: &Contribution| if Some(of.bucket) == oldest { newest.of_oldest } else { 1.0 };
        let sampled = newest.contributions.iter().filter(|of| of.samples > 0);
        let mut parts: SmallVec<[Part<'a>; 64]> = sampled.map(|of| Part { of, weight: wanted(of) }).collect();
        parts.sort_unstable_by_key(|part| part.of.source);
        let mut addresses = SmallVec::<[f64; 64]>::new();
        // The common rest is of several connections, and perhaps of one address alone: it weighs no more than one.
        let named = |parts: &[Part<'_>]| parts.first().is_some_and(|part| part.of.source.is_some());
        let (mut all, per_connection) = (0.0, f64::from(self.per_connection));
        for address in parts.chunk_by_mut(|one, next| one.remote() == next.remote()) {
            let mut sum = 0.0;
            for connection in address.chunk_by_mut(|one, next| one.of.source == next.of.source) {
                let samples = weight_of(connection, |of| of.samples);
                let counted = if named(connection) { samples.min(per_connection) } else { samples };
                for part in connection {
                    part.weight *= counted / samples;
                }
                sum += counted;
            }
            all += sum;
            addresses.push(sum);
        }
        let most = cap(&mut addresses, all, self.per_address, per_connection);
        for address in parts.chunk_by_mut(|one, next| one.remote() == next.remote()) {
            let sum = weight_of(address, |of| of.samples);
            if sum > most {
                for part in address {
                    part.weight *= most / sum;
                }
            }
        }
        parts
    }

    /// Weight of an end against a loss. The losses of one source alone do not make it smaller: it could have made them up.
    /// That is an address; or, where all share one, a connection.
    fn end_weight(&self, parts: &[Part<'_>]) -> f64 {
        let one_address = parts.windows(2).all(|pair| matches!(pair, [one, next] if one.remote() == next.remote()));
        let same = |one: &Part<'_>, next: &Part<'_>| {
            if one_address { one.of.source == next.of.source } else { one.remote() == next.remote() }
        };
        let losses = parts.chunk_by(same).map(|source| weight_of(source, |of| of.loss_samples));
        let (all, most) = losses.fold((0.0, 0.0_f64), |(all, most), losses| (all + losses, most.max(losses)));
        self.half / (self.half + all - most)
    }
}

fn weight_of(parts: &[Part<'_>], count: impl Fn(&Contribution) -> u32) -> f64 {
    parts.iter().map(|part| part.weight * f64::from(count(part.of))).sum()
}

/// The most that one address may weigh: the part `part` of all, but not less than one connection may, so that an address
/// with a single sample is not made as heavy as those with many; and never more than all others together, or than five of
/// them each if there are as many. `all` is the sum of `addresses` and of what is of no single one.
fn cap(addresses: &mut [f64], all: f64, part: f64, connection: f64) -> f64 {
    addresses.sort_unstable_by(|one, next| next.total_cmp(one));
    // With this many capped, `rest` is of the others.
    let (mut capped, mut rest) = (0.0, all);
    let mut heaviest = addresses.iter();
    let most = loop {
        let room = 1.0 - capped * part;
        let most = if room > f64::EPSILON && rest > f64::EPSILON * all { rest / room * part } else { 0.0 };
        match heaviest.next() {
            Some(weight) if *weight > most => (capped, rest) = (capped + 1.0, rest - weight),
            _ => break most,
        }
    };
    let most = most.max(connection);
    let Some((heaviest, lighter)) = addresses.split_first() else { return most };
    let named: f64 = addresses.iter().sum();
    let others = lighter.iter().map(|weight| weight.min(most)).sum::<f64>() + (all - named).max(0.0);
    let fair = if lighter.len() >= WITNESSES { others / WITNESSES as f64 } else { others };
    if others > 0.0 && heaviest.min(most) > fair { fair } else { most }
}

/// One connection counts for at most this many samples of a bucket.
const COUNTED_PER_PLACE: u32 = 4;

/// The newest part of a window that holds enough samples: what a path was an age ago says less than what it is.
#[derive(Clone, Copy, Debug)]
struct Newest<'a> {
    /// Contributions of the buckets that hold enough samples together.
    contributions: &'a [Contribution],
    /// Part of the oldest of these buckets that is still wanted, so that one sample more never swaps a whole bucket.
    of_oldest: f64,
}

/// The newest buckets: those of the last `span`, and as many more as hold `enough` samples together.
///
/// An address counts for at most as many samples as all others together: otherwise one busy address could push the samples of all
/// others out of this part.
fn newest_part(slice: WindowSlice<'_>, enough: u32, span: u64) -> Newest<'_> {
    let all = slice.contributions;
    let last = all.last().map_or(0, |part| part.bucket);
    let several = remotes::are_several(all.iter().filter(|part| part.samples > 0));
    let (mut tally, mut from, mut of_oldest) = (Tally::default(), all.len(), 1.0);
    let mut before = 0;
    for bucket in all.chunk_by(|one, next| one.bucket == next.bucket).rev() {
        let old = bucket.first().is_some_and(|part| last.saturating_sub(part.bucket) >= span);
        if old && before >= enough {
            break;
        }
        from -= bucket.len();
        for part in bucket {
            tally.add(part);
        }
        let counted = if several { tally.total - tally.lead() } else { tally.total };
        if old && counted >= enough {
            of_oldest = f64::from(enough - before) / f64::from(counted - before);
            break;
        }
        before = counted;
    }
    Newest { contributions: all.get(from..).unwrap_or_default(), of_oldest }
}

/// Samples so far, and what one address has of them beyond all others.
#[derive(Default)]
struct Tally {
    total: u32,
    /// Weights of different addresses cancel each other out: what is left over is at least what any has beyond all others.
    ahead: Option<(IpAddr, u32)>,
}

impl Tally {
    fn add(&mut self, part: &Contribution) {
        let (samples, remote) = match part.source {
            Some(source) => (part.samples.min(COUNTED_PER_PLACE), Some(source.remote)),
            // Perhaps of many addresses, perhaps of one.
            None => (part.samples.min(COUNTED_PER_PLACE), None),
        };
        self.total = self.total.saturating_add(samples);
        self.ahead = match (self.ahead, remote) {
            (Some((holder, lead)), Some(remote)) if holder == remote => Some((holder, lead.saturating_add(samples))),
            (Some((_, lead)), Some(remote)) if lead < samples => Some((remote, samples - lead)),
            (Some((holder, lead)), _) => Some((holder, lead.saturating_sub(samples))),
            (None, remote) => remote.map(|remote| (remote, samples)),
        };
    }

    fn lead(&self) -> u32 {
        self.ahead.map_or(0, |(_, lead)| lead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_weighs_an_eighth_or_as_a_connection_and_never_more_than_the_others() {
        let most = |addresses: &[f64], rest: f64| {
            let all = addresses.iter().sum::<f64>() + rest;
            cap(&mut addresses.to_vec(), all, 0.125, 12.0)
        };
        let near =
            |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value} instead of {expected}");
        // 20 others of 7 weigh 140: a seventh of that is an eighth of all.
        near(most(&[[900.0].as_slice(), &[7.0; 20]].concat(), 0.0), 20.0);
        near(most(&[900.0, 900.0], 180.0), 30.0);
        // Few others: as a connection.
        near(most(&[900.0, 8.0, 7.0], 0.0), 12.0);
        // Fewer than that: as all of them.
        near(most(&[900.0, 3.0, 2.0], 0.0), 5.0);
        near(most(&[900.0], 1.0), 1.0);
        // Nobody weighs too much.
        assert!(most(&[5.0; 30], 0.0) >= 5.0);
    }
}
