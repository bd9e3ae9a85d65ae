//! The window of a network in steps of a bucket, to be drawn.

use spand_core::mem::allocated_for;
use spand_core::window::record::NetworkRecord;
use spand_proto::network::Network;
use spand_proto::units::Micros;

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

impl Trend {
    /// Heap memory in bytes of N buckets.
    pub(super) const fn bytes(buckets: usize) -> usize {
        allocated_for::<TrendPoint>(buckets)
    }

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
    use spand_core::types::ConnectionId;
    use spand_core::types::RttSum;
    use spand_core::window::bucket::{Bucket, Contribution, FullSum, QueueSum, Source};
    use spand_proto::units::Bytes;

    use super::*;

    #[test]
    fn a_trend_has_the_means_of_each_step_and_the_quartiles_of_all() {
        let network: Network = "192.0.2.0/24".parse().unwrap();
        let contribution = |bucket, connection, samples: u32, mean: f64| Contribution {
            bucket,
            source: Some(Source { remote: [192, 0, 2, 1].into(), connection: ConnectionId(connection) }),
            samples,
            loss_samples: 0,
            sum_bytes: mean * f64::from(samples),
            loss_bytes: 0.0,
            full: FullSum { samples: 0, bytes: 0.0, by_rate: false },
            squares: 0.0,
            carried: None,
            mss: Bytes(1_448),
            queued: QueueSum::default(),
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
        let trend = Trend::of(network, &record);
        let shares: Vec<_> = trend.points.iter().map(|point| (point.index, point.share, point.samples)).collect();
        assert_eq!(shares, [(4, Some(25.0), 4), (6, None, 0), (9, Some(50.0), 4)]);
        assert_eq!((trend.points[0].losses, trend.points[1].rtt_mean), (3, Some(Micros(30_000))));
        assert_eq!(trend.quartiles, Some([30.0, 50.0]));
        let nothing = NetworkRecord { contributions: vec![], ..record };
        assert_eq!(Trend::of(network, &nothing).quartiles, None);
    }
}
