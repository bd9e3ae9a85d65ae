//! The payload of a record, format 4.
//!
//! ```text
//! record        bucket length (µs), presence, [newest sample] [newest] [raised] (ns), buckets, contributions,
//!               round trips
//! buckets       count, then each: index less that of the one before, presence, RTT count, [RTT min] (µs), RTT sum
//!               (µs), losses, limits (window, receiver, application)
//! contributions count, then each: bucket index less that of the one before, family (0, 4 or 6), [address, connection],
//!               samples, loss samples, sum, sum by losses, squares (fractions), MSS, lower bounds, presence, [largest bound]
//!               [largest sample] (fractions), losses that show the queue, [their sum, the sum of their squares] (fractions) where there are any
//! round trips   count, then each: bucket index less that of the one before, family (4 or 6), address, count, sum (µs)
//! ```
//!
//! Format 3 has nothing of the queue; it is read, and never written.
//!
//! Numbers are written as [`spand_core::encoding::numbers`] says; a presence byte has a bit, from the lowest, for each value in brackets
//! that follows it. Index differences wrap, so that any record comes back as it was; whether it makes sense is the
//! engine's to say when it takes it.

use std::net::IpAddr;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use spand_core::encoding::numbers::{Malformed, Reader, Writer, optional, read_optional};
use spand_core::encoding::parts::{self, Layout};
use spand_core::types::ConnectionId;
use spand_core::window::bucket::{Contribution, RemoteRtt, Source};
use spand_core::window::record::NetworkRecord;
use spand_proto::units::{Micros, Timestamp};
use strum::{IntoStaticStr, VariantArray};

/// Fewest bytes of a bucket, of a contribution and of the round trips to an address.
const LEAST_BUCKET: usize = 1 + parts::LEAST_BUCKET;
const LEAST_CONTRIBUTION: usize = 2 + parts::LEAST_CONTRIBUTION;
const LEAST_ROUND_TRIPS: usize = 8;

/// Writes a record after what `out` holds already.
pub(super) fn write(record: &NetworkRecord, out: &mut Writer) {
    let NetworkRecord { bucket, buckets, contributions, rtts, newest_sample, newest, raised } = record;
    out.whole(bucket.0);
    optional(out, &[*newest_sample, *newest, *raised], |out, at| out.whole(at.0));
    out.whole(buckets.len() as u64);
    let mut before = 0;
    for bucket in buckets {
        out.whole(bucket.index.wrapping_sub(before));
        before = bucket.index;
        parts::write_bucket(bucket, out);
    }
    out.whole(contributions.len() as u64);
    let mut before = 0;
    for contribution in contributions {
        out.whole(contribution.bucket.wrapping_sub(before));
        before = contribution.bucket;
        write_contribution(contribution, out);
    }
    out.whole(rtts.len() as u64);
    let mut before = 0;
    for RemoteRtt { bucket, remote, count, sum } in rtts {
        out.whole(bucket.wrapping_sub(before));
        before = *bucket;
        out.byte(family(*remote));
        out.address(*remote);
        out.whole(*count);
        out.whole(sum.0);
    }
}

/// Reads a record of one of the formats, which takes all of `input`.
pub(super) fn read(input: &mut Reader<'_>, layout: Layout) -> Result<NetworkRecord, Malformed> {
    let bucket = Micros(input.whole()?);
    let [newest_sample, newest, raised] = read_optional(input, |input| input.whole().map(Timestamp))?;
    let mut before = 0u64;
    let buckets = input.list(LEAST_BUCKET, |input| {
        before = before.wrapping_add(input.whole()?);
        parts::read_bucket(before, input)
    })?;
    let mut before = 0u64;
    let contributions = input.list(LEAST_CONTRIBUTION, |input| {
        before = before.wrapping_add(input.whole()?);
        read_contribution(before, input, layout)
    })?;
    let mut before = 0u64;
    let rtts = input.list(LEAST_ROUND_TRIPS, |input| {
        before = before.wrapping_add(input.whole()?);
        let remote = read_address(input)?.ok_or(Malformed::Nonsense)?;
        Ok(RemoteRtt { bucket: before, remote, count: input.whole()?, sum: Micros(input.whole()?) })
    })?;
    input.end()?;
    Ok(NetworkRecord { bucket, buckets, contributions, rtts, newest_sample, newest, raised })
}

fn write_contribution(contribution: &Contribution, out: &mut Writer) {
    match contribution.source {
        None => out.byte(0),
        Some(Source { remote, connection }) => {
            out.byte(family(remote));
            out.address(remote);
            out.whole(connection.0);
        }
    }
    parts::write_contribution(contribution, out);
}

fn read_contribution(bucket: u64, input: &mut Reader<'_>, layout: Layout) -> Result<Contribution, Malformed> {
    let source = match read_address(input)? {
        Some(remote) => Some(Source { remote, connection: ConnectionId(input.whole()?) }),
        None => None,
    };
    parts::read_contribution(bucket, source, input, layout)
}

fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}

/// An address after its family, or nothing after 0.
fn read_address(input: &mut Reader<'_>) -> Result<Option<IpAddr>, Malformed> {
    Ok(match input.byte()? {
        0 => None,
        4 => Some(IpAddr::from(input.array::<4>()?)),
        6 => Some(IpAddr::from(input.array::<16>()?)),
        _ => return Err(Malformed::Nonsense),
    })
}

// Why a network that the store held does not come back.

/// Why a network does not come back.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, PartialEq, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Refused {
    /// The window does not reach back to it.
    Aged,
    /// Its buckets are of another length than `estimate.bucket_s`.
    OtherBuckets,
    /// All of it lies in the future: the clock was set back.
    Future,
    /// There are more networks than `limits.networks`.
    NoRoom,
    /// Its entry is damaged, or of a format that is not known.
    Unreadable,
}

/// The label of [`Refused`].
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct RefusedLabels {
    reason: &'static str,
}

impl Refused {
    /// Why an engine whose buckets have this length did not take a record at `now`.
    pub fn of(record: &NetworkRecord, bucket: Micros, now: Timestamp) -> Self {
        if record.bucket != bucket {
            return Self::OtherBuckets;
        }
        let index = now.0 / bucket.0.saturating_mul(1_000).max(1);
        match record.buckets.iter().map(|bucket| bucket.index).min() {
            Some(oldest) if oldest > index => Self::Future,
            _ => Self::Aged,
        }
    }

    /// Its label.
    pub(crate) fn labels(self) -> RefusedLabels {
        RefusedLabels { reason: self.into() }
    }

    /// A count of each, from zero on.
    pub(super) fn counts() -> Family<RefusedLabels, Counter> {
        let counts = Family::default();
        for reason in Self::VARIANTS {
            drop(counts.get_or_create(&reason.labels()));
        }
        counts
    }
}
