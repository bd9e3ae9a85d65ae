//! Destination networks: the unit that shares an estimate.
//!
//! All flows to one network share one estimate (TCP/SPAND section 5): an IPv4 /24, an IPv6 /48, or the longest match in a
//! prefix list where the operator gives one. The list itself lives in the engine; this is its answer.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// A destination network in canonical form: no address bit below the prefix is set.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network(IpNet);

/// Prefix length of an IPv4 network where no list says otherwise.
pub const IPV4_PREFIX_LEN: u8 = 24;
/// Prefix length of an IPv6 network where no list says otherwise.
pub const IPV6_PREFIX_LEN: u8 = 48;

impl Network {
    /// The network of `prefix`, its host bits cleared.
    pub fn new(prefix: IpNet) -> Self {
        Self(prefix.trunc())
    }

    /// The network an address belongs to where no prefix list matches: /24 or /48. An IPv4-mapped IPv6 address counts
    /// as the IPv4 address it stands for.
    pub fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        let len = if address.is_ipv4() { IPV4_PREFIX_LEN } else { IPV6_PREFIX_LEN };
        Self(IpNet::new_assert(address, len).trunc())
    }

    /// The prefix.
    pub fn prefix(self) -> IpNet {
        self.0
    }

    /// Whether `address` lies inside.
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

/// Longest part of a wrong text that is repeated, in characters.
const QUOTED_CHARS: usize = 64;

/// A text that names no network: the start of it, in what can be printed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not a network: write an address with a prefix length, such as 192.0.2.0/24 or 2001:db8::/48")]
pub struct NotANetwork(pub String);

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let quoted = || text.chars().filter(|c| !c.is_control()).take(QUOTED_CHARS).collect();
        text.parse().map(Self::new).map_err(|_| NotANetwork(quoted()))
    }
}

impl TryFrom<String> for Network {
    type Error = NotANetwork;

    fn try_from(text: String) -> Result<Self, NotANetwork> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_falls_into_its_24_or_48() {
        let of = |text: &str| Network::of(text.parse().unwrap()).to_string();
        assert_eq!(of("192.0.2.77"), "192.0.2.0/24");
        assert_eq!(of("2001:db8:1:2::3"), "2001:db8:1::/48");
        assert_eq!(of("::ffff:192.0.2.77"), "192.0.2.0/24");
    }

    #[test]
    fn host_bits_do_not_make_another_network() {
        let a: Network = "192.0.2.77/24".parse().unwrap();
        assert_eq!(a, "192.0.2.0/24".parse().unwrap());
        assert!(a.contains("192.0.2.1".parse().unwrap()));
        assert!(!a.contains("192.0.3.1".parse().unwrap()));
    }

    #[test]
    fn a_bad_network_is_named_in_the_error() {
        let error = "192.0.2.0/33".parse::<Network>().unwrap_err();
        assert!(error.to_string().contains("192.0.2.0/33"), "{error}");
        let NotANetwork(quoted) = format!("\u{1b}[2J{}", "9".repeat(500)).parse::<Network>().unwrap_err();
        assert!(quoted.len() == 64 && quoted.starts_with("[2J9"), "it may be printed on a terminal: {quoted:?}");
    }
}
