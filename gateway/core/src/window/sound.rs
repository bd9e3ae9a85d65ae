//! Records from outside, such as a store's: what may be kept of one.

use spand_proto::units::Timestamp;

use super::record::{CONTRIBUTIONS_PER_BUCKET, NetworkRecord, REMOTES_PER_BUCKET, bucket_nanos};
use crate::config::WindowConfig;
use crate::types::{ConnectionId, RttSum};

/// No window sample is larger: four times the largest receive window (RFC 7323).
const LARGEST_SAMPLE_BYTES: f64 = (1_u64 << 32) as f64;
/// No gateway counts this many connections; a record with such a number would leave none for new ones. Two bits above them stay
/// free.
const FIRST_REFUSED: ConnectionId = ConnectionId(1 << 62);

impl NetworkRecord {
    /// Makes a record from outside safe to keep: drops what is aged, in the future, out of order or makes no
    /// sense. `None` where nothing is left, or where its buckets have another length than those here.
    #[must_use]
    pub fn sound(mut self, now: Timestamp, config: &WindowConfig) -> Option<Self> {
        if self.bucket != config.bucket {
            return None;
        }
        let newest = now.0 / bucket_nanos(config.bucket);
        let mut before = None;
        self.buckets.retain(|bucket| {
            let sound = bucket.index <= newest && before.is_none_or(|before| before < bucket.index);
            if sound {
                before = Some(bucket.index);
            }
            sound
        });
        let buckets = &self.buckets;
        let (mut before, mut in_bucket) = (0, 0);
        self.contributions.retain(|contribution| {
            let known = buckets.binary_search_by_key(&contribution.bucket, |bucket| bucket.index).is_ok();
            let sums = [contribution.sum_bytes, contribution.loss_bytes, contribution.full.bytes, contribution.squares];
            // No sample is smaller than a byte.
            let sum_of = |samples: u32| f64::from(samples)..=f64::from(samples) * LARGEST_SAMPLE_BYTES;
            let ends = contribution.samples.checked_sub(contribution.loss_samples);
            let sensible = sums.iter().all(|sum| sum.is_finite() && *sum >= 0.0)
                && sum_of(contribution.loss_samples).contains(&contribution.loss_bytes)
                && contribution.full.samples <= contribution.samples
                && sum_of(contribution.full.samples).contains(&contribution.full.bytes)
                && ends.is_some_and(|ends| sum_of(ends).contains(&(contribution.sum_bytes - contribution.loss_bytes)));
            let queued = contribution.queued;
            let queues = f64::from(queued.losses);
            let queue_is_sound = queued.losses <= contribution.loss_samples
                && (0.0..=queues * LARGEST_SAMPLE_BYTES).contains(&queued.bytes)
                && (0.0..=queues * LARGEST_SAMPLE_BYTES * LARGEST_SAMPLE_BYTES).contains(&queued.squares);
            // A share is sent in segments.
            let measured = contribution.samples == 0 || contribution.mss.0 > 0;
            let numbered = contribution.source.is_none_or(|source| source.connection < FIRST_REFUSED);
            in_bucket = if contribution.bucket == before { in_bucket + 1 } else { 1 };
            // One more than the limit: the common rest.
            let fits = contribution.bucket >= before && in_bucket <= CONTRIBUTIONS_PER_BUCKET + 1;
            before = before.max(contribution.bucket);
            known && sensible && queue_is_sound && measured && numbered && fits
        });
        // A release before kept them in the order in which they came.
        self.contributions.sort_by_key(|contribution| (contribution.bucket, contribution.source));
        let (mut before, mut in_bucket, mut sum) = (0, 0, RttSum::default());
        self.rtts.retain(|part| {
            if part.bucket != before {
                (in_bucket, sum) = (0, RttSum::default());
            }
            let with = sum.with(RttSum { count: part.count, sum: part.sum, min: None });
            let whole = buckets.binary_search_by_key(&part.bucket, |bucket| bucket.index).ok();
            let whole = whole.and_then(|place| buckets.get(place)).map(|bucket| bucket.rtt);
            // Not more than the bucket has in all.
            let part_of_it =
                part.count > 0 && whole.is_some_and(|whole| with.count <= whole.count && with.sum <= whole.sum);
            let fits = part_of_it && part.bucket >= before && in_bucket < REMOTES_PER_BUCKET;
            before = before.max(part.bucket);
            if fits {
                (in_bucket, sum) = (in_bucket + 1, with);
            }
            fits
        });
        let past = |at: Option<Timestamp>| at.filter(|at| *at <= now);
        (self.newest, self.newest_sample, self.raised) =
            (past(self.newest), past(self.newest_sample), past(self.raised));
        self.drop_aged(now, config);
        (!self.buckets.is_empty()).then_some(self)
    }
}
