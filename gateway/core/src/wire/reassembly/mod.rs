//! Fragments of IP packets (RFC 791, RFC 8200 section 4.5), put together as far as a TCP segment needs it.
//!
//! Of a packet in fragments only its first bytes are kept, where the headers are, and which bytes were there; payload is
//! counted, not stored. So a packet takes the same small room whatever its size. Only what carries TCP itself waits: of a
//! tunnel's packet the first fragment shows the inner headers, and those state the inner length.
//!
//! Every fragment but the one that completes its packet is ignored as [`Ignored::Fragment`], and every packet that was given
//! up is counted once with the reason. A fragment that lies within what is there already is a second copy. One that lies
//! partly within it, or states another end, makes the whole packet void, its later fragments too (RFC 5722 for IPv6; Linux
//! does the same with both).

use std::collections::VecDeque;
use std::net::IpAddr;
use std::num::NonZeroUsize;

use arrayvec::ArrayVec;
use hashbrown::HashMap;
use spand_proto::units::{Micros, Timestamp};

use super::capture_header::PacketBytes;
use super::ip::{Fragment, IpHeader};
use crate::counters::{Counters, Ignored};
use crate::hash::SeededState;
use crate::mem::{boxed, hashed, listed};
use crate::wire::segment::Ecn;

/// The rest of a packet is waited for so long (Linux `net.ipv4.ipfrag_time`, within the 15 s to 120 s of RFC 791 and RFC 1122).
const PATIENCE: Micros = Micros::from_secs(30);
/// A mirror port's second copy follows within this time, as in [`crate::flow`]; later, the identification is used again.
const COPY_WITHIN: Micros = Micros(20_000);

/// Packets in fragments.
#[derive(Debug)]
pub(super) struct Reassembly {
    packets: HashMap<Key, Packet, SeededState>,
    /// When each was begun; one that was begun again is in here twice.
    by_age: VecDeque<(Timestamp, Key)>,
    limit: usize,
    now: Timestamp,
}

/// What the fragments of one packet have in common. RFC 8200 leaves the protocol out for IPv6.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    id: u32,
    protocol: Option<u8>,
}

#[derive(Debug)]
struct Packet {
    begun: Timestamp,
    state: State,
}

#[derive(Debug)]
enum State {
    Incomplete(Box<Parts>),
    /// Given at this time; copies may still come.
    Given(Timestamp),
    /// Dropped; later fragments of it are ignored.
    Void,
}

/// Bytes taken by N packets in fragments.
pub(crate) const fn fragments_bytes(packets: usize) -> usize {
    // A key whose packet was begun again waits twice.
    packets.saturating_mul(boxed::<Parts>())
        + hashed::<(Key, Packet)>(packets)
        + listed::<(Timestamp, Key)>(2 * packets)
}

impl Reassembly {
    /// Of at most `limit` packets at a time; at the limit the oldest goes, counted.
    pub(super) fn new(limit: NonZeroUsize, hash_seed: u64) -> Self {
        Self {
            packets: HashMap::with_hasher(SeededState(hash_seed)),
            by_age: VecDeque::new(),
            limit: limit.get(),
            now: Timestamp(0),
        }
    }

    /// Takes a fragment captured at `at`; gives the packet that it completes.
    ///
    /// # Errors
    ///
    /// Why the fragment gives nothing.
    pub(super) fn take(
        &mut self,
        at: Timestamp,
        fragment: &Fragment,
        bytes: PacketBytes<'_>,
        counters: &mut Counters,
    ) -> Result<Whole, Ignored> {
        let len = bytes.wire_len();
        if len == 0 || (fragment.more && !len.is_multiple_of(8)) {
            return Err(Ignored::Malformed);
        }
        let packet = self.packet(at, fragment);
        let given = match &mut packet.state {
            State::Incomplete(parts) => match parts.add(fragment, bytes) {
                Ok(Added::New) => packet.give(at),
                Ok(Added::Copy) => return Err(Ignored::DuplicateCopy),
                Err(reason) => {
                    packet.state = State::Void;
                    counters.ignore(reason);
                    None
                }
            },
            State::Given(_) => return Err(Ignored::DuplicateCopy),
            State::Void => None,
        };
        while self.by_age.len() > self.limit {
            self.forget_oldest(Ignored::FragmentNoRoom, counters);
        }
        given.ok_or(Ignored::Fragment)
    }

    /// Advances the time: drops packets that waited too long for their other fragments.
    pub(super) fn expire(&mut self, now: Timestamp, counters: &mut Counters) {
        self.now = self.now.max(now);
        while self.by_age.front().is_some_and(|(begun, _)| now.since(*begun) > PATIENCE) {
            self.forget_oldest(Ignored::FragmentTimeout, counters);
        }
    }

    /// The end of the capture: drops packets that still wait.
    pub(super) fn finish(&mut self, counters: &mut Counters) {
        while !self.by_age.is_empty() {
            self.forget_oldest(Ignored::FragmentTimeout, counters);
        }
    }

    /// The packet that a fragment belongs to, new where it has to be.
    fn packet(&mut self, at: Timestamp, fragment: &Fragment) -> &mut Packet {
        let (key, begun) = (Key::of(fragment), self.now);
        let packet = self.packets.entry(key).or_insert_with(|| {
            self.by_age.push_back((begun, key));
            Packet::new(begun)
        });
        if matches!(packet.state, State::Given(given) if at.since(given) > COPY_WITHIN) {
            self.by_age.push_back((begun, key));
            *packet = Packet::new(begun);
        }
        packet
    }

    fn forget_oldest(&mut self, reason: Ignored, counters: &mut Counters) {
        let Some((begun, key)) = self.by_age.pop_front() else { return };
        // One begun again since then stays.
        if self.packets.get(&key).is_some_and(|packet| packet.begun == begun)
            && let Some(Packet { state: State::Incomplete(_), .. }) = self.packets.remove(&key)
        {
            counters.ignore(reason);
        }
    }
}

impl Packet {
    fn new(begun: Timestamp) -> Self {
        Self { begun, state: State::Incomplete(Box::new(Parts::new())) }
    }

    /// Gives the packet where it is complete.
    fn give(&mut self, at: Timestamp) -> Option<Whole> {
        let State::Incomplete(parts) = &self.state else { return None };
        let whole = parts.whole()?;
        self.state = State::Given(at);
        Some(whole)
    }
}

impl Key {
    fn of(fragment: &Fragment) -> Self {
        let IpHeader { source, destination, .. } = fragment.header;
        Self { source, destination, id: fragment.id, protocol: fragment.header.id.map(|_| fragment.protocol) }
    }
}

// One packet in fragments: what is there of it, and what a fragment adds.

/// Bytes kept of a packet: the longest TCP header and as much again for extension headers before it.
const HEAD_LEN: usize = 128;
/// Disjoint parts of a packet known at a time. Fragments in order make one.
const PARTS: usize = 16;
/// No packet has more behind its IP header (RFC 791, RFC 8200 section 4.5: 16 bits).
const LONGEST: u32 = 65_535;

/// A packet as far as it is needed.
pub(in crate::wire) struct Whole {
    pub(in crate::wire) header: IpHeader,
    pub(in crate::wire) protocol: u8,
    pub(in crate::wire) len: u32,
    head: [u8; HEAD_LEN],
    captured: u128,
}

/// What is there of a packet.
#[derive(Debug)]
struct Parts {
    /// Header and protocol of the first fragment.
    first: Option<(IpHeader, u8)>,
    head: [u8; HEAD_LEN],
    /// Which bytes of `head` were captured.
    captured: u128,
    /// From, inclusive, to, exclusive; in order, neither overlapping nor touching.
    ranges: ArrayVec<(u32, u32), PARTS>,
    len: Option<u32>,
    congestion_experienced: bool,
}

/// What a fragment was to its packet.
enum Added {
    New,
    Copy,
}

impl Parts {
    fn new() -> Self {
        Self {
            first: None,
            head: [0; HEAD_LEN],
            captured: 0,
            ranges: ArrayVec::new(),
            len: None,
            congestion_experienced: false,
        }
    }

    /// Adds a fragment; the reason, where it makes the packet void.
    fn add(&mut self, fragment: &Fragment, bytes: PacketBytes<'_>) -> Result<Added, Ignored> {
        let (start, end) = (fragment.offset, fragment.offset.saturating_add(bytes.wire_len()));
        if end > LONGEST {
            return Err(Ignored::FragmentTooLarge);
        }
        let fits = match self.len {
            Some(len) if fragment.more => end < len,
            Some(len) => end == len,
            None => fragment.more || self.ranges.last().is_none_or(|(_, to)| *to <= end),
        };
        let within = self.ranges.iter().any(|(from, to)| *from <= start && end <= *to);
        let overlaps = self.ranges.iter().any(|(from, to)| *from < end && start < *to);
        if !fits || (overlaps && !(within && self.agrees(start, bytes.captured()))) {
            return Err(Ignored::FragmentOverlap);
        }
        if within {
            return Ok(Added::Copy);
        }
        self.ranges.try_push((start, end)).map_err(|_full| Ignored::FragmentNoRoom)?;
        self.join_ranges();
        self.keep(start, bytes.captured());
        if !fragment.more {
            self.len = Some(end);
        }
        if start == 0 {
            self.first = Some((fragment.header, fragment.protocol));
        }
        self.congestion_experienced |= fragment.header.ecn == Ecn::CongestionExperienced;
        Ok(Added::New)
    }

    fn join_ranges(&mut self) {
        self.ranges.sort_unstable();
        let mut before = None;
        // From behind, so that each takes up the one after it.
        for index in (0..self.ranges.len()).rev() {
            let after: Option<(u32, u32)> = before;
            let Some(range) = self.ranges.get_mut(index) else { continue };
            if let Some((_, to)) = after.filter(|(from, _)| *from == range.1) {
                range.1 = to;
                before = Some(*range);
                self.ranges.remove(index + 1);
            } else {
                before = Some(*range);
            }
        }
    }

    fn keep(&mut self, start: u32, captured: &[u8]) {
        for (index, byte) in in_head(start, captured) {
            if let Some(place) = self.head.get_mut(index) {
                *place = byte;
                self.captured |= 1 << index;
            }
        }
    }

    /// Whether bytes that are there again are the same.
    fn agrees(&self, start: u32, captured: &[u8]) -> bool {
        in_head(start, captured)
            .all(|(index, byte)| self.captured & 1 << index == 0 || self.head.get(index) == Some(&byte))
    }

    fn whole(&self) -> Option<Whole> {
        let (mut header, protocol) = self.first?;
        let len = self.len.filter(|len| self.ranges.as_slice() == [(0, *len)])?;
        // A mark on any fragment is one on the packet (RFC 3168 section 5.3).
        if self.congestion_experienced {
            header.ecn = Ecn::CongestionExperienced;
        }
        Some(Whole { header, protocol, len, head: self.head, captured: self.captured })
    }
}

/// Those of a fragment's bytes that lie in the head, with their place there.
fn in_head(start: u32, captured: &[u8]) -> impl Iterator<Item = (usize, u8)> + '_ {
    (usize::try_from(start).unwrap_or(HEAD_LEN)..HEAD_LEN).zip(captured.iter().copied())
}

impl Whole {
    /// What follows the IP header.
    pub(in crate::wire) fn bytes(&self) -> PacketBytes<'_> {
        let captured = usize::try_from(self.captured.trailing_ones()).unwrap_or(HEAD_LEN);
        PacketBytes::new(self.head.get(..captured).unwrap_or(&self.head), self.len)
    }
}
