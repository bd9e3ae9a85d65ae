//! Which destinations may be advised, and up to which window.
//!
//! Networks here and in the kernel's table have the same form ([`Network`]): a network of IPv6 covers no IPv4 destination in either.

use std::num::NonZeroU64;

use ipnet::IpNet;
use spand_proto::network::Network;
use spand_proto::report::Arm;
use spand_proto::units::Segments;

use crate::hash::FixedHash;

/// Prefixes that are included, excluded or capped.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    include: Vec<Network>,
    exclude: Vec<Network>,
    caps: Vec<(Network, Segments)>,
}

/// Where a network lies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ScopeVerdict {
    /// It may be advised.
    Allowed {
        /// The smallest cap of the prefixes that overlap it.
        cap: Option<Segments>,
    },
    /// It overlaps an excluded prefix.
    Excluded,
    /// There are included prefixes, and it is inside none.
    NotIncluded,
}

impl Scope {
    /// A scope of these prefixes; without `include` everything is included.
    pub fn new(include: &[Network], exclude: &[Network], caps: &[(Network, Segments)]) -> Self {
        Self { include: include.to_vec(), exclude: exclude.to_vec(), caps: caps.to_vec() }
    }

    /// Where `network` lies. In doubt it is left alone: it is included only as a whole, and excluded where any part is.
    pub fn verdict(&self, network: Network) -> ScopeVerdict {
        if self.exclude.iter().any(|other| other.overlaps(network)) {
            return ScopeVerdict::Excluded;
        }
        if !self.include.is_empty() && !self.include.iter().any(|whole| whole.covers(network)) {
            return ScopeVerdict::NotIncluded;
        }
        let cap = self.caps.iter().filter(|(other, _)| other.overlaps(network)).map(|(_, cap)| *cap).min();
        ScopeVerdict::Allowed { cap }
    }
}

// Which networks are left alone in which time slot.
//
// Where an applier cannot distinguish connections, whole networks change sides in time slots. The draw depends on
// nothing but seed, network and slot: every host with the same seed holds out the same networks at the same time, so
// that controls are not helped or hurt by advised neighbours (`docs/explain/definitions.md`, "Control group").

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
