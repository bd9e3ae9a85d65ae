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

mod parts;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::num::NonZeroUsize;

use hashbrown::HashMap;
use spand_proto::units::{Micros, Timestamp};

use self::parts::{Added, Parts, Whole};
use super::ip::{Fragment, IpHeader};
use super::packet_bytes::PacketBytes;
use crate::counters::{Counters, Ignored};
use crate::flow::tuple::SeededState;
use crate::memory::{boxed, hashed, listed};

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
