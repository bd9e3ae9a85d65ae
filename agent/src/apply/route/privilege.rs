//! What must hold before a route may be changed: the right to, and being the only agent here.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use spand_proto::operator::Failure;

/// Bit of `CAP_NET_ADMIN` in a capability set (capability.h).
const CAP_NET_ADMIN_BIT: u32 = 12;

/// Whether this process has `CAP_NET_ADMIN`; `None` where `/proc` does not say.
pub fn may_change_routes() -> Option<bool> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let bits = u64::from_str_radix(set.trim(), 16).ok()?;
    Some(bits >> CAP_NET_ADMIN_BIT & 1 == 1)
}

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
