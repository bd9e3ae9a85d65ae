//! Which sequence and acknowledgement numbers are accepted: RFC 9293 section 3.10.7.4 and RFC 5961, for a passive observer, by the
//! window that the receiver announces.
//!
//! A blind attacker, who knows only addresses and ports, has to guess sequence and acknowledgement numbers. A number far from
//! everything that the connection sent and acknowledged changes nothing in it. The bounds are wider than those of the ends, since
//! a mirror port loses packets; after [`STRAYS`] segments of one side in a row outside the bounds there was a gap in the mirror,
//! and they are accepted.

use crate::flow::sequence::position_near;

/// The smallest accepted distance beyond what was sent and acknowledged ([`believable_reach`]): twice the largest window without
/// scaling, since the mirror may lose a window's worth of packets.
const LEAST: u32 = 2 * 65_535;
/// The largest accepted distance, also while a window's scale is not known: 32 MiB are 1/128 of the sequence space, so that a
/// guessed number is accepted with a probability below 2 %.
const MOST: u32 = 1 << 25;
/// Segments of one side in a row outside these bounds, after which they are accepted: this many guesses would have to arrive
/// between two segments of the real sender.
pub(crate) const STRAYS: u8 = 8;

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

/// How far beyond the highest acknowledgement a sender's data, or an acknowledgement of it, may lie: twice the window that its peer
/// announces, because the capture may have missed acknowledgements, or the largest window while its scale is not known. Without this
/// bound a spoofed or damaged number would give a window of up to 2 GiB.
pub(crate) fn believable_reach(announced: Option<Announced>) -> u64 {
    announced.and_then(Announced::bytes).map_or(LARGEST_WINDOW, |window| 2 * window.max(u64::from(u16::MAX)))
}

/// What is known of a sender's sequence space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    /// Highest position acknowledged.
    pub(crate) una: u64,
    /// Highest position sent, exclusive.
    pub(crate) nxt: u64,
    /// The window its peer announced last.
    pub(crate) peer_window: Option<Announced>,
}

/// What a reset means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reset {
    /// It ends the connection.
    Ends,
    /// It lies in the window, and its receiver may expect another number: it ends the connection if its sender sends nothing more.
    MayEnd,
    /// It is not part of this connection.
    Nothing,
}

impl Space {
    /// Whether `number` lies near what was sent and acknowledged: within the window that the peer announced, twice over since a mirror
    /// port may have missed something.
    pub(crate) fn is_near(self, number: u32) -> bool {
        is_within(LEAST, [self.una, self.nxt], number) || is_within(self.reach(), [self.una, self.nxt], number)
    }

    /// How far from what was sent and acknowledged a number is believed.
    fn reach(self) -> u32 {
        u32::try_from(believable_reach(self.peer_window)).unwrap_or(MOST).min(MOST)
    }

    /// What a reset with this sequence number means: its receiver takes the one that it expects (RFC 5961 section 3.2). That
    /// is what it acknowledged last, or what was sent since. `closing`: its sender sent a FIN; the kernel of a closed socket
    /// answers with the number before that, too.
    pub(crate) fn reset(self, number: u32, closing: bool) -> Reset {
        let position = position_near(self.nxt, number);
        if position == self.nxt || position == self.una || (closing && position + 1 == self.nxt) {
            return Reset::Ends;
        }
        let reach = u64::from(self.reach());
        let in_window = position + reach >= self.una && position <= self.nxt + reach;
        if in_window { Reset::MayEnd } else { Reset::Nothing }
    }

    /// Whether an acknowledgement of `number` is of something that was sent and not acknowledged before.
    pub(crate) fn is_answered_by(self, number: u32) -> bool {
        let position = position_near(self.nxt, number);
        self.una < position && position <= self.nxt
    }
}

/// Whether `number` lies near what was sent and acknowledged whatever window the peer announced, as nearly every one does.
#[inline]
pub(crate) fn is_close([una, nxt]: [u64; 2], number: u32) -> bool {
    is_within(LEAST, [una, nxt], number)
}

#[inline]
fn is_within(reach: u32, [una, nxt]: [u64; 2], number: u32) -> bool {
    let [una, nxt] = [una, nxt].map(low);
    number.wrapping_sub(una.wrapping_sub(reach)) <= nxt.wrapping_sub(una).saturating_add(2 * reach)
}

/// The number on the wire.
fn low(position: u64) -> u32 {
    let [a, b, c, d, ..] = position.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::sequence::first_position;

    fn space(una: u32, flight: u64) -> Space {
        let una = first_position(una);
        let peer_window = Some(Announced { field: 1_000, shift: Some(7) });
        Space { una, nxt: una + flight, peer_window }
    }

    #[test]
    fn numbers_near_what_is_outstanding_are_believed_across_the_wrap() {
        // A window of 128,000 bytes, twice over; and one of which the scale is not known.
        for (shift, reach) in [(Some(7), 256_000), (None, MOST)] {
            for una in [0, 5, 1 << 31, u32::MAX - 9] {
                let space = Space { peer_window: Some(Announced { field: 1_000, shift }), ..space(una, 100_000) };
                for near in [0, 1, 100_000, reach, 100_000 + reach] {
                    assert!(space.is_near(una.wrapping_add(near)), "{una} + {near}");
                }
                assert!(space.is_near(una.wrapping_sub(reach)));
                assert!(!space.is_near(una.wrapping_sub(reach + 1)));
                assert!(!space.is_near(una.wrapping_add(100_001 + reach)));
                assert!(!space.is_near(una.wrapping_add(1 << 31)));
            }
        }
    }

    #[test]
    fn a_reset_ends_where_its_number_is_expected_and_may_end_in_the_window() {
        let una = u32::MAX - 9;
        let at = |offset: i32, closing| space(una, 100_000).reset(una.wrapping_add_signed(offset), closing);
        assert_eq!([0, 100_000].map(|offset| at(offset, false)), [Reset::Ends; 2]);
        assert_eq!([at(99_999, false), at(99_999, true)], [Reset::MayEnd, Reset::Ends]);
        assert_eq!([-256_000, 1, 356_000].map(|offset| at(offset, false)), [Reset::MayEnd; 3]);
        assert_eq!([-256_001, 356_001, i32::MIN].map(|offset| at(offset, false)), [Reset::Nothing; 3]);
    }
}
