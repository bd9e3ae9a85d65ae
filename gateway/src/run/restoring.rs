//! What the store held, given back to the engines and to the API.

use std::sync::Arc;
use std::time::Duration;

use spand_core::engine::Engine;
use spand_core::shard::Partition;
use spand_core::window::record::NetworkRecord;
use spand_proto::network::Network;
use spand_proto::operator::Failure;
use spand_proto::units::{Micros, Timestamp, counted};

use super::cannot_start_a_thread;
use crate::config::Config;
use crate::publisher::{Batch, Part, Published, Trend};
use crate::store::{Contents, OpenError, Opened, Refused, SledStore, StoreWriter};
use crate::totals::{Point, Step};

/// Time between writes of changed networks.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// What the store gave, and what goes on to write to it.
pub(super) struct Restored {
    pub(super) engines: Vec<Engine>,
    pub(super) store: Option<Arc<StoreWriter>>,
    pub(super) totals: Vec<(Step, Point)>,
}

/// Opens the store and fills the engines with what it holds; what they do not take leaves it, and is counted by reason.
pub(super) fn restore(
    config: &Config,
    mut engines: Vec<Engine>,
    partition: &Partition,
    published: &Published,
) -> Result<Restored, Failure> {
    if !config.store.enabled {
        published.readiness().ready(Part::Store);
        return Ok(Restored { engines, store: None, totals: Vec::new() });
    }
    let Opened { store, contents } = match SledStore::open(&config.store.directory) {
        Ok(opened) => opened,
        Err(error) if error.is_of_disk() => return start_without(config, engines, published, &error),
        Err(error) => return Err(Failure::Environment(error.to_string())),
    };
    let Contents { records, totals, deleted } = contents;
    if let Some(deleted) = deleted {
        tracing::warn!("{deleted}; the gateway starts cold");
    }
    let now = published.now();
    let mut trends: Vec<_> = records.iter().map(|(network, record)| Trend::of(*network, record)).collect();
    let refused = refill(&mut engines, partition, records, Micros::from_secs(config.estimate.bucket_s.get()), now);
    let networks: Vec<_> = engines.iter().flat_map(|engine| engine.networks().views(now)).collect();
    let count = |reason| refused.iter().filter(|(_, why)| *why == reason).count() as u64;
    let counts = [
        (Refused::Aged, count(Refused::Aged)),
        (Refused::OtherBuckets, count(Refused::OtherBuckets)),
        (Refused::Future, count(Refused::Future)),
        // Those were evicted as others were restored; the engines report that to the store.
        (Refused::NoRoom, engines.iter().map(|engine| engine.counters().networks_evicted).sum()),
    ];
    let [aged, other_buckets, future, no_room] = counts.map(|(_, count)| count);
    tracing::info!(
        other_buckets,
        future,
        no_room,
        store = %config.store.directory.display(),
        "restored {} ({aged} expired, {} incompatible)",
        counted(networks.len(), "network", "networks"),
        other_buckets + future
    );
    published.restore(networks);
    trends.retain(|trend| published.network(trend.network).is_some());
    published.apply(Batch { trends, ..Batch::new() });
    let writer = StoreWriter::start(store, SAVE_INTERVAL).map_err(|error| cannot_start_a_thread(&error))?;
    for (reason, count) in counts {
        writer.measures().refuse(reason, count);
    }
    writer.submit(refused.into_iter().map(|(network, _)| (network, None)));
    published.readiness().ready(Part::Store);
    Ok(Restored { engines, store: Some(Arc::new(writer)), totals })
}

/// Starts cold because the disk keeps the store from being opened; it is tried again with each write.
fn start_without(
    config: &Config,
    mut engines: Vec<Engine>,
    published: &Published,
    error: &OpenError,
) -> Result<Restored, Failure> {
    tracing::error!("{error}; the gateway starts cold, saves nothing, and tries again");
    keep_account(&mut engines);
    let store = SledStore::closed(config.store.directory.clone());
    let writer = StoreWriter::start_within(store, SAVE_INTERVAL, StoreWriter::WAITING_BYTES, Some(error.into()))
        .map_err(|error| cannot_start_a_thread(&error))?;
    published.readiness().not_ready(Part::Store, error.to_string());
    Ok(Restored { engines, store: Some(Arc::new(writer)), totals: Vec::new() })
}

/// From here on the engines keep account of changes.
fn keep_account(engines: &mut [Engine]) {
    for engine in engines {
        engine.networks_mut().changed_records(0);
    }
}

/// Gives each engine what the store holds of its networks. Returns what they did not take, to be removed from the store.
pub(super) fn refill(
    engines: &mut [Engine],
    partition: &Partition,
    records: Vec<(Network, NetworkRecord)>,
    bucket: Micros,
    now: Timestamp,
) -> Vec<(Network, Refused)> {
    // Before it is restored: that is in the store and is no change.
    keep_account(engines);
    let mut refused = Vec::new();
    for (network, record) in records {
        let owner = usize::try_from(partition.owner(network)).ok();
        let Some(engine) = owner.and_then(|owner| engines.get_mut(owner)) else { continue };
        let why = Refused::of(&record, bucket, now);
        engine.restore(network, record, now);
        if engine.networks().view(network, now).is_none() {
            refused.push((network, why));
        }
    }
    refused
}
