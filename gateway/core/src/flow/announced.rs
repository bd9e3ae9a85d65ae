//! The window that a receiver announces.

/// The largest window there is (RFC 7323 section 2.3).
const LARGEST_WINDOW: u64 = 65_535 << 14;

/// A window field and its shift, where that is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Announced {
    /// The field of the header.
    pub(crate) field: u16,
    /// Its shift.
    pub(crate) shift: Option<u8>,
}

impl Announced {
    /// Bytes from the acknowledgement on, where the shift is known.
    pub(crate) fn bytes(self) -> Option<u64> {
        // RFC 7323 section 2.3: more than 14 is taken for 14.
        self.shift.map(|shift| u64::from(self.field) << shift.min(14))
    }
}

/// How far beyond the highest acknowledgement a sender's data, or an acknowledgement of it, may lie: the window its peer
/// announces, twice over because acknowledgements may have been missed, or the largest there is while its scale is
/// not known. A spoofed or damaged number beyond that would make a window of up to 2 GiB.
pub(crate) fn believable_reach(announced: Option<Announced>) -> u64 {
    announced.and_then(Announced::bytes).map_or(LARGEST_WINDOW, |window| 2 * window.max(u64::from(u16::MAX)))
}
