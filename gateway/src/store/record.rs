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
//! Numbers are written as [`super::bytes`] says; a presence byte has a bit, from the lowest, for each value in brackets
//! that follows it. Index differences wrap, so that any record comes back as it was; whether it makes sense is the
//! engine's to say when it takes it.

use std::net::IpAddr;

use spand_core::flow::sample::ConnectionId;
use spand_core::window::bucket::{Bucket, Contribution, QueueSum, RemoteRtt, RttSum, Source};
use spand_core::window::record::NetworkRecord;
use spand_proto::units::{Bytes, Micros, Timestamp, Window};

use super::bytes::{Reader, RecordError, Writer};

/// Fewest bytes of a bucket, of a contribution and of the round trips to an address.
const LEAST_BUCKET: usize = 8;
const LEAST_CONTRIBUTION: usize = 30;
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
        write_bucket(bucket, out);
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
pub(super) fn read(input: &mut Reader<'_>, shows_queue: bool) -> Result<NetworkRecord, RecordError> {
    let bucket = Micros(input.whole()?);
    let [newest_sample, newest, raised] = read_optional(input, |input| input.whole().map(Timestamp))?;
    let mut before = 0u64;
    let buckets = input.list(LEAST_BUCKET, |input| {
        before = before.wrapping_add(input.whole()?);
        read_bucket(before, input)
    })?;
    let mut before = 0u64;
    let contributions = input.list(LEAST_CONTRIBUTION, |input| {
        before = before.wrapping_add(input.whole()?);
        read_contribution(before, input, shows_queue)
    })?;
    let mut before = 0u64;
    let rtts = input.list(LEAST_ROUND_TRIPS, |input| {
        before = before.wrapping_add(input.whole()?);
        let remote = read_address(input)?.ok_or(RecordError::Nonsense)?;
        Ok(RemoteRtt { bucket: before, remote, count: input.whole()?, sum: Micros(input.whole()?) })
    })?;
    if !input.rest.is_empty() {
        return Err(RecordError::Nonsense);
    }
    Ok(NetworkRecord { bucket, buckets, contributions, rtts, newest_sample, newest, raised })
}

fn write_bucket(bucket: &Bucket, out: &mut Writer) {
    let Bucket { index: _, rtt, losses, window_limited, receiver_limited, application_limited } = bucket;
    out.byte(bits([rtt.min.is_some()]));
    out.whole(rtt.count);
    if let Some(min) = rtt.min {
        out.whole(min.0);
    }
    out.whole(rtt.sum.0);
    for number in [losses, window_limited, receiver_limited, application_limited] {
        out.whole((*number).into());
    }
}

fn read_bucket(index: u64, input: &mut Reader<'_>) -> Result<Bucket, RecordError> {
    let [has_min] = flags(input.byte()?)?;
    let count = input.whole()?;
    let min = has_min.then(|| input.whole().map(Micros)).transpose()?;
    let sum = Micros(input.whole()?);
    let losses = input.whole_u32()?;
    let (window_limited, receiver_limited) = (input.whole_u32()?, input.whole_u32()?);
    let application_limited = input.whole_u32()?;
    let rtt = RttSum { count, sum, min };
    Ok(Bucket { index, rtt, losses, window_limited, receiver_limited, application_limited })
}

fn write_contribution(contribution: &Contribution, out: &mut Writer) {
    let Contribution {
        bucket: _,
        source,
        samples,
        loss_samples,
        sum_bytes,
        loss_bytes,
        squares,
        carried,
        mss,
        queued,
        lower_bounds,
        largest_bound,
    } = contribution;
    match source {
        None => out.byte(0),
        Some(Source { remote, connection }) => {
            out.byte(family(*remote));
            out.address(*remote);
            out.whole(connection.0);
        }
    }
    out.whole((*samples).into());
    out.whole((*loss_samples).into());
    out.fraction(*sum_bytes);
    out.fraction(*loss_bytes);
    out.fraction(*squares);
    out.whole(mss.0);
    out.whole((*lower_bounds).into());
    optional(out, &[*largest_bound, *carried], |out, window| out.fraction(window.bytes()));
    out.whole(queued.losses.into());
    if queued.losses > 0 {
        out.fraction(queued.bytes);
        out.fraction(queued.squares);
    }
}

fn read_contribution(bucket: u64, input: &mut Reader<'_>, shows_queue: bool) -> Result<Contribution, RecordError> {
    let source = match read_address(input)? {
        Some(remote) => Some(Source { remote, connection: ConnectionId(input.whole()?) }),
        None => None,
    };
    let (samples, loss_samples) = (input.whole_u32()?, input.whole_u32()?);
    let (sum_bytes, loss_bytes, squares) = (input.fraction()?, input.fraction()?, input.fraction()?);
    let mss = Bytes(input.whole()?);
    let lower_bounds = input.whole_u32()?;
    let [largest_bound, carried] = read_optional(input, window)?;
    let queued = if shows_queue { read_queue(input)? } else { QueueSum::default() };
    Ok(Contribution {
        bucket,
        source,
        samples,
        loss_samples,
        sum_bytes,
        loss_bytes,
        squares,
        carried,
        mss,
        queued,
        lower_bounds,
        largest_bound,
    })
}

fn read_queue(input: &mut Reader<'_>) -> Result<QueueSum, RecordError> {
    let losses = input.whole_u32()?;
    let (bytes, squares) = if losses > 0 { (input.fraction()?, input.fraction()?) } else { (0.0, 0.0) };
    Ok(QueueSum { losses, bytes, squares })
}

fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}

/// An address after its family, or nothing after 0.
fn read_address(input: &mut Reader<'_>) -> Result<Option<IpAddr>, RecordError> {
    Ok(match input.byte()? {
        0 => None,
        4 => Some(IpAddr::from(input.array::<4>()?)),
        6 => Some(IpAddr::from(input.array::<16>()?)),
        _ => return Err(RecordError::Nonsense),
    })
}

fn window(input: &mut Reader<'_>) -> Result<Window, RecordError> {
    Window::from_bytes(input.fraction()?).ok_or(RecordError::Nonsense)
}

fn optional<T: Copy, const N: usize>(out: &mut Writer, values: &[Option<T>; N], write: impl Fn(&mut Writer, T)) {
    out.byte(bits(values.each_ref().map(Option::is_some)));
    for value in values.iter().flatten() {
        write(out, *value);
    }
}

fn read_optional<T: Copy, const N: usize>(
    input: &mut Reader<'_>,
    read: impl Fn(&mut Reader<'_>) -> Result<T, RecordError>,
) -> Result<[Option<T>; N], RecordError> {
    let present: [bool; N] = flags(input.byte()?)?;
    let mut values = [None; N];
    for (value, present) in values.iter_mut().zip(present) {
        *value = present.then(|| read(input)).transpose()?;
    }
    Ok(values)
}

/// One bit for each flag, from the lowest.
fn bits<const N: usize>(flags: [bool; N]) -> u8 {
    flags.iter().rev().fold(0, |byte, flag| byte << 1 | u8::from(*flag))
}

/// The flags of a byte that has no other bit set.
fn flags<const N: usize>(byte: u8) -> Result<[bool; N], RecordError> {
    if u32::from(byte) >> N != 0 {
        return Err(RecordError::Nonsense);
    }
    Ok(std::array::from_fn(|place| byte >> place & 1 == 1))
}
