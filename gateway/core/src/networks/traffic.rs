//! What passes between the inside and one network: counted in buckets as long as the window's, since the network came into the table.
//!
//! Of this gateway's own tap alone: neither stored nor shared, and no estimate rests on it.

use spand_proto::units::{Micros, Timestamp};

use crate::config::WindowConfig;
use crate::types::Flows;
use crate::window::record::{bucket_nanos, give_back, insert_tight, is_aged};

/// The traffic of one network at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NetworkTraffic {
    /// In the window.
    pub window: Flows,
    /// Since the network came into the table.
    pub total: Flows,
    /// When the window's oldest bucket began.
    pub from: Timestamp,
    /// The moment.
    pub at: Timestamp,
}

impl NetworkTraffic {
    /// The time that the window covers where the first packet at all was captured at `began`.
    pub fn span(&self, began: Timestamp) -> Micros {
        self.at.since(self.from.max(began))
    }
}

/// The traffic of one network: at most a bucket for each of the window's.
#[derive(Clone, Debug, Default)]
pub(super) struct TrafficRing {
    /// By their index, buckets with traffic only.
    buckets: Vec<(u64, Flows)>,
    /// What left the window, if anything did.
    aged: Option<Box<Flows>>,
}

impl TrafficRing {
    /// Adds what passed by `at`. Returns whether that made a bucket.
    pub(super) fn add(&mut self, at: Timestamp, flows: &Flows, config: &WindowConfig) -> bool {
        let index = at.0 / bucket_nanos(config.bucket);
        // What a silent connection hands over late may be older than the newest.
        let before = self.buckets.iter().rposition(|(bucket, _)| *bucket <= index);
        if let Some((bucket, sum)) = before.and_then(|before| self.buckets.get_mut(before))
            && *bucket == index
        {
            *sum = sum.with(*flows);
            return false;
        }
        insert_tight(&mut self.buckets, before.map_or(0, |before| before + 1), (index, *flows));
        true
    }

    /// Drops what is older than the window at `now`, but for its sum. Returns whether anything was.
    pub(super) fn drop_aged(&mut self, now: Timestamp, config: &WindowConfig) -> bool {
        let aged = self.aged_buckets(now, config);
        if aged > 0 {
            let before = self.aged.as_deref().copied().unwrap_or_default();
            let sum = self.buckets.drain(..aged).fold(before, |sum, (_, flows)| sum.with(flows));
            self.aged = Some(Box::new(sum));
            give_back(&mut self.buckets);
        }
        aged > 0
    }

    /// When the oldest bucket leaves the window; `None` where there is none.
    pub(super) fn next_aged(&self, config: &WindowConfig) -> Option<Timestamp> {
        let after = self.buckets.first()?.0.saturating_add(u64::from(config.buckets.get()));
        Some(Timestamp(after.saturating_mul(bucket_nanos(config.bucket))))
    }

    /// The view at `now`.
    pub(super) fn view(&self, now: Timestamp, config: &WindowConfig) -> NetworkTraffic {
        let (aged, live) = self.buckets.split_at_checked(self.aged_buckets(now, config)).unwrap_or_default();
        let sum = |buckets: &[(u64, Flows)]| buckets.iter().fold(Flows::default(), |sum, (_, flows)| sum.with(*flows));
        let window = sum(live);
        let total = self.aged.as_deref().copied().unwrap_or_default().with(sum(aged)).with(window);
        let oldest = (now.0 / bucket_nanos(config.bucket) + 1).saturating_sub(config.buckets.get().into());
        let from = Timestamp(oldest.saturating_mul(bucket_nanos(config.bucket)));
        NetworkTraffic { window, total, from, at: now }
    }

    /// Whether it holds no bucket.
    pub(super) fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Bytes of its entries.
    pub(super) fn held_bytes(&self) -> usize {
        size_of_val(&*self.buckets) + self.aged.as_deref().map_or(0, size_of_val)
    }

    fn aged_buckets(&self, now: Timestamp, config: &WindowConfig) -> usize {
        self.buckets.partition_point(|(index, _)| is_aged(*index, now, config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Flow;

    fn at(s: u64) -> Timestamp {
        Timestamp::default().after(Micros::from_secs(10_000 + s))
    }

    fn out(bytes: u64) -> Flows {
        let outbound = Flow { packets: 1, bytes, ..Flow::default() };
        Flows { outbound, ..Flows::default() }
    }

    #[test]
    fn what_leaves_the_window_stays_in_the_total() {
        let config = WindowConfig::default();
        let mut ring = TrafficRing::default();
        assert!(ring.add(at(0), &out(1_000), &config));
        assert!(!ring.add(at(9), &out(1_000), &config));
        assert!(ring.add(at(25), &out(500), &config));
        assert!(ring.add(at(15), &out(1), &config), "what comes late has a bucket of its own");
        assert!(!ring.add(at(12), &out(1), &config));
        let bytes = |ring: &TrafficRing, s| {
            let view = ring.view(at(s), &config);
            (view.window.outbound.bytes, view.total.outbound.bytes, view.span(at(5)).as_secs_f64())
        };
        assert_eq!(bytes(&ring, 25), (2_502, 2_502, 20.0));
        assert_eq!(bytes(&ring, 305), (502, 2_502, 295.0));
        assert_eq!(ring.next_aged(&config), Some(at(300)));
        assert!(!ring.drop_aged(at(299), &config));
        assert!(ring.drop_aged(at(305), &config));
        assert_eq!(bytes(&ring, 305), (502, 2_502, 295.0));
        assert!(ring.drop_aged(at(320), &config) && ring.is_empty());
        assert_eq!(bytes(&ring, 320), (0, 2_502, 290.0));
    }
}
