//! Load shedding by flow sampling: which connections an engine follows while it cannot follow all.
//!
//! A connection is followed or passed over when it opens, by the hash of its tuple; that does not change later. The first starts of every
//! network in a bucket are followed whatever their hash, so that a network with many starts takes no samples from the others. Starts of
//! connections that are not followed are announced by their SYN; starts after an idle time would need the connection's state, and are not.
//! How much to follow is the caller's decision ([`Engine::keep`]).

use std::hash::BuildHasher;

use spand_proto::units::{Micros, Timestamp};

use super::Engine;
use crate::counters::Ignored;
use crate::flow::connection::{Imminent, Role};
use crate::flow::copies::LastSyns;
use crate::flow::tuple::Tuple;
use crate::hash::SeededState;
use crate::types::SampleRate;
use crate::wire::segment::{Flags, Segment};

/// The first starts of a network in a bucket that are followed whatever their hash: this many times the part that is followed. A fixed number
/// would leave a load that is spread over very many networks as it is.
const FIRST: u16 = 32;

/// Counters of starts by network. Two networks with one counter share the first starts.
const PLACES: usize = 1 << 16;

/// What is followed.
#[derive(Debug)]
pub(super) struct Thinning {
    /// The part of the starts to follow.
    share: SampleRate,
    /// Starts in the bucket under way by the hash of the network, up to 255. Empty before the first overload.
    starts: Vec<u8>,
    bucket: u64,
    /// SYNs of connections that are not followed.
    syns: LastSyns,
}

impl Default for Thinning {
    fn default() -> Self {
        Self { share: SampleRate::ALL, starts: Vec::new(), bucket: 0, syns: LastSyns::default() }
    }
}

impl Thinning {
    /// Bytes of it under overload.
    pub(super) const BYTES: usize = PLACES;

    fn is_on(&self) -> bool {
        self.share < SampleRate::ALL
    }

    /// The clock shows `now`.
    pub(super) fn advance(&mut self, now: Timestamp, bucket: Micros) {
        let bucket = now.0 / bucket.0.saturating_mul(1_000).max(1);
        if bucket > self.bucket {
            self.starts.fill(0);
            self.bucket = bucket;
        }
    }

    /// Counts a start of the network with this hash. Returns whether it is one of the first.
    fn is_among_first(&mut self, network: u64) -> bool {
        self.starts.resize(PLACES, 0);
        let place = usize::try_from(network % PLACES as u64).unwrap_or(0);
        let Some(starts) = self.starts.get_mut(place) else { return false };
        *starts = starts.saturating_add(1);
        u16::from(*starts) <= FIRST * self.share.parts() / SampleRate::ALL.parts()
    }
}

impl Engine {
    /// Under overload: follows this part of the connections that open from now on, beside the first of each network.
    pub fn keep(&mut self, share: SampleRate) {
        self.thinning.share = share;
    }

    /// Which part of the starts it follows.
    pub fn kept(&self) -> SampleRate {
        self.thinning.share
    }

    /// Returns whether a segment of no followed connection is passed over at once. Under overload a connection is followed from its SYN
    /// on, or not at all.
    #[inline]
    pub(super) fn sheds(&self, segment: &Segment) -> bool {
        self.thinning.is_on() && !segment.flags.has(Flags::SYN)
    }

    /// Returns the part of connections that is followed where this segment opens one; `None` if this one is not followed.
    #[inline]
    pub(super) fn sample(&mut self, tuple: &Tuple, roles: [Role; 2], segment: &Segment) -> Option<SampleRate> {
        if self.thinning.is_on() { self.sample_start(tuple, roles, segment) } else { Some(SampleRate::ALL) }
    }

    #[inline(never)]
    fn sample_start(&mut self, tuple: &Tuple, [from, to]: [Role; 2], segment: &Segment) -> Option<SampleRate> {
        let mut rate = None;
        for (own, peer) in [(from, segment.destination.address), (to, segment.source.address)] {
            if own.follow {
                let network = self.prefixes.network_of(peer);
                let hash = SeededState(self.config.hash_seed).hash_one(network);
                let first = segment.ack.is_none() && self.thinning.is_among_first(hash);
                let of_network = if first { SampleRate::ALL } else { self.thinning.share };
                self.networks.note_rate(network, of_network, self.now);
                rate = rate.max(Some(of_network));
            }
        }
        let (rate, hash) = (rate.unwrap_or(SampleRate::ALL), tuple.hash(self.config.hash_seed));
        if rate.has(hash) {
            return Some(rate);
        }
        self.counters.ignore(Ignored::Shed);
        if segment.ack.is_none()
            && !self.thinning.syns.is_copy(hash, segment)
            && let Some(imminent) = Imminent::by_syn(segment, from, to)
        {
            self.announce(segment, imminent);
        }
        None
    }
}
