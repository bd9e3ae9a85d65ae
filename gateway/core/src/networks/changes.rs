//! The networks that changed since the store last took them.

use std::collections::BTreeSet;
use std::ops::Bound;

use spand_proto::network::Network;

/// A set of networks that is taken out in rounds: the next portion goes on where the last one ended, so that nobody
/// waits for ever behind networks that change all the time.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    changed: BTreeSet<Network>,
    last: Option<Network>,
    /// Not used yet, so nothing is kept.
    asleep: bool,
    limit: usize,
}

impl Changes {
    pub(super) fn new(limit: usize) -> Self {
        Self { changed: BTreeSet::new(), last: None, asleep: true, limit }
    }

    /// Keeps changes from now on. Returns whether it did not before.
    pub(super) fn wake(&mut self) -> bool {
        std::mem::take(&mut self.asleep)
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.changed.len()
    }

    /// Notes a change. Returns whether it was kept: not while unused, and not if more networks were removed than are kept here;
    /// the store then holds a record too many, which ages on read.
    pub(super) fn note(&mut self, network: Network) -> bool {
        let kept = !self.asleep && self.changed.len() < self.limit;
        if kept {
            self.changed.insert(network);
        }
        kept
    }

    /// Takes the next of the round.
    pub(super) fn take(&mut self) -> Option<Network> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.changed.range((after, Bound::Unbounded)).next().or_else(|| self.changed.first()).copied()?;
        self.changed.remove(&next);
        self.last = Some(next);
        Some(next)
    }
}
