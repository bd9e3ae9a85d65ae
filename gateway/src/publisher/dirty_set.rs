//! The networks whose state has to be sent to a subscriber. The state is read when it is sent, so that any number of changes
//! before that is one message.

use std::collections::BTreeSet;
use std::ops::Bound;

use spand_proto::network::Network;

/// How soon the state is to be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Priority {
    /// Before everything but starts: an estimate ended, or other hosts wait for a smaller lease.
    Now,
    /// As soon as the pace of all subscribers allows.
    Paced,
}

/// One subscriber's dirty networks.
#[derive(Debug, Default)]
pub(super) struct DirtySet {
    now: BTreeSet<Network>,
    paced: BTreeSet<Network>,
    /// The paced one taken last. The next one taken is after it, so that each has its turn however often earlier ones change.
    reached: Option<Network>,
}

impl DirtySet {
    /// Adds a network. `false`: there were `limit` already; the set was cleared and a snapshot has to replace it.
    pub(super) fn put(&mut self, network: Network, priority: Priority, limit: usize) -> bool {
        let set = match priority {
            Priority::Now => {
                self.paced.remove(&network);
                &mut self.now
            }
            Priority::Paced if self.now.contains(&network) => return true,
            Priority::Paced => &mut self.paced,
        };
        let has_room = set.len() < limit || set.contains(&network);
        if has_room {
            set.insert(network);
        } else {
            set.clear();
        }
        has_room
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.now.len() + self.paced.len()
    }

    /// A network to send now.
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

    /// Drops the paced networks: a snapshot that holds all of them begins.
    pub(super) fn clear_paced(&mut self) {
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
    fn each_network_has_its_turn_however_often_the_first_change() {
        let mut dirty = DirtySet::default();
        let mut taken = Vec::new();
        for _ in 0..3 {
            assert!((0..6).all(|n| dirty.put(network(n), Priority::Paced, 6)));
            taken.extend(dirty.take_paced(2));
        }
        assert_eq!(taken, (0..6).map(network).collect::<Vec<_>>());
        assert_eq!(dirty.take_paced(9).len(), 4, "those taken before came again");
    }

    #[test]
    fn an_urgent_network_is_not_paced_and_is_sent_once() {
        let mut dirty = DirtySet::default();
        assert!(dirty.put(network(1), Priority::Paced, 2) && dirty.put(network(1), Priority::Now, 2));
        assert!(dirty.put(network(1), Priority::Paced, 2));
        assert_eq!((dirty.take_now(), dirty.take_now()), (Some(network(1)), None));
        assert_eq!(dirty.take_paced(2), []);
    }

    #[test]
    fn a_full_set_is_cleared_and_urgent_networks_stay() {
        let mut dirty = DirtySet::default();
        assert!(dirty.put(network(9), Priority::Now, 2));
        assert!((0..2).all(|n| dirty.put(network(n), Priority::Paced, 2)));
        assert!(dirty.put(network(1), Priority::Paced, 2), "already there");
        assert!(!dirty.put(network(3), Priority::Paced, 2));
        assert_eq!((dirty.take_paced(9), dirty.take_now()), (vec![], Some(network(9))));
    }
}
