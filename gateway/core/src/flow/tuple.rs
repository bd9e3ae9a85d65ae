//! The key of a connection: the same for both directions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::hash::fold;
use crate::wire::segment::Endpoint;

/// Both ends of a connection in a fixed order, so that either direction finds the same entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Tuple {
    low: [u64; 2],
    high: [u64; 2],
    /// Both ports, and below them the version of IP.
    rest: u64,
}

/// Which of a connection's two senders is meant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Side {
    /// The end that sorts first.
    Low,
    /// The other.
    High,
}

impl Side {
    /// The other side.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Low => Self::High,
            Self::High => Self::Low,
        }
    }
}

impl Tuple {
    /// The key of a segment's connection, and the side that sent it.
    #[inline]
    pub(crate) fn of(source: Endpoint, destination: Endpoint) -> (Self, Side) {
        // In line, for IPv4: a result taken from memory right after it was written there stalls.
        if let (IpAddr::V4(from), IpAddr::V4(to)) = (source.address, destination.address) {
            let from = (u64::from(from.to_bits()) << 16) | u64::from(source.port);
            let to = (u64::from(to.to_bits()) << 16) | u64::from(destination.port);
            let (low, high, side) = if from <= to { (from, to, Side::Low) } else { (to, from, Side::High) };
            let rest = ((low & 0xffff) << 24) | ((high & 0xffff) << 8) | 4;
            return (Self { low: [0, low >> 16], high: [0, high >> 16], rest }, side);
        }
        Self::of_any(source, destination)
    }

    #[inline(never)]
    fn of_any(source: Endpoint, destination: Endpoint) -> (Self, Side) {
        let from = (words(source.address), source.port);
        let to = (words(destination.address), destination.port);
        let (low, high, side) = if from <= to { (from, to, Side::Low) } else { (to, from, Side::High) };
        let version = if source.address.is_ipv4() { 4 } else { 6 };
        let rest = (u64::from(low.1) << 24) | (u64::from(high.1) << 8) | version;
        (Self { low: low.0, high: high.0, rest }, side)
    }

    /// The addresses of both ends, the one that sorts first before the other.
    pub(crate) fn addresses(&self) -> [IpAddr; 2] {
        [self.low, self.high].map(|[upper, lower]| {
            if self.rest & 0xff == 4 {
                IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(lower).unwrap_or_default()))
            } else {
                IpAddr::V6(Ipv6Addr::from_bits((u128::from(upper) << 64) | u128::from(lower)))
            }
        })
    }

    /// A hash with a secret: who does not know the seed cannot aim many tuples at one slot of the table.
    ///
    /// Multiply and fold, 128 bits at a time, as in wyhash.
    pub(crate) fn hash(&self, seed: u64) -> u64 {
        let seed = seed ^ 0xa076_1d64_78bd_642f;
        if self.rest & 0xff == 4 {
            let mixed = fold(((self.low[1] << 32) | self.high[1]) ^ seed, self.rest ^ 0x8ebc_6af0_9c88_c6e3);
            return fold(mixed ^ 0x1d8e_4e27_c47d_124f, mixed.rotate_left(32) ^ seed);
        }
        let low = fold(self.low[0] ^ seed, self.low[1] ^ 0xe703_7ed1_a0b4_28db);
        let high = fold(self.high[0] ^ low, self.high[1] ^ 0x8ebc_6af0_9c88_c6e3);
        let mixed = fold(self.rest ^ high ^ 0x5899_65cc_7537_4cc3, seed ^ low);
        // One product alone leaves neighbouring ports in even steps; the second breaks them up.
        fold(mixed ^ 0x1d8e_4e27_c47d_124f, mixed.rotate_left(32) ^ seed)
    }
}

/// An address as two words; `Tuple::rest` distinguishes IPv4 and IPv6.
fn words(address: IpAddr) -> [u64; 2] {
    match address {
        IpAddr::V4(v4) => [0, u64::from(v4.to_bits())],
        IpAddr::V6(v6) => {
            let [a, b, c, d, e, f, g, h] = v6.segments().map(u64::from);
            [(a << 48) | (b << 32) | (c << 16) | d, (e << 48) | (f << 32) | (g << 16) | h]
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn endpoint(address: &str, port: u16) -> Endpoint {
        Endpoint { address: address.parse().unwrap(), port }
    }

    #[test]
    fn both_directions_have_one_key() {
        let (a, b) = (endpoint("192.0.2.1", 80), endpoint("198.51.100.7", 40_000));
        let (forward, from) = Tuple::of(a, b);
        let (backward, back) = Tuple::of(b, a);
        assert_eq!(forward, backward);
        assert_eq!(from.other(), back);
        assert_eq!(forward.hash(7), backward.hash(7));
    }

    #[test]
    fn one_address_with_two_ports_keeps_its_sides_apart() {
        let (a, b) = (endpoint("2001:db8::1", 1), endpoint("2001:db8::1", 2));
        assert_ne!(Tuple::of(a, b).1, Tuple::of(b, a).1);
    }

    #[test]
    fn the_seed_moves_the_hash_and_neighbours_spread() {
        let server = endpoint("198.51.100.7", 443);
        let slots = |seed: u64| -> BTreeSet<u64> {
            (0..4_096u16).map(|port| Tuple::of(endpoint("192.0.2.1", port), server).0.hash(seed) >> 52).collect()
        };
        assert!(slots(1).len() > 2_400, "4,096 keys into 4,096 slots should fill about 63 %: {}", slots(1).len());
        assert_ne!(slots(1), slots(2));
    }
}
