//! The kernel's routes at one moment, and which of them a network's route would copy. Pure: built from messages.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope,
    RouteType,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use spand_proto::network::Network;
use spand_proto::units::Segments;

use super::plan::Obstacle;
use super::signature::{self, PRIORITY, PROTOCOL, TABLE_LOCAL, TABLE_MAIN, signed};

/// What matters of a link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Link {
    /// Its name.
    pub(super) name: String,
    /// Whether it is up and has a carrier.
    pub(super) up: bool,
    /// Whether it belongs to a bridge, bond or VRF.
    pub(super) master: Option<u32>,
}

/// Routes, rules and links as they were dumped.
#[derive(Debug, Default)]
pub(super) struct View {
    /// Everyone else's routes in the tables `main` and `local`.
    foreign: BTreeMap<IpNet, Vec<RouteMessage>>,
    /// Routes with our signature.
    signed: BTreeMap<IpNet, RouteMessage>,
    /// Whether IPv4 and IPv6 are looked up by the kernel's own rules alone.
    plain_rules: (bool, bool),
    links: BTreeMap<u32, Link>,
}

/// What stands in the kernel now.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Survey {
    /// Routes of others that have an initial window, with it in segments.
    pub(crate) others: Vec<(IpNet, u32)>,
    /// Routes with our signature.
    pub(crate) ours: usize,
    /// Whether IPv4 and IPv6 are looked up by the kernel's own rules alone.
    pub(crate) plain_rules: (bool, bool),
}

/// The copyable part of a route.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Hop {
    /// The gateway.
    pub(super) gateway: IpAddr,
    /// Index of the outgoing link.
    pub(super) link: u32,
    /// The gateway is taken to be on the link.
    on_link: bool,
    /// The preferred source address.
    source: Option<IpAddr>,
    /// Everything that goes with the route, in the kernel's order.
    metrics: Vec<RouteMetric>,
}

impl View {
    /// A view of what was dumped.
    pub(super) fn new(
        routes: impl IntoIterator<Item = RouteMessage>,
        rules: &[RuleMessage],
        links: BTreeMap<u32, Link>,
    ) -> Self {
        let mut view = Self { links, ..Self::default() };
        for route in routes {
            let table = signature::table(&route);
            if (table != TABLE_MAIN && table != TABLE_LOCAL) || route.header.flags.contains(RouteFlags::Cloned) {
                continue;
            }
            let Some(prefix) = prefix(&route) else { continue };
            if signed(&route) {
                view.signed.insert(prefix, route);
            } else {
                view.foreign.entry(prefix).or_default().push(route);
            }
        }
        view.plain_rules =
            (plain(rules, AddressFamily::Inet, &[0, 32_766, 32_767]), plain(rules, AddressFamily::Inet6, &[0, 32_766]));
        view
    }

    /// The next hop that a route for `network` would copy, or what prevents it.
    pub(super) fn hop(&self, network: Network) -> Result<Hop, Obstacle> {
        let prefix = network.prefix();
        let plain = if prefix.addr().is_ipv4() { self.plain_rules.0 } else { self.plain_rules.1 };
        if !plain {
            return Err(Obstacle::PolicyRouting);
        }
        if self.foreign.contains_key(&prefix) {
            return Err(Obstacle::Administrator);
        }
        if self.foreign.range(inside(prefix)).any(|(other, _)| prefix.contains(other)) {
            return Err(Obstacle::MoreSpecific);
        }
        let routes = self.covering(prefix).ok_or(Obstacle::NoRoute)?;
        if routes.iter().any(|route| route.header.tos != 0 || route.header.source_prefix_length != 0) {
            return Err(Obstacle::NotCopyable);
        }
        let best = routes.iter().map(|route| signature::priority(route)).min().unwrap_or(0);
        let mut nearest = routes.iter().filter(|route| signature::priority(route) == best);
        let (Some(route), None) = (nearest.next(), nearest.next()) else { return Err(Obstacle::Multipath) };
        let hop = copyable(route)?;
        match self.links.get(&hop.link) {
            Some(link) if link.up => Ok(hop),
            _ => Err(Obstacle::LinkDown),
        }
    }

    /// Routes of table `main` for the longest prefix around `prefix`.
    fn covering(&self, prefix: IpNet) -> Option<Vec<&RouteMessage>> {
        (0..prefix.prefix_len()).rev().find_map(|len| {
            let wider = IpNet::new(prefix.network(), len).ok()?.trunc();
            let routes: Vec<&RouteMessage> =
                self.foreign.get(&wider)?.iter().filter(|route| signature::table(route) == TABLE_MAIN).collect();
            (!routes.is_empty()).then_some(routes)
        })
    }

    /// The route with our signature for `network`.
    pub(super) fn signed(&self, network: Network) -> Option<&RouteMessage> {
        self.signed.get(&network.prefix())
    }

    /// All routes with our signature.
    pub(super) fn all_signed(&self) -> impl Iterator<Item = (Network, &RouteMessage)> {
        self.signed.iter().map(|(prefix, route)| (Network::new(*prefix), route))
    }

    /// What concerns initial windows.
    pub(super) fn survey(&self) -> Survey {
        let windows = |(prefix, routes): (&IpNet, &Vec<RouteMessage>)| {
            routes.iter().filter_map(signature::initial_window).map(|window| (*prefix, window)).collect::<Vec<_>>()
        };
        let others = self.foreign.iter().flat_map(windows).collect();
        Survey { others, ours: self.signed.len(), plain_rules: self.plain_rules }
    }

    /// Name of a link, or its index where it has gone.
    pub(super) fn link_name(&self, index: u32) -> String {
        self.links.get(&index).map_or_else(|| format!("if{index}"), |link| link.name.clone())
    }
}

impl Hop {
    /// A route of ours for `network` by this hop.
    pub(super) fn route(&self, network: Network, window: Segments) -> RouteMessage {
        let prefix = network.prefix();
        let mut metrics = self.metrics.clone();
        metrics.push(RouteMetric::InitCwnd(window.0));
        let mut attributes = vec![
            RouteAttribute::Destination(prefix.network().into()),
            RouteAttribute::Gateway(self.gateway.into()),
            RouteAttribute::Oif(self.link),
            RouteAttribute::Priority(PRIORITY),
            RouteAttribute::Metrics(metrics),
        ];
        attributes.extend(self.source.map(|source| RouteAttribute::PrefSource(source.into())));
        let mut route = RouteMessage::default();
        route.header = RouteHeader {
            address_family: family(prefix),
            destination_prefix_length: prefix.prefix_len(),
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Other(PROTOCOL),
            scope: RouteScope::Universe,
            kind: RouteType::Unicast,
            flags: if self.on_link { RouteFlags::Onlink } else { RouteFlags::empty() },
            ..RouteHeader::default()
        };
        route.attributes = attributes;
        route
    }

    /// Whether `route`, as the kernel gave it, is this hop with `window`.
    pub(super) fn matches(&self, route: &RouteMessage, window: Segments) -> bool {
        let Ok(mut other) = parts(route) else { return false };
        other.metrics.retain(|metric| !matches!(metric, RouteMetric::InitCwnd(_)));
        signature::initial_window(route) == Some(window.0) && other == *self
    }
}

/// What a copy must keep, where it can.
fn copyable(route: &RouteMessage) -> Result<Hop, Obstacle> {
    if route.header.kind != RouteType::Unicast {
        return Err(Obstacle::NotCopyable);
    }
    if route.header.flags.intersects(RouteFlags::Dead | RouteFlags::Linkdown) {
        return Err(Obstacle::LinkDown);
    }
    if signature::initial_window(route).is_some() {
        return Err(Obstacle::Administrator);
    }
    parts(route)
}

fn parts(route: &RouteMessage) -> Result<Hop, Obstacle> {
    let (mut gateway, mut link, mut source, mut metrics) = (None, None, None, Vec::new());
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::MultiPath(_) => return Err(Obstacle::Multipath),
            RouteAttribute::Gateway(address) => gateway = ip(address),
            RouteAttribute::Oif(index) => link = Some(*index),
            RouteAttribute::PrefSource(address) => source = ip(address),
            RouteAttribute::Metrics(list) => metrics.clone_from(list),
            // No influence on where packets go.
            RouteAttribute::Destination(_)
            | RouteAttribute::Table(_)
            | RouteAttribute::Priority(_)
            | RouteAttribute::CacheInfo(_)
            | RouteAttribute::Preference(_)
            | RouteAttribute::Expires(_) => {}
            _ => return Err(Obstacle::NotCopyable),
        }
    }
    let (Some(gateway), Some(link)) = (gateway, link) else { return Err(Obstacle::OnLink) };
    Ok(Hop { gateway, link, on_link: route.header.flags.contains(RouteFlags::Onlink), source, metrics })
}

/// A route's destination; everything where it has none.
pub(super) fn prefix(route: &RouteMessage) -> Option<IpNet> {
    let len = route.header.destination_prefix_length;
    let destination = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(address) => ip(address),
        _ => None,
    });
    let address = match (destination, route.header.address_family) {
        (Some(address), _) => address,
        (None, AddressFamily::Inet) => IpAddr::from([0; 4]),
        (None, AddressFamily::Inet6) => IpAddr::from([0; 16]),
        (None, _) => return None,
    };
    IpNet::new(address, len).ok().map(|net| net.trunc())
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn family(prefix: IpNet) -> AddressFamily {
    if prefix.addr().is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// Keys between a prefix's first and last address. Some wider prefixes fall in between and are filtered by the caller.
fn inside(prefix: IpNet) -> std::ops::RangeInclusive<IpNet> {
    let last = IpNet::new(prefix.broadcast(), prefix.max_prefix_len()).unwrap_or(prefix);
    prefix..=last
}

/// Whether the rules of a family are the kernel's own and no others.
fn plain(rules: &[RuleMessage], family: AddressFamily, priorities: &[u32]) -> bool {
    rules.iter().filter(|rule| rule.header.family == family).all(|rule| {
        let mut priority = 0;
        let only_known = rule.attributes.iter().all(|attribute| match attribute {
            RuleAttribute::Priority(number) => {
                priority = *number;
                true
            }
            // Every rule carries these; all ones mean that nothing is suppressed.
            RuleAttribute::SuppressPrefixLen(len) => *len == u32::MAX,
            RuleAttribute::Table(_) | RuleAttribute::Protocol(_) => true,
            _ => false,
        });
        only_known
            && priorities.contains(&priority)
            && rule.header.action == RuleAction::ToTable
            && rule.header.src_len == 0
            && rule.header.dst_len == 0
            && rule.header.tos == 0
    })
}
