//! What gateways have each other know beside what they saw.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use spand_core::types::Trigger;
use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp, Window};

use crate::gateway::GatewayId;

/// A network in a message: its prefix, where JSON has a text.
#[derive(Deserialize, Serialize)]
#[serde(remote = "Network")]
pub struct WireNetwork(#[serde(getter = "prefix")] IpNet);

impl From<WireNetwork> for Network {
    fn from(WireNetwork(prefix): WireNetwork) -> Self {
        Self::new(prefix)
    }
}

fn prefix(network: &Network) -> IpNet {
    network.prefix()
}

/// How often a gateway names all its hosts.
pub const SEATS_AGAIN: Micros = Micros::from_secs(20);

/// One thing that another gateway has to know.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Notice {
    /// Advice is held back. Lost, hosts of other gateways go on with the full advice until they lose by themselves.
    HeldBack(HeldBack),
    /// A host is subscribed at the sender, or is no longer. Lost, it is known with the next one.
    Seat {
        /// An address of it.
        host: IpAddr,
        /// Whether it is.
        here: bool,
    },
    /// A host of the receiver is about to send. Lost, it starts on what it holds.
    Start(StartSeen),
    /// The receiver may divide this much of the sender's budget among its hosts, until the sender would have sent it six times. Lost, it is
    /// unused until it comes again.
    Lease {
        /// Of which network.
        #[serde(with = "WireNetwork")]
        network: Network,
        /// In segments.
        segments: u32,
        /// When it became less last, by the sender's clock.
        as_of: Timestamp,
    },
    /// The sender's hosts hold no more of the receiver's budget than its lease since then. Lost, it counts as in use for longer.
    Settled {
        /// Of which network.
        #[serde(with = "WireNetwork")]
        network: Network,
        /// The lease's `as_of`.
        as_of: Timestamp,
    },
    /// A connection of a host of the receiver is established. Lost, its host has less demand.
    Established {
        /// The host.
        host: IpAddr,
        /// The network of its other end.
        #[serde(with = "WireNetwork")]
        network: Network,
    },
}

/// A start that another gateway saw. The client's address leaves no gateway.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct StartSeen {
    /// Host inside that will send.
    pub host: IpAddr,
    /// Where to.
    #[serde(with = "WireNetwork")]
    pub network: Network,
    /// What announced it.
    pub trigger: Trigger,
    /// When that packet was seen, by the clock of the gateway that saw it.
    pub at: Timestamp,
}

/// A notice and who is to have it: one gateway, or all.
#[derive(Clone, Debug, PartialEq)]
pub struct Addressed {
    /// The gateway; `None`: all.
    pub to: Option<GatewayId>,
    /// What it has to know.
    pub notice: Notice,
}

/// Advice about a network that is held back, because hosts of one gateway reported that it does harm.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct HeldBack {
    /// Which network.
    #[serde(with = "WireNetwork")]
    pub network: Network,
    /// Its share is not more than this.
    pub cap: Window,
    /// When it was halved.
    pub halved: Timestamp,
    /// Until then there is no advice, where it was withdrawn.
    pub withdrawn: Option<Timestamp>,
}
