//! Listens to the kernel's news about routes, rules, links and addresses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::route::{RouteFlags, RouteMessage};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::disturbance::Disturbance;
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
