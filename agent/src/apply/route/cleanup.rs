//! Taking away what an agent left behind: at the start, after a kill, and by hand.

use std::net::IpAddr;

use spand_proto::network::Network;
use tracing::{info, warn};

use super::netlink::{Change, Netlink, NetlinkError};
use super::signature::{PRIORITY, PROTOCOL, initial_window};
use super::view::Survey;
use crate::ledger::{Entry, Recorded};

/// What a clean-up did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CleanUp {
    /// Networks whose route is gone.
    pub removed: Vec<Network>,
    /// Networks whose route bears our signature but is not in the ledger: left alone.
    pub left: Vec<Network>,
}

/// Removes every route that bears our signature and that the ledger holds for ours.
pub async fn clean_up(netlink: &Netlink, recorded: &Recorded) -> Result<CleanUp, NetlinkError> {
    let view = netlink.view().await?;
    let mut outcome = CleanUp::default();
    let (mut networks, mut changes) = (Vec::new(), Vec::new());
    for (network, route) in view.all_signed() {
        if recorded.is_ours(network) {
            networks.push(network);
            changes.push(Change::Delete(route.clone()));
        } else {
            warn!(%network, "a route bears our protocol number and metric but is not in the ledger: it is left alone");
            outcome.left.push(network);
        }
    }
    let results = netlink.change(changes).await;
    let mut refused = None;
    for (network, result) in networks.into_iter().zip(results) {
        match result {
            Ok(()) => {
                info!(%network, "removed a route that an earlier agent left behind");
                outcome.removed.push(network);
            }
            // Gone in the meantime.
            Err(NetlinkError::Refused { source, .. }) if source.raw_os_error() == Some(ESRCH) => {}
            Err(error) => refused = Some(error),
        }
    }
    refused.map_or(Ok(outcome), Err)
}

/// No such route.
pub(super) const ESRCH: i32 = nix::errno::Errno::ESRCH as i32;

// Commands that take a route of ours back, to be pasted.

/// The command that removes a route with our signature of which nothing else is known.
pub(crate) fn undo_signed(network: Network) -> String {
    format!("ip {}route del {network} proto {PROTOCOL} metric {PRIORITY}", family(network))
}

fn family(network: Network) -> &'static str {
    if network.prefix().addr().is_ipv4() { "" } else { "-6 " }
}

/// The command that removes our route for `network`.
pub fn undo_line(network: Network, gateway: IpAddr, link: &str) -> String {
    let family = family(network);
    format!("ip {family}route del {network} via {gateway} dev {link} proto {PROTOCOL} metric {PRIORITY}")
}

/// The command of a ledger's entry, built from its fields: text of a file is not pasted into a shell.
pub fn undo_command(entry: &Entry) -> String {
    let link: String = entry.link.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.:@".contains(*c)).collect();
    undo_line(entry.network, entry.gateway, &link)
}

// The kernel's routes as far as they concern initial windows: for a look without a change.

/// Networks for which a route with our signature stands in the kernel, with its window in segments.
pub(crate) async fn signed_routes(netlink: &Netlink) -> Result<Vec<(Network, u32)>, NetlinkError> {
    let view = netlink.view().await?;
    Ok(view.all_signed().map(|(network, route)| (network, initial_window(route).unwrap_or(0))).collect())
}

/// Looks; must be called inside a Tokio runtime.
pub(crate) async fn survey() -> Result<Survey, NetlinkError> {
    Ok(Netlink::open()?.view().await?.survey())
}
