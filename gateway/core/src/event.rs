//! Events of the engine, polled by its owner.

use std::net::{IpAddr, SocketAddr};

use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::units::Timestamp;

use crate::flow::report::DirectionReport;
use crate::networks::view::NetworkView;
use crate::networks::{NetworkEvent, Withdrawal};
use crate::service::{ServiceEvent, ServiceSize, TransferEnded};
use crate::types::Trigger;

/// Something the publisher or the replay has to know.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// An estimate appeared, moved by more than the configured change, or was refreshed.
    Estimate(Box<Estimate>),
    /// The state of a network that changed, at its turn ([`crate::engine::Engine::changed_networks`]), with its estimate.
    Network(Box<NetworkView>),
    /// A network has no estimate any more.
    Withdrawn {
        /// The network.
        network: Network,
        /// Why.
        reason: Withdrawal,
    },
    /// A host inside is about to send to a network that may have an estimate.
    StartImminent(StartImminent),
    /// A connection of a host inside is established: both ends were heard, and agree. What announced its start may have been made up.
    Established(Established),
    /// A direction of a connection ended (only with `flow_reports`).
    DirectionEnded(Box<DirectionReport>),
    /// The size quantile of a service inside appeared, moved by more than the configured change, or was refreshed.
    ServiceSize(ServiceSize),
    /// A transfer of a service ended, for the first of several engines to take ([`crate::engine::Engine::take_transfer`]).
    TransferEnded(TransferEnded),
    /// A service has no size quantile any more: it sent too little, or the table of services was full.
    ServiceForgotten(SocketAddr),
}

impl Event {
    /// Of an estimate, on the heap: it is larger than everything else that is queued, and rarer.
    pub fn estimate(estimate: Estimate) -> Self {
        Self::Estimate(Box::new(estimate))
    }
}

impl From<NetworkEvent> for Event {
    fn from(event: NetworkEvent) -> Self {
        match event {
            NetworkEvent::Estimate(estimate) => Self::Estimate(estimate),
            NetworkEvent::Network(view) => Self::Network(view),
            NetworkEvent::Withdrawn { network, reason } => Self::Withdrawn { network, reason },
        }
    }
}

impl From<ServiceEvent> for Event {
    fn from(event: ServiceEvent) -> Self {
        match event {
            ServiceEvent::Size(size) => Self::ServiceSize(size),
            ServiceEvent::Ended(ended) => Self::TransferEnded(ended),
            ServiceEvent::Forgotten(service) => Self::ServiceForgotten(service),
        }
    }
}

/// A start that is about to happen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StartImminent {
    /// Host inside that will send.
    pub host: IpAddr,
    /// Where to.
    pub remote: IpAddr,
    /// The network of `remote`.
    pub network: Network,
    /// What announced it.
    pub trigger: Trigger,
    /// When that packet was seen.
    pub at: Timestamp,
}

/// A connection of a host inside that is established.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Established {
    /// Host inside.
    pub host: IpAddr,
    /// The network of its other end.
    pub network: Network,
}
