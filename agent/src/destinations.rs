//! Destinations of this host's connections: those that people ask about.

use std::collections::BTreeSet;
use std::net::IpAddr;

use procfs::net::TcpState;

/// Most destinations that are returned.
const MOST: usize = 32;

/// Remote ends of the connections on the addresses `own`, in order. Connections in `TIME_WAIT` are among them.
pub(crate) fn open(own: &[IpAddr]) -> BTreeSet<IpAddr> {
    let (v4, v6) = (procfs::net::tcp().unwrap_or_default(), procfs::net::tcp6().unwrap_or_default());
    let all = v4.into_iter().chain(v6).filter(|socket| !matches!(socket.state, TcpState::Listen | TcpState::SynSent));
    let inside = |address: IpAddr| own.contains(&address);
    all.filter_map(|socket| {
        let remote = socket.remote_address.ip().to_canonical();
        (inside(socket.local_address.ip().to_canonical()) && !inside(remote)).then_some(remote)
    })
    .take(MOST)
    .collect()
}
