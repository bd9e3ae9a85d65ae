//! By what a route is known to be ours.

use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteType};

/// Protocol number of our routes: `S` in ASCII, used by nobody else in iproute2's `rt_protos`.
pub const PROTOCOL: u8 = 83;

/// Metric of our routes. Far above the 0 of `ip route add` and the 1024 of IPv6, so that a route an administrator adds
/// for the same prefix is not refused because of ours, and wins at once.
pub const PRIORITY: u32 = 21_328;

/// The table that our routes stand in: `main`.
pub(super) const TABLE_MAIN: u32 = 254;

/// The table of the host's own addresses.
pub(super) const TABLE_LOCAL: u32 = 255;

/// Whether a route bears our number, our metric and an initial window. The ledger records whether it really is ours.
pub(super) fn signed(route: &RouteMessage) -> bool {
    route.header.protocol == RouteProtocol::Other(PROTOCOL)
        && route.header.kind == RouteType::Unicast
        && table(route) == TABLE_MAIN
        && priority(route) == PRIORITY
        && initial_window(route).is_some()
}

/// A route's table; the attribute holds numbers that the header cannot.
pub(super) fn table(route: &RouteMessage) -> u32 {
    let attribute = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    attribute.unwrap_or_else(|| u32::from(route.header.table))
}

/// A route's metric; 0 where it has none.
pub(super) fn priority(route: &RouteMessage) -> u32 {
    let attribute = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Priority(priority) => Some(*priority),
        _ => None,
    });
    attribute.unwrap_or(0)
}

/// A route's initial congestion window in segments.
pub(super) fn initial_window(route: &RouteMessage) -> Option<u32> {
    metrics(route).find_map(|metric| match metric {
        RouteMetric::InitCwnd(segments) => Some(*segments),
        _ => None,
    })
}

/// A route's metrics.
pub(super) fn metrics(route: &RouteMessage) -> impl Iterator<Item = &RouteMetric> {
    route.attributes.iter().flat_map(|attribute| match attribute {
        RouteAttribute::Metrics(metrics) => metrics.as_slice(),
        _ => &[],
    })
}
