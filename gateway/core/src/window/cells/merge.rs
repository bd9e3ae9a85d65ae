//! One bucket out of the cells of several gateways.

use smallvec::SmallVec;

use super::Cell;
use crate::window::bucket::{Bucket, Contribution, RemoteRtt};
use crate::window::record::NetworkRecord;

/// Contributions and addresses of one merged bucket: those of four taps with full buckets. Beyond, those with the fewest samples go.
pub(super) const CONTRIBUTIONS: usize = 68;
const REMOTES: usize = 64;

/// A merged bucket.
#[derive(Debug, Default)]
pub(super) struct Merged {
    bucket: Bucket,
    contributions: Vec<Contribution>,
    rtts: Vec<RemoteRtt>,
}

/// Merges the cells of one bucket. Of the gateways of one tap the one counts that saw most. Also returns how many contributions had no room.
///
/// The order is that of sources and gateways: the same at every gateway, so that all compute the same share to the last bit.
pub(super) fn merge<'a>(index: u64, cells: impl Iterator<Item = &'a Cell>) -> (Merged, u64) {
    let mut counted = SmallVec::<[&Cell; 8]>::new();
    for cell in cells {
        match counted.iter_mut().find(|known| known.tap == cell.tap) {
            Some(known) if saw_more(cell, known) => *known = cell,
            Some(_) => {}
            None => counted.push(cell),
        }
    }
    counted.sort_unstable_by_key(|cell| cell.gateway);
    let mut merged = Merged { bucket: Bucket { index, ..Bucket::default() }, ..Merged::default() };
    for cell in &counted {
        add(&mut merged.bucket, &cell.bucket);
        merged.contributions.extend_from_slice(&cell.contributions);
        merged.rtts.extend_from_slice(&cell.rtts);
    }
    // Stable: where two are of one source, that of the lower gateway comes first.
    merged.contributions.sort_by_key(|part| part.source);
    if counted.len() > 1 {
        // Two gateways saw the same connection, so the same packets, and nobody declared that they do.
        merged.contributions.dedup_by(|next, kept| {
            let same = kept.source.is_some() && next.source == kept.source;
            if same && next.samples > kept.samples {
                std::mem::swap(next, kept);
            }
            same
        });
        merged.rtts.sort_by_key(|part| part.remote);
        merged.rtts.dedup_by(|next, kept| {
            let same = next.remote == kept.remote;
            if same {
                kept.count = kept.count.saturating_add(next.count);
                kept.sum.0 = kept.sum.0.saturating_add(next.sum.0);
            }
            same
        });
    }
    let crowded_out = bound(&mut merged.contributions, CONTRIBUTIONS, |part| (part.samples, part.source.is_none()));
    bound(&mut merged.rtts, REMOTES, |part| part.count);
    (merged, crowded_out)
}

/// Whether a cell counts in place of another one of the same tap.
fn saw_more(cell: &Cell, known: &Cell) -> bool {
    let of = |cell: &Cell| (cell.followed, cell.samples(), cell.counted(), std::cmp::Reverse(cell.gateway));
    of(cell) > of(known)
}

/// Keeps the `most` of these with the largest weight, in their order. Returns how many went.
fn bound<T, W: Ord + Copy>(all: &mut Vec<T>, most: usize, weight: impl Fn(&T) -> W) -> u64 {
    if all.len() <= most {
        return 0;
    }
    let mut heaviest: Vec<(std::cmp::Reverse<W>, usize)> =
        all.iter().enumerate().map(|(place, one)| (std::cmp::Reverse(weight(one)), place)).collect();
    heaviest.sort_unstable();
    let mut kept = vec![false; all.len()];
    for (_, place) in heaviest.into_iter().take(most) {
        if let Some(kept) = kept.get_mut(place) {
            *kept = true;
        }
    }
    let before = all.len();
    let mut kept = kept.into_iter();
    all.retain(|_| kept.next().unwrap_or(false));
    (before - all.len()) as u64
}

fn add(sum: &mut Bucket, bucket: &Bucket) {
    sum.rtt = sum.rtt.with(bucket.rtt);
    for (sum, more) in [
        (&mut sum.losses, bucket.losses),
        (&mut sum.window_limited, bucket.window_limited),
        (&mut sum.receiver_limited, bucket.receiver_limited),
        (&mut sum.application_limited, bucket.application_limited),
    ] {
        *sum = sum.saturating_add(more);
    }
}

/// Puts a merged bucket in place of what the record has of it.
pub(super) fn put(record: &mut NetworkRecord, index: u64, merged: Merged) {
    replace(&mut record.buckets, index, |bucket| bucket.index, [merged.bucket]);
    replace(&mut record.contributions, index, |part| part.bucket, merged.contributions);
    replace(&mut record.rtts, index, |part| part.bucket, merged.rtts);
}

fn replace<T>(all: &mut Vec<T>, index: u64, bucket: impl Fn(&T) -> u64, with: impl IntoIterator<Item = T>) {
    let first = all.partition_point(|one| bucket(one) < index);
    let after = all.partition_point(|one| bucket(one) <= index);
    all.splice(first..after, with);
}
