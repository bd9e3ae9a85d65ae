//! How networks came to their present state: the window in steps of a bucket, the last samples, the last starts announced.
//!
//! Kept for a bounded number of networks, those that changed last; at most about 4.3 KiB each.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::num::NonZeroUsize;

use spand_core::event::{StartImminent, Trigger};
use spand_core::flow::sample::{SampleReason, WindowSample};
use spand_core::window::record::NetworkRecord;
use spand_proto::network::Network;
use spand_proto::units::{Bytes, Micros, Timestamp};

/// Samples kept of a network; the oldest goes.
const SAMPLES: usize = 32;
/// Announced starts kept of a network; the oldest goes.
const STARTS: usize = 16;

/// The window of one network in steps of a bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Trend {
    /// The network.
    pub network: Network,
    /// Length of a step.
    pub step: Micros,
    /// Steps in which something happened, in order of time.
    pub points: Vec<TrendPoint>,
    /// Quartiles of the samples in bytes, each connection by its mean of a step, weighed by its samples.
    pub quartiles: Option<[f64; 2]>,
}

/// One step of a network's window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrendPoint {
    /// Steps from the epoch to its beginning.
    pub index: u64,
    /// Mean of its window samples in bytes.
    pub share: Option<f32>,
    /// Mean round-trip time.
    pub rtt_mean: Option<Micros>,
    /// Window samples.
    pub samples: u32,
    /// Loss events.
    pub losses: u32,
}

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
    /// Agents that were told.
    pub subscribers: usize,
}

/// What is remembered of one network.
#[derive(Clone, Debug, Default)]
pub struct NetworkHistory {
    /// Its window, where it changed since the gateway started.
    pub trend: Option<Trend>,
    /// Its last samples and lower bounds, in the order in which they came.
    pub samples: VecDeque<Sample>,
    /// The last starts towards it that hosts were told of.
    pub starts: VecDeque<PushedStart>,
    changed: u64,
}

/// What is remembered of all networks.
#[derive(Debug)]
pub(super) struct Histories {
    limit: NonZeroUsize,
    networks: BTreeMap<Network, NetworkHistory>,
    /// By last change.
    order: BTreeSet<(u64, Network)>,
    changes: u64,
    dropped: u64,
}

impl Histories {
    pub(super) const fn new(limit: NonZeroUsize) -> Self {
        Self { limit, networks: BTreeMap::new(), order: BTreeSet::new(), changes: 0, dropped: 0 }
    }

    pub(super) fn get(&self, network: Network) -> Option<&NetworkHistory> {
        self.networks.get(&network)
    }

    /// Networks that went because there were more than are remembered.
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

impl Trend {
    /// The window as a record holds it.
    pub fn of(network: Network, record: &NetworkRecord) -> Self {
        let mut contributions = record.contributions.as_slice();
        let points = record.buckets.iter().map(|bucket| {
            let first = contributions.partition_point(|one| one.bucket < bucket.index);
            let rest = contributions.get(first..).unwrap_or_default();
            let (own, rest) = rest.split_at(rest.partition_point(|one| one.bucket == bucket.index));
            contributions = rest;
            let samples = own.iter().fold(0, |sum: u32, one| sum.saturating_add(one.samples));
            let sum: f64 = own.iter().map(|one| one.sum_bytes).sum();
            #[expect(
                clippy::cast_possible_truncation,
                reason = "to be drawn: seven digits are more than a screen shows"
            )]
            let share = (samples > 0).then(|| (sum / f64::from(samples)) as f32);
            let (rtt_mean, losses) = (bucket.rtt.mean(), bucket.losses);
            TrendPoint { index: bucket.index, share, rtt_mean, samples, losses }
        });
        let points = points.collect();
        Self { network, step: record.bucket, points, quartiles: quartiles(record) }
    }
}

/// A quarter and three quarters of the samples are not above these.
fn quartiles(record: &NetworkRecord) -> Option<[f64; 2]> {
    let with_samples = record.contributions.iter().filter(|one| one.samples > 0);
    let mut means: Vec<_> = with_samples.map(|one| (one.sum_bytes / f64::from(one.samples), one.samples)).collect();
    means.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let all: f64 = means.iter().map(|(_, samples)| f64::from(*samples)).sum();
    let at = |part: f64| {
        let mut sum = 0.0;
        let reached = means.iter().find(|(_, samples)| {
            sum += f64::from(*samples);
            sum >= part * all
        });
        reached.map(|(mean, _)| *mean)
    };
    Some([at(0.25)?, at(0.75)?])
}

#[cfg(test)]
mod tests {
    use spand_core::flow::sample::{ConnectionId, Phase};
    use spand_core::window::bucket::{Bucket, Contribution, RttSum, Source};
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
            sawtooth: None,
            phase: Phase::default(),
            transfer: Bytes(0),
            advised: false,
            rtt_min: None,
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

    #[test]
    fn a_trend_has_the_means_of_each_step_and_the_quartiles_of_all() {
        let contribution = |bucket, connection, samples: u32, mean: f64| Contribution {
            bucket,
            source: Some(Source { remote: [192, 0, 2, 1].into(), connection: ConnectionId(connection) }),
            samples,
            loss_samples: 0,
            sum_bytes: mean * f64::from(samples),
            loss_bytes: 0.0,
            squares: 0.0,
            carried: None,
            mss: Bytes(1_448),
            lower_bounds: 0,
            largest_bound: None,
        };
        let rtt = RttSum { count: 2, sum: Micros(60_000), min: Some(Micros(20_000)) };
        let record = NetworkRecord {
            buckets: vec![
                Bucket { index: 4, losses: 3, ..Bucket::default() },
                Bucket { index: 6, rtt, ..Bucket::default() },
                Bucket { index: 9, ..Bucket::default() },
            ],
            contributions: vec![
                contribution(4, 1, 1, 10.0),
                contribution(4, 2, 3, 30.0),
                contribution(9, 3, 4, 50.0),
                contribution(9, 4, 0, 0.0),
            ],
            bucket: Micros::from_secs(10),
            rtts: vec![],
            newest_sample: None,
            newest: None,
            raised: None,
        };
        let trend = Trend::of(network(1), &record);
        let shares: Vec<_> = trend.points.iter().map(|point| (point.index, point.share, point.samples)).collect();
        assert_eq!(shares, [(4, Some(25.0), 4), (6, None, 0), (9, Some(50.0), 4)]);
        assert_eq!((trend.points[0].losses, trend.points[1].rtt_mean), (3, Some(Micros(30_000))));
        assert_eq!(trend.quartiles, Some([30.0, 50.0]));
        let nothing = NetworkRecord { contributions: vec![], ..record };
        assert_eq!(Trend::of(network(1), &nothing).quartiles, None);
    }
}
