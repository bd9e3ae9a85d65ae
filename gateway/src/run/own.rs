//! Where the gateway's own traffic goes, so that the mirror port does not make networks of its agents and readers.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use nix::ifaddrs::getifaddrs;

use crate::config::Config;

/// Every address and port at which this gateway answers other machines. An address that comes later, or behind which a translation
/// hides the gateway, is not among them: its connections are followed as anybody's.
pub(crate) fn listeners(config: &Config) -> BTreeSet<SocketAddr> {
    let listen: Vec<_> =
        config.api.grpc_listen.iter().chain([&config.api.http_listen]).map(|listen| listen.0).collect();
    let anywhere = listen.iter().any(|listen| listen.ip().is_unspecified());
    expand(&listen, &if anywhere { addresses() } else { Vec::new() })
}

fn addresses() -> Vec<IpAddr> {
    let interfaces = match getifaddrs() {
        Ok(interfaces) => interfaces,
        Err(error) => {
            tracing::warn!(%error, "cannot list this machine's addresses: the gateway's own connections are followed too");
            return Vec::new();
        }
    };
    let address = |address: nix::sys::socket::SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    };
    interfaces.filter_map(|interface| interface.address.and_then(address)).collect()
}

/// A listener at `[::]` takes connections of both families, one at `0.0.0.0` those of IPv4.
fn expand(listen: &[SocketAddr], addresses: &[IpAddr]) -> BTreeSet<SocketAddr> {
    let of_one = |listen: &SocketAddr| {
        let (ip, port) = (listen.ip(), listen.port());
        let here: Vec<_> = if ip.is_unspecified() {
            addresses.iter().copied().filter(|address| ip.is_ipv6() || address.is_ipv4()).collect()
        } else {
            vec![ip.to_canonical()]
        };
        here.into_iter().map(move |address| SocketAddr::new(address, port))
    };
    listen.iter().flat_map(of_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_at_every_address_is_one_at_each() {
        let here = ["192.0.2.1", "2001:db8::1"].map(|address| address.parse().unwrap());
        let of = |listen: &str| {
            let sockets = expand(&[listen.parse().unwrap()], &here);
            sockets.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of("127.0.0.1:7400"), ["127.0.0.1:7400"]);
        assert_eq!(of("[::ffff:192.0.2.7]:7400"), ["192.0.2.7:7400"]);
        assert_eq!(of("0.0.0.0:7400"), ["192.0.2.1:7400"]);
        assert_eq!(of("[::]:7480"), ["192.0.2.1:7480", "[2001:db8::1]:7480"]);
    }

    #[test]
    fn this_machine_has_the_loopback_address() {
        assert!(addresses().contains(&IpAddr::from([127, 0, 0, 1])));
    }
}
