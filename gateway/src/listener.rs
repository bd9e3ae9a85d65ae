//! Whose program listens at an address of this machine. A gateway has no Unix socket for HTTP, and a port above 1023 is free to any
//! user as long as the gateway is away: a password goes there only where its listener may be the gateway.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;
use procfs::net::{TcpNetEntry, TcpState};

use crate::config::DEFAULT_SOCKET;

/// The user who listens at `port` and is neither root, nor this one, nor the owner of the gateway's own folder.
pub(crate) fn stranger(port: u16) -> Option<u32> {
    // Where the table cannot be read, nobody is known to be another.
    let sockets = procfs::net::tcp().unwrap_or_default().into_iter().chain(procfs::net::tcp6().unwrap_or_default());
    let gateways = Path::new(DEFAULT_SOCKET).parent().and_then(|folder| fs::metadata(folder).ok());
    let trusted = [Some(0), Some(geteuid().as_raw()), gateways.map(|folder| folder.uid())];
    stranger_of(sockets, port, &trusted)
}

/// An accepted connection belongs to nobody until its program takes it, so listening sockets are looked at. Each that could have taken
/// a connection to loopback counts.
fn stranger_of(sockets: impl Iterator<Item = TcpNetEntry>, port: u16, trusted: &[Option<u32>]) -> Option<u32> {
    let listening = |socket: &TcpNetEntry| {
        let address = socket.local_address.ip().to_canonical();
        let takes = address.is_loopback() || address.is_unspecified();
        socket.state == TcpState::Listen && socket.local_address.port() == port && takes
    };
    sockets.filter(listening).map(|socket| socket.uid).find(|user| !trusted.contains(&Some(*user)))
}

#[cfg(test)]
mod tests {
    use procfs::net::TcpNetEntries;
    use procfs::{FromBufReadSI, current_system_info};

    use super::*;

    /// A listener of user 1000 at 127.0.0.1:7480, one of root at 0.0.0.0:7481, a connection of user 1000 at 7481, and a listener of user
    /// 1000 at 192.0.2.1:7481.
    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1D38 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0000000000000000 100 0 0 10 0
   1: 00000000:1D39 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1 0000000000000000 100 0 0 10 0
   2: 0100007F:1D39 0100007F:D000 01 00000000:00000000 00:00000000 00000000  1000        0 3 1 0000000000000000 100 0 0 10 0
   3: 010200C0:1D39 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4 1 0000000000000000 100 0 0 10 0
";

    #[test]
    fn another_users_listener_is_a_stranger_and_a_gateways_is_not() {
        let of = |port, trusted: &[Option<u32>]| {
            let table = TcpNetEntries::from_buf_read(TABLE.as_bytes(), current_system_info()).unwrap();
            stranger_of(table.0.into_iter(), port, trusted)
        };
        assert_eq!(of(7480, &[Some(0), Some(999), None]), Some(1000));
        assert_eq!(of(7480, &[Some(0), Some(999), Some(1000)]), None, "the gateway's user, or the one who asks");
        assert_eq!(of(7481, &[Some(0), None]), None, "connections and other addresses are not asked");
        assert_eq!(of(7482, &[None]), None, "nobody listens");
    }

    #[test]
    fn this_users_own_listener_is_none() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(stranger(port), None);
        let all = || procfs::net::tcp().unwrap().into_iter();
        assert_eq!(stranger_of(all(), port, &[]), Some(geteuid().as_raw()), "it is found in the kernel's table");
    }
}
