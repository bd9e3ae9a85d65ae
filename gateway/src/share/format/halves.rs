//! Directions of connections that a gateway saw, as bytes.

use spand_core::halves::{Half, Halves, HashSample, Seen};

use super::{FormatError, Kind, begun, opened};
use crate::encoding::numbers::Malformed;

/// Bytes of one.
const HALF: usize = 8 + 1;
/// Most in one message.
pub const HALVES_AT_ONCE: usize = 4_096;

/// The message of these, of which the first [`HALVES_AT_ONCE`] in the sample are written. The direction that is lacking is not.
pub fn write_halves(sample: HashSample, halves: &[Half]) -> Vec<u8> {
    let mut out = begun(Kind::Halves);
    let written: Vec<_> = halves.iter().filter(|half| sample.has(half.hash)).take(HALVES_AT_ONCE).collect();
    out.byte(sample.bits());
    out.whole(written.len() as u64);
    for half in written {
        out.fixed(half.hash);
        out.byte(match half.seen {
            Seen::Low => 1,
            Seen::High => 2,
            Seen::Both => 3,
        });
    }
    out.bytes
}

/// Reads a message of halves.
///
/// # Errors
///
/// Why it is none.
pub fn read_halves(message: &[u8]) -> Result<Halves, FormatError> {
    let mut input = opened(message, Kind::Halves)?;
    let sample = HashSample::of_bits(input.byte()?).ok_or(FormatError::Nonsense)?;
    let found = input.list(HALF, |input| {
        let hash = input.fixed()?;
        let seen = match input.byte()? {
            1 => Seen::Low,
            2 => Seen::High,
            3 => Seen::Both,
            _ => return Err(Malformed::Nonsense),
        };
        Ok(Half { hash, seen, lacks: None })
    })?;
    input.end()?;
    if found.len() > HALVES_AT_ONCE || !found.iter().all(|half| sample.has(half.hash)) {
        return Err(FormatError::Nonsense);
    }
    Ok(Halves { sample, found })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::share::exchange::MESSAGE_BYTES;
    use crate::share::format::{FORMAT, read_member};

    fn halves() -> impl Strategy<Value = Halves> {
        let seen = prop::sample::select(vec![Seen::Low, Seen::High, Seen::Both]);
        (0..=32u8, prop::collection::vec((any::<u64>(), seen), 0..20)).prop_map(|(bits, found)| {
            let half = |(hash, seen): (u64, Seen)| Half { hash: hash >> bits, seen, lacks: None };
            Halves { sample: HashSample::of_bits(bits).unwrap(), found: found.into_iter().map(half).collect() }
        })
    }

    #[test]
    fn halves_that_are_not_in_their_sample_are_refused_and_so_are_too_many() {
        let all = HashSample::ALL;
        let half = |hash| Half { hash, seen: Seen::Both, lacks: None };
        let mut message = write_halves(all, &[half(u64::MAX)]);
        assert!(read_halves(&message).is_ok());
        message[2] = 1;
        assert_eq!(read_halves(&message), Err(FormatError::Nonsense), "its hash begins with no zero");
        message[2] = 33;
        assert_eq!(read_halves(&message), Err(FormatError::Nonsense), "a sample that no gateway has");
        let many: Vec<_> = (0..=HALVES_AT_ONCE as u64).map(half).collect();
        let message = write_halves(all, &many);
        assert!(message.len() <= MESSAGE_BYTES);
        assert_eq!(read_halves(&message).unwrap().found.len(), HALVES_AT_ONCE);
        assert_eq!(write_halves(HashSample::of_bits(1).unwrap(), &[half(u64::MAX)]).len(), 4, "it is left out");
    }

    proptest! {
        #[test]
        fn any_halves_come_back(halves in halves()) {
            let message = write_halves(halves.sample, &halves.found);
            prop_assert_eq!(read_member(&message), Err(FormatError::Misplaced));
            for cut in 0..message.len() {
                prop_assert!(read_halves(&message[..cut]).is_err());
            }
            prop_assert_eq!(read_halves(&message), Ok(halves));
        }

        #[test]
        fn any_bytes_are_halves_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(halves) = read_halves(&[&[FORMAT, Kind::Halves as u8], &bytes[..]].concat()) {
                prop_assert_eq!(read_halves(&write_halves(halves.sample, &halves.found)), Ok(halves));
            }
        }
    }
}
