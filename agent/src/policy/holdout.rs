//! Which networks are left alone in which time slot.
//!
//! Where an applier cannot distinguish connections, whole networks change sides in time slots. The draw depends on
//! nothing but seed, network and slot: every host with the same seed holds out the same networks at the same time, so
//! that controls are not helped or hurt by advised neighbours (`docs/definitions.md`, "Control group").

use std::num::NonZeroU64;

use ipnet::IpNet;
use spand_proto::network::Network;
use spand_proto::report::Arm;

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

/// FNV-1a over the bytes, then the finaliser of splitmix64: fixed for ever, since hosts of different releases must agree.
fn hash(seed: u64, network: Network, slot: u64) -> u64 {
    let prefix = network.prefix();
    let mut state = 0xcbf2_9ce4_8422_2325u64;
    let mut eat = |bytes: &[u8]| {
        for &byte in bytes {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    eat(&seed.to_le_bytes());
    match prefix {
        IpNet::V4(net) => eat(&net.network().octets()),
        IpNet::V6(net) => eat(&net.network().octets()),
    }
    eat(&[prefix.prefix_len()]);
    eat(&slot.to_le_bytes());
    let mut mixed = state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
