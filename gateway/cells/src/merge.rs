//! One record out of the own one and the cells of other gateways, bucket by bucket.

use smallvec::SmallVec;
use spand_core::config::WindowConfig;
use spand_core::window::bucket::{Bucket, Contribution, RemoteRtt};
use spand_core::window::record::NetworkRecord;
use spand_proto::units::Timestamp;

use crate::cell::Cell;
use crate::gateway::TapId;
use crate::outlier::{self, Outlier, is_near};

/// Contributions and addresses of one merged bucket: those of four taps with full buckets. Beyond, those with the fewest samples go.
pub(crate) const CONTRIBUTIONS: usize = 68;
const REMOTES: usize = 64;

/// A merged bucket.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    pub(crate) bucket: Bucket,
    /// Each with the tap that saw it.
    pub(crate) contributions: Vec<(TapId, Contribution)>,
    pub(crate) rtts: Vec<RemoteRtt>,
}

/// Merges the cells of one bucket. Of the gateways of one tap the one counts that saw most. Also returns how many contributions had no room.
///
/// The order is that of sources and gateways: the same at every gateway, so that all compute the same share to the last bit.
pub(crate) fn merge<'a>(index: u64, cells: impl Iterator<Item = &'a Cell>) -> (Merged, u64) {
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
        merged.contributions.extend(cell.contributions.iter().map(|part| (cell.tap, part.clone())));
        merged.rtts.extend_from_slice(&cell.rtts);
    }
    // Stable: where two are of one source, that of the lower gateway comes first.
    merged.contributions.sort_by_key(|(_, part)| part.source);
    if counted.len() > 1 {
        // Two gateways saw the same connection, so the same packets, and nobody declared that they do. Where they contradict each other both
        // stay, under one source: what is made of it lies between them, and a tap that does so often is an outlier.
        merged.contributions.dedup_by(|next, kept| {
            let same = kept.1.source.is_some() && next.1.source == kept.1.source && agree(&kept.1, &next.1);
            if same && next.1.samples > kept.1.samples {
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
    let crowded_out =
        bound(&mut merged.contributions, CONTRIBUTIONS, |(_, part)| (part.samples, part.source.is_none()));
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

/// Whether two taps saw about the same of one connection.
fn agree(one: &Contribution, next: &Contribution) -> bool {
    let mean = |of: &Contribution| of.sum_bytes / f64::from(of.samples);
    one.samples == 0 || next.samples == 0 || is_near(mean(one) / mean(next))
}

/// A merged record, and which tap saw each of its contributions.
#[derive(Clone, Debug)]
pub(crate) struct MergedRecord {
    pub(crate) record: NetworkRecord,
    /// In the order of the record's contributions.
    taps: Vec<TapId>,
}

impl MergedRecord {
    /// Of a record that `tap` saw alone.
    pub(crate) fn new(own: &NetworkRecord, tap: TapId) -> Self {
        Self { taps: vec![tap; own.contributions.len()], record: own.clone() }
    }

    /// Puts a merged bucket in place of what the record has of it.
    pub(crate) fn put(&mut self, index: u64, merged: Merged) {
        let Merged { bucket, contributions, rtts } = merged;
        let (taps, contributions): (Vec<_>, Vec<_>) = contributions.into_iter().unzip();
        let Self { record, taps: all } = self;
        let first = record.contributions.partition_point(|part| part.bucket < index);
        let after = record.contributions.partition_point(|part| part.bucket <= index);
        all.splice(first..after, taps);
        record.contributions.splice(first..after, contributions);
        replace(&mut record.buckets, index, |bucket| bucket.index, [bucket]);
        replace(&mut record.rtts, index, |part| part.bucket, rtts);
    }

    /// Drops what is older than the window at `now`.
    pub(crate) fn drop_aged(&mut self, now: Timestamp, config: &WindowConfig) {
        let before = self.record.contributions.len();
        self.record.drop_aged(now, config);
        self.taps.drain(..before.saturating_sub(self.record.contributions.len()).min(self.taps.len()));
    }

    /// The tap that lies far from all others, if one does.
    pub(crate) fn outlier(&self, own: TapId) -> Option<Outlier> {
        outlier::outlier(own, self.taps.iter().copied().zip(&self.record.contributions))
    }

    /// Bytes of its entries.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of_val(&*self.taps) + self.record.held_bytes()
    }
}

fn replace<T>(all: &mut Vec<T>, index: u64, bucket: impl Fn(&T) -> u64, with: impl IntoIterator<Item = T>) {
    let first = all.partition_point(|one| bucket(one) < index);
    let after = all.partition_point(|one| bucket(one) <= index);
    all.splice(first..after, with);
}
