//! The remote addresses that a service sent to lately, and how much of its sizes each of them gave.
//!
//! One client could otherwise set the usual size of a service alone. Its transfers beyond [`PER_REMOTE`] do not count until
//! the next span of the histogram. Only the newest [`KEPT`] addresses are remembered: with more than that, one that was
//! forgotten counts again, at most [`PER_REMOTE`] times among transfers to [`KEPT`] others.

use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};

use crate::flow::tuple::SeededState;

/// Transfers of one remote address in a span: those of two spans, at most 6, are less than three quarters of the 10 that a
/// quantile takes, so that no address alone decides what three of four transfers do not exceed.
pub(super) const PER_REMOTE: u8 = 3;
/// Remote addresses remembered for each service.
pub(super) const KEPT: usize = 64;
/// An IPv6 client has a whole /64 (RFC 6177), and each of its addresses is the same client.
const IPV6_BITS: u32 = 64;

/// The newest remote addresses of a service.
#[derive(Clone, Debug)]
pub(super) struct Remotes {
    /// A keyed hash of each.
    keys: [u32; KEPT],
    /// How many transfers of each counted.
    counted: [u8; KEPT],
    len: u8,
    /// The oldest, which the next one takes the place of where all are taken.
    oldest: u8,
}

impl Remotes {
    pub(super) const fn new() -> Self {
        Self { keys: [0; KEPT], counted: [0; KEPT], len: 0, oldest: 0 }
    }

    /// Forgets all: a new span begins.
    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Whether another transfer to the address of this key counts.
    pub(super) fn takes(&mut self, key: u32) -> bool {
        let len = usize::from(self.len);
        let known = self.keys.iter().take(len).position(|known| *known == key);
        if let Some(counted) = known.and_then(|place| self.counted.get_mut(place)) {
            let takes = *counted < PER_REMOTE;
            *counted += u8::from(takes);
            return takes;
        }
        let place = if len < KEPT {
            self.len += 1;
            len
        } else {
            let oldest = usize::from(self.oldest);
            self.oldest = u8::try_from((oldest + 1) % KEPT).unwrap_or(0);
            oldest
        };
        if let (Some(known), Some(counted)) = (self.keys.get_mut(place), self.counted.get_mut(place)) {
            (*known, *counted) = (key, 1);
        }
        true
    }
}

/// The key of a remote address: without the seed no other address with the same key can be found.
pub(super) fn key_of(remote: IpAddr, state: SeededState) -> u32 {
    let client = match remote {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> (128 - IPV6_BITS) << (128 - IPV6_BITS)))
        }
        v4 @ IpAddr::V4(_) => v4,
    };
    u32::try_from(state.hash_one(client) >> 32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_counts_a_few_times_and_again_when_it_was_forgotten() {
        let mut remotes = Remotes::new();
        let taken = |remotes: &mut Remotes| (0..50).filter(|_| remotes.takes(1_000)).count();
        assert_eq!(taken(&mut remotes), 3);
        (0..63).for_each(|other| assert!(remotes.takes(other)));
        assert_eq!(taken(&mut remotes), 0, "63 others are remembered beside it");
        assert!(remotes.takes(63));
        assert_eq!(taken(&mut remotes), 3, "the 64th other took its place");
        remotes.clear();
        assert_eq!(taken(&mut remotes), 3, "a new span");
    }

    #[test]
    fn a_whole_ipv6_subnet_is_one_client() {
        let key = |address: &str| key_of(address.parse().unwrap(), SeededState(7));
        assert_eq!(key("2001:db8:0:1::1"), key("2001:db8:0:1:ffff::2"));
        assert_ne!(key("2001:db8:0:1::1"), key("2001:db8:0:2::1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
    }
}
