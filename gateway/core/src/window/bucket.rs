//! What one bucket of the ring holds: aggregates of the network, and contributions of single connections.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use spand_proto::growth::threshold::buffer_at_loss;
use spand_proto::no_estimate::{COUNTED, Outcomes};
use spand_proto::units::{Bytes, Micros, Window};

use crate::counters::Ignored;
use crate::types::{ConnectionId, LimitCounts, RttSum, SampleReason, WindowSample};

/// Aggregates of one network over one bucket. Every bucket in which anything happened has one.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Bucket {
    /// Bucket lengths from the epoch to the start of this bucket.
    pub index: u64,
    /// Round-trip times.
    pub rtt: RttSum,
    /// Loss events, whether or not they gave a sample.
    pub losses: u32,
    /// Round trips that the congestion window limited.
    pub window_limited: u32,
    /// Round trips that the receiver limited.
    pub receiver_limited: u32,
    /// Round trips that the application limited.
    pub application_limited: u32,
    /// Transfers that gave no sample, as this gateway saw them: neither stored nor shared.
    #[serde(skip)]
    pub outcomes: BucketOutcomes,
}

/// [`Outcomes`] of one bucket. A count stops at the largest number.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BucketOutcomes {
    seen: u16,
    by_reason: [u16; COUNTED.len()],
}

impl BucketOutcomes {
    /// One more transfer is over.
    pub(crate) fn add_transfer(&mut self) {
        self.seen = self.seen.saturating_add(1);
    }

    /// Counts why a loss or the end of a transfer gave no sample: the reasons of the same name. Others follow from these or are rare.
    pub(crate) fn add(&mut self, why: Ignored) {
        let mut counts = COUNTED.iter().zip(&mut self.by_reason);
        if let Some((_, count)) = counts.find(|(reason, _)| reason.name() == why.name()) {
            *count = count.saturating_add(1);
        }
    }
}

impl From<BucketOutcomes> for Outcomes {
    fn from(of: BucketOutcomes) -> Self {
        Self { seen: of.seen.into(), by_reason: of.by_reason.map(u32::from) }
    }
}

/// Round-trip times to one remote address in one bucket; they are in the bucket's own sum too.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct RemoteRtt {
    /// The bucket's [`Bucket::index`].
    pub bucket: u64,
    /// Address of the remote end.
    pub remote: IpAddr,
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum: Micros,
}

/// What one connection added to one bucket.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Contribution {
    /// The bucket's [`Bucket::index`].
    pub bucket: u64,
    /// Which connection it was; `None` sums up those beyond the limit of a bucket, of any address.
    pub source: Option<Source>,
    /// Window samples.
    pub samples: u32,
    /// Those of them that a loss or mark gave.
    pub loss_samples: u32,
    /// Sum of the samples in bytes, as the rule admitted them.
    pub sum_bytes: f64,
    /// The part of that sum that a loss or mark gave.
    pub loss_bytes: f64,
    /// Those of the samples at which the path was full.
    pub full: FullSum,
    /// Sum of their squares.
    pub squares: f64,
    /// The largest of them as measured: the path carried that much without loss.
    pub carried: Option<Window>,
    /// Effective segment size of the newest of them.
    pub mss: Bytes,
    /// What its losses show of the bottleneck's buffer.
    pub queued: QueueSum,
    /// Lower bounds.
    pub lower_bounds: u32,
    /// The largest lower bound.
    pub largest_bound: Option<Window>,
}

/// Samples at a full path: they show what it carries, and not only what it carried.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct FullSum {
    /// How many.
    pub samples: u32,
    /// Their sum in bytes.
    pub bytes: f64,
    /// Whether delivery rates are among them.
    pub by_rate: bool,
}

/// The largest mean of losses before a connection's first rate, in multiples of that rate.
const FAR_ABOVE: f64 = 1.5;

impl FullSum {
    /// Adds a loss or mark in congestion avoidance, or a rate. What arrived of a lost first flight was cut by a burst. Losses far above the
    /// first rate do not count: BBR that starts up has several times its share in flight.
    fn add(&mut self, reason: SampleReason, window: Window) {
        let by_rate = reason == SampleReason::Rate;
        let far_above = FAR_ABOVE * f64::from(self.samples) * window.bytes();
        if by_rate && !self.by_rate && self.bytes > far_above {
            *self = Self::default();
        }
        if by_rate || matches!(reason, SampleReason::Loss | SampleReason::Ecn) {
            *self = self.with(Self { samples: 1, bytes: window.bytes(), by_rate });
        }
    }

    /// Both together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            samples: self.samples.saturating_add(other.samples),
            bytes: self.bytes + other.bytes,
            by_rate: self.by_rate || other.by_rate,
        }
    }
}

/// What a connection had in the bottleneck's queue when it overflowed: the window at the loss times the part of the round trip beyond the
/// smallest.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct QueueSum {
    /// Losses that show it.
    pub losses: u32,
    /// Sum of what they show.
    pub bytes: f64,
    /// Sum of the squares.
    pub squares: f64,
}

impl QueueSum {
    /// What a sample shows. The first loss of a connection shows nothing: growth up to it is too fast for a window of one round trip before.
    fn of(sample: &WindowSample) -> Option<Self> {
        if sample.reason != SampleReason::Loss || !sample.reduced_before {
            return None;
        }
        let queued = buffer_at_loss(sample.window, sample.rtt_min?, sample.rtt?)?.bytes();
        Some(Self { losses: 1, bytes: queued, squares: queued * queued })
    }

    /// Both together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            losses: self.losses.saturating_add(other.losses),
            bytes: self.bytes + other.bytes,
            squares: self.squares + other.squares,
        }
    }
}

/// Where samples come from.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Source {
    /// Address of the remote end.
    pub remote: IpAddr,
    /// The connection.
    pub connection: ConnectionId,
}

impl Bucket {
    pub(super) fn new(index: u64) -> Self {
        Self { index, ..Self::default() }
    }

    pub(crate) fn add_loss(&mut self) {
        self.losses = self.losses.saturating_add(1);
    }

    pub(crate) fn add_limits(&mut self, limits: LimitCounts) {
        let counts = [&mut self.window_limited, &mut self.receiver_limited, &mut self.application_limited];
        for (count, more) in counts.into_iter().zip([limits.window, limits.receiver, limits.application]) {
            *count = count.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
        }
    }

    /// What limited the senders.
    pub(super) fn limits(&self) -> LimitCounts {
        LimitCounts {
            window: self.window_limited.into(),
            receiver: self.receiver_limited.into(),
            application: self.application_limited.into(),
        }
    }
}

impl Contribution {
    pub(super) fn new(bucket: u64, source: Option<Source>) -> Self {
        Self {
            bucket,
            source,
            samples: 0,
            loss_samples: 0,
            sum_bytes: 0.0,
            loss_bytes: 0.0,
            full: FullSum::default(),
            squares: 0.0,
            carried: None,
            mss: Bytes(0),
            queued: QueueSum::default(),
            lower_bounds: 0,
            largest_bound: None,
        }
    }

    /// Adds a sample with the value that the rule admitted for it, or a lower bound.
    pub(super) fn add(&mut self, sample: &WindowSample, admitted: Window) {
        if sample.reason.is_lower_bound() {
            self.lower_bounds = self.lower_bounds.saturating_add(1);
            self.largest_bound = Some(larger(self.largest_bound, sample.window));
            if self.samples == 0 {
                self.mss = sample.mss;
            }
            return;
        }
        self.samples = self.samples.saturating_add(1);
        if sample.reason.is_loss() {
            self.loss_samples = self.loss_samples.saturating_add(1);
            self.loss_bytes += admitted.bytes();
            if let Some(queued) = QueueSum::of(sample) {
                self.queued = self.queued.with(queued);
            }
        }
        self.full.add(sample.reason, admitted);
        self.sum_bytes += admitted.bytes();
        // The path did not carry a first flight that lost packets.
        if sample.reason != SampleReason::FirstFlight {
            self.carried = Some(larger(self.carried, sample.window));
        }
        self.squares += admitted.bytes() * admitted.bytes();
        self.mss = sample.mss;
    }

    /// Adds what another connection added to the same bucket.
    pub(super) fn merge(&mut self, other: &Self) {
        if self.samples == 0 {
            self.mss = other.mss;
        }
        self.samples = self.samples.saturating_add(other.samples);
        self.loss_samples = self.loss_samples.saturating_add(other.loss_samples);
        self.sum_bytes += other.sum_bytes;
        self.loss_bytes += other.loss_bytes;
        self.full = self.full.with(other.full);
        self.squares += other.squares;
        self.carried = other.carried.map(|carried| larger(self.carried, carried)).or(self.carried);
        self.queued = self.queued.with(other.queued);
        self.lower_bounds = self.lower_bounds.saturating_add(other.lower_bounds);
        self.largest_bound = other.largest_bound.map(|bound| larger(self.largest_bound, bound)).or(self.largest_bound);
    }
}

/// The larger of a window seen before, if any, and a new one.
pub(crate) fn larger(before: Option<Window>, window: Window) -> Window {
    before.filter(|before| *before > window).unwrap_or(window)
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;

    #[test]
    fn every_counted_reason_is_one_for_which_the_engine_takes_no_sample() {
        let mut outcomes = BucketOutcomes::default();
        for why in Ignored::VARIANTS {
            outcomes.add(*why);
        }
        assert_eq!(outcomes.by_reason, [1; COUNTED.len()]);
    }
}
