//! How much each peer holds at a time: connections, or streams.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::buckets::key;

/// Who holds how much. As large as what is held in all, which has its own limit.
#[derive(Clone, Debug)]
pub(super) struct Holdings {
    most: NonZeroUsize,
    held: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One that is held; given back when dropped.
#[derive(Debug)]
pub(super) struct Held {
    all: Holdings,
    peer: IpAddr,
}

impl Holdings {
    /// At most this many for each peer: an IPv4 address, an IPv6 /64.
    pub(super) fn new(most: NonZeroUsize) -> Self {
        Self { most, held: Arc::default() }
    }

    /// One more for a peer, unless it holds as many as it may.
    pub(super) fn take(&self, peer: IpAddr) -> Option<Held> {
        let peer = key(peer);
        let mut held = self.held.lock();
        let count = held.entry(peer).or_default();
        if *count >= self.most.get() {
            return None;
        }
        *count += 1;
        drop(held);
        Some(Held { all: self.clone(), peer })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.all.held.lock();
        if let Some(count) = held.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_holds_a_bounded_number_and_released_ones_are_free() {
        let holdings = Holdings::new(NonZeroUsize::new(2).unwrap());
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let first = holdings.take(one).unwrap();
        let second = holdings.take(one).unwrap();
        assert!(holdings.take(one).is_none());
        let third = holdings.take(other).unwrap();
        drop(first);
        let fourth = holdings.take(one).unwrap();
        drop((second, third, fourth));
        assert!(holdings.held.lock().is_empty(), "nothing is kept of those who hold nothing");
    }
}
