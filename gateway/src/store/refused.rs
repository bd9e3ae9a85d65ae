//! Why a network that the store held does not come back.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use spand_core::window::record::NetworkRecord;
use spand_proto::units::{Micros, Timestamp};
use strum::{IntoStaticStr, VariantArray};

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
