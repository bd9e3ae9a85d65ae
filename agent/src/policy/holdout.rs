//! Which networks are left alone in which time slot.
//!
//! Where an applier cannot distinguish connections, whole networks change sides in time slots. The draw depends on
//! nothing but seed, network and slot: every host with the same seed holds out the same networks at the same time, so
//! that controls are not helped or hurt by advised neighbours (`docs/definitions.md`, "Control group").

use std::num::NonZeroU64;

use ipnet::IpNet;
use spand_proto::network::Network;
use spand_proto::report::Arm;

use crate::hash::FixedHash;

/// The draw.
#[derive(Clone, Copy, Debug)]
pub struct Holdout {
    /// Part of all networks and slots that is held out, 0 to 1.
    pub fraction: f64,
    /// Length of a slot in seconds.
    pub slot_s: NonZeroU64,
    /// Seed.
    pub seed: u64,
}

impl Holdout {
    /// The arm of `network` at a time of the wall clock.
    pub fn arm(&self, network: Network, wall_unix_s: u64) -> Arm {
        let drawn = hash(self.seed, network, wall_unix_s / self.slot_s);
        // The upper 53 bits as a number from 0 to below 1.
        let number = (drawn >> 11) as f64 / (1u64 << 53) as f64;
        if number < self.fraction { Arm::Control } else { Arm::Advised }
    }
}

/// The same on every host, whatever its release.
fn hash(seed: u64, network: Network, slot: u64) -> u64 {
    let prefix = network.prefix();
    let hash = FixedHash::new().bytes(&seed.to_le_bytes());
    let hash = match prefix {
        IpNet::V4(net) => hash.bytes(&net.network().octets()),
        IpNet::V6(net) => hash.bytes(&net.network().octets()),
    };
    hash.bytes(&[prefix.prefix_len()]).bytes(&slot.to_le_bytes()).finish()
}
