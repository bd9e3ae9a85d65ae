//! To which pairs of hosts advice was pushed: starts between them are partly our own output for as long as it holds.

use std::collections::VecDeque;
use std::net::IpAddr;

use hashbrown::HashMap;
use spand_proto::units::{Micros, Timestamp};

use crate::hash::SeededState;

/// An entry older than this is of no start any more: the advice's lifetime (`docs/explain/definitions.md`, "Budget and retreat").
const LIFETIME: Micros = Micros::from_secs(60);
/// Pairs remembered; at the limit the oldest goes.
const PAIRS: usize = 65_536;

/// Pairs of host and remote address that were advised within the last 60 s.
#[derive(Clone, Debug)]
pub(crate) struct PushLedger {
    pairs: HashMap<(IpAddr, IpAddr), Timestamp, SeededState>,
    by_age: VecDeque<(Timestamp, IpAddr, IpAddr)>,
}

impl PushLedger {
    /// An empty ledger.
    pub(crate) fn new(seed: u64) -> Self {
        Self { pairs: HashMap::with_hasher(SeededState(seed)), by_age: VecDeque::new() }
    }

    /// Notes that `host` got advice for `remote`; returns whether an older note was dropped.
    pub(crate) fn note(&mut self, host: IpAddr, remote: IpAddr, at: Timestamp) -> bool {
        self.pairs.insert((host, remote), at);
        self.by_age.push_back((at, host, remote));
        self.forget_older(at);
        let full = self.by_age.len() > PAIRS;
        if full {
            self.forget_oldest();
        }
        full
    }

    /// Whether `host` got advice for `remote` within the advice's lifetime. All connections of that time count: a browser
    /// opens six at once on one announcement.
    pub(crate) fn is_advised(&self, host: IpAddr, remote: IpAddr, now: Timestamp) -> bool {
        !self.pairs.is_empty() && self.pairs.get(&(host, remote)).is_some_and(|at| now.since(*at) <= LIFETIME)
    }

    fn forget_older(&mut self, now: Timestamp) {
        while self.by_age.front().is_some_and(|(at, ..)| now.since(*at) > LIFETIME) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((at, host, remote)) = self.by_age.pop_front() else { return };
        // A newer note of the same pair stays.
        if self.pairs.get(&(host, remote)) == Some(&at) {
            self.pairs.remove(&(host, remote));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Timestamp {
        Timestamp(s * 1_000_000_000)
    }

    #[test]
    fn a_note_serves_every_start_of_its_lifetime_and_ages() {
        let (host, remote): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "198.51.100.1".parse().unwrap());
        let mut ledger = PushLedger::new(1);
        ledger.note(host, remote, at(0));
        assert!(!ledger.is_advised(remote, host, at(1)), "the direction counts");
        assert!(ledger.is_advised(host, remote, at(1)));
        assert!(ledger.is_advised(host, remote, at(60)), "the second of several connections");
        assert!(!ledger.is_advised(host, remote, at(61)));
    }

    #[test]
    fn the_oldest_goes_at_the_limit() {
        let remote: IpAddr = "198.51.100.1".parse().unwrap();
        let host = |n: u32| IpAddr::from((0x0a00_0000 + n).to_be_bytes());
        let mut ledger = PushLedger::new(1);
        let dropped = (0..70_000).filter(|n| ledger.note(host(*n), remote, at(1))).count();
        assert_eq!(dropped, 70_000 - PAIRS);
        assert!(!ledger.is_advised(host(0), remote, at(2)));
        assert!(ledger.is_advised(host(69_999), remote, at(2)));
    }
}
