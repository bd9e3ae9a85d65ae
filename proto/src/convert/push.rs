//! Subscriptions and updates on the wire.

use crate::contract::{Cluster, ContractVersion, HostName};
use crate::estimate::Estimate;
use crate::push::{
    AgentDescription, ApplyMethod, Endpoint, EstimateUpdate, ImminentStart, MAX_ADDRESSES, MAX_NETWORKS_HELD,
    MAX_VERSION_BYTES, PauseState, ResyncReason, ServiceSize, Subscription, Trigger, Update, UpdateEvent,
    WithdrawalReason,
};
use crate::start::Mode;
use crate::units::{Bytes, Micros, Segments, Timestamp};
use crate::v1;
use crate::v1::update::Event;

use super::estimate::network;
use super::{WireError, address, counted, entries, millis, out_of_range, port, required, same_names, socket};

same_names!(ApplyMethod, v1::Way, DryRun, Route, Bpf);
same_names!(Trigger, v1::Trigger, PassiveOpen, ActiveOpen, Idle);
same_names!(WithdrawalReason, v1::WithdrawalReason, Expired, TooFew, Evicted, Retreat, Administrator, Shutdown, Quiet);
same_names!(ResyncReason, v1::ResyncReason, SlowReader, StateReplaced);

impl From<&Subscription> for v1::SubscribeRequest {
    fn from(subscription: &Subscription) -> Self {
        Self {
            contract_version: ContractVersion::CURRENT.number(),
            host_name: subscription.host_name.to_string(),
            addresses: subscription.addresses.iter().map(ToString::to_string).collect(),
            agent: subscription.agent.as_ref().map(v1::AgentDescription::from),
            cluster: name_of(subscription.cluster.as_ref()),
            networks: subscription.networks.iter().map(ToString::to_string).collect(),
        }
    }
}

impl TryFrom<v1::SubscribeRequest> for Subscription {
    type Error = WireError;

    fn try_from(message: v1::SubscribeRequest) -> Result<Self, WireError> {
        ContractVersion::of_peer(message.contract_version)?;
        counted(&message.addresses, "addresses", 1, MAX_ADDRESSES)?;
        counted(&message.networks, "networks", 0, MAX_NETWORKS_HELD)?;
        Ok(Self {
            host_name: HostName::try_from(message.host_name)
                .map_err(|source| WireError::HostName { field: "host_name", source })?,
            addresses: entries(message.addresses, "addresses", |text| address(&text, "address"))?,
            agent: message.agent.and_then(AgentDescription::from_wire),
            // One that cannot be a name is none: the host gets its snapshot, as without it.
            cluster: Cluster::new(message.cluster),
            networks: entries(message.networks, "networks", |text| network(&text, "network"))?,
        })
    }
}

fn name_of(cluster: Option<&Cluster>) -> String {
    cluster.map(|cluster| cluster.as_str().to_owned()).unwrap_or_default()
}

impl From<&AgentDescription> for v1::AgentDescription {
    fn from(agent: &AgentDescription) -> Self {
        Self {
            version: agent.version.clone(),
            mode: agent.mode.map_or(v1::Mode::Unspecified as i32, Mode::to_wire),
            way: agent.method.map_or(v1::Way::Unspecified as i32, ApplyMethod::to_wire),
            pause: agent.pause.map(v1::PauseState::from),
        }
    }
}

impl AgentDescription {
    /// A description that cannot be read is none: it is there to be shown, and a newer agent is not turned away for it.
    fn from_wire(message: v1::AgentDescription) -> Option<Self> {
        let version = message.version;
        let fits = (1..=MAX_VERSION_BYTES).contains(&version.len()) && !version.chars().any(char::is_control);
        fits.then(|| Self {
            version,
            mode: Mode::from_wire(message.mode, "mode").ok().flatten(),
            method: ApplyMethod::from_wire(message.way, "way").ok().flatten(),
            pause: message.pause.map(PauseState::from),
        })
    }
}

impl From<PauseState> for v1::PauseState {
    fn from(pause: PauseState) -> Self {
        match pause {
            PauseState::Active => Self { paused: false, remaining_ms: None },
            PauseState::Paused { remaining } => {
                Self { paused: true, remaining_ms: remaining.map(|Micros(remaining)| remaining / 1_000) }
            }
        }
    }
}

impl From<v1::PauseState> for PauseState {
    fn from(message: v1::PauseState) -> Self {
        let remaining = message.remaining_ms.map(|ms| Micros(ms.saturating_mul(1_000)));
        if message.paused { Self::Paused { remaining } } else { Self::Active }
    }
}

impl Update {
    /// The message, with the ages of its estimates at `now`.
    pub fn to_wire(&self, now: Timestamp) -> v1::Update {
        v1::Update { sequence: self.sequence, event: Some(self.event.to_wire(now)) }
    }

    /// The update of a message that arrived at `now` by the receiver's clock.
    pub fn from_wire(message: v1::Update, now: Timestamp) -> Result<Self, WireError> {
        let event = UpdateEvent::from_wire(required(message.event, "event")?, now)?;
        Ok(Self { sequence: message.sequence, event })
    }
}

impl UpdateEvent {
    fn to_wire(&self, now: Timestamp) -> Event {
        match self {
            Self::SnapshotBegin { version, networks, cluster } => Event::SnapshotBegin(v1::SnapshotBegin {
                contract_version: version.number(),
                networks: *networks,
                cluster: name_of(cluster.as_ref()),
            }),
            Self::Adopted { lifetime } => Event::Adopted(v1::Adopted { lifetime_ms: millis(*lifetime) }),
            Self::SnapshotEnd { networks } => Event::SnapshotEnd(v1::SnapshotEnd { networks: *networks }),
            Self::Estimate(update) => Event::Estimate(update.to_wire(now)),
            Self::Renewal { lifetime } => Event::Renewal(v1::Renewal { lifetime_ms: millis(*lifetime) }),
            Self::ImminentStart(start) => Event::ImminentStart(start.to_wire(now)),
            Self::Withdrawal { network, reason } => {
                Event::Withdrawal(v1::Withdrawal { network: network.to_string(), reason: reason.to_wire() })
            }
            Self::Resync { reason, dropped_updates } => {
                Event::Resync(v1::Resync { reason: reason.to_wire(), dropped_updates: *dropped_updates })
            }
            Self::ServiceSize(size) => Event::ServiceSize(size.to_wire()),
        }
    }

    fn from_wire(event: Event, now: Timestamp) -> Result<Self, WireError> {
        Ok(match event {
            Event::SnapshotBegin(begin) => Self::SnapshotBegin {
                version: ContractVersion::of_peer(begin.contract_version)?,
                networks: begin.networks,
                cluster: Cluster::new(begin.cluster),
            },
            Event::Adopted(adopted) => Self::Adopted { lifetime: Micros::from_millis(adopted.lifetime_ms.into()) },
            Event::SnapshotEnd(end) => Self::SnapshotEnd { networks: end.networks },
            Event::Estimate(update) => Self::Estimate(EstimateUpdate::from_wire(update, now)?),
            Event::Renewal(renewal) => Self::Renewal { lifetime: Micros::from_millis(renewal.lifetime_ms.into()) },
            Event::ImminentStart(start) => Self::ImminentStart(ImminentStart::from_wire(start, now)?),
            Event::Withdrawal(withdrawal) => Self::Withdrawal {
                network: network(&withdrawal.network, "withdrawal.network")?,
                reason: required(
                    WithdrawalReason::from_wire(withdrawal.reason, "withdrawal.reason")?,
                    "withdrawal.reason",
                )?,
            },
            Event::Resync(resync) => Self::Resync {
                reason: required(ResyncReason::from_wire(resync.reason, "resync.reason")?, "resync.reason")?,
                dropped_updates: resync.dropped_updates,
            },
            Event::ServiceSize(size) => Self::ServiceSize(ServiceSize::from_wire(&size)?),
        })
    }
}

impl EstimateUpdate {
    fn to_wire(&self, now: Timestamp) -> v1::EstimateUpdate {
        v1::EstimateUpdate {
            estimate: Some(self.estimate.to_wire(now)),
            lifetime_ms: millis(self.lifetime),
            lease_segments: self.lease.map(|lease| lease.0),
        }
    }

    fn from_wire(message: v1::EstimateUpdate, now: Timestamp) -> Result<Self, WireError> {
        Ok(Self {
            estimate: Estimate::from_wire(&required(message.estimate, "estimate")?, now)?,
            lifetime: Micros::from_millis(message.lifetime_ms.into()),
            lease: message.lease_segments.map(Segments),
        })
    }
}

impl ImminentStart {
    fn to_wire(&self, now: Timestamp) -> v1::ImminentStart {
        v1::ImminentStart {
            host_address: self.host.address.to_string(),
            host_port: self.host.port.map(u32::from),
            remote_address: self.remote.address.to_string(),
            remote_port: self.remote.port.map(u32::from),
            trigger: self.trigger.to_wire(),
            observed_unix_ns: self.observed.0,
            delay_us: self.delay.0,
            estimate: Some(self.estimate.to_wire(now)),
        }
    }

    fn from_wire(message: v1::ImminentStart, now: Timestamp) -> Result<Self, WireError> {
        let host_port = message.host_port.map(|number| port(number, "host_port")).transpose()?;
        let remote_port = message.remote_port.map(|number| port(number, "remote_port")).transpose()?;
        Ok(Self {
            host: Endpoint { address: address(&message.host_address, "host_address")?, port: host_port },
            remote: Endpoint { address: address(&message.remote_address, "remote_address")?, port: remote_port },
            trigger: required(Trigger::from_wire(message.trigger, "trigger")?, "trigger")?,
            observed: Timestamp(message.observed_unix_ns),
            delay: Micros(message.delay_us),
            estimate: EstimateUpdate::from_wire(required(message.estimate, "estimate")?, now)?,
        })
    }
}

impl ServiceSize {
    fn to_wire(self) -> v1::ServiceSize {
        v1::ServiceSize {
            host_address: self.service.ip().to_string(),
            host_port: self.service.port().into(),
            quantile_bytes: self.quantile.0,
            transfers: self.transfers,
            lifetime_ms: millis(self.lifetime),
        }
    }

    fn from_wire(message: &v1::ServiceSize) -> Result<Self, WireError> {
        if message.quantile_bytes == 0 {
            return Err(out_of_range(&0, "quantile_bytes", "at least 1"));
        }
        Ok(Self {
            service: socket(&message.host_address, "host_address", message.host_port, "host_port")?,
            quantile: Bytes(message.quantile_bytes),
            transfers: message.transfers,
            lifetime: Micros::from_millis(message.lifetime_ms.into()),
        })
    }
}
