//! A bucket and what connections contributed to it as bytes.
//!
//! ```text
//! bucket        presence, RTT count, [RTT min] (µs), RTT sum (µs), losses, limits (window, receiver, application)
//! contribution  samples, loss samples, sum, sum by losses, squares (fractions), MSS, lower bounds, presence, [largest bound]
//!               [largest sample] (fractions), losses that show the queue, [their sum, the sum of their squares]
//!               (fractions) where there are any, twice the samples at a full path, one more
//!               if by rates, [their sum] (a fraction) where there are any
//! ```
//!
//! The store and the messages between gateways both hold these: a change here is a new format of both.

use crate::types::RttSum;
use crate::window::bucket::{Bucket, BucketOutcomes, Contribution, FullSum, QueueSum, Source};
use spand_proto::units::{Bytes, Micros, Window};

use super::numbers::{Malformed, Reader, Writer, bits, flags, optional, read_optional};

/// Fewest bytes of a bucket.
pub const LEAST_BUCKET: usize = 7;
/// Fewest bytes of a contribution, in the oldest layout.
pub const LEAST_CONTRIBUTION: usize = 29;

/// What a format has of a contribution, the oldest first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Layout {
    /// Nothing of the queue.
    Plain,
    /// What losses show of the queue.
    Queue,
    /// And the samples at a full path: all of this release.
    Full,
}

/// Writes a bucket but for its index.
pub fn write_bucket(bucket: &Bucket, out: &mut Writer) {
    let Bucket { index: _, rtt, losses, window_limited, receiver_limited, application_limited, outcomes: _ } = bucket;
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

/// Reads the bucket with this index.
pub fn read_bucket(index: u64, input: &mut Reader<'_>) -> Result<Bucket, Malformed> {
    let [has_min] = flags(input.byte()?)?;
    let count = input.whole()?;
    let min = has_min.then(|| input.whole().map(Micros)).transpose()?;
    let sum = Micros(input.whole()?);
    let losses = input.narrow()?;
    let (window_limited, receiver_limited) = (input.narrow()?, input.narrow()?);
    let application_limited = input.narrow()?;
    let rtt = RttSum { count, sum, min };
    let outcomes = BucketOutcomes::default();
    Ok(Bucket { index, rtt, losses, window_limited, receiver_limited, application_limited, outcomes })
}

/// Writes what a connection contributed, but for the bucket and the source.
pub fn write_contribution(contribution: &Contribution, out: &mut Writer) {
    let Contribution {
        bucket: _,
        source: _,
        samples,
        loss_samples,
        sum_bytes,
        loss_bytes,
        full,
        squares,
        carried,
        mss,
        queued,
        lower_bounds,
        largest_bound,
    } = contribution;
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
    out.whole(u64::from(full.samples) << 1 | u64::from(full.by_rate));
    if full.samples > 0 {
        out.fraction(full.bytes);
    }
}

/// Reads what this source contributed to the bucket with this index. Of an older layout, losses alone show a full path.
pub fn read_contribution(
    bucket: u64,
    source: Option<Source>,
    input: &mut Reader<'_>,
    layout: Layout,
) -> Result<Contribution, Malformed> {
    let (samples, loss_samples) = (input.narrow()?, input.narrow()?);
    let (sum_bytes, loss_bytes, squares) = (input.fraction()?, input.fraction()?, input.fraction()?);
    let mss = Bytes(input.whole()?);
    let lower_bounds = input.narrow()?;
    let [largest_bound, carried] = read_optional(input, window)?;
    let queued = if layout >= Layout::Queue { read_queue(input)? } else { QueueSum::default() };
    let by_losses = FullSum { samples: loss_samples, bytes: loss_bytes, by_rate: false };
    let full = if layout >= Layout::Full { read_full(input)? } else { by_losses };
    Ok(Contribution {
        bucket,
        source,
        samples,
        loss_samples,
        sum_bytes,
        loss_bytes,
        full,
        squares,
        carried,
        mss,
        queued,
        lower_bounds,
        largest_bound,
    })
}

fn read_full(input: &mut Reader<'_>) -> Result<FullSum, Malformed> {
    let number = input.whole()?;
    let samples = u32::try_from(number >> 1).map_err(|_| Malformed::Nonsense)?;
    let bytes = if samples > 0 { input.fraction()? } else { 0.0 };
    Ok(FullSum { samples, bytes, by_rate: number & 1 == 1 })
}

fn read_queue(input: &mut Reader<'_>) -> Result<QueueSum, Malformed> {
    let losses = input.narrow()?;
    let (bytes, squares) = if losses > 0 { (input.fraction()?, input.fraction()?) } else { (0.0, 0.0) };
    Ok(QueueSum { losses, bytes, squares })
}

fn window(input: &mut Reader<'_>) -> Result<Window, Malformed> {
    Window::from_bytes(input.fraction()?).ok_or(Malformed::Nonsense)
}
