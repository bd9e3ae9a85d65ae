//! Everything kept of one network: the ring of buckets, in memory and in the store, and the address that may outweigh all others in it.
//!
//! Only buckets in which something happened take room, in order of time. What is older than the window is passed over by
//! every reader ([`NetworkRecord::slice`]) and dropped at the next write, so an idle network costs no work.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use spand_proto::no_estimate::Outcomes;
use spand_proto::units::{Micros, Timestamp, Window};

use super::bucket::{Bucket, Contribution, RemoteRtt, Source};
use crate::config::WindowConfig;
use crate::types::{LimitCounts, RttSum, WindowSample};

/// Connections distinguished in one bucket; 16 is far above any minimum of connections (`docs/explain/decisions/estimate.md`).
/// A sample of a further one is added to another connection of the same remote address, or else to a common rest, and counted:
/// sums stay exact, the number of connections is then too low.
pub const CONTRIBUTIONS_PER_BUCKET: usize = 16;

/// Remote addresses whose round-trip times are kept apart in one bucket. Those of a further one take the place of the
/// address with the fewest, whose times are then only in the bucket's sum, and counted.
pub const REMOTES_PER_BUCKET: usize = 16;

/// What is kept of one network. Plain data: the same record, given back, gives the same answers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct NetworkRecord {
    /// Length of a bucket.
    pub bucket: Micros,
    /// Buckets in which something happened, in order of [`Bucket::index`].
    pub buckets: Vec<Bucket>,
    /// Contributions to them, in order of their bucket and in it of [`Contribution::source`]: what a rule makes of them does not depend
    /// on which connection came first, as long as the bucket had room for each.
    pub contributions: Vec<Contribution>,
    /// Round-trip times by remote address, in order of their bucket.
    pub rtts: Vec<RemoteRtt>,
    /// When the newest window sample came.
    pub newest_sample: Option<Timestamp>,
    /// When the newest sample, lower bound or round-trip time came.
    pub newest: Option<Timestamp>,
    /// When the `probe` rule last raised a sample above what was measured.
    pub raised: Option<Timestamp>,
}

/// The part of a record inside the window at some moment.
#[derive(Clone, Copy, Debug)]
pub struct WindowSlice<'a> {
    /// Buckets, in order of time.
    pub buckets: &'a [Bucket],
    /// Contributions to them.
    pub contributions: &'a [Contribution],
    /// Round-trip times by remote address, as far as they are kept apart.
    pub rtts: &'a [RemoteRtt],
}

impl WindowSlice<'_> {
    /// Round-trip times, summed. Their minimum is that of the window, from any connection.
    pub fn rtt(self) -> RttSum {
        self.buckets.iter().fold(RttSum::default(), |sum, bucket| sum.with(bucket.rtt))
    }

    /// Mean round-trip time, to the nearest microsecond: every sample weighs the same, but those of an address that has more
    /// than half weigh together as much as all others. Where there are no others, they count as they are.
    pub fn rtt_mean(self) -> Option<Micros> {
        let all = self.rtt();
        let heaviest = majority_candidate(self.rtts.iter().map(|part| (part.remote, part.count)))?;
        let own = self
            .rtts
            .iter()
            .filter(|part| part.remote == heaviest)
            .fold(RttSum::default(), |sum, part| sum.with(RttSum { count: part.count, sum: part.sum, min: None }));
        let others = RttSum {
            count: all.count.saturating_sub(own.count),
            sum: Micros(all.sum.0.saturating_sub(own.sum.0)),
            min: None,
        };
        match (own.mean(), others.mean()) {
            (Some(own_mean), Some(mean)) if own.count > others.count => {
                Some(Micros(own_mean.0.saturating_add(mean.0).saturating_add(1) / 2))
            }
            _ => all.mean(),
        }
    }

    /// Loss events.
    pub fn losses(self) -> u64 {
        self.buckets.iter().map(|bucket| u64::from(bucket.losses)).sum()
    }

    /// How transfers ended.
    pub fn outcomes(self) -> Outcomes {
        self.buckets.iter().fold(Outcomes::default(), |sum, bucket| sum.with(bucket.outcomes.into()))
    }

    /// Round trips by what limited them.
    pub fn limits(self) -> LimitCounts {
        self.buckets.iter().fold(LimitCounts::default(), |sum, bucket| sum.with(bucket.limits()))
    }
}

/// The one address that may have more than half of something (`docs/explain/decisions/estimate.md`: none may give more than half of
/// an estimate).
///
/// Finds it in one pass without a table: weights of different addresses cancel each other out, and what is left over names
/// the only candidate (Boyer and Moore's majority vote, with weights). Whether it has more than half is for the caller to
/// count; no other one has.
pub(crate) fn majority_candidate(parts: impl Iterator<Item = (IpAddr, u64)>) -> Option<IpAddr> {
    let (address, _) = parts.fold(None, |held: Option<(IpAddr, u64)>, (address, weight)| match held {
        Some((holder, ahead)) if holder == address => Some((holder, ahead.saturating_add(weight))),
        Some((holder, ahead)) if ahead >= weight => Some((holder, ahead - weight)),
        Some((_, ahead)) => Some((address, weight - ahead)),
        None => Some((address, weight)),
    })?;
    Some(address)
}

impl NetworkRecord {
    /// One that holds nothing.
    pub fn new(bucket: Micros) -> Self {
        Self {
            bucket,
            buckets: Vec::new(),
            contributions: Vec::new(),
            rtts: Vec::new(),
            newest_sample: None,
            newest: None,
            raised: None,
        }
    }

    /// The part inside the window at `now`.
    pub fn slice(&self, now: Timestamp, config: &WindowConfig) -> WindowSlice<'_> {
        let aged = |index| is_aged(index, now, config);
        let buckets = self.buckets.partition_point(|bucket| aged(bucket.index));
        let contributions = self.contributions.partition_point(|contribution| aged(contribution.bucket));
        let rtts = self.rtts.partition_point(|part| aged(part.bucket));
        WindowSlice {
            buckets: self.buckets.get(buckets..).unwrap_or_default(),
            contributions: self.contributions.get(contributions..).unwrap_or_default(),
            rtts: self.rtts.get(rtts..).unwrap_or_default(),
        }
    }

    /// When the oldest bucket leaves the window; `None` where the record is empty.
    pub(crate) fn next_aged(&self, config: &WindowConfig) -> Option<Timestamp> {
        let after = self.buckets.first()?.index.saturating_add(u64::from(config.buckets.get()));
        Some(Timestamp(after.saturating_mul(bucket_nanos(config.bucket))))
    }

    /// Whether what comes at `at` opens a new bucket.
    pub(crate) fn is_new_bucket(&self, at: Timestamp) -> bool {
        self.buckets.last().is_none_or(|last| last.index < at.0 / bucket_nanos(self.bucket))
    }

    /// The bucket of `at`, new where it has to be. Time that runs backwards stays in the newest one.
    pub(crate) fn bucket_at(&mut self, at: Timestamp, config: &WindowConfig) -> Option<&mut Bucket> {
        if self.is_new_bucket(at) {
            self.drop_aged(at, config);
            push_tight(&mut self.buckets, Bucket::new(at.0 / bucket_nanos(self.bucket)));
        }
        self.newest = self.newest.max(Some(at));
        self.buckets.last_mut()
    }

    /// Adds round-trip times to an address. Says whether another address lost its place to it.
    pub(crate) fn add_rtts(&mut self, at: Timestamp, remote: IpAddr, rtts: RttSum, config: &WindowConfig) -> bool {
        let Some(bucket) = self.bucket_at(at, config) else { return false };
        bucket.rtt = bucket.rtt.with(rtts);
        let index = bucket.index;
        let (mut in_bucket, mut least) = (0, None::<&mut RemoteRtt>);
        for part in self.rtts.iter_mut().rev().take_while(|part| part.bucket == index) {
            if part.remote == remote {
                part.count = part.count.saturating_add(rtts.count);
                part.sum = Micros(part.sum.0.saturating_add(rtts.sum.0));
                return false;
            }
            in_bucket += 1;
            if least.as_ref().is_none_or(|least| part.count <= least.count) {
                least = Some(part);
            }
        }
        let part = RemoteRtt { bucket: index, remote, count: rtts.count, sum: rtts.sum };
        match least.filter(|_| in_bucket >= REMOTES_PER_BUCKET) {
            Some(least) => *least = part,
            None => push_tight(&mut self.rtts, part),
        }
        in_bucket >= REMOTES_PER_BUCKET
    }

    /// Adds a sample, with the value that the rule admitted for it, or a lower bound. Says whether it had to share the
    /// place of another connection.
    pub(crate) fn add(&mut self, sample: &WindowSample, admitted: Window, config: &WindowConfig) -> bool {
        let Some(bucket) = self.bucket_at(sample.at, config) else { return false };
        let index = bucket.index;
        if !sample.reason.is_lower_bound() {
            self.newest_sample = self.newest_sample.max(Some(sample.at));
        }
        let source = Source { remote: sample.remote, connection: sample.connection };
        // A few at the end: a search by halves would fetch what lies before them.
        let before = self.contributions.iter().rposition(|contribution| contribution.bucket < index);
        let first = before.map_or(0, |before| before + 1);
        let in_bucket = self.contributions.get_mut(first..).unwrap_or_default();
        let own = in_bucket.iter().position(|contribution| contribution.source == Some(source));
        let has_room = in_bucket.len() < CONTRIBUTIONS_PER_BUCKET;
        // The common rest is opened when all addresses differ, and they stay: there is nothing to put together any more.
        let rest = in_bucket.iter().rposition(|contribution| contribution.source.is_none());
        let (place, shared) = match own {
            Some(place) => (Some(place), false),
            None if has_room => (None, false),
            None => {
                let same_address = in_bucket.iter().position(|other| shares_place(other, source));
                (same_address.or(rest).or_else(|| make_room(in_bucket, index, source)), true)
            }
        };
        if let Some(contribution) = place.and_then(|place| in_bucket.get_mut(place)) {
            contribution.add(sample, admitted);
        } else {
            let mut contribution = Contribution::new(index, (!shared).then_some(source));
            contribution.add(sample, admitted);
            let place = first + in_bucket.partition_point(|other| other.source < contribution.source);
            insert_tight(&mut self.contributions, place, contribution);
        }
        shared
    }

    /// Bytes of its entries.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of_val(&*self.buckets) + size_of_val(&*self.contributions) + size_of_val(&*self.rtts)
    }

    /// Drops what is older than the window at `now`.
    pub fn drop_aged(&mut self, now: Timestamp, config: &WindowConfig) {
        let live = self.slice(now, config);
        let (buckets, contributions, rtts) = (live.buckets.len(), live.contributions.len(), live.rtts.len());
        self.buckets.drain(..self.buckets.len() - buckets);
        self.contributions.drain(..self.contributions.len() - contributions);
        self.rtts.drain(..self.rtts.len() - rtts);
        give_back(&mut self.buckets);
        give_back(&mut self.contributions);
        give_back(&mut self.rtts);
    }
}

/// Appends with little room to spare.
fn push_tight<T>(all: &mut Vec<T>, one: T) {
    insert_tight(all, all.len(), one);
}

/// Inserts with little room to spare: most networks keep one or two of a kind, where a vector by itself makes room for
/// four.
pub(crate) fn insert_tight<T>(all: &mut Vec<T>, place: usize, one: T) {
    if all.len() == all.capacity() {
        all.reserve_exact((all.len() / 2).max(1));
    }
    all.insert(place.min(all.len()), one);
}

/// Frees unused capacity. Otherwise every network would keep the memory of its busiest time.
pub(crate) fn give_back<T>(all: &mut Vec<T>) {
    if all.capacity() > all.len() + all.len() / 2 + 1 {
        all.shrink_to_fit();
    }
}

/// Whether a contribution takes a sample of `source` for which its bucket has no room: one of the same address.
fn shares_place(contribution: &Contribution, source: Source) -> bool {
    contribution.source.is_some_and(|other| other.remote == source.remote)
}

/// Puts two connections of one address together where a full bucket has such, and gives `source` the place of the second.
/// So an address that was first cannot push all others into the common rest.
fn make_room(in_bucket: &mut [Contribution], index: u64, source: Source) -> Option<usize> {
    let remote = |place: &Contribution| place.source.map(|source| source.remote);
    let (kept, freed) = in_bucket.iter().enumerate().find_map(|(freed, place)| {
        let own = remote(place)?;
        let kept = in_bucket.iter().take(freed).position(|other| remote(other) == Some(own))?;
        Some((kept, freed))
    })?;
    let gone = std::mem::replace(in_bucket.get_mut(freed)?, Contribution::new(index, Some(source)));
    in_bucket.get_mut(kept)?.merge(&gone);
    in_bucket.sort_unstable_by_key(|place| place.source);
    in_bucket.iter().position(|place| place.source == Some(source))
}

pub(crate) fn is_aged(index: u64, now: Timestamp, config: &WindowConfig) -> bool {
    index.saturating_add(u64::from(config.buckets.get())) <= now.0 / bucket_nanos(config.bucket)
}

/// A bucket's length in nanoseconds; one microsecond where it is configured to be zero.
pub fn bucket_nanos(bucket: Micros) -> u64 {
    bucket.0.max(1).saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_one_with_more_than_half_is_found(parts in prop::collection::vec((0_u8..4, 0_u64..9), 1..30)) {
            let address = |n: u8| IpAddr::from([192, 0, 2, n]);
            let weight = |of: &dyn Fn(u8) -> bool| -> u64 {
                parts.iter().filter(|(n, _)| of(*n)).map(|(_, weight)| weight).sum()
            };
            let found = majority_candidate(parts.iter().map(|(n, weight)| (address(*n), *weight)));
            for n in 0..4 {
                if weight(&|other| other == n) > weight(&|other| other != n) {
                    prop_assert_eq!(found, Some(address(n)));
                }
            }
        }
    }
}
