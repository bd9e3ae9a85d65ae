//! One packet in fragments: what is there of it, and what a fragment adds.

use arrayvec::ArrayVec;

use crate::counters::Ignored;
use crate::wire::ip::{Fragment, IpHeader};
use crate::wire::packet_bytes::PacketBytes;
use crate::wire::segment::Ecn;

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
pub(super) struct Parts {
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
pub(super) enum Added {
    New,
    Copy,
}

impl Parts {
    pub(super) fn new() -> Self {
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
    pub(super) fn add(&mut self, fragment: &Fragment, bytes: PacketBytes<'_>) -> Result<Added, Ignored> {
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

    pub(super) fn whole(&self) -> Option<Whole> {
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
