//! Networks and records made up for the tests and benchmarks of the store.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::seq::index::sample;
use rand::{RngExt, SeedableRng};
use spand_core::config::WindowConfig;
use spand_core::networks::NetworkTable;
use spand_core::types::{ConnectionId, RttSum, SampleReason, WindowSample};
use spand_core::window::bucket::{Bucket, Contribution, FullSum, QueueSum, RemoteRtt, Source};
use spand_core::window::record::NetworkRecord;
use spand_gateway::publisher::{MonotonicClock, PacketClock};
use spand_gateway::store::{Change, EstimateStore, SledStore};
use spand_proto::estimate::RuleKind;
use spand_proto::network::Network;
use spand_proto::units::{Bytes, Micros, Timestamp, Window};

/// `count` of `networks` networks change at a tick, one in twenty of them goes. The same for the same seed and tick.
pub fn changes(seed: u64, tick: u64, networks: u32, count: u32) -> Vec<Change> {
    let mut random = StdRng::seed_from_u64(seed ^ tick.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let chosen = sample(&mut random, networks as usize, count.min(networks) as usize);
    let change = |number: usize| {
        let gone = random.random_bool(0.05);
        // A place below `networks` always fits.
        let number = u32::try_from(number).unwrap_or_default();
        (network(number), (!gone).then(|| record(number, tick, random.random_range(1..=10))))
    };
    chosen.into_iter().map(change).collect()
}

/// The network of a number; one in four is IPv6.
pub fn network(number: u32) -> Network {
    let [_, a, b, c] = number.to_be_bytes();
    if number.is_multiple_of(4) {
        Network::of(IpAddr::from([0x2001, 0xdb8, u16::from_be_bytes([b, c]), 0, 0, 0, 0, 1]))
    } else {
        Network::of(IpAddr::from([100 + a, b, c, 1]))
    }
}

/// A record of `buckets` buckets with two connections each: a network of middling traffic.
fn record(number: u32, tick: u64, buckets: u64) -> NetworkRecord {
    let now = 176_000_000 + tick;
    let share = f64::from(number) * 1_448.5 + tick as f64;
    let bucket = |n: u32| Bucket {
        index: now - buckets + u64::from(n),
        rtt: RttSum { count: 40 + u64::from(n), sum: Micros(1_000_000), min: Some(Micros(20_000 + tick)) },
        losses: n,
        window_limited: n,
        receiver_limited: 1,
        application_limited: 7,
        ..Bucket::default()
    };
    let contribution = |n: u64| Contribution {
        bucket: now - buckets + n / 2,
        source: Some(Source { remote: network(number).prefix().addr(), connection: ConnectionId(tick * 100 + n) }),
        samples: 3,
        loss_samples: 1,
        sum_bytes: 3.0 * share,
        loss_bytes: share,
        full: FullSum { samples: 1, bytes: share, by_rate: false },
        squares: 3.0 * share * share,
        carried: Window::from_bytes(share),
        mss: Bytes(1_448),
        queued: QueueSum { losses: 1, bytes: share / 2.0, squares: share * share / 4.0 },
        lower_bounds: 0,
        largest_bound: None,
    };
    let rtt = |n: u64| RemoteRtt {
        bucket: now - buckets + n / 2,
        remote: network(number).prefix().addr(),
        count: 20,
        sum: Micros(500_000),
    };
    NetworkRecord {
        bucket: Micros::from_secs(10),
        buckets: (0..).zip(0..buckets).map(|(n, _)| bucket(n)).collect(),
        contributions: (0..2 * buckets).map(contribution).collect(),
        rtts: (0..2 * buckets).map(rtt).collect(),
        newest_sample: Some(Timestamp(now * 10_000_000_000)),
        newest: Some(Timestamp(now * 10_000_000_000 + 1)),
        raised: None,
    }
}

/// The records of networks of each of which a gateway has three samples of three connections at `at`: enough for an estimate. `remotes`: an
/// address in each, all different.
///
/// # Errors
/// Where two addresses are in one network.
pub fn seen(remotes: &[IpAddr], at: Timestamp) -> Result<Vec<Change>> {
    let limit = NonZeroUsize::new(remotes.len()).context("no networks")?;
    let mut table = NetworkTable::new(WindowConfig::default(), limit, RuleKind::default(), 0);
    for (number, &remote) in (0..).zip(remotes) {
        for connection in 0..3u64 {
            table.add(&WindowSample {
                at,
                network: Network::of(remote),
                remote,
                connection: ConnectionId(number * 3 + connection),
                window: Window::from_bytes(30_000.0).unwrap_or_default(),
                mss: Bytes(1_448),
                reason: SampleReason::Loss,
                reduced_before: false,
                transfer: Bytes(1_000_000),
                advised: false,
                rtt_min: Some(Micros(20_000)),
                rtt: None,
            });
        }
    }
    let records = table.changed_records(remotes.len());
    ensure!(records.len() == remotes.len(), "{} of {} networks were recorded", records.len(), remotes.len());
    Ok(records)
}

/// Writes a store of networks that were [`seen`] just now.
///
/// # Errors
/// Where the store cannot be written.
pub fn fill_store(folder: &Path, remotes: &[IpAddr]) -> Result<()> {
    let records = seen(remotes, MonotonicClock::from_wall_clock().now())?;
    let mut store = SledStore::open(folder)?.store;
    store.save(&records)?;
    store.flush()?;
    Ok(())
}
