//! Destination networks: the unit that shares an estimate.
//!
//! All flows to one network share one estimate (TCP/SPAND section 5): an IPv4 /24, an IPv6 /48, or the longest match in a
//! prefix list where the operator gives one. The list itself lives in the engine; this is its answer.
//!
//! **Canonical form.** A network has one family and one spelling. IPv4-mapped IPv6 (RFC 4291, section 2.5.5.2) is IPv4 written
//! differently, so a prefix inside `::ffff:0:0/96` is the IPv4 prefix it stands for: `::ffff:192.0.2.0/120` is `192.0.2.0/24`. A shorter
//! prefix is IPv6 and covers IPv6 alone, `::/0` and `::ffff:0:0/95` too, although the mapped addresses lie inside by their bits: addresses
//! are looked up in canonical form as well, and no IPv4 address is an IPv6 one then.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

/// A destination network in canonical form: no address bit below the prefix is set, and IPv4 is never written as IPv6.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network(IpNet);

/// Prefix length of an IPv4 network unless a list gives another.
pub const IPV4_PREFIX_LEN: u8 = 24;
/// Prefix length of an IPv6 network unless a list gives another.
pub const IPV6_PREFIX_LEN: u8 = 48;
/// Length of `::ffff:0:0/96`, which holds IPv4 written as IPv6.
const MAPPED_PREFIX_LEN: u8 = 96;

impl Network {
    /// The network of `prefix`: its host bits cleared, IPv4-mapped IPv6 as IPv4.
    pub fn new(prefix: IpNet) -> Self {
        Self(mapped(prefix).unwrap_or(prefix).trunc())
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

    /// Whether `address` lies inside. An IPv4-mapped IPv6 address counts as the IPv4 address it stands for.
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }

    /// Whether all of `other` lies inside. Networks of different families never do.
    pub fn covers(self, other: Self) -> bool {
        self.0.contains(&other.0)
    }

    /// Whether the two share an address. Of two prefixes that do, one covers the other.
    pub fn overlaps(self, other: Self) -> bool {
        self.covers(other) || other.covers(self)
    }
}

/// The IPv4 prefix that an IPv4-mapped IPv6 one stands for.
fn mapped(prefix: IpNet) -> Option<IpNet> {
    let IpNet::V6(net) = prefix else { return None };
    let len = net.prefix_len().checked_sub(MAPPED_PREFIX_LEN)?;
    Some(IpNet::V4(Ipv4Net::new(net.addr().to_ipv4_mapped()?, len).ok()?))
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
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

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

    #[test]
    fn ipv4_written_as_ipv6_is_ipv4_and_a_shorter_prefix_covers_ipv6_alone() {
        for (written, canonical) in [
            ("::ffff:192.0.2.77/120", "192.0.2.0/24"),
            ("::ffff:192.0.2.77/128", "192.0.2.77/32"),
            ("::ffff:c000:200/120", "192.0.2.0/24"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            // One bit shorter is another family: what lies around the mapped addresses is IPv6.
            ("::ffff:0:0/95", "::fffe:0:0/95"),
            ("::ffff:0:0/90", "::ffc0:0:0/90"),
            ("::/0", "::/0"),
            // No mapped address, though it looks like one.
            ("::ffff:0:192.0.2.0/120", "::ffff:0:c000:200/120"),
            ("::192.0.2.0/120", "::c000:200/120"),
            ("64:ff9b::192.0.2.0/120", "64:ff9b::c000:200/120"),
        ] {
            let network = network(written);
            assert_eq!(network.to_string(), canonical, "{written}");
            let is_ipv4 = network.prefix().addr().is_ipv4();
            for ipv4 in ["192.0.2.1", "::ffff:192.0.2.1"] {
                let inside = network.contains(ipv4.parse().unwrap());
                assert!(is_ipv4 || !inside, "{written} covers {ipv4}");
            }
        }
        assert!(network("::ffff:192.0.2.0/120").contains("::ffff:192.0.2.1".parse().unwrap()));
    }

    #[test]
    fn families_never_overlap() {
        for ipv6 in ["::/0", "::/1", "::ffff:0:0/90", "::ffff:0:0/95"].map(network) {
            for ipv4 in ["0.0.0.0/0", "192.0.2.0/24", "::ffff:192.0.2.0/120"].map(network) {
                assert!(!ipv6.overlaps(ipv4) && !ipv4.overlaps(ipv6), "{ipv6} and {ipv4}");
            }
        }
        assert!(network("::/0").covers(network("::ffff:0:0/90")));
        assert!(network("10.0.0.0/8").covers(network("::ffff:10.66.1.0/120")));
    }

    /// Prefixes of both families, many of them close to the mapped ones; and addresses likewise.
    fn any_address() -> impl Strategy<Value = IpAddr> {
        let near = (0xfffe_u64..=0x1_0000, any::<u32>())
            .prop_map(|(upper, low)| IpAddr::V6(Ipv6Addr::from_bits(u128::from(upper) << 32 | u128::from(low))));
        prop_oneof![
            any::<u32>().prop_map(|bits| IpAddr::V4(bits.into())),
            any::<u128>().prop_map(|bits| IpAddr::V6(bits.into())),
            near,
        ]
    }

    prop_compose! {
        fn any_prefix()(address in any_address(), len in any::<u8>()) -> IpNet {
            let most = if address.is_ipv4() { 32 } else { 128 };
            IpNet::new(address, len % (most + 1)).unwrap()
        }
    }

    /// An address inside a prefix, its other bits from `bits`.
    fn inside(prefix: IpNet, bits: u128) -> IpAddr {
        match prefix {
            IpNet::V4(net) => {
                let host = u32::try_from(bits & u128::from(u32::MAX)).unwrap() & net.hostmask().to_bits();
                IpAddr::V4((net.network().to_bits() | host).into())
            }
            IpNet::V6(net) => IpAddr::V6((net.network().to_bits() | (bits & net.hostmask().to_bits())).into()),
        }
    }

    proptest! {
        #[test]
        fn the_canonical_form_is_one_form(prefix in any_prefix()) {
            let network = Network::new(prefix);
            prop_assert_eq!(Network::new(network.prefix()), network);
            prop_assert_eq!(network.to_string().parse(), Ok(network));
            prop_assert_eq!(network.prefix().trunc(), network.prefix());
            let mapped = matches!(network.prefix(), IpNet::V6(net) if net.prefix_len() >= 96
                && net.network().to_ipv4_mapped().is_some());
            prop_assert!(!mapped, "{} is IPv4", network);
        }

        #[test]
        fn an_address_is_in_its_own_network_however_both_are_written(address in any_address(), len in 0u8..=128) {
            let canonical = address.to_canonical();
            let most = if canonical.is_ipv4() { 32 } else { 128 };
            let network = Network::new(IpNet::new(canonical, len.min(most)).unwrap());
            prop_assert!(network.contains(address) && network.contains(canonical));
            if let IpAddr::V4(v4) = canonical {
                let written = IpNet::new(v4.to_ipv6_mapped().into(), 96 + len.min(32)).unwrap();
                prop_assert_eq!(Network::new(written), network);
            }
        }

        #[test]
        fn covering_and_overlapping_is_what_the_addresses_say(a in any_prefix(), b in any_prefix(), bits in any::<u128>()) {
            let (a, b) = (Network::new(a), Network::new(b));
            // Canonical first: an address of `::/0` that is IPv4 is outside of it.
            let sample = inside(b.prefix(), bits);
            let same_family = sample.to_canonical().is_ipv4() == sample.is_ipv4();
            if same_family && a.covers(b) {
                prop_assert!(a.contains(sample), "{} covers {} but not {}", a, b, sample);
            }
            if same_family && a.contains(sample) {
                prop_assert!(a.overlaps(b), "both hold {}", sample);
            }
            prop_assert_eq!(a.overlaps(b), b.overlaps(a));
            if a.overlaps(b) {
                let longer = if a.covers(b) { b } else { a };
                let shared = longer.prefix().network();
                if shared.to_canonical() == shared {
                    prop_assert!(a.contains(shared) && b.contains(shared), "{} and {} share {}", a, b, shared);
                }
            }
        }
    }
}
