//! The packets that are held, in order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::Held;

/// Places from the end within which a packet is put in order by moving those behind it.
const NEAR: usize = 64;

/// Packets in order. Receive queues lie some packets apart: nearly all packets belong at the end or a few places before it, which costs less
/// than the depth of a heap.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// In order.
    line: VecDeque<Held>,
    /// Those that belonged further than [`NEAR`] places before the end of the line.
    far: BinaryHeap<Reverse<Held>>,
}

impl Line {
    pub(super) fn len(&self) -> usize {
        self.line.len() + self.far.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it takes memory.
    pub(super) fn has_room(&self) -> bool {
        self.line.capacity() + self.far.capacity() > 0
    }

    pub(super) fn first(&self) -> Option<&Held> {
        let far = self.far.peek().map(|Reverse(far)| far);
        self.line.front().into_iter().chain(far).min()
    }

    pub(super) fn push(&mut self, held: Held) {
        let behind = self.line.iter().rev().take(NEAR + 1).take_while(|other| **other > held).count();
        if behind > NEAR {
            self.far.push(Reverse(held));
        } else {
            self.line.insert(self.line.len() - behind, held);
        }
    }

    /// Marks the packets from this number on as untimed.
    pub(super) fn take_times(&mut self, number: u64) {
        self.line.iter_mut().rev().take_while(|held| held.number >= number).for_each(|held| held.untimed = true);
    }

    /// Adds `lacks` nanoseconds to the times of the packets from this number on.
    pub(super) fn shift(&mut self, number: u64, lacks: u64) {
        let mut all: Vec<Held> = self.line.drain(..).chain(self.far.drain().map(|Reverse(far)| far)).collect();
        all.iter_mut().filter(|held| held.number >= number).for_each(|held| held.at.0 += lacks);
        all.sort_unstable();
        self.line = all.into();
    }

    pub(super) fn pop(&mut self) -> Option<Held> {
        match (self.line.front(), self.far.peek()) {
            (first, Some(Reverse(far))) if first.is_none_or(|first| far < first) => {
                self.far.pop().map(|Reverse(far)| far)
            }
            _ => self.line.pop_front(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spand_proto::units::Timestamp;

    use super::*;

    proptest! {
        /// Times from near the end of the line to far before it, some of them equal; packets taken in between.
        #[test]
        fn packets_come_as_from_a_heap(
            packets in prop::collection::vec((0..3_u64, prop_oneof![0..40_u64, 0..400_u64], 0..4_usize), 0..600),
        ) {
            let (mut line, mut heap) = (Line::default(), BinaryHeap::new());
            let held = |run, at, number| Held { run, at: Timestamp(at), number, ..Held::default() };
            for ((number, (run, back, taken)), at) in (0..).zip(packets).zip(400..) {
                line.push(held(run, at - back, number));
                heap.push(Reverse(held(run, at - back, number)));
                for _ in 0..taken.saturating_sub(2) {
                    prop_assert_eq!(line.first(), heap.peek().map(|Reverse(first)| first));
                    prop_assert_eq!(line.pop(), heap.pop().map(|Reverse(first)| first));
                }
                prop_assert_eq!(line.len(), heap.len());
            }
            while let Some(Reverse(first)) = heap.pop() {
                prop_assert_eq!(line.pop(), Some(first));
            }
            prop_assert!(line.is_empty());
        }
    }

    #[test]
    fn what_belongs_far_before_the_end_moves_nothing() {
        let mut line = Line::default();
        let places = u64::try_from(NEAR).unwrap() + 1;
        for (number, at) in (1..=places).chain([1, 0]).enumerate() {
            line.push(Held { at: Timestamp(at), number: u64::try_from(number).unwrap(), ..Held::default() });
        }
        assert_eq!((line.line.len(), line.far.len()), (NEAR + 2, 1));
    }
}
