//! Connections of which one direction passes here, as other gateways can compare them: a hash of the connection under the key of those
//! that share, and the sides seen. Of one direction alone nothing is estimated.
//!
//! A connection is watched from its SYN, or the answer to it, for [`JUDGED_AFTER`]: by then each side of a connection that exists has sent
//! something, and it is still in the table when it was short. One in mid-stream is not: gateways that start at different times would
//! find different ones. Which are watched is decided by the hash, so that gateways watch the same ones.

use std::collections::VecDeque;

use spand_proto::units::{Micros, Timestamp};

use crate::flow::tuple::Tuple;

/// A connection is judged at this age.
pub const JUDGED_AFTER: Micros = Micros::from_secs(15);
/// Most connections that an engine watches at a time.
const WATCHED: usize = 2_048;
/// The sample is made finer after this long with few watched.
const CALM: Micros = Micros::from_secs(60);
/// Connections judged in one call.
const AT_ONCE: usize = 512;

/// Which sides of a connection sent something, in the order of its ends that all gateways have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Seen {
    /// The end that sorts first.
    Low,
    /// The other.
    High,
    /// Both.
    Both,
}

/// A direction, from the organisation's side.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// Sent by the end inside.
    Outgoing,
    /// Sent to it.
    Incoming,
}

/// What this gateway saw of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Half {
    /// Its keyed hash.
    pub hash: u64,
    /// The sides seen.
    pub seen: Seen,
    /// The direction not seen. `None` where both were, and where both ends are inside, or neither.
    pub lacks: Option<Direction>,
}

/// Those of all connections whose hash begins with N zero bits: one in 2^N. Of two samples the coarser one is within the finer.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct HashSample(u8);

impl HashSample {
    /// All of them.
    pub const ALL: Self = Self(0);
    /// One in 2^32.
    const COARSEST: u8 = 32;

    /// That of N bits; `None` where they are more than any gateway has.
    pub fn of_bits(bits: u8) -> Option<Self> {
        (bits <= Self::COARSEST).then_some(Self(bits))
    }

    /// N.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Whether a connection is in it.
    pub fn has(self, hash: u64) -> bool {
        hash.leading_zeros() >= self.0.into()
    }

    /// Half of it.
    #[must_use]
    pub fn coarser(self) -> Self {
        Self(self.0.saturating_add(1).min(Self::COARSEST))
    }

    /// Twice as many.
    #[must_use]
    pub fn finer(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// What an engine found since it was last asked.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Halves {
    /// Which connections are watched.
    pub sample: HashSample,
    /// Those that were judged.
    pub found: Vec<Half>,
}

/// The connections watched.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    sample: HashSample,
    /// When the sample changed.
    changed: Timestamp,
    /// In the order in which they are due.
    watched: VecDeque<Watched>,
}

#[derive(Debug)]
struct Watched {
    due: Timestamp,
    hash: u64,
    tuple: Tuple,
}

impl Watch {
    /// Watches a connection that begins, if it is in the sample. Where there are too many, every second one is dropped.
    pub(crate) fn begin(&mut self, tuple: Tuple, hash: u64, now: Timestamp) {
        if !self.sample.has(hash) {
            return;
        }
        self.watched.push_back(Watched { due: now.after(JUDGED_AFTER), hash, tuple });
        while self.watched.len() > WATCHED && self.sample.0 < HashSample::COARSEST {
            (self.sample, self.changed) = (self.sample.coarser(), now);
            let sample = self.sample;
            self.watched.retain(|watched| sample.has(watched.hash));
        }
        self.watched.truncate(WATCHED);
    }

    /// What is found at `now` of those that are due, a bounded number of them; `seen` looks at one.
    pub(crate) fn take(
        &mut self,
        now: Timestamp,
        mut seen: impl FnMut(&Tuple) -> Option<(Seen, Option<Direction>)>,
    ) -> Halves {
        let few = self.watched.len() < WATCHED / 4;
        if few && self.sample > HashSample::ALL && now.since(self.changed) >= CALM {
            (self.sample, self.changed) = (self.sample.finer(), now);
        }
        let mut halves = Halves { sample: self.sample, found: Vec::new() };
        for _ in 0..AT_ONCE {
            if self.watched.front().is_none_or(|watched| watched.due > now) {
                break;
            }
            let Some(Watched { hash, tuple, .. }) = self.watched.pop_front() else { break };
            halves.found.extend(seen(&tuple).map(|(seen, lacks)| Half { hash, seen, lacks }));
        }
        halves
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::segment::Endpoint;

    fn tuple(port: u16) -> Tuple {
        let ends = [([192, 0, 2, 1], 80), ([198, 51, 100, 1], port)];
        let [one, other] = ends.map(|(address, port)| Endpoint { address: std::net::IpAddr::from(address), port });
        Tuple::of(one, other).0
    }

    fn seconds(seconds: u64) -> Timestamp {
        Timestamp(seconds * 1_000_000_000)
    }

    /// Spreads over all hashes.
    fn hash(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn too_many_make_the_sample_coarser_and_calm_makes_it_finer_again() {
        let mut watch = Watch::default();
        for number in 0..10 * WATCHED as u64 {
            watch.begin(tuple(1), hash(number), seconds(0));
            assert!(watch.watched.len() <= WATCHED);
        }
        let coarse = watch.sample;
        assert!((3..=5).contains(&coarse.bits()), "{coarse:?}");
        assert!(watch.watched.iter().all(|watched| coarse.has(watched.hash)));
        let mut found = 0;
        for _ in 0..WATCHED / AT_ONCE {
            let halves = watch.take(seconds(15), |_| Some((Seen::Both, None)));
            assert_eq!(halves.sample, coarse);
            assert!(halves.found.len() <= AT_ONCE);
            found += halves.found.len();
        }
        assert!(found > WATCHED / 4 && watch.watched.is_empty(), "{found}");
        for minute in 1..=u64::from(coarse.bits()) {
            watch.take(seconds(60 * minute), |_| None);
            assert_eq!(u64::from(watch.sample.bits()), u64::from(coarse.bits()) - minute);
        }
        watch.take(seconds(9_999), |_| None);
        assert_eq!(watch.sample, HashSample::ALL);
    }

    #[test]
    fn equal_hashes_without_end_take_no_more_room() {
        let mut watch = Watch::default();
        for _ in 0..2 * WATCHED {
            watch.begin(tuple(1), 0, seconds(0));
        }
        assert_eq!(watch.watched.len(), WATCHED);
    }
}
