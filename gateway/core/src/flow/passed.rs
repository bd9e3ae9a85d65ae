//! What a sender sent since its connection was last handed over to its networks.
//!
//! A look-up of the network for every packet would cost more than all other counting; so the sums stay with the sender for some
//! seconds, and small: they take the room that the allocator leaves behind it.

use spand_proto::units::Timestamp;

use crate::types::Flow;

/// Nanoseconds, as a power of two, in whose number the last handing over is kept: about a second.
const UNIT_BITS: u32 = 30;
/// A connection hands over with its next packet after this many of them,
pub(crate) const LATE: u16 = 4;
/// where it reports to its network anyway after this many,
pub(crate) const EARLY: u16 = 2;
/// and at once where a sum is half full.
pub(crate) const AT_ONCE: u16 = 0;

/// Sums of one sender.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passed {
    bytes: u32,
    packets: u16,
}

impl Passed {
    /// Counts a segment. Returns whether a sum is half full.
    #[inline]
    pub(crate) fn count(&mut self, payload_len: u32) -> bool {
        self.bytes = self.bytes.saturating_add(payload_len);
        self.packets = self.packets.saturating_add(1);
        self.bytes | u32::from(self.packets) << 16 >= 1 << 31
    }
}

impl From<Passed> for Flow {
    fn from(Passed { bytes, packets }: Passed) -> Self {
        Self { packets: packets.into(), bytes: bytes.into(), ..Self::default() }
    }
}

/// The number of the unit of time, of which differences below 19 hours are right.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "see above")]
pub(crate) fn unit(at: Timestamp) -> u16 {
    (at.0 >> UNIT_BITS) as u16
}
