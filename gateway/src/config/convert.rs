//! From the file's sections to the configurations of engine, publisher and API.

use std::collections::BTreeSet;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::Path;
use std::time::Duration;

use spand_core::config::{EngineConfig, FlowReports, Limits as EngineLimits, Shard, WindowConfig};
use spand_openings::{LossCount, openings};
use spand_proto::operator::Renamed;
use spand_proto::units::Micros;

use super::{Config, PrefixListError, load_prefix_list};
use crate::api::ApiConfig;
use crate::publisher::PublisherConfig;

/// How often an unchanged estimate is advertised again while it lives: with new samples by the engine, and in any case by the publisher.
const REFRESHES: u64 = 15;
const READVERTISEMENTS: u64 = 3;
/// Of a peer's connections, the part that may be live streams of dashboards.
const LIVE_STREAMS_PART: NonZeroU32 = NonZeroU32::new(8).unwrap();

/// What a caller of the engine adds to the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EngineOptions {
    /// Which accounts of directions to give at their end.
    pub flow_reports: FlowReports,
    /// Secret of the flow table's hash: 0 in a replay, drawn at the start of a gateway.
    pub hash_seed: u64,
    /// Which of several engines; each has its part of the room for connections and networks.
    pub shard: Shard,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { flow_reports: FlowReports::None, hash_seed: 0, shard: Shard::WHOLE }
    }
}

impl Config {
    /// The engine's configuration; reads the prefix list where one is named.
    pub fn engine(&self, options: EngineOptions) -> Result<EngineConfig, PrefixListError> {
        let prefixes = match &self.traffic.prefix_list {
            Some(path) => load_prefix_list(path)?,
            None => Vec::new(),
        };
        let defaults = EngineLimits::default();
        Ok(EngineConfig {
            internal: self.traffic.internal.iter().map(|network| network.prefix()).collect(),
            prefixes,
            own_listeners: BTreeSet::new(),
            tunnels: self.traffic.engine_tunnels(),
            read_window_option: self.traffic.read_window_option,
            rule: self.estimate.rule,
            compare: self.estimate.compare.clone(),
            openings: openings(self.estimate.rule, &self.estimate.compare, spand_openings::PLACES, LossCount::Episodes),
            limits: EngineLimits {
                connections: part(self.limits.connections, options.shard.count),
                networks: part(self.limits.networks, options.shard.count),
                segment_memory_bytes: part(mib(self.limits.segment_memory_mib), options.shard.count),
                sender_memory_bytes: part(mib(self.limits.sender_memory_mib), options.shard.count),
                network_memory_bytes: part(mib(self.limits.network_memory_mib), options.shard.count),
                idle_established: seconds(self.limits.idle_established_s),
                idle_other: seconds(self.limits.idle_other_s),
                ..defaults
            },
            window: WindowConfig {
                buckets: self.estimate.buckets,
                bucket: seconds(self.estimate.bucket_s),
                min_samples: self.estimate.min_samples.get(),
                min_connections: self.estimate.min_connections.get(),
                max_age: seconds(self.estimate.max_age_s),
                change: self.estimate.change,
                refresh: Micros(seconds(self.estimate.max_age_s).0 / REFRESHES),
            },
            hash_seed: options.hash_seed,
            flow_reports: options.flow_reports,
            shard: options.shard,
        })
    }

    /// The publisher's configuration.
    pub fn publisher(&self) -> PublisherConfig {
        let publish = &self.publish;
        PublisherConfig {
            to_hosts: publish.to_hosts,
            destination_idle: seconds(publish.destination_idle_s),
            lifetime: seconds(publish.lifetime_s),
            renewal: Duration::from_secs(publish.renewal_s.get()),
            change: self.estimate.change,
            readvertise: Micros(seconds(self.estimate.max_age_s).0 / READVERTISEMENTS),
            max_age: seconds(self.estimate.max_age_s),
            subscribers: publish.subscribers,
            ..PublisherConfig::default()
        }
    }

    /// The API's configuration.
    pub fn api(&self) -> ApiConfig {
        let (api, defaults) = (&self.api, ApiConfig::default());
        ApiConfig {
            mode: api.mode,
            grpc_connections: api.grpc_connections,
            connections_per_peer: api.connections_per_peer,
            requests_per_s: api.requests_per_s,
            // Many hosts, or people, behind one address need more of all.
            streams_per_peer: defaults.streams_per_peer.max(api.connections_per_peer),
            live_streams_per_peer: part(api.connections_per_peer, LIVE_STREAMS_PART),
            ..defaults
        }
    }
}

/// A part of a limit, at least one.
fn part(limit: NonZeroUsize, engines: NonZeroU32) -> NonZeroUsize {
    let engines = usize::try_from(engines.get()).unwrap_or(usize::MAX);
    NonZeroUsize::new(limit.get() / engines).unwrap_or(NonZeroUsize::MIN)
}

pub(crate) fn mib(count: NonZeroU32) -> NonZeroUsize {
    let count = usize::try_from(count.get()).unwrap_or(usize::MAX);
    NonZeroUsize::new(count.saturating_mul(1 << 20)).unwrap_or(NonZeroUsize::MIN)
}

fn seconds(count: NonZeroU64) -> Micros {
    Micros::from_secs(count.get())
}

// Keys and values that have a new name. The old one works for one release, with a warning that names the new one.

/// The fields of the sections have the old keys as aliases.
const RENAMED: Renamed<'_> = Renamed {
    keys: &[("publish", "talked_within_s", "destination_idle_s")],
    values: &[("publish", "to_hosts", "talking", "in_use")],
};

/// One warning for each old name in the configuration `file`; none where it cannot be read, which `Config::load` reports.
pub(crate) fn warnings(file: &Path) -> Vec<String> {
    spand_confine::read_to_string(file).map_or_else(|_| Vec::new(), |text| RENAMED.warnings(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Publish};

    #[test]
    fn old_names_work_and_each_is_one_warning_that_names_the_new_one() {
        let old = "[publish]\nto_hosts = \"talking\"\ntalked_within_s = 60\n";
        let new = "[publish]\nto_hosts = \"in_use\"\ndestination_idle_s = 60\n";
        let parsed = [old, new].map(|text| Config::parse(text, Path::new("x")).unwrap().publish);
        assert_eq!(parsed[0], parsed[1]);
        assert_ne!(parsed[0], Publish::default());
        let warnings = RENAMED.warnings(old);
        assert_eq!(warnings.len(), RENAMED.keys.len() + RENAMED.values.len());
        assert!(
            RENAMED.keys.iter().zip(&warnings).all(|((_, old, new), text)| text.contains(old) && text.contains(new))
        );
        assert!(warnings.last().unwrap().contains("in_use"));
        assert_eq!(RENAMED.warnings(new), [""; 0]);
        assert!(
            Config::parse(&format!("{old}destination_idle_s = 9\n"), Path::new("x")).is_err(),
            "twice the same option"
        );
    }
}
