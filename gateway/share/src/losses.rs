//! Which of this gateway's cells may not have arrived.

use std::collections::BTreeMap;

/// Buckets before the current one of which cells may be on their way.
const ON_ITS_WAY: u64 = 2;

/// From which bucket on cells are to be sent again.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The oldest bucket of which cells left, by the bucket in which they did: of those that may be on their way.
    left: BTreeMap<u64, u64>,
    from: Option<u64>,
}

impl Losses {
    /// A cell of this bucket leaves in the `current` one.
    pub(super) fn leaves(&mut self, index: u64, current: u64) {
        if !self.left.contains_key(&current) {
            self.left.retain(|at, _| at.saturating_add(ON_ITS_WAY) >= current);
        }
        let oldest = self.left.entry(current).or_insert(index);
        *oldest = index.min(*oldest);
    }

    /// A cell of this bucket may not have arrived.
    pub(super) fn lost(&mut self, index: u64) {
        self.from = Some(self.from.map_or(index, |before| before.min(index)));
    }

    /// What left lately may not have arrived: cells of the newest buckets, and older ones where they were sent again.
    pub(super) fn lost_on_the_way(&mut self, current: u64) {
        let newest = current.saturating_sub(ON_ITS_WAY);
        self.left.retain(|at, _| *at >= newest);
        let oldest = self.left.values().copied().min();
        self.lost(oldest.map_or(newest, |oldest| oldest.min(newest)));
    }

    /// From which bucket on all is to be sent again, once.
    pub(super) fn take(&mut self) -> Option<u64> {
        self.from.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_cells_that_left_lately_are_lost_with_the_newest() {
        let mut losses = Losses::default();
        losses.leaves(10, 100);
        losses.leaves(99, 101);
        losses.lost_on_the_way(101);
        assert_eq!(losses.take(), Some(10));
        losses.leaves(102, 103);
        losses.lost_on_the_way(103);
        assert_eq!(losses.take(), Some(99), "the oldest arrived by now");
    }
}
