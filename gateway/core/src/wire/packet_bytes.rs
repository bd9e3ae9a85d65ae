//! The lenient view: the captured bytes of a layer and how many it had on the wire.

use crate::counters::Ignored;

/// What is left of a frame from some layer on. Access is checked; what is missing says whether the snap length cut it or
/// the headers contradict themselves.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketBytes<'a> {
    captured: &'a [u8],
    wire_len: u32,
}

impl<'a> PacketBytes<'a> {
    /// A frame's bytes. A frame cannot have been shorter on the wire than what was captured of it.
    #[inline]
    pub(super) fn new(captured: &'a [u8], wire_len: u32) -> Self {
        Self { captured, wire_len: wire_len.max(u32::try_from(captured.len()).unwrap_or(u32::MAX)) }
    }

    /// What was captured.
    #[inline]
    pub(super) fn captured(self) -> &'a [u8] {
        self.captured
    }

    /// Bytes on the wire.
    #[inline]
    pub(super) fn wire_len(self) -> u32 {
        self.wire_len
    }

    /// The first `N` bytes.
    #[inline]
    pub(super) fn head<const N: usize>(self) -> Result<&'a [u8; N], Ignored> {
        self.captured.first_chunk().ok_or_else(|| self.short_of(N))
    }

    /// The first byte.
    #[inline]
    pub(super) fn first(self) -> Result<u8, Ignored> {
        self.captured.first().copied().ok_or_else(|| self.short_of(1))
    }

    /// The number in the two bytes from `at` on.
    #[inline]
    pub(super) fn u16_at(self, at: usize) -> Result<u16, Ignored> {
        let bytes = self.captured.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map(|bytes| u16::from_be_bytes(*bytes)).ok_or_else(|| self.short_of(at + 2))
    }

    /// What follows the first `len` bytes.
    #[inline]
    pub(super) fn skip(self, len: usize) -> Result<Self, Ignored> {
        match (self.captured.get(len..), u32::try_from(len).ok().and_then(|len| self.wire_len.checked_sub(len))) {
            (Some(captured), Some(wire_len)) => Ok(Self { captured, wire_len }),
            _ => Err(self.short_of(len)),
        }
    }

    /// The same with the length on the wire that a header states. Less than is there: the rest is padding. More than is
    /// there: a mirror port, a writer or an outer fragment cut the frame, and the header knows better.
    #[inline]
    pub(super) fn stated(self, wire_len: u32) -> Self {
        let len = usize::try_from(wire_len).unwrap_or(usize::MAX);
        Self { captured: self.captured.get(..len).unwrap_or(self.captured), wire_len }
    }

    /// Why `len` bytes are not to be had.
    fn short_of(self, len: usize) -> Ignored {
        if u32::try_from(len).is_ok_and(|len| len <= self.wire_len) { Ignored::Truncated } else { Ignored::Malformed }
    }
}
