//! Sequence numbers without their wrap (RFC 9293 section 3.4).
//!
//! A position counts bytes in 64 bits, so positions of one direction compare and subtract like plain numbers. The first
//! number seen lies 2^32 above zero, which leaves room for earlier ones that arrive late.

/// The position of the first number seen of a direction.
pub(crate) fn first_position(number: u32) -> u64 {
    (1 << 32) | u64::from(number)
}

/// The position of `number`: the one nearest to `known`, the highest position in use.
pub(crate) fn position_near(known: u64, number: u32) -> u64 {
    let [a, b, c, d, ..] = known.to_le_bytes();
    let distance = number.wrapping_sub(u32::from_le_bytes([a, b, c, d])).cast_signed();
    known.saturating_add_signed(i64::from(distance))
}

/// Whether timestamp or sequence number `a` comes after `b` in wrapping order (RFC 7323 section 5.2).
pub(crate) fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// The low half of a position or a count: differences of them are right up to 2^32.
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
pub(crate) const fn low_half(number: u64) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_rise_across_the_wrap() {
        let before = first_position(u32::MAX - 9);
        let after = position_near(before, 10);
        assert_eq!(after - before, 20);
        assert_eq!(position_near(after, u32::MAX - 9), before, "an old number keeps its position");
    }

    #[test]
    fn a_number_below_the_first_has_a_position() {
        let first = first_position(5);
        assert_eq!(first - position_near(first, u32::MAX), 6);
    }

    #[test]
    fn after_is_judged_in_wrapping_order() {
        assert!(is_after(1, u32::MAX));
        assert!(!is_after(u32::MAX, 1));
        assert!(!is_after(7, 7));
    }
}
