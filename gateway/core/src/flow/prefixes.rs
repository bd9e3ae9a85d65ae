//! Which addresses lie inside the organisation, and which network any address belongs to.

use std::net::IpAddr;

use ipnet::IpNet;
use prefix_trie::joint::JointPrefixSet;
use spand_proto::network::Network;

/// The configured prefixes.
#[derive(Clone, Debug)]
pub(crate) struct Prefixes {
    internal: JointPrefixSet<IpNet>,
    networks: JointPrefixSet<IpNet>,
}

impl Prefixes {
    /// Takes the internal prefixes and the list of networks.
    pub(crate) fn new(internal: &[IpNet], networks: &[IpNet]) -> Self {
        // In the form in which addresses are looked up, or IPv4 written as IPv6 would match nothing.
        let canonical = |list: &[IpNet]| list.iter().map(|prefix| Network::new(*prefix).prefix()).collect();
        Self { internal: canonical(internal), networks: canonical(networks) }
    }

    /// Whether nothing says what is inside: a bare trace.
    pub(crate) fn is_bare(&self) -> bool {
        self.internal.is_empty()
    }

    /// Whether `address` lies inside.
    pub(crate) fn is_internal(&self, address: IpAddr) -> bool {
        self.internal.get_lpm(&IpNet::from(address.to_canonical())).is_some()
    }

    /// The network of `address`: the longest match in the list, else its /24 or /48.
    pub(crate) fn network_of(&self, address: IpAddr) -> Network {
        // Mostly there is no list, and to look into an empty one costs more than all else.
        if self.networks.is_empty() {
            return Network::of(address);
        }
        let listed = self.networks.get_lpm(&IpNet::from(address.to_canonical()));
        listed.map_or_else(|| Network::of(address), Network::new)
    }

    /// Whether any address may belong to `network`: it is in the list, or what an address that no entry covers falls into.
    pub(crate) fn makes(&self, network: Network) -> bool {
        let prefix = network.prefix();
        match self.networks.get_lpm(&prefix) {
            Some(listed) => listed == prefix,
            None => Network::of(prefix.addr()) == network,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_match_wins_and_the_rest_falls_into_24_and_48() {
        let list = ["192.0.0.0/8".parse().unwrap(), "192.0.2.128/25".parse().unwrap()];
        let prefixes = Prefixes::new(&[], &list);
        let of = |text: &str| prefixes.network_of(text.parse().unwrap()).to_string();
        assert_eq!(of("192.0.2.200"), "192.0.2.128/25");
        assert_eq!(of("192.0.2.100"), "192.0.0.0/8");
        assert_eq!(of("::ffff:192.0.2.200"), "192.0.2.128/25");
        assert_eq!(of("198.51.100.9"), "198.51.100.0/24");
        assert_eq!(of("2001:db8::1"), "2001:db8::/48");
        assert!(prefixes.is_bare() && !prefixes.is_internal("192.0.2.1".parse().unwrap()));
        let made = |text: &str| prefixes.makes(Network::new(text.parse().unwrap()));
        for network in ["192.0.2.128/25", "192.0.0.0/8", "198.51.100.0/24", "2001:db8::/48"] {
            assert!(made(network), "{network}");
        }
        for network in ["192.0.2.0/24", "192.0.2.128/26", "198.51.100.0/25", "198.51.0.0/16", "2001:db8::/32"] {
            assert!(!made(network), "{network}");
        }
    }

    #[test]
    fn a_list_with_the_whole_of_ipv6_names_no_network_of_ipv4_and_ipv4_may_be_written_as_ipv6() {
        let list = ["::/0", "::ffff:0:0/90", "::ffff:198.51.0.0/112"].map(|text| text.parse().unwrap());
        let inside = ["::ffff:10.0.0.0/104".parse().unwrap()];
        let prefixes = Prefixes::new(&inside, &list);
        let of = |text: &str| prefixes.network_of(text.parse().unwrap()).to_string();
        assert_eq!(of("2001:db8::1"), "::/0");
        assert_eq!(of("::ffff:192.0.2.200"), "192.0.2.0/24");
        assert_eq!(of("::fffe:192.0.2.200"), "::ffc0:0:0/90");
        assert_eq!(of("198.51.100.9"), "198.51.0.0/16");
        for (address, is_internal) in [("10.1.2.3", true), ("::ffff:10.1.2.3", true), ("11.1.2.3", false)] {
            assert_eq!(prefixes.is_internal(address.parse().unwrap()), is_internal, "{address}");
        }
    }
}
