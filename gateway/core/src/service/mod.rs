//! How large the transfers of the services inside are: a quantile per server address and port.
//!
//! A start whose application does not specify its size takes that of its service (`docs/definitions.md`, "The start"). Only whole
//! transfers count, and only those of a sender that accepted the connection at its port: the other port is ephemeral. Of one
//! remote address a few count (`histogram::Remotes`), so that no client sets the size for the others.

mod histogram;
mod table;

use std::net::{IpAddr, SocketAddr};

use spand_proto::units::{Bytes, Timestamp};

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

/// A whole transfer of a service inside.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TransferEnded {
    /// Whose it was.
    pub service: SocketAddr,
    /// The receiver.
    pub remote: IpAddr,
    /// When it had ended.
    pub at: Timestamp,
    /// What was acknowledged of it.
    pub size: Bytes,
}

/// What changed in the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ServiceEvent {
    /// The size quantile of a service appeared, moved by more than the configured change, or was refreshed.
    Size(ServiceSize),
    /// A transfer ended, for the engine that keeps the services.
    Ended(TransferEnded),
    /// A service has no size quantile any more.
    Forgotten(SocketAddr),
}
