//! What the gateway pushes to a subscribed host.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantArray};

use crate::contract::{Cluster, ContractVersion, HostName};
use crate::estimate::Estimate;
use crate::network::Network;
use crate::start::Mode;
use crate::units::{Bytes, Micros, Segments, Timestamp};

/// How long advice holds after its last refresh (`docs/explain/definitions.md`, "Budget and retreat").
pub const ADVICE_LIFETIME: Micros = Micros::from_secs(60);
/// Longest time between two refreshes of a subscribed host (same place).
pub const REFRESH_INTERVAL: Micros = Micros::from_secs(20);
/// Addresses of one subscribed host, at most.
pub const MAX_ADDRESSES: usize = 1_024;

/// Networks that a subscribing host names, at most.
pub const MAX_NETWORKS_HELD: usize = 2_048;

/// A host's subscription.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Subscription {
    /// The host's name.
    pub host_name: HostName,
    /// Its own addresses, 1 to [`MAX_ADDRESSES`], canonical (no IPv4-mapped IPv6).
    pub addresses: Vec<IpAddr>,
    /// The agent's description, if it sent a readable one. It neither gives nor costs rights.
    pub agent: Option<AgentDescription>,
    /// The cluster whose advice it holds; `None` where it holds none, or not of one alone.
    pub cluster: Option<Cluster>,
    /// The networks of that advice; none where there are more than [`MAX_NETWORKS_HELD`].
    pub networks: Vec<Network>,
}

/// Longest version of an agent in bytes.
pub const MAX_VERSION_BYTES: usize = 64;

/// An agent, as it describes itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AgentDescription {
    /// Version of the program, 1 to [`MAX_VERSION_BYTES`] without control characters.
    pub version: String,
    /// Its mode.
    pub mode: Option<Mode>,
    /// How it applies starts.
    pub method: Option<ApplyMethod>,
    /// Whether advice is paused there; `None` from an agent that cannot be paused.
    pub pause: Option<PauseState>,
}

/// Whether an administrator paused advice on a host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PauseState {
    /// Connections start on advice.
    Active,
    /// None does.
    Paused {
        /// Time until the pause ends by itself, in whole milliseconds; `None` where it does not.
        remaining: Option<Micros>,
    },
}

/// How an agent applies starts.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, PartialEq)]
#[strum(serialize_all = "snake_case")]
pub enum ApplyMethod {
    /// It only logs what it would do.
    DryRun,
    /// It sets the initial window of routes.
    Route,
    /// It starts each connection by programs in the kernel.
    Bpf,
}

impl ApplyMethod {
    /// Its name in configuration and output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One message to a subscribed host.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// Counts the messages of a stream from 1.
    pub sequence: u64,
    /// What happened.
    pub event: UpdateEvent,
}

/// A message's content. A stream begins with a snapshot; after a resync it comes again.
#[derive(Clone, Debug, PartialEq)]
pub enum UpdateEvent {
    /// The estimates in force follow.
    SnapshotBegin {
        /// Contract version of the gateway.
        version: ContractVersion,
        /// Estimates that follow, at most.
        networks: u32,
        /// The cluster of the gateway, where it shares.
        cluster: Option<Cluster>,
    },
    /// Comes before the first snapshot of a stream, to a host that holds advice of this gateway's cluster: the lifetime of all that it
    /// holds is extended once by this, and its lease is not.
    Adopted {
        /// By how much.
        lifetime: Micros,
    },
    /// The snapshot is complete: what was held before and did not come again is no longer in force.
    SnapshotEnd {
        /// Estimates that were sent.
        networks: u32,
    },
    /// An estimate appeared or moved.
    Estimate(EstimateUpdate),
    /// All that this stream gave and did not withdraw lives on for this long.
    Renewal {
        /// The new lifetime.
        lifetime: Micros,
    },
    /// A connection of this host is about to send.
    ImminentStart(ImminentStart),
    /// An estimate is no longer in force.
    Withdrawal {
        /// Its network.
        network: Network,
        /// Why.
        reason: WithdrawalReason,
    },
    /// Updates were lost; a snapshot follows.
    Resync {
        /// Why.
        reason: ResyncReason,
        /// Updates that were dropped.
        dropped_updates: u64,
    },
    /// How large the transfers of one of this host's services are.
    ServiceSize(ServiceSize),
}

/// An estimate and how long it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct EstimateUpdate {
    /// The estimate.
    pub estimate: Estimate,
    /// How long it may be used from its arrival, unless renewed.
    pub lifetime: Micros,
    /// The lease of the stream's host, all its addresses together: segments above its default granted and not yet
    /// acknowledged at one time. Replaces the one before and ends with `lifetime`. `None` where the gateway keeps no budget.
    pub lease: Option<Segments>,
}

/// How large the transfers of a service are: what a start takes for the size where the application does not say it
/// (`docs/explain/definitions.md`, "The start"). Replaces the one before of the same service; neither a renewal nor a snapshot touches it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ServiceSize {
    /// The subscribed host's address, and the port at which it takes connections.
    pub service: SocketAddr,
    /// Size that three of four transfers do not exceed: payload that the host sends.
    pub quantile: Bytes,
    /// Transfers behind it.
    pub transfers: u32,
    /// How long it may be used from its arrival.
    pub lifetime: Micros,
}

/// A connection that is about to send its first window.
#[derive(Clone, Debug, PartialEq)]
pub struct ImminentStart {
    /// The subscribed host's address.
    pub host: Endpoint,
    /// The other end.
    pub remote: Endpoint,
    /// What announced it.
    pub trigger: Trigger,
    /// When the packet that announced it was seen, by the capture's clock.
    pub observed: Timestamp,
    /// Time from that packet's capture to the sending of this.
    pub delay: Micros,
    /// What is known about the remote's network.
    pub estimate: EstimateUpdate,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Endpoint {
    /// Its address.
    pub address: IpAddr,
    /// Its port, where it is known.
    pub port: Option<u16>,
}

/// What announces a start (`docs/explain/definitions.md`, "Push").
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
#[derive(Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Trigger {
    /// A SYN from outside.
    PassiveOpen,
    /// A SYN of the subscribed host.
    ActiveOpen,
    /// A packet from outside on a connection that was idle for longer than its retransmission timeout.
    Idle,
}

impl Trigger {
    /// Its stable name in metrics and output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Why an estimate was withdrawn.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
#[derive(Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum WithdrawalReason {
    /// Nothing new within the age limit.
    Expired,
    /// Too few samples or connections are left in the window.
    TooFew,
    /// The gateway's table of networks is full and this one was evicted.
    Evicted,
    /// Losses in first flights: from a gateway of a release that withdraws advice for them.
    Retreat,
    /// The administrator changed which networks there are, and this one no longer exists.
    Administrator,
    /// The gateway stops.
    Shutdown,
    /// The host did not use the network lately, and gets only networks in use.
    Quiet,
}

impl WithdrawalReason {
    /// Its stable name in metrics and output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Why a stream starts over.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ResyncReason {
    /// The host read too slowly.
    SlowReader,
    /// The gateway's own state was replaced.
    StateReplaced,
}

impl ResyncReason {
    /// Its stable name in metrics and output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}
