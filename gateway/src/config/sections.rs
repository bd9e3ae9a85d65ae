//! The sections of the configuration file and their defaults.
//!
//! Every field is one key. Limits are types that cannot be zero, so a zero is refused with its line.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use spand_core::config::{Limits as EngineLimits, WindowConfig};
use spand_proto::estimate::RuleKind;
use spand_proto::network::Network;
use spand_proto::start::Mode;
use spand_proto::units::Micros;

use super::{Listen, Tunnel, TunnelKind};
use crate::api::ApiConfig;
use crate::publisher::{PublisherConfig, ToHosts};

/// Where agents of this machine ask, unless the file says otherwise; packages make the folder.
pub(crate) const DEFAULT_SOCKET: &str = "/run/spand/gateway.sock";

/// `[traffic]`: which packets belong to whom.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Traffic {
    /// Prefixes inside the organisation. Default none: then both ends of every connection count as inside.
    pub internal: Vec<Network>,
    /// File of networks, one prefix a line; the longest match wins. Default none: /24 and /48 everywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_list: Option<PathBuf>,
    /// Tunnels to look into. Default none; VLAN tags, MPLS and PPPoE always are looked into.
    pub tunnel: Vec<Tunnel>,
    /// What `tunnel` was before it named endpoints: refused, with the lines to write instead.
    #[serde(skip_serializing)]
    pub tunnels: Option<Vec<TunnelKind>>,
    /// Take a sender's window and round trip from the TCP option in which it says them. Default off.
    pub read_window_option: bool,
}

/// `[names]`: what networks are called, for people.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Names {
    /// File with a prefix and its name a line; the longest match counts. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<PathBuf>,
    /// Database of autonomous systems, an `.mmdb` file. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asn_database: Option<PathBuf>,
}

/// `[estimate]`: how samples become estimates.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Estimate {
    /// The rule. Default `robust`.
    pub rule: RuleKind,
    /// Rules whose answers are shown beside it. Default none.
    pub compare: Vec<RuleKind>,
    /// Buckets of the sliding window. Default 30.
    pub buckets: NonZeroU32,
    /// Length of one bucket in seconds. Default 10.
    pub bucket_s: NonZeroU64,
    /// Samples from which on an estimate is given. Default 3.
    pub min_samples: NonZeroU32,
    /// Connections they must come from. Default 2.
    pub min_connections: NonZeroU32,
    /// Age limit of an estimate in seconds. Default 300.
    pub max_age_s: NonZeroU64,
    /// Relative change that is pushed. Default 0.1.
    pub change: f64,
}

/// `[limits]`: how large each table may grow.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections at a time.
    pub connections: NonZeroUsize,
    /// Networks at a time.
    pub networks: NonZeroUsize,
    /// Memory of what all senders have outstanding, segments and ranges of sequence space, in MiB.
    pub segment_memory_mib: NonZeroU32,
    /// Memory of all else that is kept of senders, in MiB.
    pub sender_memory_mib: NonZeroU32,
    /// Memory of the samples in all networks' windows, in MiB.
    pub network_memory_mib: NonZeroU32,
    /// Silence in seconds after which an established connection is forgotten.
    pub idle_established_s: NonZeroU64,
    /// The same for one that is opening or closing.
    pub idle_other_s: NonZeroU64,
}

/// `[publish]`: how estimates are sent to subscribed hosts.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Publish {
    /// The networks whose estimates are advertised to a host. Default `all`.
    pub to_hosts: ToHosts,
    /// With `in_use`: seconds without use after which a network is withdrawn from a host. Default 600.
    #[serde(alias = "talked_within_s")]
    pub destination_idle_s: NonZeroU64,
    /// Lifetime of advice at a host, in seconds. Default 60.
    pub lifetime_s: NonZeroU64,
    /// Interval at which it is renewed, in seconds. Default 20.
    pub renewal_s: NonZeroU64,
    /// Subscribers at a time. Default 1,000.
    pub subscribers: NonZeroUsize,
}

/// `[api]`: who may ask, and where.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Api {
    /// Unix socket of gRPC, for agents on this machine. Default /run/spand/gateway.sock where `grpc_listen` is not given, else none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc_socket: Option<PathBuf>,
    /// Address and port of gRPC, for agents on other machines. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc_listen: Option<Listen>,
    /// Address and port of JSON, metrics and health. Default 127.0.0.1:7480.
    pub http_listen: Listen,
    /// Mode of an answer where the question names none. Default `careful`.
    pub mode: Mode,
    /// gRPC connections at a time. Default 2,000.
    pub grpc_connections: NonZeroUsize,
    /// Connections of one peer at a time, on each listener. Default 64.
    pub connections_per_peer: NonZeroUsize,
    /// Requests of one peer in a second, on each listener. Default 1,000.
    pub requests_per_s: NonZeroU32,
}

/// `[store]`: what survives a restart.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// Keep a store at all. Default on.
    pub enabled: bool,
    /// Its folder, made where it is missing. Default /var/lib/spand/gateway/store.
    pub directory: PathBuf,
}

impl Default for Estimate {
    /// The engine's own, so that a replay and a running gateway cannot drift apart.
    fn default() -> Self {
        let window = WindowConfig::default();
        Self {
            rule: RuleKind::default(),
            compare: Vec::new(),
            buckets: window.buckets,
            bucket_s: whole_secs(window.bucket),
            min_samples: NonZeroU32::new(window.min_samples).unwrap_or(NonZeroU32::MIN),
            min_connections: NonZeroU32::new(window.min_connections).unwrap_or(NonZeroU32::MIN),
            max_age_s: whole_secs(window.max_age),
            change: window.change,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let limits = EngineLimits::default();
        Self {
            connections: limits.connections,
            networks: limits.networks,
            segment_memory_mib: whole_mib(limits.segment_memory_bytes),
            sender_memory_mib: whole_mib(limits.sender_memory_bytes),
            network_memory_mib: whole_mib(limits.network_memory_bytes),
            idle_established_s: whole_secs(limits.idle_established),
            idle_other_s: whole_secs(limits.idle_other),
        }
    }
}

impl Default for Publish {
    /// The publisher's own.
    fn default() -> Self {
        let publisher = PublisherConfig::default();
        Self {
            to_hosts: publisher.to_hosts,
            destination_idle_s: whole_secs(publisher.destination_idle),
            lifetime_s: whole_secs(publisher.lifetime),
            renewal_s: whole_secs(Micros::from(publisher.renewal)),
            subscribers: publisher.subscribers,
        }
    }
}

impl Default for Api {
    /// The API's own.
    fn default() -> Self {
        let api = ApiConfig::default();
        Self {
            grpc_socket: Some(PathBuf::from(DEFAULT_SOCKET)),
            grpc_listen: None,
            http_listen: Listen(SocketAddr::from(([127, 0, 0, 1], 7480))),
            mode: api.mode,
            grpc_connections: api.grpc_connections,
            connections_per_peer: api.connections_per_peer,
            requests_per_s: api.requests_per_s,
        }
    }
}

impl Api {
    /// Adds the default socket where the file has no gRPC listener. The default is no loopback port: any local user could bind it first.
    pub(super) fn fill_in(&mut self) {
        if self.grpc_socket.is_none() && self.grpc_listen.is_none() {
            self.grpc_socket = Some(PathBuf::from(DEFAULT_SOCKET));
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self { enabled: true, directory: PathBuf::from("/var/lib/spand/gateway/store") }
    }
}

fn whole_mib(bytes: NonZeroUsize) -> NonZeroU32 {
    u32::try_from(bytes.get() >> 20).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
}

fn whole_secs(time: Micros) -> NonZeroU64 {
    NonZeroU64::new(time.0 / 1_000_000).unwrap_or(NonZeroU64::MIN)
}

// `[engine]`: how many engines share the work.

/// `[engine]`: how the work is shared out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Engine {
    /// Engines side by side, a thread each, with the networks divided among them. Default 1.
    pub threads: NonZeroU32,
}

impl Engine {
    /// Each has a queue and tables of its own: more than a large machine's cores is a typing error.
    pub(super) const MAX_THREADS: u32 = 64;
}

impl Default for Engine {
    fn default() -> Self {
        Self { threads: NonZeroU32::MIN }
    }
}
