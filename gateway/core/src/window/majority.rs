//! The one address that may have more than half of something (`docs/decisions/estimate-of-a-network.md`: none may give more than half of an
//! estimate).

use std::net::IpAddr;

/// Finds it in one pass without a table: weights of different addresses cancel each other out, and what is left over names
/// the only candidate (Boyer and Moore's majority vote, with weights). Whether it has more than half is for the caller to
/// count; no other one has.
pub(crate) fn candidate(parts: impl Iterator<Item = (IpAddr, u64)>) -> Option<IpAddr> {
    let (address, _) = parts.fold(None, |held: Option<(IpAddr, u64)>, (address, weight)| match held {
        Some((holder, ahead)) if holder == address => Some((holder, ahead.saturating_add(weight))),
        Some((holder, ahead)) if ahead >= weight => Some((holder, ahead - weight)),
        Some((_, ahead)) => Some((address, weight - ahead)),
        None => Some((address, weight)),
    })?;
    Some(address)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_one_with_more_than_half_is_found(parts in prop::collection::vec((0_u8..4, 0_u64..9), 1..30)) {
            let address = |n: u8| IpAddr::from([192, 0, 2, n]);
            let weight = |of: &dyn Fn(u8) -> bool| -> u64 {
                parts.iter().filter(|(n, _)| of(*n)).map(|(_, weight)| weight).sum()
            };
            let found = candidate(parts.iter().map(|(n, weight)| (address(*n), *weight)));
            for n in 0..4 {
                if weight(&|other| other == n) > weight(&|other| other != n) {
                    prop_assert_eq!(found, Some(address(n)));
                }
            }
        }
    }
}
