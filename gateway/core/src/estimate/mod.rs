//! From a window to an estimate, by a named rule.
//!
//! A [`Rule`] says what a sample counts as and which share follows from all of them; the rest of an estimate is the same
//! for every rule. Each function here is pure: the same window at the same moment gives the same bits.

mod buffer;
mod load;
mod own_tap;
mod probe;
mod remotes;
mod robust;
mod sources;

#[cfg(test)]
mod tests;

use std::fmt;
use std::iter::repeat_n;
use std::net::IpAddr;

use smallvec::SmallVec;
use spand_proto::estimate::{Confidence, Estimate, Mark, RuleKind};
use spand_proto::network::Network;
use spand_proto::opening::Opening;
use spand_proto::start::DEFAULT_INITIAL_WINDOW;
use spand_proto::units::{Bytes, Micros, Timestamp, Window};
use strum::{IntoStaticStr, VariantArray};

pub(crate) use self::own_tap::bounded;
pub use self::probe::{ProbeRule, SpandRule};
pub use self::robust::RobustRule;
pub use self::sources::AddressShare;
pub(crate) use self::sources::address_shares;
use crate::config::WindowConfig;
use crate::types::WindowSample;
use crate::window::bucket::{Contribution, larger};
use crate::window::delivery::Delivery;
use crate::window::record::{NetworkRecord, WindowSlice, bucket_nanos};

/// Standard error, as part of the share, at which confidence is 0.5.
const HALF_SURE: f64 = 0.4;
/// Assumed distance of one more address from the share, as part of the share.
const APART: f64 = 0.5;
/// Factor for a lower bound.
const PART_OF_BOUND: f64 = 0.5;

/// Why a network has no estimate.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, PartialEq, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum NoEstimate {
    /// Fewer window samples than the minimum.
    TooFewSamples,
    /// They came from fewer connections than the minimum.
    TooFewConnections,
    /// The newest is older than the age limit.
    Expired,
}

impl NoEstimate {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How samples become a share.
pub trait Rule: fmt::Debug + Send + Sync {
    /// Its name.
    fn kind(&self) -> RuleKind;

    /// The value that a sample counts with; never asked about lower bounds.
    fn admit(&self, sample: &WindowSample, known: &Known) -> Admitted;

    /// The share `Wc` that the window shows; `None` without samples.
    fn share(&self, slice: WindowSlice<'_>) -> Option<Window>;

    /// Whether the end of a slow start counts as a sample, as in the paper, and not as a lower bound. Lower bounds alone give no estimate then;
    /// else they give one, which is marked as a bound.
    fn reads_slow_start_ends(&self) -> bool {
        false
    }

    /// The largest window that counts as carried without loss, for a sample of the address `of`.
    fn carried(&self, slice: WindowSlice<'_>, _of: IpAddr) -> Option<Window> {
        slice.contributions.iter().filter_map(|part| part.carried).reduce(|most, carried| larger(Some(most), carried))
    }
}

/// What is known of a network just before a sample is admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Known {
    /// The share in force.
    pub share: Option<Window>,
    /// Mean round-trip time in the window.
    pub rtt: Option<Micros>,
    /// Largest window in the window that the path carried without loss.
    pub carried: Option<Window>,
    /// When a sample was last raised above what was measured.
    pub raised: Option<Timestamp>,
}

/// A sample's value by the rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Admitted {
    /// The value.
    pub window: Window,
    /// Whether that is above what was measured.
    pub raised: bool,
}

/// The rule of a name. Those that differ in the opening alone ([`crate::opening`]) have the share of `robust`, and its name in an estimate:
/// agents of older releases know that one.
pub fn rule(kind: RuleKind) -> &'static dyn Rule {
    match kind {
        RuleKind::Spand => &SpandRule,
        RuleKind::Probe => &ProbeRule,
        RuleKind::Robust | RuleKind::Liss | RuleKind::Iss | RuleKind::Miss | RuleKind::Cached | RuleKind::Averaged => {
            &RobustRule::DEFAULT
        }
    }
}

/// What a network's window says at `now`.
///
/// # Errors
///
/// Why it says nothing.
pub(crate) fn estimate(
    network: Network,
    (record, delivery, opening): (&NetworkRecord, &Delivery, Option<Opening>),
    now: Timestamp,
    config: &WindowConfig,
    rule: &dyn Rule,
) -> Result<Estimate, NoEstimate> {
    let slice = record.slice(now, config);
    of_counted(network, (record, delivery, opening), (slice, &Counts::of(slice)), now, config, rule)
}

/// The same of a window that is counted already.
pub(crate) fn of_counted(
    network: Network,
    (record, delivery, opening): (&NetworkRecord, &Delivery, Option<Opening>),
    (slice, counts): (WindowSlice<'_>, &Counts),
    now: Timestamp,
    config: &WindowConfig,
    rule: &dyn Rule,
) -> Result<Estimate, NoEstimate> {
    let bdp = delivery.bdp(now, slice.rtt().min);
    let gives_bounds = !rule.reads_slow_start_ends();
    let too_few = if counts.samples < config.min_samples {
        Some(NoEstimate::TooFewSamples)
    } else if counts.connections < config.min_connections {
        Some(NoEstimate::TooFewConnections)
    } else {
        None
    };
    if let Some(too_few) = too_few {
        let enough = counts.samples.saturating_add(counts.lower_bounds) >= config.min_samples
            && counts.connections_in_all >= config.min_connections;
        let bound = || {
            let window = remotes::attested(slice.contributions, beyond_initial_window);
            at_least(network, slice, (window, bdp), now, (config, rule))
        };
        return if enough && gives_bounds { bound() } else { None }.ok_or(too_few);
    }
    let refreshed = record.newest_sample.filter(|newest| now.since(*newest) <= config.max_age);
    let refreshed = refreshed.ok_or(NoEstimate::Expired)?;
    let (kept, kept_counts);
    let (mut slice, mut counts, mut past_load) = (slice, counts, false);
    if gives_bounds && let Some(of_now) = load::of_now(slice, record.bucket, now) {
        kept = of_now;
        let others = WindowSlice { contributions: &kept, ..slice };
        kept_counts = Counts::of(others);
        past_load = kept_counts.samples < config.min_samples || kept_counts.connections < config.min_connections;
        if !past_load {
            (slice, counts) = (others, &kept_counts);
        }
    }
    if gives_bounds
        && sources::loses_at_random(slice)
        && let Some(bound) = at_least(network, slice, (remotes::carried(slice.contributions), bdp), now, (config, rule))
    {
        return Ok(Estimate { refreshed, mark: Some(Mark::RandomLoss), ..bound });
    }
    let Shown { share, is_lower_bound, mark, fell } = Shown::of(slice, rule).ok_or(NoEstimate::TooFewSamples)?;
    let mark = if past_load { Some(Mark::PastLoad) } else { mark };
    let losses = fell.unwrap_or(slice);
    let is_full = gives_bounds && !is_lower_bound;
    let is_backed = mark.is_none() && !is_lower_bound;
    let backed = fell.map_or(counts.loss_connections, |fell| Counts::of(fell).loss_connections);
    Ok(Estimate {
        network,
        share,
        is_lower_bound,
        mss: median_mss(slice),
        rtt_min: slice.rtt().min,
        rtt_mean: slice.rtt_mean(),
        samples: counts.samples,
        connections: counts.connections,
        loss_connections: if is_backed { backed } else { 0 },
        losses: slice.losses(),
        loss_window: if is_backed { loss_window(losses) } else { None },
        opening,
        buffer: buffer::buffer(slice, record.bucket),
        // Where addresses differ, the fastest client gives the product. The others may hold no more than the share.
        bdp: bdp.map(|bdp| if mark == Some(Mark::AddressesDiffer) && bdp > share { share } else { bdp }),
        refreshed,
        confidence: confidence(apart(losses, share, is_full), is_lower_bound, (now.since(refreshed), config.max_age)),
        rule: rule.kind(),
        mark,
    })
}

/// The share that a window shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'a> {
    share: Window,
    /// Whether samples at a full path are too few: what ended without loss shows what the path carried, not what it can.
    is_lower_bound: bool,
    /// Why no loss backs it.
    mark: Option<Mark>,
    /// Where the path fell, the contributions since.
    fell: Option<WindowSlice<'a>>,
}

impl<'a> Shown<'a> {
    pub(crate) fn of(slice: WindowSlice<'a>, rule: &dyn Rule) -> Option<Self> {
        let share = rule.share(slice)?;
        let shown = Self { share, is_lower_bound: false, mark: None, fell: None };
        if rule.reads_slow_start_ends() {
            return Some(shown);
        }
        if let Some((share, fell)) = sources::fallen(slice, share) {
            return Some(Self { share, fell: Some(fell), ..shown });
        }
        if !remotes::show_full_path(slice.contributions) {
            return Some(Self { is_lower_bound: true, ..shown });
        }
        let lower = sources::lower_part(slice, share);
        Some(Self { share: lower.unwrap_or(share), mark: lower.map(|_| Mark::AddressesDiffer), ..shown })
    }
}

/// Whether a contribution counts towards an estimate: samples, or a lower bound beyond the initial window.
pub fn says_something(part: &Contribution) -> bool {
    part.samples > 0 || beyond_initial_window(part).is_some()
}

/// A lower bound beyond the initial window: up to that every connection starts in any case.
fn beyond_initial_window(part: &Contribution) -> Option<Window> {
    let least = Window::from_segments(DEFAULT_INITIAL_WINDOW, part.mss);
    part.largest_bound.filter(|bound| *bound > least)
}

/// The estimate of a network of which only a lower bound of the share is known: `window`, where there are as many lower bounds and samples as
/// samples are wanted. Nothing of it is by a loss, so that slow start goes on from there (`docs/explain/decisions/starts.md`).
fn at_least(
    network: Network,
    slice: WindowSlice<'_>,
    (window, bdp): (Option<Window>, Option<Window>),
    now: Timestamp,
    (config, rule): (&WindowConfig, &dyn Rule),
) -> Option<Estimate> {
    let parts = || slice.contributions.iter().filter(|part| says_something(part));
    let samples = parts().fold(0, |sum: u32, part| sum.saturating_add(part.lower_bounds).saturating_add(part.samples));
    let connections = u32::try_from(distinct(parts().filter_map(|part| part.source))).unwrap_or(u32::MAX);
    if samples < config.min_samples || connections < config.min_connections {
        return None;
    }
    let newest = parts().next_back()?;
    let refreshed = now.min(Timestamp(newest.bucket.saturating_add(1).saturating_mul(bucket_nanos(config.bucket))));
    let alike = repeat_n(0.0, distinct(parts().map(remotes::address)));
    Some(Estimate {
        network,
        share: window?,
        is_lower_bound: true,
        mss: newest.mss,
        rtt_min: slice.rtt().min,
        rtt_mean: slice.rtt_mean(),
        samples,
        connections,
        loss_connections: 0,
        losses: slice.losses(),
        loss_window: None,
        opening: None,
        buffer: None,
        bdp,
        refreshed,
        confidence: confidence(alike, true, (now.since(refreshed), config.max_age)),
        rule: rule.kind(),
        mark: None,
    })
}

/// How many different ones there are.
fn distinct<T: Ord>(all: impl Iterator<Item = T>) -> usize {
    let mut all: SmallVec<[T; 64]> = all.collect();
    all.sort_unstable();
    all.dedup();
    all.len()
}

/// How likely a share is within a fifth of the network's, from 0 to 1 (`docs/explain/decisions/estimate.md`):
///
/// `1 / (1 + (e / 0.4)^2)  *  (1 - age / max_age)` with `e^2 = (0.5^2 + sum of d^2) / a^2`
///
/// Each of the `a` addresses has samples whose mean is `1 + d` times the share. `e` is the standard error of a mean over addresses, with one
/// address more that differs by half: few that agree are no proof. Five that agree give 0.94 when fresh, two 0.72, one 0.39. A lower bound
/// has half of that.
fn confidence(
    addresses: impl IntoIterator<Item = f64>,
    is_lower_bound: bool,
    (age, max_age): (Micros, Micros),
) -> Confidence {
    let of = |(number, squares), apart: f64| (number + 1.0, squares + apart * apart);
    let (number, squares) = addresses.into_iter().fold((0.0_f64, APART * APART), of);
    let error = squares.sqrt() / number.max(1.0) / HALF_SURE;
    let whole = if is_lower_bound { PART_OF_BOUND } else { 1.0 };
    Confidence::new(whole * freshness(age, max_age) / (1.0 + error * error))
}

/// How far the mean of each address's samples is from the share, as part of it. Of `robust`, samples at a full path count where they gave
/// the share.
fn apart(slice: WindowSlice<'_>, share: Window, of_full: bool) -> impl Iterator<Item = f64> {
    let of = |part: &Contribution| {
        if of_full { (part.full.samples, part.full.bytes) } else { (part.samples, part.sum_bytes) }
    };
    let means = means(slice.contributions.iter().map(|part| (remotes::address(part), of(part))));
    means.into_iter().map(move |mean| mean / share.bytes() - 1.0)
}

/// The mean of the samples under each key, in order of the keys; each part has a number of samples and their sum.
fn means<K: Copy + Ord>(parts: impl Iterator<Item = (K, (u32, f64))>) -> SmallVec<[f64; 64]> {
    let mut given: SmallVec<[_; 64]> = parts.filter(|(_, (samples, _))| *samples > 0).collect();
    given.sort_unstable_by_key(|(key, _)| *key);
    let sums = given.chunk_by(|one, next| one.0 == next.0).map(|same| {
        let add =
            |sum: (f64, f64), (_, (samples, bytes)): &(K, (u32, f64))| (sum.0 + f64::from(*samples), sum.1 + bytes);
        same.iter().fold((0.0, 0.0), add)
    });
    sums.map(|(samples, bytes)| bytes / samples).collect()
}

fn freshness(age: Micros, max_age: Micros) -> f64 {
    1.0 - (age.0 as f64 / max_age.0.max(1) as f64).min(1.0)
}

/// What a rule that is not in force says of the same window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// The rule.
    pub rule: RuleKind,
    /// Its share, of the samples as the rule in force admitted them.
    pub share: Option<Window>,
    /// Its opening.
    pub opening: Option<Opening>,
}

impl Compared {
    pub(crate) fn of(kind: RuleKind, slice: WindowSlice<'_>, opening: Option<Opening>) -> Self {
        Self { rule: kind, share: rule(kind).share(slice), opening }
    }
}

/// How many samples a window holds, and of how many connections.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    /// Window samples.
    pub(crate) samples: u32,
    /// Lower bounds.
    pub(crate) lower_bounds: u32,
    /// Connections with samples.
    pub(crate) connections: u32,
    /// Connections with samples or lower bounds.
    pub(crate) connections_in_all: u32,
    /// Connections with samples by loss.
    pub(crate) loss_connections: u32,
}

impl Counts {
    pub(crate) fn of(slice: WindowSlice<'_>) -> Self {
        // Below a connection's number: it gave samples, and a loss gave one of them. Whole words are put in order faster than tuples.
        const SAMPLED: u64 = 2;
        const LOSSY: u64 = 1;
        let mut counts = Self::default();
        let mut connections = SmallVec::<[u64; 32]>::new();
        for contribution in slice.contributions {
            counts.samples = counts.samples.saturating_add(contribution.samples);
            counts.lower_bounds = counts.lower_bounds.saturating_add(contribution.lower_bounds);
            let Some(source) = contribution.source else { continue };
            let sampled = if contribution.samples > 0 { SAMPLED } else { 0 };
            let lossy = if contribution.loss_samples > 0 { LOSSY } else { 0 };
            connections.push((source.connection.0 << 2) | sampled | lossy);
        }
        connections.sort_unstable();
        for same in connections.chunk_by(|one, next| one >> 2 == next >> 2) {
            let any = same.iter().fold(0, |any, one| any | one);
            counts.connections_in_all = counts.connections_in_all.saturating_add(1);
            counts.connections = counts.connections.saturating_add((any & SAMPLED != 0).into());
            counts.loss_connections = counts.loss_connections.saturating_add((any & LOSSY != 0).into());
        }
        counts
    }
}

/// Mean window at the losses that gave a sample. A false one only makes slow start continue as in standard TCP.
fn loss_window(slice: WindowSlice<'_>) -> Option<Window> {
    let losses: f64 = slice.contributions.iter().map(|part| f64::from(part.loss_samples)).sum();
    let bytes: f64 = slice.contributions.iter().map(|part| part.loss_bytes).sum();
    if losses > 0.0 { Window::from_bytes(bytes / losses) } else { None }
}

/// The segment size that half of the samples reach.
fn median_mss(slice: WindowSlice<'_>) -> Bytes {
    // A network has a few sizes; where it has many, they are put in order without looking for equal ones.
    const FEW: usize = 8;
    let mut sizes = SmallVec::<[(Bytes, u64); 32]>::new();
    let mut total = 0;
    for contribution in slice.contributions {
        let (mss, samples) = (contribution.mss, u64::from(contribution.samples));
        total += samples;
        match sizes.iter_mut().take(FEW).find(|(size, _)| *size == mss) {
            Some((_, count)) => *count += samples,
            None if samples > 0 => sizes.push((mss, samples)),
            None => {}
        }
    }
    sizes.sort_unstable();
    let mut below = 0;
    let median = sizes.iter().find(|(_, samples)| {
        below += *samples;
        2 * below >= total
    });
    median.map_or(Bytes(0), |(mss, _)| *mss)
}
