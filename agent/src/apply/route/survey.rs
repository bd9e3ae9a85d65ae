//! The kernel's routes as far as they concern initial windows: for a look without a change.

use ipnet::IpNet;

use super::netlink::{Netlink, NetlinkError};

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

/// Looks; must be called inside a Tokio runtime.
pub(crate) async fn survey() -> Result<Survey, NetlinkError> {
    Ok(Netlink::open()?.view().await?.survey())
}
