//! The record that follows from the own one and the cells of others.

use spand_proto::units::Timestamp;

use super::merge::Merged;
use super::outlier::{self, Outlier};
use crate::config::WindowConfig;
use crate::mem::allocated_for;
use crate::sharing::TapId;
use crate::window::record::NetworkRecord;

/// A merged record, and which tap saw each of its contributions.
#[derive(Clone, Debug)]
pub(super) struct MergedRecord {
    pub(super) record: NetworkRecord,
    /// In the order of the record's contributions.
    taps: Vec<TapId>,
}

impl MergedRecord {
    /// Of a record that `tap` saw alone.
    pub(super) fn new(own: &NetworkRecord, tap: TapId) -> Self {
        Self { taps: vec![tap; own.contributions.len()], record: own.clone() }
    }

    /// Puts a merged bucket in place of what the record has of it.
    pub(super) fn put(&mut self, index: u64, merged: Merged) {
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
    pub(super) fn drop_aged(&mut self, now: Timestamp, config: &WindowConfig) {
        let before = self.record.contributions.len();
        self.record.drop_aged(now, config);
        self.taps.drain(..before.saturating_sub(self.record.contributions.len()).min(self.taps.len()));
    }

    /// The tap that lies far from all others, if one does.
    pub(super) fn outlier(&self, own: TapId) -> Option<Outlier> {
        outlier::outlier(own, self.taps.iter().copied().zip(&self.record.contributions))
    }

    /// Heap memory.
    pub(super) fn held_bytes(&self) -> usize {
        allocated_for::<TapId>(self.taps.capacity()) + self.record.held_bytes()
    }
}

fn replace<T>(all: &mut Vec<T>, index: u64, bucket: impl Fn(&T) -> u64, with: impl IntoIterator<Item = T>) {
    let first = all.partition_point(|one| bucket(one) < index);
    let after = all.partition_point(|one| bucket(one) <= index);
    all.splice(first..after, with);
}
