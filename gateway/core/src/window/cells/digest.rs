//! Digests of closed buckets: a gateway names how many cells it sent of a bucket and a hash of them. Another gateway that has others asks for
//! them. A digest protects against loss, and not against a gateway that lies.

use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip::SipHasher13;
use spand_proto::network::Network;

/// Cells of one gateway and bucket: how many, and all their hashes together, in any order.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Digest {
    /// Cells.
    pub cells: u32,
    /// Their hashes, by exclusive or.
    pub hash: u64,
}

impl Digest {
    /// With one more.
    pub(crate) fn add(&mut self, cell: u64) {
        (self.cells, self.hash) = (self.cells.saturating_add(1), self.hash ^ cell);
    }

    /// Without one that it had.
    pub(crate) fn remove(&mut self, cell: u64) {
        (self.cells, self.hash) = (self.cells.saturating_sub(1), self.hash ^ cell);
    }

    /// Both together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self { cells: self.cells.saturating_add(other.cells), hash: self.hash ^ other.hash }
    }
}

/// The hash of a closed cell: of its network and bucket, and of how much was counted, which only grows.
pub(crate) fn hash(network: Network, index: u64, counted: u64) -> u64 {
    let prefix = network.prefix();
    // No secret: who may write under a gateway's number could send anything in any case.
    let mut hasher = SipHasher13::new();
    match prefix.addr() {
        IpAddr::V4(address) => hasher.write(&address.octets()),
        IpAddr::V6(address) => hasher.write(&address.octets()),
    }
    hasher.write_u8(prefix.prefix_len());
    hasher.write(&index.to_le_bytes());
    hasher.write(&counted.to_le_bytes());
    hasher.finish()
}
