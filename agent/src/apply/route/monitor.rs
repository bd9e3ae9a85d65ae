//! Listens to the kernel's news about routes, rules, links and addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use ipnet::IpNet;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::route::{RouteFlags, RouteMessage};
use spand_proto::network::Network;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::netlink::{NetlinkError, link};
use super::signature::signed;
use super::view::{Link, prefix};

const GROUPS: [MulticastGroup; 7] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Rule,
];

/// The listener; what it hears waits in one place until it is taken.
#[derive(Debug)]
pub(super) struct Monitor {
    heard: Arc<Heard>,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Debug, Default)]
struct Heard {
    disturbance: Mutex<Disturbance>,
    news: Notify,
}

impl Monitor {
    /// Starts to listen; must be called inside a Tokio runtime.
    pub(super) fn start() -> Result<Self, NetlinkError> {
        let (connection, handle, mut messages) = rtnetlink::new_multicast_connection(&GROUPS)?;
        let heard = Arc::new(Heard::default());
        let listener = Arc::clone(&heard);
        let driver = tokio::spawn(connection);
        let reader = tokio::spawn(async move {
            // The connection lives as long as someone holds its handle.
            let _handle = handle;
            let mut links = BTreeMap::new();
            while let Some((message, _)) = messages.next().await {
                listener.note(|disturbance| hear(message, &mut links, disturbance));
            }
            // Deaf from here on: whatever is in force can no longer be trusted.
            listener.note(Disturbance::everything);
        });
        Ok(Self { heard, tasks: [driver, reader] })
    }

    /// Waits until there is news.
    pub(super) async fn wait(&self) {
        self.heard.news.notified().await;
    }

    /// Takes what was heard so far.
    pub(super) fn take(&self) -> Disturbance {
        std::mem::take(&mut *self.heard.disturbance.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes everything for changed: news were missed.
    pub(super) fn distrust(&self) {
        self.heard.note(Disturbance::everything);
    }

    /// Whether it still listens.
    pub(super) fn is_alive(&self) -> bool {
        self.tasks.iter().all(|task| !task.is_finished())
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Heard {
    fn note(&self, change: impl FnOnce(&mut Disturbance)) {
        let mut disturbance = self.disturbance.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut disturbance);
        if !disturbance.is_empty() {
            self.news.notify_one();
        }
    }
}

/// What one message means for routes that were copied.
fn hear(message: NetlinkMessage<RouteNetlinkMessage>, links: &mut BTreeMap<u32, Link>, disturbance: &mut Disturbance) {
    let message = match message.payload {
        NetlinkPayload::InnerMessage(message) => message,
        // The kernel dropped news because nobody read it in time.
        NetlinkPayload::Overrun(_) => return disturbance.everything(),
        _ => return,
    };
    match message {
        RouteNetlinkMessage::NewRoute(route) => on_route(&route, false, disturbance),
        RouteNetlinkMessage::DelRoute(route) => on_route(&route, true, disturbance),
        RouteNetlinkMessage::NewRule(_) | RouteNetlinkMessage::DelRule(_) => disturbance.everything(),
        RouteNetlinkMessage::NewLink(message) => {
            let now = link(&message);
            // Most of these say that a statistic or an option changed.
            if links.insert(message.header.index, now.clone()) != Some(now) {
                disturbance.link(message.header.index);
            }
        }
        RouteNetlinkMessage::DelLink(message) => {
            links.remove(&message.header.index);
            disturbance.link(message.header.index);
        }
        // A route may prefer the address that went as its source.
        RouteNetlinkMessage::DelAddress(message) => disturbance.link(message.header.index),
        _ => {}
    }
}

fn on_route(route: &RouteMessage, gone: bool, disturbance: &mut Disturbance) {
    if route.header.flags.contains(RouteFlags::Cloned) {
        return;
    }
    if signed(route) {
        // Mostly our own doing; the applier finds out whether it was.
        if gone {
            disturbance.own_gone();
        }
    } else if let Some(prefix) = prefix(route) {
        disturbance.prefix(prefix);
    }
}

// What changed in the kernel since it was last looked at, coalesced into a bounded size.

/// Prefixes remembered one by one; beyond, everything counts as changed.
const MOST_PREFIXES: usize = 256;

/// Changes made by others.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Disturbance {
    everything: bool,
    prefixes: BTreeSet<IpNet>,
    links: BTreeSet<u32>,
    /// Our own routes that vanished; nobody's next hop is in doubt for that.
    own_gone: bool,
}

impl Disturbance {
    /// Anything may have changed: messages were lost, or rules changed.
    pub(super) fn everything(&mut self) {
        self.everything = true;
    }

    /// Someone's route for `prefix` came, went or changed.
    pub(super) fn prefix(&mut self, prefix: IpNet) {
        if self.prefixes.len() >= MOST_PREFIXES {
            self.everything = true;
        } else {
            self.prefixes.insert(prefix);
        }
    }

    /// A link changed its state, or lost an address.
    pub(super) fn link(&mut self, index: u32) {
        if self.links.len() >= MOST_PREFIXES {
            self.everything = true;
        } else {
            self.links.insert(index);
        }
    }

    /// A route of ours went.
    pub(super) const fn own_gone(&mut self) {
        self.own_gone = true;
    }

    /// Whether nothing happened.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether nothing but routes of ours went.
    pub(super) fn only_ours(&self) -> bool {
        !self.everything && self.prefixes.is_empty() && self.links.is_empty()
    }

    /// Whether the path to `network`, by the link `link` where that is known, may have changed.
    pub(super) fn touches(&self, network: Network, link: Option<u32>) -> bool {
        let prefix = network.prefix();
        self.everything
            || link.is_some_and(|link| self.links.contains(&link))
            || self.prefixes.iter().any(|other| other.contains(&prefix) || prefix.contains(other))
    }
}
