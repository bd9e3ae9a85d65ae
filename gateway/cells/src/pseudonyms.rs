//! The pseudonyms under which clients and their connections leave a gateway.

use std::hash::Hasher;
use std::net::{IpAddr, Ipv6Addr};

use siphasher::sip::SipHasher24;
use spand_core::types::ConnectionId;

/// Makes pseudonyms under a key: one address has the same one at every gateway with the key, and without the key nobody finds the address.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Pseudonyms {
    key: [u8; 16],
}

impl std::fmt::Debug for Pseudonyms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pseudonyms")
    }
}

/// The upper half of every pseudonym: the discard-only block of RFC 6666, from which nobody sends.
const DISCARD_ONLY: u128 = 0x0100 << 112;
/// Bits of a connection's number that come from its hash: far below the limit of numbers in a record.
const CONNECTION_BITS: u32 = 61;

/// Most bytes that are hashed at once: what stands for a kind, two ends, and a sequence number.
const MOST_HASHED: usize = 48;

impl Pseudonyms {
    /// Under this key.
    pub fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    /// The hash of `parts`, one after the other. They are put together first: the hasher takes a few long pieces for less than many
    /// short ones, and there is one of these for every connection.
    fn hash<const N: usize>(&self, parts: [&[u8]; N]) -> u64 {
        let (mut all, mut end) = ([0; MOST_HASHED], 0);
        for part in parts {
            let room = all.get_mut(end..end + part.len());
            debug_assert!(room.is_some(), "{end} bytes and {} more", part.len());
            if let Some(room) = room {
                room.copy_from_slice(part);
                end += part.len();
            }
        }
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(all.get(..end).unwrap_or_default());
        hasher.finish()
    }

    /// The pseudonym of a remote address, an address itself.
    pub fn address(&self, address: IpAddr) -> IpAddr {
        Self::of_hash(self.hash([&[0], &bytes_of(address)]))
    }

    /// The pseudonym with this hash.
    pub fn of_hash(hash: u64) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from_bits(DISCARD_ONLY | u128::from(hash)))
    }

    /// The hash in a pseudonym; `None` where the address is none.
    pub fn hash_of(pseudonym: IpAddr) -> Option<u64> {
        let IpAddr::V6(address) = pseudonym else { return None };
        let bits = address.to_bits();
        (bits >> 64 == DISCARD_ONLY >> 64).then_some(u64::try_from(bits & u128::from(u64::MAX)).unwrap_or_default())
    }

    /// Returns the number of a connection: a hash of the ends and the sequence number of its first segment. Every gateway that sees the same
    /// packets computes the same number. The order of numbers is not the order of connections.
    pub(crate) fn connection(&self, [source, destination]: [(IpAddr, u16); 2], seq: u32) -> ConnectionId {
        let [source, destination] =
            [source, destination].map(|(address, port)| (bytes_of(address), port.to_be_bytes()));
        let hash = self.hash([&[1], &source.0, &source.1, &destination.0, &destination.1, &seq.to_be_bytes()]);
        ConnectionId(hash >> (u64::BITS - CONNECTION_BITS))
    }
}

pub(crate) fn bytes_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_hashed_as_one_after_the_other_up_to_the_longest() {
        let pseudonyms = Pseudonyms::new([7; 16]);
        let (kind, ends, sequence) = ([1; 1], [2; 36], [3; 11]);
        let mut hasher = SipHasher24::new_with_key(&[7; 16]);
        for part in [&kind[..], &ends, &sequence] {
            hasher.write(part);
        }
        assert_eq!(pseudonyms.hash([&kind, &ends, &sequence]), hasher.finish());
        assert_eq!(kind.len() + ends.len() + sequence.len(), MOST_HASHED);
    }

    #[test]
    fn a_pseudonym_is_the_same_under_one_key_and_another_one_under_another() {
        let (one, other) = (Pseudonyms::new([7; 16]), Pseudonyms::new([8; 16]));
        let address = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(one.address(address), Pseudonyms::new([7; 16]).address(address));
        assert_ne!(one.address(address), other.address(address));
        assert_ne!(one.address(address), one.address([192, 0, 2, 2].into()));
        let hash = Pseudonyms::hash_of(one.address(address)).unwrap();
        assert_eq!(Pseudonyms::of_hash(hash), one.address(address));
        assert_eq!(Pseudonyms::hash_of(address), None);
        assert_eq!(Pseudonyms::hash_of("2001:db8::1".parse().unwrap()), None);
    }
}
