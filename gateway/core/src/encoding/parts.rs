//! A bucket and what connections contributed to it as bytes.
//!
//! ```text
//! bucket        presence, RTT count, [RTT min] (µs), RTT sum (µs), losses, limits (window, receiver, application)
//! contribution  samples, loss samples, sum, sum by losses, squares (fractions), MSS, lower bounds, presence, [largest bound]
//!               [largest sample] (fractions), losses that show the queue, [their sum, the sum of their squares]
//!               (fractions) where there are any
//! ```
//!
//! The store and the messages between gateways both hold these: a change here is a new format of both.

use crate::types::RttSum;
use crate::window::bucket::{Bucket, BucketOutcomes, Contribution, QueueSum, Source};
use spand_proto::units::{Bytes, Micros, Window};

use super::numbers::{Malformed, Reader, Writer, bits, flags, optional, read_optional};

/// Fewest bytes of a bucket.
pub const LEAST_BUCKET: usize = 7;
/// Fewest bytes of a contribution.
pub const LEAST_CONTRIBUTION: usize = LEAST_CONTRIBUTION_BEFORE + 1;
/// Of one without what losses show of the queue.
pub const LEAST_CONTRIBUTION_BEFORE: usize = 29;

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
}

/// Reads what this source contributed to the bucket with this index. `shows_queue`: the format has what losses show of the queue.
pub fn read_contribution(
    bucket: u64,
    source: Option<Source>,
    input: &mut Reader<'_>,
    shows_queue: bool,
) -> Result<Contribution, Malformed> {
    let (samples, loss_samples) = (input.narrow()?, input.narrow()?);
    let (sum_bytes, loss_bytes, squares) = (input.fraction()?, input.fraction()?, input.fraction()?);
    let mss = Bytes(input.whole()?);
    let lower_bounds = input.narrow()?;
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

fn read_queue(input: &mut Reader<'_>) -> Result<QueueSum, Malformed> {
    let losses = input.narrow()?;
    let (bytes, squares) = if losses > 0 { (input.fraction()?, input.fraction()?) } else { (0.0, 0.0) };
    Ok(QueueSum { losses, bytes, squares })
}

fn window(input: &mut Reader<'_>) -> Result<Window, Malformed> {
    Window::from_bytes(input.fraction()?).ok_or(Malformed::Nonsense)
}
