//! The gateways that share: who one is, whose packets it sees, and whether it makes the same networks as another.

use std::hash::Hasher;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;

use crate::pseudonyms::{Pseudonyms, bytes_of};

/// Most gateways of a cluster, and the largest number of one. A bucket of a network has room for a cell of each.
pub const MOST_GATEWAYS: u16 = 64;

/// The number of a gateway among those that share.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct GatewayId(pub u16);

/// The tap whose packets a gateway sees. All gateways of a mirror group see the packets of one tap, so one of their cells of a network and
/// bucket counts. Cells of different taps are added up.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct TapId(pub u32);

impl TapId {
    /// Mirror groups are numbered from here on, above gateways.
    const GROUPS: u32 = 1 << 16;

    /// The tap that is one gateway's alone.
    pub fn of_gateway(GatewayId(gateway): GatewayId) -> Self {
        Self(gateway.into())
    }

    /// The tap of a mirror group.
    pub fn of_group(group: u16) -> Self {
        Self(Self::GROUPS + u32::from(group))
    }

    /// Its mirror group; `None` where it is one gateway's alone.
    pub fn group(self) -> Option<u16> {
        u16::try_from(self.0.checked_sub(Self::GROUPS)?).ok()
    }

    /// Whether this gateway may have it: its own, or that of a group. Otherwise one could put its cells in the place of another's.
    pub fn may_be_of(self, gateway: GatewayId) -> bool {
        self.0 >= Self::GROUPS || self == Self::of_gateway(gateway)
    }
}

/// How an engine shares.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sharing {
    /// Which gateway it belongs to.
    pub gateway: GatewayId,
    /// Whose packets it sees.
    pub tap: TapId,
    /// What makes pseudonyms: the same for all gateways.
    pub pseudonyms: Pseudonyms,
}

/// Returns a number for a list of prefixes. Equal lists have the same number on every machine. Gateways compare it, since different lists
/// make different networks.
pub fn fingerprint(prefixes: &[IpNet]) -> u64 {
    let mut prefixes: Vec<_> = prefixes
        .iter()
        .map(|prefix| (bytes_of(prefix.network()), prefix.prefix_len(), prefix.addr().is_ipv4()))
        .collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    let mut hasher = SipHasher24::new();
    for (address, length, is_ipv4) in prefixes {
        hasher.write(&address);
        hasher.write(&[length, u8::from(is_ipv4)]);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_prefixes_have_one_number_in_any_order_and_others_another() {
        let of = |prefixes: &[&str]| {
            let prefixes: Vec<IpNet> = prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect();
            fingerprint(&prefixes)
        };
        let number = of(&["192.0.2.0/24", "2001:db8::/32"]);
        assert_eq!(of(&["2001:db8::/32", "192.0.2.0/24", "192.0.2.0/24"]), number);
        assert_ne!(of(&["192.0.2.0/25", "2001:db8::/32"]), number);
        assert_ne!(of(&["0.0.0.0/0"]), of(&["::ffff:0:0/0"]));
        assert_eq!(of(&[]), 0x1e92_4b9d_7377_00d7, "SipHash-2-4 of nothing under the key zero, on every machine");
    }
}
