//! How large the transfers of the services inside are: a quantile per server address and port.
//!
//! A start whose application does not specify its size takes that of its service (`docs/definitions.md`, "The start"). Only whole
//! transfers count, and only those of a sender that accepted the connection at its port: the other port is ephemeral. Of one
//! remote address a few count (`histogram::Remotes`), so that no client sets the size for the others.

mod histogram;
mod table;

use std::net::SocketAddr;

use spand_proto::units::Bytes;

pub(crate) use self::table::ServiceTable;

/// How large a service's transfers are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ServiceSize {
    /// Its address inside and the port at which it takes connections.
    pub service: SocketAddr,
    /// Size in payload bytes that three of four transfers did not exceed, at most an eighth of an octave (9 %) too large.
    pub quantile: Bytes,
    /// Transfers behind it, of the last half to whole hour; of one remote address at most three in half an hour.
    pub transfers: u32,
}
