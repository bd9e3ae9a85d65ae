//! For which addresses an agent may speak.

use std::collections::BTreeMap;
use std::net::IpAddr;

use spand_proto::network::Network;

use super::connection::Peer;

/// Whose word is taken for an address.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) enum Owners {
    /// Anyone's.
    #[default]
    Anyone,
    /// That of the peer which connected from it.
    PeerAddress,
    /// That of a certificate which names it, or a host that the configuration gives it to; `*` is every host.
    Certificate(BTreeMap<String, Vec<Network>>),
}

/// The name of a host that stands for all.
pub(super) const EVERY_HOST: &str = "*";

impl Owners {
    /// Whether `peer` is authorised for `address`.
    pub(super) fn may(&self, peer: &Peer, address: IpAddr) -> bool {
        let address = address.to_canonical();
        match self {
            // The socket's mode proves an agent of this machine, whose containers may have addresses of their own.
            _ if peer.by_socket => true,
            Self::Anyone => true,
            Self::PeerAddress => peer.address == address,
            Self::Certificate(given) => peer.names.as_ref().is_some_and(|names| {
                let hosts = names.hosts.iter().map(String::as_str).chain([EVERY_HOST]);
                let mut networks = hosts.filter_map(|host| given.get(host)).flatten();
                names.addresses.iter().any(|own| own.to_canonical() == address)
                    || networks.any(|network| network.contains(address))
            }),
        }
    }

    /// What to do about an address that a peer is not authorised for.
    pub(super) const fn way_out(&self) -> &'static str {
        match self {
            Self::Anyone => "",
            Self::PeerAddress => "connect from it, or leave it out of `addresses` in the agent's configuration",
            Self::Certificate(_) => {
                "have its certificate name it, give it in agents.addresses of the gateway, or leave it out of `addresses` in \
                 the agent's configuration"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spand_proto::tls::Names;

    use super::*;
    use crate::api::places::Mark;

    fn peer(hosts: &[&str], addresses: &[&str]) -> Peer {
        let names = Names {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        };
        let address = "192.0.2.1".parse().unwrap();
        Peer { address, by_socket: false, names: Some(Arc::new(names)), mark: Mark::default() }
    }

    fn given(host: &str, network: &str) -> Owners {
        Owners::Certificate(BTreeMap::from([(host.to_owned(), vec![network.parse().unwrap()])]))
    }

    #[test]
    fn an_address_is_the_certificates_or_given_to_its_host() {
        let web = peer(&["web-1.example.org"], &["203.0.113.9", "2001:db8::9"]);
        let nothing = Owners::Certificate(BTreeMap::new());
        let host = given("web-1.example.org", "198.51.100.0/28");
        for (owners, address, may) in [
            (&nothing, "203.0.113.9", true),
            (&nothing, "::ffff:203.0.113.9", true),
            (&nothing, "2001:db8::9", true),
            (&nothing, "203.0.113.10", false),
            (&nothing, "192.0.2.1", false),
            (&host, "198.51.100.15", true),
            (&host, "198.51.100.16", false),
            (&given("web-2.example.org", "198.51.100.0/28"), "198.51.100.15", false),
            (&given("*", "198.51.100.0/24"), "198.51.100.77", true),
            (&Owners::PeerAddress, "192.0.2.1", true),
            (&Owners::PeerAddress, "::ffff:192.0.2.1", true),
            (&Owners::PeerAddress, "203.0.113.9", false),
            (&Owners::Anyone, "203.0.113.10", true),
        ] {
            assert_eq!(owners.may(&web, address.parse().unwrap()), may, "{owners:?} {address}");
        }
        let unproven = Peer { names: None, ..web };
        assert!(!given("*", "0.0.0.0/0").may(&unproven, "198.51.100.1".parse().unwrap()), "nobody is proven");
        for owners in [&nothing, &Owners::PeerAddress] {
            assert!(owners.may(&Peer::by_socket(), "203.0.113.9".parse().unwrap()), "the mode of the socket proves it");
        }
        assert!(
            !given("web-1.example.org", "198.51.100.0/28").may(&peer(&["*"], &[]), "198.51.100.1".parse().unwrap())
        );
    }
}
