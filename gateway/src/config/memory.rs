//! The most memory that a gateway takes with its limits, item by item. Each is computed beside what it measures.

use std::fmt::Write as _;

use spand_core::config::EngineConfig;
use spand_core::engine::MemoryNeed;

use super::{Config, mib};
use crate::names::Names;
use crate::publisher::{PublisherNeed, bytes_of_others};
use crate::run::{queue_bytes, reported_bytes};
use crate::sharing;
use crate::store::StoreWriter;

/// What does not grow: the program, its threads' stacks, the runtime, one check of a password, metrics, the log, the history
/// of the whole.
const BASE_BYTES: usize = 96 << 20;
/// Of one prefix of the list, sorted and as the engines look it up.
const PREFIX_BYTES: usize = 100;

/// One item.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Item {
    /// What takes it.
    pub name: &'static str,
    /// At most, in bytes.
    pub bytes: usize,
    /// The options that bound it.
    pub options: &'static str,
}

/// The most that a gateway takes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Memory(Vec<Item>);

impl Memory {
    /// Of a configuration and the engines' part of it, whose list has been read.
    #[must_use]
    pub fn of(config: &Config, engine: &EngineConfig) -> Self {
        let threads = usize::try_from(config.engine.threads.get()).unwrap_or(usize::MAX);
        // The whole of the limits that engines share, and each engine's own.
        let need = MemoryNeed::of(&engine.limits);
        let buckets = usize::try_from(config.estimate.buckets.get()).unwrap_or(usize::MAX);
        let (networks, services) = (config.limits.networks.get(), engine.limits.services.get());
        let publishes = config.publisher();
        let publisher = PublisherNeed::of(&publishes, (networks, services, buckets));
        let api = config.api();
        let capture = &config.capture;
        let readers = capture.interfaces.len().max(1) * usize::from(capture.readers.get());
        let snap = usize::try_from(capture.snap_length_bytes.get()).unwrap_or(usize::MAX);
        let queues = queue_bytes(capture.queue_packets.get(), snap).saturating_mul(threads);
        let store = StoreWriter::most_bytes(StoreWriter::WAITING_BYTES);
        let store = if config.store.enabled { store } else { 0 };
        let shared = sharing::most_bytes(threads)
            .saturating_add(bytes_of_others(publishes.leased_networks.get(), publishes.subscribers.get()));
        let shared = if config.share.is_on() { shared } else { 0 };
        let items = [
            ("connections", need.connections, "limits.connections"),
            ("outstanding segments", need.segments, "limits.segment_memory_mib"),
            ("senders", need.senders, "limits.sender_memory_mib"),
            ("networks and their samples", need.networks, "limits.networks, limits.network_memory_mib"),
            ("services", need.services, "fixed"),
            ("events", need.events.saturating_mul(threads), "engine.threads"),
            ("starts by network", need.starts.saturating_mul(threads), "fixed"),
            (
                "capture rings, kernel memory",
                mib(capture.buffer_mib).get().saturating_mul(readers),
                "capture.buffer_mib",
            ),
            ("frame queues", queues, "capture.queue_packets, capture.snap_length_bytes"),
            ("prefix list", engine.prefixes.len().saturating_mul(PREFIX_BYTES), "traffic.prefix_list"),
            ("names of networks", Names::most_bytes(&config.names), "names.list, names.asn_database"),
            ("published networks and services", publisher.published, "limits.networks"),
            ("remote addresses with lost first flights", publisher.losers, "fixed"),
            ("networks with history", publisher.remembered, "fixed"),
            ("changes to be sent", publisher.changes, "fixed"),
            ("subscribers and their starts", publisher.subscribers, "publish.subscribers"),
            ("networks that wait to be sent", publisher.waiting_networks, "fixed"),
            ("leases", publisher.leases, "publish.subscribers"),
            ("networks in use by hosts", publisher.destinations, "publish.to_hosts"),
            ("gRPC connections", api.grpc_bytes(), "api.grpc_connections"),
            ("HTTP connections", api.http_bytes(), "fixed"),
            ("reports", api.reports_bytes(), "fixed"),
            ("reports that wait for engines", reported_bytes(threads), "engine.threads"),
            ("other gateways", shared, "share.servers, engine.threads, publish.subscribers"),
            ("store", store, "store.enabled"),
            ("the program itself", BASE_BYTES, "fixed"),
        ];
        Self(items.map(|(name, bytes, options)| Item { name, bytes, options }).into())
    }

    /// Every item.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.0
    }

    /// All of them together, in MiB.
    #[must_use]
    pub fn total_mib(&self) -> usize {
        whole_mib(self.0.iter().fold(0, |sum: usize, item| sum.saturating_add(item.bytes)))
    }

    /// The options that bound most, the largest item first.
    #[must_use]
    pub fn largest(&self, count: usize) -> Vec<Item> {
        let mut items = self.0.clone();
        items.sort_by_key(|item| std::cmp::Reverse(item.bytes));
        items.truncate(count);
        items
    }

    /// As comment lines of a configuration.
    #[must_use]
    pub fn comment(&self) -> String {
        let mut text = format!("# Memory with every limit reached, in MiB: {}\n", self.total_mib());
        for Item { name, bytes, options } in &self.0 {
            _ = writeln!(text, "# {:>8} {name} ({options})", whole_mib(*bytes));
        }
        text
    }
}

/// In whole MiB, rounded up.
fn whole_mib(bytes: usize) -> usize {
    bytes.div_ceil(1 << 20)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::EngineOptions;

    fn memory(text: &str) -> Memory {
        let config = Config::parse(text, Path::new("x")).unwrap();
        let engine = config.engine(EngineOptions::default()).unwrap();
        Memory::of(&config, &engine)
    }

    #[test]
    fn the_sum_is_that_of_its_items_and_every_limit_moves_it() {
        let before = memory("");
        let sum: usize = before.items().iter().map(|item| item.bytes).sum();
        assert_eq!(before.total_mib(), sum.div_ceil(1 << 20));
        let larger = [
            ("limits", "connections", 4_000_000),
            ("limits", "segment_memory_mib", 900),
            ("limits", "sender_memory_mib", 4_096),
            ("limits", "network_memory_mib", 2_048),
            ("limits", "networks", 4_000_000),
            ("capture", "buffer_mib", 128),
            ("capture", "queue_packets", 131_072),
            ("publish", "subscribers", 4_000),
            ("api", "grpc_connections", 8_000),
        ];
        for (section, key, value) in larger {
            let after = memory(&format!("[{section}]\n{key} = {value}"));
            assert!(after.total_mib() > before.total_mib(), "{section}.{key}");
        }
        let shares = memory("[share]\nservers = [\"nats://127.0.0.1\"]\ngateway = 1\nsecret = \"x\"");
        assert!(shares.total_mib() > before.total_mib() + 100, "messages wait");
        let in_use = memory("[publish]\nto_hosts = \"in_use\"");
        assert!(in_use.total_mib() > before.total_mib() + 100, "networks in use are kept");
    }

    #[test]
    fn what_is_printed_is_a_comment() {
        let text = memory("").comment();
        assert!(text.lines().all(|line| line.starts_with("# ")), "{text}");
        assert!(text.lines().count() > 20, "{text}");
    }
}
