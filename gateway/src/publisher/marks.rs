//! The networks at which a subscriber is to look. A mark says nothing but that: it may come twice, what it stands for is read when
//! it is told, and whatever happened to the network until then is one message.

use std::collections::BTreeSet;
use std::ops::Bound;

use spand_proto::network::Network;

/// How soon a subscriber is to look.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Haste {
    /// Before everything but starts: an estimate ended, or others wait for the news.
    Now,
    /// As soon as the pace of all subscribers allows.
    Paced,
}

/// One subscriber's marks.
#[derive(Debug, Default)]
pub(super) struct Marks {
    now: BTreeSet<Network>,
    paced: BTreeSet<Network>,
    /// The paced one taken last: the next one is behind it, so that each has its turn however often those before it change.
    reached: Option<Network>,
}

impl Marks {
    /// Marks a network. `false`: there were `limit` already, they are let go, and everything is to be told anew.
    pub(super) fn put(&mut self, network: Network, haste: Haste, limit: usize) -> bool {
        let marks = match haste {
            Haste::Now => {
                self.paced.remove(&network);
                &mut self.now
            }
            Haste::Paced if self.now.contains(&network) => return true,
            Haste::Paced => &mut self.paced,
        };
        let has_room = marks.len() < limit || marks.contains(&network);
        if has_room {
            marks.insert(network);
        } else {
            marks.clear();
        }
        has_room
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.now.len() + self.paced.len()
    }

    /// One at which to look now.
    pub(super) fn take_now(&mut self) -> Option<Network> {
        self.now.pop_first()
    }

    /// Up to `limit` of the others.
    pub(super) fn take_paced(&mut self, limit: usize) -> Vec<Network> {
        let mut taken = Vec::new();
        while taken.len() < limit {
            let behind = self.reached.map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.paced.range((behind, Bound::Unbounded)).next().or_else(|| self.paced.first()).copied();
            let Some(next) = next else { break };
            self.paced.remove(&next);
            self.reached = Some(next);
            taken.push(next);
        }
        taken
    }

    /// Lets go of those that wait for the pace: a snapshot begins, which has them all.
    pub(super) fn forget_paced(&mut self) {
        self.paced.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(n: u8) -> Network {
        Network::of([198, 51, n, 1].into())
    }

    #[test]
    fn each_has_its_turn_however_often_the_first_change() {
        let mut marks = Marks::default();
        let mut taken = Vec::new();
        for _ in 0..3 {
            assert!((0..6).all(|n| marks.put(network(n), Haste::Paced, 6)));
            taken.extend(marks.take_paced(2));
        }
        assert_eq!(taken, (0..6).map(network).collect::<Vec<_>>());
        assert_eq!(marks.take_paced(9).len(), 4, "and those that were taken came again");
    }

    #[test]
    fn what_is_urgent_waits_for_no_pace_and_is_told_once() {
        let mut marks = Marks::default();
        assert!(marks.put(network(1), Haste::Paced, 2) && marks.put(network(1), Haste::Now, 2));
        assert!(marks.put(network(1), Haste::Paced, 2));
        assert_eq!((marks.take_now(), marks.take_now()), (Some(network(1)), None));
        assert_eq!(marks.take_paced(2), []);
    }

    #[test]
    fn those_that_are_too_many_are_let_go_and_urgent_ones_stay() {
        let mut marks = Marks::default();
        assert!(marks.put(network(9), Haste::Now, 2));
        assert!((0..2).all(|n| marks.put(network(n), Haste::Paced, 2)));
        assert!(marks.put(network(1), Haste::Paced, 2), "one that is there already");
        assert!(!marks.put(network(3), Haste::Paced, 2));
        assert_eq!((marks.take_paced(9), marks.take_now()), (vec![], Some(network(9))));
    }
}
