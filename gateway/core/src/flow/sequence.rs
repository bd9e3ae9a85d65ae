//! Sequence numbers without their wrap (RFC 9293 section 3.4).
//!
//! A position counts bytes in 64 bits, so positions of one direction compare and subtract like plain numbers. The first
//! number seen lies 2^32 above zero, which leaves room for earlier ones that arrive late.

/// A 32-bit sequence space followed past its wrap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SequenceSpace {
    /// The highest position known; its low 32 bits are the number on the wire.
    anchor: u64,
}

impl SequenceSpace {
    /// A space of which `number` is the first number seen.
    pub(crate) fn starting_at(number: u32) -> Self {
        Self { anchor: (1 << 32) | u64::from(number) }
    }

    /// The position of `number`: the one nearest to the highest position known.
    pub(crate) fn position(self, number: u32) -> u64 {
        let [low, _] = halves(self.anchor);
        let distance = number.wrapping_sub(low).cast_signed();
        self.anchor.saturating_add_signed(i64::from(distance))
    }

    /// Positions up to `position` are in use now.
    pub(crate) fn advance(&mut self, position: u64) {
        self.anchor = self.anchor.max(position);
    }
}

/// Whether timestamp or sequence number `a` comes after `b` in wrapping order (RFC 7323 section 5.2).
pub(crate) fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

fn halves(position: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = position.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_rise_across_the_wrap() {
        let mut space = SequenceSpace::starting_at(u32::MAX - 9);
        let before = space.position(u32::MAX - 9);
        let after = space.position(10);
        assert_eq!(after - before, 20);
        space.advance(after);
        assert_eq!(space.position(u32::MAX - 9), before, "an old number keeps its position");
    }

    #[test]
    fn a_number_below_the_first_has_a_position() {
        let space = SequenceSpace::starting_at(5);
        assert_eq!(space.position(5) - space.position(u32::MAX), 6);
    }

    #[test]
    fn after_is_judged_in_wrapping_order() {
        assert!(is_after(1, u32::MAX));
        assert!(!is_after(u32::MAX, 1));
        assert!(!is_after(7, 7));
    }
}
