//! What must hold before a route may be changed: being the only agent here.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use spand_proto::operator::Failure;

/// A socket whose name only one process of a network namespace can hold: two agents would take each other's routes for
/// those of a dead one. The kernel frees the name when the process ends, however that comes about.
pub fn only_agent_here() -> Result<UnixDatagram, Failure> {
    let name = SocketAddr::from_abstract_name(b"spand-agent/route").map_err(Failure::environment)?;
    UnixDatagram::bind_addr(&name).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => Failure::Environment(
            "another agent applies routes in this network namespace: stop it first, or set apply to dry_run".to_owned(),
        ),
        _ => Failure::Environment(format!("cannot take the lock of this network namespace: {error}")),
    })
}
