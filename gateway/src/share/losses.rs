//! Which of this gateway's cells may not have arrived.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Buckets before the current one of which cells may be on their way.
const ON_ITS_WAY: u64 = 2;
/// How often old cells are sent again because others ask for them.
const HEEDED: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(10) };

/// From which bucket on cells are to be sent again.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The oldest bucket of which cells left, by the bucket in which they did: of those that may be on their way.
    left: BTreeMap<u64, u64>,
    from: Option<u64>,
    /// The same as other gateways say, and when that was last heeded.
    asked_from: Option<u64>,
    heeded: Option<Instant>,
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

    /// Another gateway says that cells from this bucket on did not come.
    pub(super) fn asked(&mut self, index: u64) {
        self.asked_from = Some(self.asked_from.map_or(index, |before| before.min(index)));
    }

    /// From which bucket on all is to be sent again, once. What others ask for is heeded once in a while, however often they do.
    pub(super) fn take(&mut self, now: Instant) -> Option<u64> {
        if self.heeded.is_none_or(|heeded| now.duration_since(heeded) >= HEEDED)
            && let Some(from) = self.asked_from.take()
        {
            self.heeded = Some(now);
            self.lost(from);
        }
        self.from.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_ask_for_is_sent_together_and_once_in_a_while() {
        let (mut losses, begun) = (Losses::default(), Instant::now());
        losses.asked(7);
        losses.asked(5);
        losses.lost(6);
        assert_eq!((losses.take(begun), losses.take(begun)), (Some(5), None));
        losses.asked(3);
        losses.lost(6);
        assert_eq!(losses.take(begun), Some(6), "what is known here does not wait");
        assert_eq!(losses.take(begun + HEEDED), Some(3));
    }

    #[test]
    fn old_cells_that_left_lately_are_lost_with_the_newest() {
        let mut losses = Losses::default();
        losses.leaves(10, 100);
        losses.leaves(99, 101);
        losses.lost_on_the_way(101);
        assert_eq!(losses.take(Instant::now()), Some(10));
        losses.leaves(102, 103);
        losses.lost_on_the_way(103);
        assert_eq!(losses.take(Instant::now()), Some(99), "the oldest arrived by now");
    }
}
