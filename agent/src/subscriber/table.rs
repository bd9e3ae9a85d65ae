//! The table of advice: limited, and in the order in which advice goes where another needs its place.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use spand_proto::network::Network;
use spand_proto::units::Timestamp;

use crate::policy::Advice;

/// Advice by network.
#[derive(Debug)]
pub(super) struct Table {
    held: BTreeMap<Network, Held>,
    order: BTreeSet<(Rank, Network)>,
    limit: NonZeroUsize,
    updates: u64,
}

/// That a gateway adopted advice of another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adopted {
    /// Until when it lives on.
    pub(super) until: Timestamp,
    /// The number of the stream's first snapshot.
    pub(super) by: u64,
}

/// Advice that is held.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) advice: Advice,
    /// The snapshot that gave it.
    pub(super) given_by: u64,
    /// Where a gateway adopted it since it was given.
    pub(super) adopted: Option<Adopted>,
    rank: Rank,
}

/// The smallest goes first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Rank {
    /// Whether connections start differently, or are compared, because of it.
    matters: bool,
    /// When a connection of this host to the network was announced last.
    announced: Option<Timestamp>,
    /// The update that gave it.
    update: u64,
}

impl Table {
    pub(super) const fn new(limit: NonZeroUsize) -> Self {
        Self { held: BTreeMap::new(), order: BTreeSet::new(), limit, updates: 0 }
    }

    /// Puts advice in, given for a connection announced at `announced` or for none. Gives the network whose advice went for it, which is
    /// the same where all others rank higher.
    pub(super) fn put(&mut self, advice: Advice, given_by: u64, announced: Option<Timestamp>) -> Option<Network> {
        let network = advice.estimate.network;
        self.updates += 1;
        let before = self.remove(network).map(|held| held.rank);
        // Until it is decided about, new advice matters.
        let rank = Rank {
            matters: before.is_none_or(|rank| rank.matters),
            announced: announced.or(before.and_then(|rank| rank.announced)),
            update: self.updates,
        };
        self.order.insert((rank, network));
        self.held.insert(network, Held { advice, given_by, adopted: None, rank });
        if self.held.len() <= self.limit.get() {
            return None;
        }
        let (_, gone) = self.order.pop_first()?;
        self.held.remove(&gone);
        Some(gone)
    }

    /// Whether connections start differently, or are compared, because of a network's advice.
    pub(super) fn set_matters(&mut self, network: Network, matters: bool) {
        if let Some(held) = self.held.get_mut(&network).filter(|held| held.rank.matters != matters) {
            self.order.remove(&(held.rank, network));
            held.rank.matters = matters;
            self.order.insert((held.rank, network));
        }
    }

    pub(super) fn remove(&mut self, network: Network) -> Option<Held> {
        let held = self.held.remove(&network)?;
        self.order.remove(&(held.rank, network));
        Some(held)
    }

    /// Drops all that `keep` does not name. Gives how many those were.
    pub(super) fn retain(&mut self, keep: impl Fn(&Held) -> bool) -> u64 {
        let before = self.held.len();
        self.held.retain(|network, held| {
            let keeps = keep(held);
            if !keeps {
                self.order.remove(&(held.rank, *network));
            }
            keeps
        });
        (before - self.held.len()) as u64
    }

    pub(super) fn get(&self, network: Network) -> Option<&Held> {
        self.held.get(&network)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Network, &Held)> {
        self.held.iter().map(|(network, held)| (*network, held))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Held> {
        self.held.values_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.held.len() >= self.limit.get()
    }
}
