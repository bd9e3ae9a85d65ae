//! A cell: what one gateway saw of one network in one bucket; and the digest by which gateways compare the cells that they have.

use std::hash::Hasher;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;
use spand_core::config::WindowConfig;
use spand_core::networks::Seen;
use spand_core::types::SampleRate;
use spand_core::window::bucket::{Bucket, Contribution, RemoteRtt};
use spand_core::window::record::{NetworkRecord, bucket_nanos};
use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};

use crate::gateway::{GatewayId, TapId};
use crate::pseudonyms::Pseudonyms;

/// What one gateway saw of a network in one bucket. Cells are facts: they merge in any order, and one that came twice changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Whose it is.
    pub gateway: GatewayId,
    /// Whose packets those are.
    pub tap: TapId,
    /// As of when. A closed bucket's is its end.
    pub as_of: Timestamp,
    /// The sums of the bucket.
    pub bucket: Bucket,
    /// What connections contributed, in order of their source; remote addresses are pseudonyms.
    pub contributions: Vec<Contribution>,
    /// Round-trip times by remote address, a pseudonym.
    pub rtts: Vec<RemoteRtt>,
    /// The share of connections that was followed.
    pub followed: SampleRate,
    /// Connections that sent to the network at once, the most of the last one to two buckets.
    pub parallel: u32,
    /// The fewest at once when a window was sampled.
    pub parallel_at_samples: u32,
    /// When the newest window sample came, if in this bucket.
    pub newest_sample: Option<Timestamp>,
    /// When a sample was last raised above what was measured, if in this bucket.
    pub raised: Option<Timestamp>,
}

/// Why a cell was not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum CellRefused {
    /// It is of this gateway itself.
    Own,
    /// Its bucket is further ahead than the next one: a clock is off.
    Future,
    /// Its bucket has left the window.
    Aged,
    /// Its numbers contradict each other.
    Unsound,
    /// No engine here makes such a network.
    NotANetwork,
    /// The table of networks, or the memory of their samples, is full of networks with samples of this gateway.
    NoRoom,
}

impl CellRefused {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Cell {
    /// The cell of a bucket in a gateway's own record; `None` where there is no such bucket. `now`: the gateway's clock.
    pub(crate) fn of(
        record: &NetworkRecord,
        index: u64,
        (gateway, tap): (GatewayId, TapId),
        seen: Seen,
        now: Timestamp,
    ) -> Option<Self> {
        let place = record.buckets.binary_search_by_key(&index, |bucket| bucket.index).ok()?;
        let nanos = bucket_nanos(record.bucket);
        let (start, end) = (index.saturating_mul(nanos), index.saturating_add(1).saturating_mul(nanos));
        let is_closed = now.0 >= end || place + 1 < record.buckets.len();
        let of_bucket = |at: Option<Timestamp>| at.filter(|at| (start..end).contains(&at.0));
        let contributions = of_index(&record.contributions, index, |part| part.bucket).to_vec();
        let has_samples = contributions.iter().any(|part| part.samples > 0);
        // Of a bucket before the newest one it is not kept when exactly; and time that ran backwards, or a restart, leaves the newest
        // bucket with what came before it.
        let within = |at: Option<Timestamp>| Timestamp(at.unwrap_or_default().0.min(end - 1).max(start));
        Some(Self {
            gateway,
            tap,
            as_of: if is_closed { Timestamp(end) } else { within(record.newest) },
            bucket: record.buckets.get(place)?.clone(),
            rtts: of_index(&record.rtts, index, |part| part.bucket).to_vec(),
            newest_sample: of_bucket(record.newest_sample)
                .or_else(|| has_samples.then(|| within(record.newest_sample))),
            raised: of_bucket(record.raised),
            contributions,
            followed: seen.followed,
            parallel: seen.parallel,
            parallel_at_samples: seen.parallel_at_samples,
        })
    }

    /// The bucket's number.
    pub fn index(&self) -> u64 {
        self.bucket.index
    }

    /// Whether the bucket was over when the cell was made.
    pub fn is_closed(&self, config: &WindowConfig) -> bool {
        self.as_of.0 >= self.index().saturating_add(1).saturating_mul(bucket_nanos(config.bucket))
    }

    /// Which of two cells of the same gateway and bucket is newer: what a bucket holds only grows.
    pub(crate) fn revision(&self) -> (Timestamp, u64) {
        (self.as_of, self.counted())
    }

    /// Everything that was counted: samples, bounds, round trips and losses.
    pub(crate) fn counted(&self) -> u64 {
        let Bucket { index: _, rtt, losses, window_limited, receiver_limited, application_limited, outcomes: _ } =
            &self.bucket;
        let counts = [losses, window_limited, receiver_limited, application_limited];
        let contributed = |part: &Contribution| u64::from(part.samples) + u64::from(part.lower_bounds);
        let counted =
            counts.into_iter().map(|count| u64::from(*count)).chain(self.contributions.iter().map(contributed));
        counted.fold(rtt.count, u64::saturating_add)
    }

    /// Bytes of its parts.
    pub(crate) fn parts_bytes(&self) -> usize {
        size_of_val(&*self.contributions) + size_of_val(&*self.rtts)
    }

    /// Window samples.
    pub fn samples(&self) -> u64 {
        self.contributions.iter().map(|part| u64::from(part.samples)).sum()
    }

    /// What may be kept of a cell from another gateway at `now`, as of a record from outside.
    ///
    /// # Errors
    ///
    /// Why nothing.
    pub(crate) fn sound(self, now: Timestamp, config: &WindowConfig) -> Result<Self, CellRefused> {
        let current = now.0 / bucket_nanos(config.bucket);
        if self.index() > current.saturating_add(1) {
            return Err(CellRefused::Future);
        }
        if self.index().saturating_add(u64::from(config.buckets.get())) <= current {
            return Err(CellRefused::Aged);
        }
        let nanos = bucket_nanos(config.bucket);
        let within = |at: Timestamp| {
            let index = self.index();
            (index.saturating_mul(nanos)..=index.saturating_add(1).saturating_mul(nanos)).contains(&at.0)
        };
        if !within(self.as_of) {
            return Err(CellRefused::Unsound);
        }
        if !self.is_plausible(nanos) {
            return Err(CellRefused::Unsound);
        }
        let counts = (self.contributions.len(), self.rtts.len());
        let pseudonymous = |remote| Pseudonyms::hash_of(remote).is_some();
        let named = self.contributions.iter().all(|part| part.source.is_none_or(|of| pseudonymous(of.remote)))
            && self.rtts.iter().all(|part| pseudonymous(part.remote));
        // The next bucket is judged as if it had come.
        let at = Timestamp(now.0.max(self.index().saturating_mul(nanos)));
        let before = |time: Option<Timestamp>| time.filter(|time| *time <= at && within(*time));
        let (newest_sample, raised) = (before(self.newest_sample), before(self.raised));
        let record = NetworkRecord {
            bucket: config.bucket,
            buckets: vec![self.bucket],
            contributions: self.contributions,
            rtts: self.rtts,
            newest_sample,
            newest: None,
            raised,
        };
        let sound = record.sound(at, config).ok_or(CellRefused::Unsound)?;
        let NetworkRecord { buckets, contributions, rtts, newest_sample, raised, .. } = sound;
        let bucket = buckets.into_iter().next().ok_or(CellRefused::Unsound)?;
        // Never half of one.
        if !named || counts != (contributions.len(), rtts.len()) || has_twice(&contributions) {
            return Err(CellRefused::Unsound);
        }
        Ok(Self { bucket, contributions, rtts, newest_sample, raised, ..self })
    }
}

/// Most window samples and round trips of a bucket, for each second of it: those of a tap with a million losses and acknowledgements of
/// one network a second.
const MOST_A_SECOND: u64 = 1_000_000;
/// Most connections at once of one network.
const MOST_AT_ONCE: u32 = 1 << 20;
/// The longest mean round trip that is believed.
const LONGEST_RTT: Micros = Micros::from_secs(60);

impl Cell {
    /// Whether one tap can have seen so much in a bucket of this length.
    fn is_plausible(&self, nanos: u64) -> bool {
        let most = MOST_A_SECOND.saturating_mul(nanos.div_ceil(1_000_000_000));
        let rtt = self.bucket.rtt;
        self.counted() <= most
            && rtt.sum.0 <= rtt.count.saturating_mul(LONGEST_RTT.0)
            && self.rtts.iter().all(|part| part.sum.0 <= part.count.saturating_mul(LONGEST_RTT.0))
            && self.parallel.max(self.parallel_at_samples) <= MOST_AT_ONCE
    }
}

fn has_twice(contributions: &[Contribution]) -> bool {
    contributions.windows(2).any(|pair| matches!(pair, [one, next] if one.source == next.source))
}

/// The part of a list in order of buckets that is of one.
pub(crate) fn of_index<T>(all: &[T], index: u64, bucket: impl Fn(&T) -> u64) -> &[T] {
    let first = all.partition_point(|one| bucket(one) < index);
    let after = all.partition_point(|one| bucket(one) <= index);
    all.get(first..after).unwrap_or_default()
}

/// Digest of a closed bucket: a gateway names how many cells it sent of it and a hash of them, in any order. Another gateway that has
/// others asks for them. A digest protects against loss, and not against a gateway that lies.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Digest {
    /// Cells.
    pub cells: u32,
    /// Their hashes, by exclusive or.
    pub hash: u64,
}

impl Digest {
    /// With one more.
    pub(crate) fn add(&mut self, cell: u64) {
        (self.cells, self.hash) = (self.cells.saturating_add(1), self.hash ^ cell);
    }

    /// Without one that it had.
    pub(crate) fn remove(&mut self, cell: u64) {
        (self.cells, self.hash) = (self.cells.saturating_sub(1), self.hash ^ cell);
    }

    /// Both together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self { cells: self.cells.saturating_add(other.cells), hash: self.hash ^ other.hash }
    }
}

/// The hash of a closed cell: of its network and bucket, and of how much was counted, which only grows.
pub(crate) fn hash(network: Network, index: u64, counted: u64) -> u64 {
    let prefix = network.prefix();
    // No secret: who may write under a gateway's number could send anything in any case.
    let mut hasher = SipHasher13::new();
    match prefix.addr() {
        IpAddr::V4(address) => hasher.write(&address.octets()),
        IpAddr::V6(address) => hasher.write(&address.octets()),
    }
    hasher.write_u8(prefix.prefix_len());
    hasher.write(&index.to_le_bytes());
    hasher.write(&counted.to_le_bytes());
    hasher.finish()
}
