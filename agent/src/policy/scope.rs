//! Which destinations may be advised, and up to which window.
//!
//! Networks here and in the kernel's table have the same form ([`Network`]): a network of IPv6 covers no IPv4 destination in either.

use spand_proto::network::Network;
use spand_proto::units::Segments;

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
