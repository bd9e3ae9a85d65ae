//! The machine: kernel, clock, interfaces, directories and ports. Reads only; a port is tried without listening.

use std::fs;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt};
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, faccessat};
use spand_proto::operator::{Check, Verdict, judge_directory, judge_kernel};

use crate::config::{Api, Store};

/// The packet ring needs `PACKET_IGNORE_OUTGOING`.
const LEAST_KERNEL: (u32, u32) = (4, 20);

pub(super) fn kernel() -> Check {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let means = "the backend af_packet does not work on it";
    judge_kernel(release.trim(), LEAST_KERNEL, means, Verdict::Fail)
}

pub(super) fn clock() -> Check {
    match spand_capture::clock_is_synchronised() {
        Some(true) => Check::ok("clock", "the system clock is synchronised"),
        Some(false) => Check::warn(
            "clock",
            "the system clock is not synchronised (no NTP): round-trip times do not suffer, but times in logs, in the store and \
             in reports of hosts do",
            "run a time service (systemd-timesyncd, chrony)",
        ),
        None => Check::unknown(
            "clock",
            "the kernel does not report whether the system clock is synchronised",
            "look at timedatectl",
        ),
    }
}

pub(super) fn store(store: &Store) -> Check {
    if !store.enabled {
        let found = "store.enabled is false: after a restart there are no estimates for minutes";
        return Check::warn("store", found, "set it to true unless that is intended");
    }
    // What is not there yet is made inside the nearest directory that is.
    let there = store.directory.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    let may = faccessat(AT_FDCWD, there, AccessFlags::W_OK | AccessFlags::X_OK, AtFlags::AT_EACCESS);
    // A file in the directory's place is found by its name.
    let may = if store.directory.exists() && !store.directory.is_dir() { Err(Errno::ENOTDIR) } else { may };
    let room = statvfs(there).ok().map(|stat| stat.blocks_available() * stat.fragment_size());
    judge_directory("store", "store.directory", &store.directory, may.map_err(|error| error.to_string()), room)
}

/// What the interface does to packets.
pub(super) fn offloads(interface: &str) -> Vec<Check> {
    const NAME: &str = "offloads";
    let offloads = match spand_capture::offloads(interface) {
        Ok(offloads) => offloads,
        Err(error) => {
            let found = format!("{interface}: cannot read its offloads: {error}");
            return vec![Check::unknown(NAME, found, "check the name in capture.interfaces (`ip link`)")];
        }
    };
    let merging: Vec<&str> = [("gro", offloads.gro), ("lro", offloads.lro)]
        .into_iter()
        .filter_map(|(name, on)| (on == Some(true)).then_some(name))
        .collect();
    if merging.is_empty() {
        return vec![Check::ok(NAME, format!("{interface} merges no packets"))];
    }
    let lost = if offloads.lro == Some(true) { "; lro also drops TCP options" } else { "" };
    vec![Check::warn(
        NAME,
        format!(
            "{interface} merges packets ({}): acknowledgements and packet loss are seen less precisely{lost}",
            merging.join(", ")
        ),
        format!("ethtool -K {interface} {} off", merging.join(" off ")),
    )]
}

/// Whether the ports and the socket are free.
pub(super) fn ports(api: &Api) -> Vec<Check> {
    let grpc = api.grpc_listen.map(|listen| ("api.grpc_listen", listen.0));
    let ports = grpc.into_iter().chain([("api.http_listen", api.http_listen.0)]);
    ports.map(port).chain(api.grpc_socket.as_deref().map(unix_socket)).collect()
}

fn unix_socket(path: &Path) -> Check {
    const NAME: &str = "socket";
    let found = |what: &str| format!("{} (api.grpc_socket) {what}", path.display());
    let folder = path.ancestors().skip(1).find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    match UnixStream::connect(path) {
        Ok(_) => Check::fail(
            NAME,
            found("is in use by another program"),
            "stop it (`ss -lxp` names it) or name another file",
        ),
        Err(_) if faccessat(AT_FDCWD, folder, AccessFlags::W_OK, AtFlags::AT_EACCESS).is_err() => Check::unknown(
            NAME,
            found(&format!("is in a folder that this user may not write to: {}", folder.display())),
            "run the doctor as root, or as the gateway's user",
        ),
        Err(_) => Check::ok(NAME, found("is free")),
    }
}

fn port((key, address): (&str, SocketAddr)) -> Check {
    match try_port(address) {
        Ok(()) => Check::ok("port", format!("{address} ({key}) is free")),
        Err(Errno::EADDRINUSE) => {
            let found = format!("{address} ({key}) is in use by another program");
            Check::fail("port", found, "stop it (`ss -ltnp` names it) or choose another port")
        }
        Err(Errno::EACCES) => {
            let found = format!("{address} ({key}) needs CAP_NET_BIND_SERVICE");
            Check::fail("port", found, "choose a port above 1023")
        }
        Err(error) => Check::fail(
            "port",
            format!("{address} ({key}) cannot be used: {error}"),
            "choose an address of this machine",
        ),
    }
}

/// Binds without listening: nobody can connect meanwhile.
fn try_port(address: SocketAddr) -> nix::Result<()> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    // As the gateway does: connections of an earlier life that are still closing do not count.
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address))
}
