//! The mean over addresses of what each shows of a full path, each held near their median: what one loss, one connection, one address, an
//! application that sends little or our own advice can do to the share is limited, and an old state of the path is left behind once there is
//! enough of the new one.

use std::cmp::Reverse;
use std::net::IpAddr;

use smallvec::SmallVec;
use spand_proto::estimate::RuleKind;
use spand_proto::units::Window;

use super::buffer::median;
use super::{Admitted, Known, ProbeRule, Rule, remotes};
use crate::types::{ConnectionId, SampleReason, WindowSample};
use crate::window::bucket::Contribution;
use crate::window::record::WindowSlice;

/// The rule; its numbers were chosen by figures (docs/results/rule.md).
///
/// 1. Only samples at a full path count once two addresses gave some; with what ended without a loss they are a lower bound then. In a
///    network of one address, two connections are enough, and each of them counts as an address does.
/// 2. The last [`Self::span`] buckets count, and older ones until there are [`Self::enough`] samples ([`newest_part`]). An address counts
///    with its newest buckets that have [`Self::last`] samples. Samples of a connection with rates are a tenth of one, since rates are far
///    more frequent than losses.
/// 3. The share is the mean over addresses of the mean of each; where more transfers ended without a loss, with these if that is more. An
///    address further from their median than a factor counts as at that factor. It is 1 and [`Self::spread`] times the median distance from
///    the median, and at least and at most [`Self::factors`].
/// 4. Where all samples count, a lower bound that two addresses attest raises a share below it, by the part [`Self::lift`] of that at most.
/// 5. A transfer that started on our advice and lost nothing is no evidence against that advice: it counts at least as the
///    share in force, and probes upwards as under [`ProbeRule`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RobustRule {
    /// Samples that are enough for a share.
    pub enough: u32,
    /// Buckets that count even where fewer hold enough: 4 are the last 30 to 40 s.
    pub span: u64,
    /// Samples that are enough for one address.
    pub last: u32,
    /// How many times the median distance an address may be away from the median.
    pub spread: f64,
    /// Factors within which that holds: how far an address may be away where all agree, and where none do.
    pub factors: (f64, f64),
    /// Most that lower bounds add, as part of the share.
    pub lift: f64,
    /// Whether an advised end counts at least as the share in force.
    pub holds: bool,
}

impl RobustRule {
    /// The defaults, chosen by the comparison of rules in `docs/results/rule.md` (`make rules`).
    pub const DEFAULT: Self =
        Self { enough: 48, span: 4, last: 6, spread: 3.0, factors: (1.5, 3.0), lift: 0.1, holds: true };
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
        let location = |counted| self.location(newest_part(slice, (self.enough, self.span), counted), counted);
        if remotes::show_full_path(slice.contributions) {
            let full = location(Counted::Full)?;
            let part = outnumbered(slice.contributions);
            let beyond = if part > 0.0 { location(Counted::Carried)? - full } else { 0.0 };
            return Window::from_bytes(full + part * beyond.max(0.0));
        }
        let bound = remotes::lower_bound(slice.contributions).map_or(0.0, Window::bytes);
        let share = location(Counted::All)?;
        Window::from_bytes(share.max(bound.min(share * (1.0 + self.lift))))
    }

    fn carried(&self, slice: WindowSlice<'_>, of: IpAddr) -> Option<Window> {
        // What only a single other address carried is not confirmed.
        let own = || slice.contributions.iter().all(|part| part.source.is_some_and(|source| source.remote == of));
        let attested = remotes::attested(slice.contributions, |part| part.carried);
        attested.filter(|_| remotes::are_several(slice.contributions.iter()) || own())
    }
}

/// Which samples count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Counted {
    /// Those at a full path.
    Full,
    /// Those, and those that ended without a loss.
    Carried,
    /// All.
    All,
}

impl Counted {
    /// Their number in a contribution, and their sum in bytes.
    fn of(self, part: &Contribution) -> (u32, f64) {
        match self {
            Self::Full => (part.full.samples, part.full.bytes),
            Self::Carried => {
                // Rates are among the others.
                let (losses, bytes) = if part.full.by_rate { (0, 0.0) } else { (part.full.samples, part.full.bytes) };
                let others = part.samples.saturating_sub(part.loss_samples);
                (losses.saturating_add(others), bytes + (part.sum_bytes - part.loss_bytes).max(0.0))
            }
            Self::All => (part.samples, part.sum_bytes),
        }
    }
}

/// Whose samples count together: those of an address, or of a connection where all are of one address; `None` for the common rest.
type Voice = Option<(IpAddr, Option<ConnectionId>)>;

/// What a contribution has of the samples that count.
struct Part {
    voice: Voice,
    bucket: u64,
    samples: f64,
    bytes: f64,
    /// How many of [`RobustRule::last`] they are.
    lasting: f64,
}

/// Part of a sample that a rate is for [`RobustRule::last`].
const RATE: f64 = 0.1;

impl RobustRule {
    /// The mean over voices, each held near their median, in bytes.
    fn location(&self, newest: Newest<'_>, counted: Counted) -> Option<f64> {
        let oldest = newest.contributions.first().map(|part| part.bucket);
        let mut parts = SmallVec::<[Part; 64]>::new();
        for part in newest.contributions {
            let (samples, bytes) = counted.of(part);
            if samples > 0 {
                let wanted = if Some(part.bucket) == oldest { newest.of_oldest } else { 1.0 };
                let voice = part.source.map(|of| (of.remote, (!newest.several).then_some(of.connection)));
                let samples = f64::from(samples) * wanted;
                let lasting = if part.full.by_rate { samples * RATE } else { samples };
                parts.push(Part { voice, bucket: part.bucket, samples, bytes: bytes * wanted, lasting });
            }
        }
        parts.sort_unstable_by_key(|part| (part.voice, Reverse(part.bucket)));
        let voices = parts.chunk_by(|one, next| one.voice == next.voice).map(|own| {
            let (mut samples, mut bytes, mut lasting) = (0.0, 0.0, 0.0);
            for bucket in own.chunk_by(|one, next| one.bucket == next.bucket) {
                for part in bucket {
                    (samples, bytes) = (samples + part.samples, bytes + part.bytes);
                    lasting += part.lasting;
                }
                if lasting >= f64::from(self.last) {
                    break;
                }
            }
            // Of the oldest bucket alone, it leaves with that.
            let weight = if own.first().map(|part| part.bucket) == oldest { newest.of_oldest } else { 1.0 };
            (bytes / samples, weight)
        });
        let voices: SmallVec<[(f64, f64); 64]> = voices.collect();
        self.held_mean(&voices)
    }

    /// The weighted mean of the values, each held within a factor of their median.
    fn held_mean(&self, voices: &[(f64, f64)]) -> Option<f64> {
        let mut values: SmallVec<[f64; 64]> = voices.iter().map(|(value, _)| *value).collect();
        let middle = middle(&mut values)?;
        values.iter_mut().for_each(|value| *value = (*value - middle).abs());
        let (least, most) = if values.len() == 2 { (OF_TWO, OF_TWO) } else { self.factors };
        let distance = self::middle(&mut values)?;
        let factor = if middle > 0.0 { (1.0 + self.spread * distance / middle).clamp(least, most) } else { least };
        let (sum, weights) = voices.iter().fold((0.0, 0.0), |(sum, weights), (value, weight)| {
            (sum + weight * value.clamp(middle / factor, middle * factor), weights + weight)
        });
        (weights > 0.0).then(|| sum / weights)
    }
}

/// The weight of ends without a loss: 0 where they are at most as many as the samples at a full path, 1 where they are twice as many or more.
/// A few stray losses do not speak for many transfers that lost nothing.
fn outnumbered(contributions: &[Contribution]) -> f64 {
    let (ends, full) = contributions.iter().fold((0.0, 0.0), |(ends, full), part| {
        let others = part.samples.saturating_sub(part.loss_samples.max(part.full.samples));
        (ends + f64::from(others), full + f64::from(part.full.samples))
    });
    (ends / full - 1.0).clamp(0.0, 1.0)
}

/// How far apart two addresses may be: the windows of two long transfers differ by as much.
const OF_TWO: f64 = 1.65;

/// The median; of an even number the larger of the middle two, as shares of addresses reach further up than down. Of two the smaller:
/// nothing shows which of them is wrong.
fn middle(values: &mut [f64]) -> Option<f64> {
    let larger = median(values)?;
    if values.len() == 2 { values.first().copied() } else { Some(larger) }
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
    /// Whether the samples are of several addresses.
    several: bool,
}

/// The newest buckets: those of the last `span`, and as many more as hold `enough` samples together.
///
/// An address counts for at most as many samples as all others together: otherwise one busy address could push the samples of all
/// others out of this part.
fn newest_part(slice: WindowSlice<'_>, (enough, span): (u32, u64), counted: Counted) -> Newest<'_> {
    let all = slice.contributions;
    let last = all.last().map_or(0, |part| part.bucket);
    let several = remotes::are_several(all.iter().filter(|part| counted.of(part).0 > 0));
    let (mut tally, mut from, mut of_oldest) = (Tally::default(), all.len(), 1.0);
    let mut before = 0;
    for bucket in all.chunk_by(|one, next| one.bucket == next.bucket).rev() {
        let old = bucket.first().is_some_and(|part| last.saturating_sub(part.bucket) >= span);
        if old && before >= enough {
            break;
        }
        from -= bucket.len();
        for part in bucket {
            tally.add(part, counted.of(part).0);
        }
        let held = if several { tally.total - tally.lead() } else { tally.total };
        if old && held >= enough {
            of_oldest = f64::from(enough - before) / f64::from(held - before);
            break;
        }
        before = held;
    }
    Newest { contributions: all.get(from..).unwrap_or_default(), of_oldest, several }
}

/// Samples so far, and what one address has of them beyond all others.
#[derive(Default)]
struct Tally {
    total: u32,
    /// Weights of different addresses cancel each other out: what is left over is at least what any has beyond all others.
    ahead: Option<(IpAddr, u32)>,
}

impl Tally {
    fn add(&mut self, part: &Contribution, samples: u32) {
        // The common rest is perhaps of many addresses, perhaps of one.
        let (samples, remote) = (samples.min(COUNTED_PER_PLACE), part.source.map(|source| source.remote));
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

    fn held(values: &[f64]) -> f64 {
        let voices: Vec<(f64, f64)> = values.iter().map(|value| (*value, 1.0)).collect();
        RobustRule::DEFAULT.held_mean(&voices).unwrap()
    }

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value} instead of {expected}");
    }

    #[test]
    fn what_agrees_is_averaged_and_what_is_far_counts_as_at_the_factor() {
        assert_eq!(RobustRule::DEFAULT.held_mean(&[]), None);
        near(held(&[10.0]), 10.0);
        near(held(&[10.0, 12.0, 14.0]), 12.0);
        for far in [16.0, 1e3, 1e12] {
            near(held(&[10.0, 10.0, 10.0, 10.0, 10.0, far]), 65.0 / 6.0);
        }
        near(held(&[10.0, 10.0, 10.0, 10.0, 10.0, 0.0]), (50.0 + 10.0 / 1.5) / 6.0);
    }

    #[test]
    fn the_further_all_are_apart_the_further_one_may_be() {
        // Distances of 0, 10, 20 and 160 from 40: a factor of 2.5.
        near(held(&[20.0, 30.0, 40.0, 200.0]), (20.0 + 30.0 + 40.0 + 100.0) / 4.0);
        // And no further than 3.
        near(held(&[5.0, 80.0, 40.0, 400.0]), (80.0 / 3.0 + 80.0 + 40.0 + 240.0) / 4.0);
    }

    #[test]
    fn of_two_that_do_not_agree_the_smaller_one_is_believed() {
        near(held(&[10.0, 1e6]), 13.25);
        near(held(&[10.0, 12.0]), 11.0);
    }

    #[test]
    fn a_value_of_less_weight_counts_for_less() {
        near(RobustRule::DEFAULT.held_mean(&[(10.0, 1.0), (12.0, 0.5), (10.0, 1.0)]).unwrap(), 26.0 / 2.5);
    }
}
