//! Taking away what an agent left behind: at the start, after a kill, and by hand.

use spand_proto::network::Network;
use tracing::{info, warn};

use super::netlink::{Change, Netlink, NetlinkError};
use crate::ledger::Recorded;

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
