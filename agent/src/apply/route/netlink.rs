//! Reading and changing the kernel's routes by rtnetlink.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use futures::future::join_all;
use futures::{Stream, StreamExt, TryStreamExt};
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::address::{AddressAttribute, AddressScope};
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rtnetlink::packet_route::route::RouteMessage;
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{Handle, IpVersion};
use spand_proto::operator::Failure;
use tokio::task::JoinHandle;

use super::view::{Link, View};

/// A connection to the kernel's routing.
#[derive(Debug)]
pub struct Netlink {
    handle: Handle,
    driver: JoinHandle<()>,
}

/// A dump or change that failed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// No connection.
    #[error("cannot open a netlink socket: {0}")]
    Open(#[from] std::io::Error),
    /// The kernel refused.
    #[error("the kernel refused {what}: {source}")]
    Refused {
        /// What was asked.
        what: &'static str,
        /// Its words.
        source: std::io::Error,
    },
    /// The connection broke, or an answer made no sense.
    #[error("cannot read the kernel's {what}: {source}")]
    Broken {
        /// What was asked.
        what: &'static str,
        /// What went wrong.
        source: rtnetlink::Error,
    },
}

/// A change of one route.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// A route that must not exist yet.
    Add(RouteMessage),
    /// New properties of a route that must exist.
    Replace(RouteMessage),
    /// A route that goes; only one with our protocol number can match.
    Delete(RouteMessage),
}

impl Netlink {
    /// Connects; must be called inside a Tokio runtime.
    pub fn open() -> Result<Self, NetlinkError> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        Ok(Self { handle, driver: tokio::spawn(connection) })
    }

    /// Whether the connection still stands.
    pub(super) fn is_alive(&self) -> bool {
        !self.driver.is_finished()
    }

    /// Routes, rules and links at this moment.
    pub(super) async fn view(&self) -> Result<View, NetlinkError> {
        let mut rules = Vec::new();
        let mut routes = Vec::new();
        for (version, family) in [(IpVersion::V4, AddressFamily::Inet), (IpVersion::V6, AddressFamily::Inet6)] {
            // A kernel without IPv6 refuses this; then there is nothing to look at.
            match self.handle.rule().get(version.clone()).execute().try_collect::<Vec<_>>().await {
                Ok(list) => rules.extend(list.into_iter().filter(|rule| rule.header.family == family)),
                Err(_) if version == IpVersion::V6 => continue,
                Err(source) => return Err(NetlinkError::Broken { what: "routing rules", source }),
            }
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            let mut dump = self.handle.route().get(message).execute();
            while let Some(route) =
                dump.try_next().await.map_err(|source| NetlinkError::Broken { what: "routes", source })?
            {
                // A kernel without IPv6 answers for every family it has.
                if route.header.address_family == family {
                    routes.push(route);
                }
            }
        }
        Ok(View::new(routes, &rules, self.links().await?))
    }

    async fn links(&self) -> Result<BTreeMap<u32, Link>, NetlinkError> {
        let mut dump = self.handle.link().get().execute();
        let mut links = BTreeMap::new();
        while let Some(message) =
            dump.try_next().await.map_err(|source| NetlinkError::Broken { what: "links", source })?
        {
            links.insert(message.header.index, link(&message));
        }
        Ok(links)
    }

    /// The addresses by which others reach this host: all but loopback and link-local ones, and those of interfaces that reach
    /// nobody. An idle bridge has the same address on many hosts, and a gateway gives each to one of them.
    pub async fn addresses(&self) -> Result<Vec<IpAddr>, NetlinkError> {
        let links = self.links().await?;
        let mut dump = self.handle.address().get().execute();
        let mut addresses = Vec::new();
        while let Some(message) =
            dump.try_next().await.map_err(|source| NetlinkError::Broken { what: "addresses", source })?
        {
            if message.header.scope != AddressScope::Universe && message.header.scope != AddressScope::Site {
                continue;
            }
            if links.get(&message.header.index).is_some_and(|link| !link.up) {
                continue;
            }
            // On a point-to-point link `Address` is the peer, `Local` is ours.
            let find = |local: bool| {
                message.attributes.iter().find_map(|attribute| match attribute {
                    AddressAttribute::Local(address) if local => Some(*address),
                    AddressAttribute::Address(address) if !local => Some(*address),
                    _ => None,
                })
            };
            addresses.extend(find(true).or_else(|| find(false)));
        }
        addresses.sort_unstable();
        addresses.dedup();
        Ok(addresses)
    }

    /// Makes changes in order, all sent before the first answer is awaited; one result each.
    pub(super) async fn change(&self, changes: Vec<Change>) -> Vec<Result<(), NetlinkError>> {
        let sent: Vec<_> = changes.into_iter().map(|change| self.send(change)).collect();
        join_all(sent.into_iter().map(|(what, answers)| async move { acknowledged(what, answers?).await })).await
    }

    fn send(
        &self,
        change: Change,
    ) -> (&'static str, Result<impl Stream<Item = NetlinkMessage<RouteNetlinkMessage>> + use<>, NetlinkError>) {
        let (what, payload, flags) = match change {
            Change::Add(route) => ("a new route", RouteNetlinkMessage::NewRoute(route), NLM_F_CREATE | NLM_F_EXCL),
            Change::Replace(route) => ("a changed route", RouteNetlinkMessage::NewRoute(route), NLM_F_REPLACE),
            Change::Delete(route) => ("a route's removal", RouteNetlinkMessage::DelRoute(route), 0),
        };
        let mut message = NetlinkMessage::from(payload);
        message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let answers =
            self.handle.clone().request(message).map_err(|source| NetlinkError::Broken { what: "answer", source });
        (what, answers)
    }
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Waits for the kernel's answer to one change; an acknowledgement ends the stream.
async fn acknowledged(
    what: &'static str,
    answers: impl Stream<Item = NetlinkMessage<RouteNetlinkMessage>>,
) -> Result<(), NetlinkError> {
    let mut answers = std::pin::pin!(answers);
    while let Some(answer) = answers.next().await {
        if let NetlinkPayload::Error(error) = answer.payload
            && error.code.is_some()
        {
            return Err(NetlinkError::Refused { what, source: error.to_io() });
        }
    }
    Ok(())
}

/// What matters of a link's message.
pub(super) fn link(message: &LinkMessage) -> Link {
    let mut link = Link {
        name: String::new(),
        up: message.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
        master: None,
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Controller(index) => link.master = Some(*index),
            _ => {}
        }
    }
    link
}

// A lock ensures that one agent alone changes routes here.

/// Its name among the abstract ones.
const LOCK: &[u8] = b"spand-agent/route";

/// A socket whose name only one process of a network namespace can hold: two agents would take each other's routes for
/// those of a dead one. The kernel frees the name when the process ends, however that comes about.
pub fn only_agent_here() -> Result<UnixDatagram, Failure> {
    let name = SocketAddr::from_abstract_name(LOCK).map_err(Failure::environment)?;
    UnixDatagram::bind_addr(&name).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => Failure::Environment(
            "another agent applies routes in this network namespace: stop it first, or set apply to dry_run".to_owned(),
        ),
        _ => Failure::Environment(format!("cannot take the lock of this network namespace: {error}")),
    })
}

/// Whether an agent has that lock. Takes it at no moment, so that one may start meanwhile.
pub(crate) fn an_agent_is_here() -> bool {
    let name = SocketAddr::from_abstract_name(LOCK);
    name.and_then(|name| UnixDatagram::unbound()?.connect_addr(&name)).is_ok()
}
