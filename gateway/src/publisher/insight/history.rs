//! History of networks: the window in steps of a bucket, the last samples, the last announced starts.
//!
//! Kept for a bounded number of networks, the most recently changed ones; at most about 4.3 KiB each.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::num::NonZeroUsize;

use spand_core::event::StartImminent;
use spand_core::mem::{allocated_for, treed};
use spand_core::types::{SampleReason, Trigger, WindowSample};
use spand_proto::network::Network;
use spand_proto::units::{Bytes, Micros, Timestamp};

use super::trend::Trend;

/// Samples kept per network; the oldest is dropped.
const SAMPLES: usize = 32;
/// Announced starts kept per network; the oldest is dropped.
const STARTS: usize = 16;

/// A window sample, as it was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Timestamp,
    /// Towards which address.
    pub remote: IpAddr,
    /// The window in bytes.
    pub window: f64,
    /// Segment size.
    pub mss: Bytes,
    /// What gave it.
    pub reason: SampleReason,
    /// The connection started on our advice.
    pub advised: bool,
    /// Smallest round-trip time of the connection until then.
    pub rtt_min: Option<Micros>,
}

/// A start that was announced to a host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PushedStart {
    /// When its packet was seen.
    pub at: Timestamp,
    /// The host.
    pub host: IpAddr,
    /// Where to.
    pub remote: IpAddr,
    /// What announced it.
    pub trigger: Trigger,
    /// Agents to which it was pushed.
    pub subscribers: usize,
}

/// What is remembered of one network.
#[derive(Clone, Debug, Default)]
pub struct NetworkHistory {
    /// Its window, where it changed since the gateway started.
    pub trend: Option<Trend>,
    /// Its last samples and lower bounds, in order of arrival.
    pub samples: VecDeque<Sample>,
    /// The last starts towards it that were pushed to hosts.
    pub starts: VecDeque<PushedStart>,
    changed: u64,
}

/// What is remembered of all networks.
#[derive(Debug)]
pub(in crate::publisher) struct Histories {
    limit: NonZeroUsize,
    networks: BTreeMap<Network, NetworkHistory>,
    /// By last change.
    order: BTreeSet<(u64, Network)>,
    changes: u64,
    dropped: u64,
}

impl Histories {
    /// Bytes taken by N networks.
    pub(in crate::publisher) const fn bytes(networks: usize, buckets: usize) -> usize {
        let each = allocated_for::<Sample>(SAMPLES) + allocated_for::<PushedStart>(STARTS) + Trend::bytes(buckets);
        networks.saturating_mul(each)
            + treed::<Network, NetworkHistory>(networks)
            + treed::<(u64, Network), ()>(networks)
    }

    pub(super) const fn new(limit: NonZeroUsize) -> Self {
        Self { limit, networks: BTreeMap::new(), order: BTreeSet::new(), changes: 0, dropped: 0 }
    }

    pub(super) fn get(&self, network: Network) -> Option<&NetworkHistory> {
        self.networks.get(&network)
    }

    /// Networks dropped because the limit was reached.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn trend(&mut self, trend: Trend) {
        let network = trend.network;
        self.touch(network).trend = Some(trend);
    }

    pub(super) fn sample(&mut self, sample: &WindowSample) {
        let samples = &mut self.touch(sample.network).samples;
        if samples.len() >= SAMPLES {
            samples.pop_front();
        }
        samples.push_back(Sample {
            at: sample.at,
            remote: sample.remote,
            window: sample.window.bytes(),
            mss: sample.mss,
            reason: sample.reason,
            advised: sample.advised,
            rtt_min: sample.rtt_min,
        });
    }

    pub(super) fn pushed(&mut self, start: &StartImminent, subscribers: usize) {
        let starts = &mut self.touch(start.network).starts;
        if starts.len() >= STARTS {
            starts.pop_front();
        }
        let StartImminent { host, remote, trigger, at, .. } = *start;
        starts.push_back(PushedStart { at, host, remote, trigger, subscribers });
    }

    pub(super) fn forget(&mut self, network: Network) {
        if let Some(history) = self.networks.remove(&network) {
            self.order.remove(&(history.changed, network));
        }
    }

    /// A network's place, new where it has none; the one that changed longest ago makes room.
    fn touch(&mut self, network: Network) -> &mut NetworkHistory {
        self.changes += 1;
        if let Some(history) = self.networks.get(&network) {
            self.order.remove(&(history.changed, network));
        } else if self.networks.len() >= self.limit.get()
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.networks.remove(&oldest);
            self.dropped += 1;
        }
        self.order.insert((self.changes, network));
        let history = self.networks.entry(network).or_default();
        history.changed = self.changes;
        history
    }
}

#[cfg(test)]
mod tests {
    use spand_core::types::ConnectionId;
    use spand_proto::units::Window;

    use super::*;

    fn network(n: u8) -> Network {
        format!("192.0.{n}.0/24").parse().unwrap()
    }

    fn sample(network: Network, second: u64) -> WindowSample {
        WindowSample {
            at: Timestamp(second * 1_000_000_000),
            network,
            remote: [192, 0, 2, 1].into(),
            connection: ConnectionId(second),
            window: Window::from_bytes(14_480.0).unwrap(),
            mss: Bytes(1_448),
            reason: SampleReason::Loss,
            reduced_before: false,
            transfer: Bytes(0),
            advised: false,
            rtt_min: None,
            rtt: None,
        }
    }

    #[test]
    fn the_network_that_changed_longest_ago_makes_room() {
        let mut histories = Histories::new(NonZeroUsize::new(2).unwrap());
        for (n, second) in [(1, 1), (2, 2), (1, 3), (3, 4)] {
            histories.sample(&sample(network(n), second));
        }
        let seconds = |n| histories.get(network(n)).map(|h| h.samples.iter().map(|s| s.at.0 / 1_000_000_000).collect());
        assert_eq!([1, 2, 3].map(seconds), [Some(vec![1, 3]), None, Some(vec![4])]);
        assert_eq!(histories.dropped(), 1);
        histories.forget(network(3));
        histories.sample(&sample(network(2), 5));
        assert_eq!((histories.networks.len(), histories.order.len(), histories.dropped()), (2, 2, 1));
        (0..40).for_each(|second| histories.sample(&sample(network(2), second)));
        assert_eq!(histories.get(network(2)).unwrap().samples.len(), SAMPLES);
    }
}
