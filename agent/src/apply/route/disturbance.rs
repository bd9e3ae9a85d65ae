//! What changed in the kernel since it was last looked at, coalesced into a bounded size.

use std::collections::BTreeSet;

use ipnet::IpNet;
use spand_proto::network::Network;

/// Prefixes remembered one by one; beyond, everything counts as changed.
const MOST_PREFIXES: usize = 256;

/// Changes made by others.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Disturbance {
    everything: bool,
    prefixes: BTreeSet<IpNet>,
    links: BTreeSet<u32>,
    /// Our own routes that vanished; nobody's next hop is in doubt for that.
    own_gone: bool,
}

impl Disturbance {
    /// Anything may have changed: messages were lost, or rules changed.
    pub(super) fn everything(&mut self) {
        self.everything = true;
    }

    /// Someone's route for `prefix` came, went or changed.
    pub(super) fn prefix(&mut self, prefix: IpNet) {
        if self.prefixes.len() >= MOST_PREFIXES {
            self.everything = true;
        } else {
            self.prefixes.insert(prefix);
        }
    }

    /// A link changed its state, or lost an address.
    pub(super) fn link(&mut self, index: u32) {
        if self.links.len() >= MOST_PREFIXES {
            self.everything = true;
        } else {
            self.links.insert(index);
        }
    }

    /// A route of ours went.
    pub(super) const fn own_gone(&mut self) {
        self.own_gone = true;
    }

    /// Whether nothing happened.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether nothing but routes of ours went.
    pub(super) fn only_ours(&self) -> bool {
        !self.everything && self.prefixes.is_empty() && self.links.is_empty()
    }

    /// Whether the path to `network`, by the link `link` where that is known, may have changed.
    pub(super) fn touches(&self, network: Network, link: Option<u32>) -> bool {
        let prefix = network.prefix();
        self.everything
            || link.is_some_and(|link| self.links.contains(&link))
            || self.prefixes.iter().any(|other| other.contains(&prefix) || prefix.contains(other))
    }
}
