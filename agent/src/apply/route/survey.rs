//! The kernel's routes as far as they concern initial windows: for a look without a change.

use super::netlink::{Netlink, NetlinkError};
use super::view::Survey;

/// Looks; must be called inside a Tokio runtime.
pub(crate) async fn survey() -> Result<Survey, NetlinkError> {
    Ok(Netlink::open()?.view().await?.survey())
}
