//! Which payload bytes of a direction were seen: the interval count that unique and repeated bytes rest on.
//!
//! Kept as one interval with its gaps, since a direction without loss has none. Does not know when or how often a byte
//! was seen: that is the scoreboard's.

/// Room for gaps that is kept when all are filled: a window with a loss or two takes no more.
const GAPS_KEPT: usize = 4;

/// Bytes not seen, `start` inclusive to `end` exclusive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Gap {
    start: u64,
    end: u64,
}

/// The seen part of a direction's sequence space.
#[derive(Clone, Debug)]
pub(crate) struct Coverage {
    origin: u64,
    first: u64,
    next: u64,
    /// Made with the first gap.
    gaps: Option<Box<Gaps>>,
}

#[derive(Clone, Debug, Default)]
struct Gaps(Vec<Gap>);

/// What an interval added.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Inserted {
    /// Bytes seen for the first time.
    pub(crate) new_bytes: u64,
    /// Bytes seen before.
    pub(crate) repeated_bytes: u64,
    /// It starts below the highest byte seen.
    pub(crate) below_highest: bool,
    /// The limit of gaps was reached, and the lowest one counts as seen from now on.
    pub(crate) gap_dropped: bool,
}

impl Coverage {
    /// Bytes that it may allocate beside its gaps.
    pub(crate) const BESIDE_BYTES: usize = size_of::<Gaps>();

    /// Nothing seen yet; the first byte is expected at `position`.
    pub(crate) fn starting_at(position: u64) -> Self {
        Self { origin: position, first: position, next: position, gaps: None }
    }

    /// Position after the highest byte seen.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Position of the byte seen first, whether or not lower ones came later.
    pub(crate) fn origin(&self) -> u64 {
        self.origin
    }

    /// Adds `start` to `end` (exclusive), keeping at most `gap_limit` gaps.
    pub(crate) fn insert(&mut self, start: u64, end: u64, gap_limit: usize) -> Inserted {
        if start == self.next {
            let new_bytes = end.saturating_sub(start);
            self.next = self.next.max(end);
            return Inserted { new_bytes, ..Inserted::default() };
        }
        self.insert_elsewhere(start, end, gap_limit)
    }

    fn insert_elsewhere(&mut self, start: u64, end: u64, gap_limit: usize) -> Inserted {
        if end <= start {
            return Inserted::default();
        }
        let mut added = Inserted { below_highest: start < self.next, ..Inserted::default() };
        if start > self.next {
            let gap = Gap { start: self.next, end: start };
            self.gaps_mut().push(gap);
        }
        if start < self.first {
            added.new_bytes += end.min(self.first) - start;
            if end < self.first {
                let gap = Gap { start: end, end: self.first };
                self.gaps_mut().insert(0, gap);
            }
        }
        let (inner_start, inner_end) = (start.max(self.first), end.min(self.next));
        if inner_start < inner_end {
            let filled = self.fill(inner_start, inner_end);
            added.new_bytes += filled;
            added.repeated_bytes += inner_end - inner_start - filled;
        }
        if end > self.next {
            added.new_bytes += end - start.max(self.next);
        }
        self.first = self.first.min(start);
        self.next = self.next.max(end);
        if let Some(Gaps(gaps)) = self.gaps.as_deref_mut()
            && gaps.len() > gap_limit
        {
            gaps.remove(0);
            added.gap_dropped = true;
        }
        added
    }

    /// Frees the room of gaps: what was not seen counts as seen from now on.
    pub(crate) fn forget_gaps(&mut self) {
        self.gaps = None;
    }

    /// Gaps that there is room for.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.gaps.as_deref().map_or(0, |Gaps(gaps)| gaps.capacity())
    }

    fn gaps_mut(&mut self) -> &mut Vec<Gap> {
        &mut self.gaps.get_or_insert_default().0
    }

    /// Takes `start..end` out of the gaps; returns how many bytes of it were missing.
    fn fill(&mut self, start: u64, end: u64) -> u64 {
        let Some(Gaps(gaps)) = self.gaps.as_deref_mut() else { return 0 };
        let mut filled = 0;
        let mut index = gaps.partition_point(|gap| gap.end <= start);
        while let Some(gap) = gaps.get_mut(index).filter(|gap| gap.start < end) {
            let whole = *gap;
            filled += whole.end.min(end) - whole.start.max(start);
            match (whole.start < start, end < whole.end) {
                (true, true) => {
                    gap.end = start;
                    gaps.insert(index + 1, Gap { start: end, end: whole.end });
                    index += 2;
                }
                (true, false) => {
                    gap.end = start;
                    index += 1;
                }
                (false, true) => {
                    gap.start = end;
                    index += 1;
                }
                (false, false) => {
                    gaps.remove(index);
                }
            }
        }
        if gaps.is_empty() && gaps.capacity() > GAPS_KEPT {
            *gaps = Vec::new();
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::flow::sequence::{first_position, position_near};

    #[test]
    fn a_gap_is_filled_in_pieces() {
        let mut seen = Coverage::starting_at(100);
        assert_eq!(seen.insert(100, 200, 8).new_bytes, 100);
        assert!(!seen.insert(300, 400, 8).below_highest);
        let middle = seen.insert(220, 240, 8);
        assert_eq!((middle.new_bytes, middle.repeated_bytes, middle.below_highest), (20, 0, true));
        let across = seen.insert(190, 310, 8);
        assert_eq!((across.new_bytes, across.repeated_bytes), (80, 40));
        assert!(seen.gaps.is_none_or(|gaps| gaps.0.is_empty()));
    }

    #[test]
    fn bytes_before_the_first_are_new_once() {
        let mut seen = Coverage::starting_at(100);
        seen.insert(100, 110, 8);
        assert_eq!(seen.insert(50, 60, 8).new_bytes, 10);
        assert_eq!(
            seen.insert(40, 105, 8),
            Inserted { new_bytes: 50, repeated_bytes: 15, below_highest: true, gap_dropped: false }
        );
    }

    #[test]
    fn at_the_limit_the_lowest_gap_counts_as_seen() {
        let mut seen = Coverage::starting_at(0);
        seen.insert(10, 20, 1);
        assert!(seen.insert(30, 40, 1).gap_dropped);
        assert_eq!(seen.insert(0, 10, 1).repeated_bytes, 10);
        assert_eq!(seen.insert(20, 30, 1).new_bytes, 10);
    }

    proptest! {
        /// A set of bytes is the twin: the same segments, on any first number, across the wrap.
        #[test]
        fn agrees_with_a_set_of_bytes(
            first in prop_oneof![any::<u32>(), Just(u32::MAX - 500), Just(0)],
            segments in prop::collection::vec((-200i64..1_500, 0u64..120), 1..80),
        ) {
            let mut known = first_position(first);
            let mut seen = Coverage::starting_at(known);
            let mut twin = BTreeSet::new();
            for (offset, len) in segments {
                let number = u32::try_from((i64::from(first) + offset).rem_euclid(1 << 32)).unwrap();
                let start = position_near(known, number);
                let added = seen.insert(start, start + len, 1_000);
                known = known.max(start + len);
                let new = (start..start + len).filter(|byte| twin.insert(*byte)).count() as u64;
                prop_assert_eq!((added.new_bytes, added.repeated_bytes), (new, len - new));
            }
        }
    }
}
