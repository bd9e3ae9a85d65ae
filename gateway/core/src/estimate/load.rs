//! Leaves out samples of a load that is gone: those of a crowd do not describe the empty path after it (`docs/explain/definitions.md`, "The
//! estimate").

use spand_proto::units::{Micros, Timestamp};

use crate::window::bucket::{Bucket, Contribution};
use crate::window::record::{WindowSlice, bucket_nanos};

/// A load of this many times that of now is another one.
const SEVERAL: f64 = 4.0;

/// Window-limited senders at a time, at least one: the round trips that they spent over the time that passed (Little's law).
pub(super) fn senders(of: &Bucket, bucket: Micros) -> f64 {
    let rtt = of.rtt.mean().unwrap_or_default().0 as f64;
    (f64::from(of.window_limited) * rtt / bucket.0.max(1) as f64).max(1.0)
}

/// The contributions without those of crowded buckets; `None` where no bucket is crowded. A bucket is crowded with more than
/// [`SEVERAL`] times the senders of the newest two.
pub(super) fn of_now(slice: WindowSlice<'_>, bucket: Micros, now: Timestamp) -> Option<Vec<Contribution>> {
    let current = now.0 / bucket_nanos(bucket);
    // The current bucket has only begun.
    let newest = slice.buckets.iter().rev().take_while(|of| of.index.saturating_add(1) >= current);
    let most = SEVERAL * newest.map(|of| senders(of, bucket)).fold(1.0, f64::max);
    let mut crowded = slice.buckets.iter().filter(|of| senders(of, bucket) > most).peekable();
    crowded.peek()?;
    let mut kept = Vec::with_capacity(slice.contributions.len());
    for part in slice.contributions {
        while crowded.next_if(|of| of.index < part.bucket).is_some() {}
        if crowded.peek().is_none_or(|of| of.index != part.bucket) {
            kept.push(part.clone());
        }
    }
    (kept.len() < slice.contributions.len()).then_some(kept)
}
