//! The kernel's routes as far as they concern initial windows: for a look without a change.

use spand_proto::network::Network;

use super::netlink::{Netlink, NetlinkError};
use super::signature::initial_window;
use super::view::Survey;

/// Networks for which a route with our signature stands in the kernel, with its window in segments.
pub(crate) async fn signed_routes(netlink: &Netlink) -> Result<Vec<(Network, u32)>, NetlinkError> {
    let view = netlink.view().await?;
    Ok(view.all_signed().map(|(network, route)| (network, initial_window(route).unwrap_or(0))).collect())
}

/// Looks; must be called inside a Tokio runtime.
pub(crate) async fn survey() -> Result<Survey, NetlinkError> {
    Ok(Netlink::open()?.view().await?.survey())
}
