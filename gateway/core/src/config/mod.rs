//! Configuration of an engine. No limit can be zero; what happens when it is reached is in its comment.

mod tunnels;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;

use ipnet::IpNet;
use spand_proto::estimate::RuleKind;
use spand_proto::units::Micros;

pub use self::tunnels::{Encapsulation, Tunnels};
use crate::opening::Openings;

/// Configuration of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Prefixes inside the organisation. A sender inside is followed, its remote end names the network. Empty (a bare
    /// trace): both senders of every connection are followed.
    pub internal: Vec<IpNet>,
    /// Networks other than /24 and /48: the longest match wins. Empty: /24 and /48 everywhere.
    pub prefixes: Vec<IpNet>,
    /// Where the gateway itself listens, as the mirror port shows it: connections to it are not followed. Default: none.
    pub own_listeners: BTreeSet<SocketAddr>,
    /// Encapsulations to decapsulate besides VLAN, MPLS and PPPoE, and between which endpoints. Default none.
    pub tunnels: Tunnels,
    /// Take a sender's window and RTT from the option in which it reports them, if consistent with the packets. Default
    /// off: a host inside can report any value within a factor of two.
    pub read_window_option: bool,
    /// Rule that makes an estimate of a window. Default `robust`.
    pub rule: RuleKind,
    /// Rules whose answers are shown beside it, in this order; they decide nothing. Default none.
    pub compare: Vec<RuleKind>,
    /// The state that the opening rules keep of senders under way. `None`, the default, keeps nothing.
    pub openings: Option<Arc<dyn Openings>>,
    /// Limits of every table.
    pub limits: Limits,
    /// The sliding window.
    pub window: WindowConfig,
    /// Secret of the flow table's hash, so that no one can aim many connections at one slot. A replay keeps it at 0;
    /// a gateway draws it at its start. No result depends on it.
    pub hash_seed: u64,
    /// Which accounts of directions to give at their end. Default none: a long-running gateway has no use for them. Of several
    /// engines a connection's home reports it.
    pub flow_reports: FlowReports,
    /// Which networks are this engine's, where there are several. Default: all. Limits are this engine's own.
    pub shard: Shard,
}

/// Which accounts of directions an engine gives ([`crate::event::Event::DirectionEnded`]).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FlowReports {
    /// None.
    #[default]
    None,
    /// Of followed senders, without details, until their connection has closed: what is sent again after that is not counted.
    Sums,
    /// Of every direction, with details.
    Full,
}

/// Which of how many engines one is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shard {
    /// Its number, from 0.
    pub index: u32,
    /// How many there are.
    pub count: NonZeroU32,
}

impl Shard {
    /// The only engine.
    pub const WHOLE: Self = Self { index: 0, count: NonZeroU32::MIN };
}

/// Table limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Connections at a time. At the limit the one idle longest is evicted, counted by its state (`counters::Evicted`). Default 1,000,000.
    pub connections: NonZeroUsize,
    /// Networks with samples at a time. At the limit the one refreshed longest ago is evicted. Default 1,000,000.
    pub networks: NonZeroUsize,
    /// Memory of what all senders have outstanding: segments and ranges of sequence space. At the limit the connection that
    /// waits for an acknowledgement longest has its neighbouring segments merged into one and its holes taken as seen, counted;
    /// those of which no data was ever acknowledged go first. Default 320 MiB, beyond what a million connections keep in any case.
    pub segment_memory_bytes: NonZeroUsize,
    /// Memory of all else that is kept of senders: the state rebuilt of each, from about 0.6 KiB to 4 KiB. At the limit the
    /// connection idle longest is evicted, as at that of connections. Default 2 GiB.
    pub sender_memory_bytes: NonZeroUsize,
    /// Memory of the samples in all networks' windows, a few hundred bytes to 126 KiB each. At the limit the network refreshed
    /// longest ago is evicted, as at that of networks. Default 1 GiB.
    pub network_memory_bytes: NonZeroUsize,
    /// Outstanding segments remembered per sender. At the limit neighbours merge and lose their RTT sample, counted. Default 16,384.
    pub outstanding_segments: NonZeroU32,
    /// Disjoint ranges of seen sequence space per sender. At the limit the lowest hole is taken as seen, counted. Default 1,024.
    pub sequence_ranges: NonZeroU32,
    /// Services inside, by address and port, whose transfer sizes are kept, about 2.6 KiB each. At the limit the one that
    /// idle longest is evicted, counted. Default 8,192.
    pub services: NonZeroUsize,
    /// Window samples kept per flow report; later ones are counted only. Default 10,000.
    pub report_samples: NonZeroU32,
    /// Silence after which an established connection is forgotten. Default 1 hour.
    pub idle_established: Micros,
    /// Silence after which a connection that is closing, never finished its handshake, or was heard of one side alone is
    /// forgotten. Default 2 minutes.
    pub idle_other: Micros,
    /// Idle time after which a connection is dropped that holds more than a few segments of a sender none of whose data was
    /// ever acknowledged. Default 1 minute.
    pub idle_unacknowledged: Micros,
    /// Events waiting to be polled. At the limit the oldest is dropped, counted; the caller then reads the full state again. From 16
    /// on, a caller that takes them all after every call loses none. Default 65,536.
    pub events: NonZeroUsize,
}

/// The sliding window per network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowConfig {
    /// Buckets of the ring. Default 30.
    pub buckets: NonZeroU32,
    /// Length of one bucket. Default 10 s, so 5 minutes in all.
    pub bucket: Micros,
    /// Samples from which on an estimate is given. Default 3.
    pub min_samples: u32,
    /// Connections they must come from. Default 2.
    pub min_connections: u32,
    /// Age limit of an estimate: silent longer, it expires. Default 300 s.
    pub max_age: Micros,
    /// Relative change of share or RTT that is worth an event. Default 0.1.
    pub change: f64,
    /// Refresh interval: an unchanged estimate with new samples is announced again after this long. Default 20 s.
    pub refresh: Micros,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            internal: Vec::new(),
            prefixes: Vec::new(),
            own_listeners: BTreeSet::new(),
            tunnels: Tunnels::NONE,
            read_window_option: false,
            rule: RuleKind::default(),
            compare: Vec::new(),
            openings: None,
            limits: Limits::default(),
            window: WindowConfig::default(),
            hash_seed: 0,
            flow_reports: FlowReports::None,
            shard: Shard::WHOLE,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: const { NonZeroUsize::new(1_000_000).unwrap() },
            networks: const { NonZeroUsize::new(1_000_000).unwrap() },
            segment_memory_bytes: const { NonZeroUsize::new(320 << 20).unwrap() },
            sender_memory_bytes: const { NonZeroUsize::new(2 << 30).unwrap() },
            network_memory_bytes: const { NonZeroUsize::new(1 << 30).unwrap() },
            outstanding_segments: const { NonZeroU32::new(16_384).unwrap() },
            sequence_ranges: const { NonZeroU32::new(1_024).unwrap() },
            services: const { NonZeroUsize::new(8_192).unwrap() },
            report_samples: const { NonZeroU32::new(10_000).unwrap() },
            idle_established: Micros::from_secs(3_600),
            idle_other: Micros::from_secs(120),
            idle_unacknowledged: Micros::from_secs(60),
            events: const { NonZeroUsize::new(65_536).unwrap() },
        }
    }
}

impl Limits {
    /// The limits of a replay: silence ends no connection, since gaps in a capture are no sign of one; only the table's
    /// size does.
    #[must_use]
    pub fn for_replay() -> Self {
        let never = Micros(u64::MAX);
        Self { idle_established: never, idle_other: never, idle_unacknowledged: never, ..Self::default() }
    }
}

impl WindowConfig {
    /// Time that the ring covers.
    pub(crate) fn span(&self) -> Micros {
        Micros(self.bucket.0.saturating_mul(u64::from(self.buckets.get())))
    }
}

impl Default for WindowConfig {
    fn default() -> Self {
        Self {
            buckets: const { NonZeroU32::new(30).unwrap() },
            bucket: Micros::from_secs(10),
            min_samples: 3,
            min_connections: 2,
            max_age: Micros::from_secs(300),
            change: 0.1,
            refresh: Micros::from_secs(20),
        }
    }
}
