//! How often each peer may do something: token buckets by address, or by client, in a table with a limit.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Instant;

use parking_lot::Mutex;

/// Token buckets, by address unless peers are distinguished otherwise.
#[derive(Debug)]
pub(crate) struct Buckets<K = IpAddr> {
    per_s: f64,
    burst: f64,
    peers: Mutex<HashMap<K, Bucket>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

/// Peers with a bucket. Those with a full bucket are dropped first, which changes nothing for them.
const MAX_PEERS: usize = 16_384;

impl Buckets {
    /// Whether a peer may now; if so, it did.
    pub(crate) fn take(&self, peer: IpAddr) -> bool {
        self.take_many(peer, 1)
    }

    /// Whether a peer may so often now; if so, it did. More than it may at once after a pause is never allowed.
    pub(crate) fn take_many(&self, peer: IpAddr, count: u32) -> bool {
        self.take_at(key(peer), f64::from(count), Instant::now())
    }

    /// What it did costs so much more, as is known now: it may not again before that is made up for.
    pub(crate) fn charge(&self, peer: IpAddr, count: u32) {
        if let Some(bucket) = self.peers.lock().get_mut(&key(peer)) {
            bucket.tokens -= f64::from(count);
        }
    }

    /// It did not, after all.
    pub(crate) fn give_back(&self, peer: IpAddr) {
        if let Some(bucket) = self.peers.lock().get_mut(&key(peer)) {
            bucket.tokens = (bucket.tokens + 1.0).min(self.burst);
        }
    }
}

impl<K: Eq + Hash> Buckets<K> {
    /// Rate per second for each peer, and burst after a pause.
    pub(crate) fn new(per_s: f64, burst: NonZeroU32) -> Self {
        Self { per_s, burst: f64::from(burst.get()), peers: Mutex::default() }
    }

    /// Whether the one of this key may now; if so, it did.
    pub(crate) fn take_of(&self, peer: K) -> bool {
        self.take_at(peer, 1.0, Instant::now())
    }

    fn take_at(&self, peer: K, count: f64, now: Instant) -> bool {
        let mut peers = self.peers.lock();
        if !peers.contains_key(&peer) && peers.len() >= MAX_PEERS {
            peers.retain(|_, bucket| self.filled(*bucket, now) < self.burst);
            if peers.len() >= MAX_PEERS {
                // This many busy peers share what is left: none.
                return false;
            }
        }
        let bucket = peers.entry(peer).or_insert(Bucket { tokens: self.burst, at: now });
        let tokens = self.filled(*bucket, now);
        let may = tokens >= count;
        *bucket = Bucket { tokens: if may { tokens - count } else { tokens }, at: now };
        may
    }

    fn filled(&self, bucket: Bucket, now: Instant) -> f64 {
        (bucket.tokens + now.duration_since(bucket.at).as_secs_f64() * self.per_s).min(self.burst)
    }
}

/// What counts as one peer: an IPv4 address, an IPv6 /64, in which one machine may have as many addresses as it likes.
pub(crate) fn key(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_peer_gets_its_burst_then_its_rate_and_others_are_not_asked() {
        let buckets = Buckets::new(2.0, NonZeroU32::new(3).unwrap());
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let begin = Instant::now();
        assert_eq!((0..5).filter(|_| buckets.take_at(one, 1.0, begin)).count(), 3);
        assert!(buckets.take_at(other, 1.0, begin));
        let later = begin + Duration::from_secs(1);
        assert_eq!((0..5).filter(|_| buckets.take_at(one, 1.0, later)).count(), 2);
        assert_eq!((0..9).filter(|_| buckets.take_at(one, 1.0, later + Duration::from_secs(60))).count(), 3);
        assert_eq!(key("2001:db8::1".parse().unwrap()), key("2001:db8::2:0:0:1".parse().unwrap()));
        assert_ne!(key("2001:db8::1".parse().unwrap()), key("2001:db8:0:1::1".parse().unwrap()));
    }

    #[test]
    fn what_costs_more_takes_more_and_what_was_not_done_is_given_back() {
        let buckets = Buckets::new(10.0, NonZeroU32::new(100).unwrap());
        let (one, begin) = (IpAddr::from([192, 0, 2, 1]), Instant::now());
        assert!(!buckets.take_at(one, 101.0, begin));
        assert!(buckets.take_at(one, 60.0, begin));
        assert!(!buckets.take_at(one, 60.0, begin), "and what is refused takes nothing");
        assert!(buckets.take_at(one, 40.0, begin));
        buckets.give_back(one);
        assert!(buckets.take_at(one, 1.0, begin));
        assert!(buckets.take_at(one, 60.0, begin + Duration::from_secs(6)));
    }

    #[test]
    fn what_turns_out_to_cost_more_is_made_up_for() {
        let buckets = Buckets::new(10.0, NonZeroU32::new(10).unwrap());
        let (one, begin) = (IpAddr::from([192, 0, 2, 1]), Instant::now());
        assert!(buckets.take_at(one, 1.0, begin));
        buckets.charge(one, 30);
        assert!(!buckets.take_at(one, 1.0, begin + Duration::from_secs(2)));
        assert!(buckets.take_at(one, 1.0, begin + Duration::from_millis(2_300)));
        buckets.charge(IpAddr::from([192, 0, 2, 2]), 30);
        assert_eq!(buckets.peers.lock().len(), 1, "nothing is kept of who asked nothing");
    }

    #[test]
    fn the_table_has_a_limit_and_forgets_the_idle() {
        let buckets = Buckets::new(1.0, NonZeroU32::new(2).unwrap());
        let begin = Instant::now();
        let peer = |n: usize| IpAddr::from((n as u128).to_be_bytes());
        let let_in = (0..MAX_PEERS + 10).filter(|&n| buckets.take_at(peer(n), 1.0, begin)).count();
        assert_eq!((let_in, buckets.peers.lock().len()), (MAX_PEERS, MAX_PEERS));
        assert!(buckets.take_at(peer(MAX_PEERS + 10), 1.0, begin + Duration::from_secs(2)));
        assert_eq!(buckets.peers.lock().len(), 1);
    }
}
