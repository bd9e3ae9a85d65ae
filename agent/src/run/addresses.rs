//! The host's own addresses.

use std::net::IpAddr;
use std::time::Duration;

use spand_proto::operator::Failure;
use spand_proto::push::MAX_ADDRESSES;
use tokio::sync::watch;
use tracing::{info, warn};

use super::is_reachable;
use crate::apply::route::Netlink;
use crate::config::Config;

/// How often they are looked at where they are not configured.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);

/// The configured ones, or those of the machine.
pub(super) async fn find(config: &Config) -> Result<Vec<IpAddr>, Failure> {
    if !config.addresses.is_empty() {
        return Ok(config.addresses.clone());
    }
    let netlink = Netlink::open().map_err(Failure::environment)?;
    let mut addresses = netlink.addresses().await.map_err(Failure::environment)?;
    addresses.retain(|address| is_reachable(*address));
    if addresses.len() > MAX_ADDRESSES {
        warn!(addresses = addresses.len(), subscribed = MAX_ADDRESSES, "only the first addresses are subscribed for");
        addresses.truncate(MAX_ADDRESSES);
    }
    Ok(addresses)
}

/// Looks again, and publishes changes.
pub(super) async fn refresh(config: &Config, sender: &watch::Sender<Vec<IpAddr>>) {
    match find(config).await {
        Ok(found) => {
            sender.send_if_modified(|known| {
                let changed = *known != found;
                if changed {
                    info!(addresses = found.len(), "this host's addresses changed");
                    *known = found;
                }
                changed
            });
        }
        Err(error) => warn!(%error, "cannot look at this host's addresses"),
    }
}
