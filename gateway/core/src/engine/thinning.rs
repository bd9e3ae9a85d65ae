//! Load shedding by flow sampling: which connections an engine follows while it cannot follow all.
//!
//! Every network may have the same number of starts per bucket; the hash of the tuple selects them. Where that number would fall below
//! [`FEW`], whole networks are left out instead. Starts of connections that are not followed are announced by their SYN; starts after an
//! idle time would need the connection's state, and are not. How much to follow is the caller's decision ([`Engine::keep`]).

use std::hash::BuildHasher;
use std::net::IpAddr;

use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};

use super::Engine;
use crate::counters::Ignored;
use crate::flow::connection::{Imminent, Sampling};
use crate::flow::copies::LastSyns;
use crate::flow::table::Key;
use crate::flow::tuple::Tuple;
use crate::hash::SeededState;
use crate::types::SampleRate;
use crate::wire::segment::{Flags, Segment};

/// Starts that every network may have in a bucket.
const FEW: u32 = 32;

/// Places of one row of [`Starts`].
const PLACES: usize = 1 << 15;

/// Places of [`PassedOver`].
const PASSED: usize = 1 << 16;

/// Starts in the bucket under way and in the one before.
type Place = [u32; 2];

/// Starts by network, as a count-min sketch: of fixed size whatever comes, and no count is below the network's own.
#[derive(Debug)]
struct Starts([Vec<Place>; 2]);

/// Connections whose segments were passed over in this selection, by the hash of their tuple: what is passed over is not looked up again. A
/// connection that lost its place to another is looked up.
#[derive(Debug, Default)]
struct PassedOver(Vec<u32>);

/// What is followed.
#[derive(Debug)]
pub(super) struct Thinning {
    /// The part of the starts to follow.
    share: SampleRate,
    /// Segments are checked. This goes on for a bucket after the share is whole again, so that connections get their weight back.
    is_on: bool,
    /// The share was whole when the bucket began.
    is_whole: bool,
    /// From the first [`Engine::keep`] on.
    starts: Option<Starts>,
    bucket: u64,
    /// Starts of one network per bucket.
    most: u32,
    /// The part of the networks that is not left out.
    networks: SampleRate,
    /// Changes with the two above and with the bucket: connections in the table are looked at again.
    epoch: u16,
    passed_over: PassedOver,
    /// SYNs of connections that are not followed.
    syns: LastSyns,
}

impl Default for Thinning {
    fn default() -> Self {
        let (share, networks) = (SampleRate::ALL, SampleRate::ALL);
        Self {
            share,
            is_on: false,
            is_whole: true,
            starts: None,
            bucket: 0,
            most: u32::MAX,
            networks,
            epoch: 0,
            passed_over: PassedOver::default(),
            syns: LastSyns::default(),
        }
    }
}

impl Starts {
    /// Bytes of it.
    const BYTES: usize = 2 * PLACES * size_of::<Place>();

    fn new() -> Self {
        Self([(); 2].map(|()| vec![Place::default(); PLACES]))
    }

    fn places(hash: u64) -> [usize; 2] {
        [hash, hash >> 32].map(|half| usize::try_from(half % PLACES as u64).unwrap_or(0))
    }

    fn count(&mut self, hash: u64) {
        for (row, place) in self.0.iter_mut().zip(Self::places(hash)) {
            if let Some([now, _]) = row.get_mut(place) {
                *now = now.saturating_add(1);
            }
        }
    }

    /// Starts of a network in this bucket or in the one before, whichever had more.
    fn of(&self, hash: u64) -> u32 {
        let counts = self.0.iter().zip(Self::places(hash)).map(|(row, place)| row.get(place).copied().map_or(0, most));
        counts.min().unwrap_or(0)
    }

    /// A bucket is over. A pause of several counts as one: no starts are counted in it.
    fn turn(&mut self) {
        for place in self.0.iter_mut().flatten() {
            *place = [0, place[0]];
        }
    }

    /// Returns the limit per network with which this part of all starts is followed, and the part of the networks that is not left out: all,
    /// unless the limit would be below [`FEW`] or no start was counted.
    fn cap(&self, share: SampleRate) -> (u32, SampleRate) {
        let mut counts: Vec<u64> =
            self.0.first().into_iter().flatten().copied().map(most).filter(|count| *count > 0).map(u64::from).collect();
        counts.sort_unstable();
        let all: u64 = counts.iter().sum();
        let wanted = all * u64::from(share.parts()) / u64::from(SampleRate::ALL.parts());
        let (mut below, mut left) = (0, counts.len() as u64);
        for count in counts {
            let few = u64::from(FEW);
            if below + count * left > wanted {
                let most = (wanted - below) / left;
                if most >= few {
                    return (u32::try_from(most).unwrap_or(u32::MAX), SampleRate::ALL);
                }
                break;
            }
            (below, left) = (below + count, left - 1);
        }
        if all == 0 {
            return (u32::MAX, share);
        }
        let at_few: u64 = self.0.first().into_iter().flatten().map(|place| u64::from(most(*place).min(FEW))).sum();
        let parts = wanted * u64::from(SampleRate::ALL.parts()) / at_few.max(1);
        (FEW, SampleRate::of_256(u16::try_from(parts).unwrap_or(u16::MAX)))
    }
}

impl PassedOver {
    const BYTES: usize = PASSED * size_of::<u32>();

    /// The place of a tuple, and what stands there for it: never 0.
    fn place(hash: u64) -> (usize, u32) {
        (usize::try_from(hash % PASSED as u64).unwrap_or(0), u32::try_from(hash >> 32).unwrap_or(0) | 1)
    }

    fn has(&self, hash: u64) -> bool {
        let (place, tag) = Self::place(hash);
        self.0.get(place) == Some(&tag)
    }

    fn remove(&mut self, hash: u64) {
        let (place, tag) = Self::place(hash);
        if let Some(known) = self.0.get_mut(place).filter(|known| **known == tag) {
            *known = 0;
        }
    }

    fn add(&mut self, hash: u64) {
        let (place, tag) = Self::place(hash);
        if self.0.is_empty() {
            self.0.resize(PASSED, 0);
        }
        if let Some(known) = self.0.get_mut(place) {
            *known = tag;
        }
    }
}

fn most([now, before]: Place) -> u32 {
    now.max(before)
}

impl Thinning {
    /// Bytes of it, once it is asked for.
    pub(super) const BYTES: usize = Starts::BYTES + PassedOver::BYTES;

    /// Whether anything is left out.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// The part of the connections older than a bucket that is followed at least: all, until less than a quarter of the starts is followed.
    /// Few connections can be the whole load.
    fn long(&self) -> SampleRate {
        SampleRate::of_256(self.share.parts().saturating_mul(4))
    }

    fn set(&mut self, share: SampleRate) {
        self.share = share;
        if share < SampleRate::ALL {
            (self.is_on, self.is_whole) = (true, false);
        }
        let starts = self.starts.get_or_insert_with(Starts::new);
        (self.most, self.networks) = if share < SampleRate::ALL { starts.cap(share) } else { (u32::MAX, share) };
        self.epoch = self.epoch.wrapping_add(1);
        self.passed_over.0.fill(0);
    }

    /// The clock shows `now`.
    pub(super) fn advance(&mut self, now: Timestamp, bucket: Micros) {
        let bucket = now.0 / bucket.0.saturating_mul(1_000).max(1);
        let Some(starts) = &mut self.starts else { return };
        if bucket > self.bucket {
            starts.turn();
            self.bucket = bucket;
            let was_whole = self.share == SampleRate::ALL && self.is_whole;
            self.is_whole = self.share == SampleRate::ALL;
            self.is_on &= !was_whole;
            self.set(self.share);
        }
    }

    /// The part of a network's starts that is followed; `None` where it is left out.
    fn rate(&self, hash: u64) -> Option<SampleRate> {
        // Other bits than those of the places.
        if !self.networks.has(hash >> 16) {
            return None;
        }
        let starts = self.starts.as_ref().map_or(0, |starts| starts.of(hash));
        if starts <= self.most {
            return Some(SampleRate::ALL);
        }
        let parts = (u64::from(self.most) * u64::from(SampleRate::ALL.parts())).div_ceil(u64::from(starts));
        Some(SampleRate::of_256(u16::try_from(parts).unwrap_or(u16::MAX)))
    }
}

impl Engine {
    /// Under overload: follows this part of the starts from now on, by a limit for each network. Connections older than a bucket are kept, but
    /// for those of networks that are left out, and while at least a quarter of the starts is followed. The first call begins to count starts;
    /// before it, nothing is known of how many a network has.
    pub fn keep(&mut self, share: SampleRate) {
        self.thinning.set(share);
    }

    /// Which part of the starts it follows.
    pub fn kept(&self) -> SampleRate {
        self.thinning.share
    }

    /// The connection of a segment, where it is in the table; the error says that it is not followed, and the segment was passed over.
    pub(super) fn find_sampled(&mut self, tuple: &Tuple, segment: &Segment) -> Result<Option<Key>, Ignored> {
        let hash = tuple.hash(self.config.hash_seed);
        // No part of a network grows within a selection.
        if self.thinning.passed_over.has(hash) && !segment.flags.has(Flags::SYN) {
            return Err(Ignored::Shed);
        }
        let found = self.flows.find(tuple);
        if self.samples(found, hash, segment) {
            if segment.flags.has(Flags::SYN) {
                // A stray segment before it was passed over.
                self.thinning.passed_over.remove(hash);
            }
            return Ok(found);
        }
        self.pass_over(found, hash, segment);
        Err(Ignored::Shed)
    }

    /// Whether a segment's connection is followed, which is in the table where `found`.
    fn samples(&mut self, found: Option<Key>, hash: u64, segment: &Segment) -> bool {
        let epoch = self.thinning.epoch;
        let known = found.and_then(|key| self.flows.get(key)).map(|connection| connection.sampling);
        if known.is_some_and(|known| known.epoch == epoch) {
            return true;
        }
        let rate = self.rate_between(segment.source.address, segment.destination.address);
        let Some(rate) = rate else { return false };
        let Some(known) = known else {
            // While its network is thinned, a connection is followed from its SYN on or not at all.
            return rate == SampleRate::ALL || segment.flags.has(Flags::SYN) && rate.has(hash);
        };
        let is_long = known.is_longer_than(self.config.window.bucket, self.now);
        let applied = if is_long { rate.max(self.thinning.long()) } else { rate };
        let kept = applied.has(hash);
        if kept && let Some(connection) = found.and_then(|key| self.flows.get_mut(key)) {
            // Once the whole network is followed, connections that were passed over are taken up: each counts as one.
            let rate = if rate == SampleRate::ALL { rate } else { known.rate.min(applied) };
            connection.sampling = known.renewed(rate, epoch);
            for network in connection.counted_by() {
                self.networks.reweigh_transfer(network, self.now, [known.rate, rate]);
            }
        }
        kept
    }

    /// The larger part of those of the networks at both ends whose senders are followed here.
    fn rate_between(&self, source: IpAddr, destination: IpAddr) -> Option<SampleRate> {
        let mut networks = self.networks_between(source, destination).peekable();
        if networks.peek().is_none() {
            return Some(SampleRate::ALL);
        }
        networks.filter_map(|network| self.thinning.rate(self.hash_of(network))).max()
    }

    /// The networks of which a connection between these would give samples.
    fn networks_between(&self, source: IpAddr, destination: IpAddr) -> impl Iterator<Item = Network> + use<'_> {
        let followed = |(own, peer): &(IpAddr, IpAddr)| self.role(*own, *peer).follow;
        let pairs = [(source, destination), (destination, source)].into_iter().filter(followed);
        pairs.map(|(_, peer)| self.prefixes.network_of(peer))
    }

    fn hash_of(&self, network: Network) -> u64 {
        SeededState(self.config.hash_seed).hash_one(network)
    }

    /// Returns how the connection that begins with this segment is sampled.
    #[inline]
    pub(super) fn sampling(&mut self, segment: &Segment) -> Sampling {
        if self.thinning.starts.is_none() {
            Sampling::new(SampleRate::ALL, 0, self.now)
        } else {
            self.counted_sampling(segment)
        }
    }

    #[inline(never)]
    fn counted_sampling(&mut self, segment: &Segment) -> Sampling {
        let ends = (segment.source.address, segment.destination.address);
        let rate = if self.thinning.is_on() { self.rate_between(ends.0, ends.1) } else { None };
        self.count_start(ends, rate);
        Sampling::new(rate.unwrap_or(SampleRate::ALL), self.thinning.epoch, self.now)
    }

    fn count_start(&mut self, (source, destination): (IpAddr, IpAddr), rate: Option<SampleRate>) {
        let networks: arrayvec::ArrayVec<Network, 2> = self.networks_between(source, destination).collect();
        for network in networks {
            let hash = self.hash_of(network);
            if self.thinning.is_on() {
                let rate = self.thinning.rate(hash).unwrap_or(SampleRate::LEAST).max(rate.unwrap_or(SampleRate::LEAST));
                self.networks.note_rate(network, rate, self.now);
            }
            if let Some(starts) = &mut self.thinning.starts {
                starts.count(hash);
            }
        }
    }

    /// Takes a segment of a connection that is not followed, whose tuple has this hash.
    fn pass_over(&mut self, found: Option<Key>, hash: u64, segment: &Segment) {
        if let Some(key) = found {
            self.end(key);
        }
        self.thinning.passed_over.add(hash);
        if segment.flags.has(Flags::SYN) && !self.is_own(segment) {
            self.pass_over_syn(hash, segment);
        }
    }

    #[cold]
    fn pass_over_syn(&mut self, hash: u64, segment: &Segment) {
        let (source, destination) = (segment.source.address, segment.destination.address);
        if segment.ack.is_some() || self.thinning.syns.is_copy(hash, segment) {
            return;
        }
        self.count_start((source, destination), None);
        let [from, to] = [(source, destination), (destination, source)].map(|(own, peer)| self.role(own, peer));
        if let Some(imminent) = Imminent::by_syn(segment, from, to) {
            self.announce(segment, imminent);
        }
    }
}
