//! The payload of a sender's full-sized segments: from the handshake where it was seen, else from what it sends.

use std::num::NonZeroU16;

use spand_proto::units::Bytes;

use crate::wire::segment::WINDOW_OPTION_LEN;

/// Bytes a timestamps option takes in every segment (RFC 7323 appendix A: 10, padded).
const TIMESTAMPS_LEN: u16 = 12;
/// Segments of one size with more data right behind them before the size counts as the full one.
const PROOF: u8 = 4;
/// Smallest size that a path's MTU gives: Linux takes none below 552 bytes (`ip_rt_min_pmtu`).
const SHRUNK_LEAST: u32 = 500;
/// Largest payload of a segment on Ethernet with jumbo frames; larger ones are segmented by the network card later.
const LARGEST_BYTES: u32 = 8_960;
/// Payload where nothing is known (RFC 9293 section 3.7.1, for Ethernet).
const USUAL_BYTES: u32 = 1_460;

/// What is known of a sender's segment size.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SegmentSize {
    /// The smaller of both ends' MSS options, less the options in every segment.
    agreed: Option<NonZeroU16>,
    largest: u32,
    proofs: u8,
    /// Size of the latest segments below the full size, and their number.
    smaller: u16,
    smaller_proofs: u8,
    /// Its segments carry the option in which it says its window.
    has_window_option: bool,
}

impl SegmentSize {
    /// Both SYNs were seen.
    pub(crate) fn agree(&mut self, own: Option<u16>, peer: Option<u16>, timestamps: bool) {
        // RFC 9293 section 3.7.1: without the option 536 is to be assumed. Senders limit themselves by their own, too.
        let smaller = own.unwrap_or(u16::MAX).min(peer.unwrap_or(536));
        let payload = smaller.saturating_sub(if timestamps { TIMESTAMPS_LEN } else { 0 });
        self.agreed = Some(NonZeroU16::new(payload).unwrap_or(NonZeroU16::MIN));
    }

    /// A segment carries the option in which its sender says its window; returns whether the size is known better now.
    pub(crate) fn note_window_option(&mut self) -> bool {
        let first = !std::mem::replace(&mut self.has_window_option, true);
        first && self.agreed.is_some()
    }

    /// A data segment of `payload` bytes; `pushed` where the application's write ended with it. Returns whether the size
    /// is known better now.
    pub(crate) fn sent(&mut self, payload: u32, pushed: bool, fills_peer: impl FnOnce() -> bool) -> bool {
        if payload > self.largest {
            self.largest = payload;
            self.proofs = 0;
        }
        if pushed {
            return false;
        }
        if payload < self.largest && self.bytes().is_some_and(|size| u64::from(payload) < size.0) {
            // A peer's small window cuts segments, too.
            return payload >= SHRUNK_LEAST && !fills_peer() && self.shrinks(payload);
        }
        self.smaller_proofs = 0;
        if payload < self.largest || self.proofs >= PROOF {
            return false;
        }
        self.proofs += 1;
        self.proofs == PROOF
    }

    /// Counts a segment below the full size that more data follows. Several of one size mean that the path's MTU dropped (RFC 1191).
    fn shrinks(&mut self, payload: u32) -> bool {
        let smaller = u16::try_from(payload).unwrap_or(u16::MAX);
        if smaller != self.smaller {
            // Linux cuts what it had sent in two: the second part is smaller.
            if smaller > self.smaller || self.smaller_proofs == 0 {
                (self.smaller, self.smaller_proofs) = (smaller, 1);
            }
            return false;
        }
        self.smaller_proofs = (self.smaller_proofs + 1) % PROOF;
        if self.smaller_proofs == 0 {
            (self.largest, self.proofs) = (payload, PROOF);
        }
        self.smaller_proofs == 0
    }

    /// The size, where known.
    pub(crate) fn bytes(&self) -> Option<Bytes> {
        let seen = (self.proofs >= PROOF).then_some(self.largest);
        let size = match (self.agreed_payload().map(u32::from), seen) {
            // A path of a smaller MTU shows itself in full-sized segments below what was agreed.
            (Some(agreed), Some(seen)) => agreed.min(seen),
            (Some(agreed), None) => agreed,
            // Larger than any packet: the tap sees what the network card will cut.
            (None, Some(seen)) if seen > LARGEST_BYTES => USUAL_BYTES,
            (None, Some(seen)) => seen,
            (None, None) => return None,
        };
        Some(Bytes(u64::from(size)))
    }

    fn agreed_payload(&self) -> Option<u16> {
        let option = if self.has_window_option { WINDOW_OPTION_LEN } else { 0 };
        self.agreed.map(|agreed| agreed.get().saturating_sub(option).max(1))
    }

    /// The size, or the usual one.
    pub(crate) fn bytes_or_usual(&self) -> u64 {
        self.bytes().map_or(u64::from(USUAL_BYTES), |size| size.0)
    }

    /// Whether `payload` fills segments entirely.
    pub(crate) fn is_full(&self, payload: u32) -> bool {
        let size = self.bytes_or_usual();
        payload > 0 && size > 0 && u64::from(payload).is_multiple_of(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_offer_less_options_is_agreed() {
        let mut size = SegmentSize::default();
        assert_eq!(size.bytes(), None);
        size.agree(Some(1_460), Some(1_380), true);
        assert_eq!(size.bytes(), Some(Bytes(1_368)));
        assert!(size.is_full(2 * 1_368) && !size.is_full(1_000));
        assert!(size.note_window_option() && !size.note_window_option());
        assert_eq!(size.bytes(), Some(Bytes(1_356)), "an option in every segment takes its room");
    }

    #[test]
    fn a_smaller_path_shows_itself_only_in_full_segments() {
        let mut size = SegmentSize::default();
        size.agree(Some(1_460), Some(1_460), false);
        for _ in 0..20 {
            size.sent(100, true, || false);
        }
        assert_eq!(size.bytes(), Some(Bytes(1_460)), "an application's short writes prove nothing");
        for _ in 0..4 {
            size.sent(1_400, false, || false);
        }
        assert_eq!(size.bytes(), Some(Bytes(1_400)));
    }

    #[test]
    fn a_path_whose_mtu_drops_makes_segments_smaller() {
        let mut size = SegmentSize::default();
        size.agree(Some(1_460), Some(1_460), false);
        (0..20).for_each(|_| assert!(!size.sent(1_460, false, || false) || size.proofs == PROOF));
        // What was outstanding is sent again in two pieces, then what is new in one.
        let known: Vec<bool> =
            [1_240, 220, 1_240, 220, 1_240, 1_240].map(|payload| size.sent(payload, false, || false)).into();
        assert_eq!(known, [false, false, false, false, false, true]);
        assert_eq!(size.bytes(), Some(Bytes(1_240)));
        assert!(size.is_full(1_240) && !size.is_full(1_460));
        (0..9).for_each(|_| assert!(!size.sent(900, false, || true)));
        (0..9).for_each(|_| assert!(!size.sent(400, false, || false)));
        assert_eq!(size.bytes(), Some(Bytes(1_240)), "a peer's small window, and no MTU of any path");
        (0..3).for_each(|_| assert!(!size.sent(900, false, || false)));
        size.sent(1_240, false, || false);
        assert!(!size.sent(900, false, || false), "full ones in between: an application's");
        assert_eq!(size.bytes(), Some(Bytes(1_240)));
    }

    #[test]
    fn offloaded_segments_give_the_usual_size() {
        let mut size = SegmentSize::default();
        for _ in 0..4 {
            size.sent(65_160, false, || false);
        }
        assert_eq!(size.bytes(), Some(Bytes(1_460)));
    }
}
