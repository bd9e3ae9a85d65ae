//! Sizes: classes for people, and within each the narrow strata in which transfers are compared.
//!
//! A class spans a factor of 3 to 10, in which times differ as much: a difference of its means depends more on the sizes that
//! each arm happened to get than of advice. Within a stratum, at most a quarter of an octave wide, sizes are alike.

use crate::units::Bytes;

/// Size classes, by the largest size of each in bytes; the last has none. A fifth beyond the round size, so that a file of
/// that size stays in its class with the headers that are sent before it.
pub const CLASSES: [Option<u64>; 7] =
    [Some(12_000), Some(36_000), Some(120_000), Some(360_000), Some(1_200_000), Some(12_000_000), None];
/// Their names, as labels of metrics: the round size.
pub const CLASS_NAMES: [&str; CLASSES.len()] = ["10kB", "30kB", "100kB", "300kB", "1MB", "10MB", "more"];

/// Where a class begins to be divided, where its last stratum ends, and how many lie between, equally wide on a logarithmic
/// scale. What is smaller counts in the first, what is larger in the last.
const DIVISIONS: [(f64, f64, usize); CLASSES.len()] = [
    (1_500.0, 12_000.0, 12),
    (12_000.0, 36_000.0, 7),
    (36_000.0, 120_000.0, 7),
    (120_000.0, 360_000.0, 7),
    (360_000.0, 1_200_000.0, 7),
    (1_200_000.0, 12_000_000.0, 14),
    (12_000_000.0, 12_288_000_000.0, 40),
];
/// Strata of all classes.
pub(super) const STRATA: usize = {
    let (mut all, mut class) = (0, 0);
    while class < DIVISIONS.len() {
        all += DIVISIONS[class].2;
        class += 1;
    }
    all
};

/// The class and the stratum of a size.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the strata of a class")]
pub(super) fn place(Bytes(size): Bytes) -> Option<(usize, usize)> {
    let class = CLASSES.iter().position(|largest| largest.is_none_or(|largest| size <= largest))?;
    let (low, high, count) = *DIVISIONS.get(class)?;
    // The largest size of a class is in it, so the size of a stratum is, too.
    let part = (size as f64 / low).log2() / (high / low).log2() * count as f64;
    let within = (part.ceil() - 1.0).clamp(0.0, count as f64 - 1.0) as usize;
    Some((class, strata(class).start + within))
}

/// The strata of a class.
pub(super) fn strata(class: usize) -> std::ops::Range<usize> {
    let count = |class: &(f64, f64, usize)| class.2;
    let start = DIVISIONS.iter().take(class).map(count).sum();
    start..start + DIVISIONS.get(class).map_or(0, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_size_with_its_headers_is_in_the_class_of_its_name() {
        for (class, round) in [10_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000].into_iter().enumerate() {
            for headers in [0, 300, round / 10] {
                assert_eq!(place(Bytes(round + headers)).unwrap().0, class, "{round} and {headers}");
            }
            let largest = CLASSES[class].unwrap();
            assert_eq!(place(Bytes(largest)).unwrap().0, class);
            assert_eq!(place(Bytes(largest + 1)).unwrap().0, class + 1);
        }
    }

    #[test]
    fn a_stratum_is_at_most_a_quarter_of_an_octave_and_every_size_has_one() {
        for (low, high, count) in DIVISIONS {
            assert!((high / low).log2() / count as f64 <= 0.25, "{low} to {high}");
        }
        // A hundredth of an octave apart, up to 2^44.
        let sizes =
            (1..=44).flat_map(|octave| (0..100).map(move |step| Bytes((1 << octave) + (1 << octave) * step / 100)));
        let mut strata: Vec<usize> = sizes.map(|size| place(size).unwrap().1).collect();
        assert!(strata.is_sorted());
        strata.dedup();
        assert_eq!(strata, (0..STRATA).collect::<Vec<_>>(), "each has a size");
        assert_eq!([1, u64::MAX].map(|size| place(Bytes(size)).unwrap()), [(0, 0), (6, STRATA - 1)]);
        assert_eq!([1_500, 1_501].map(|size| place(Bytes(size)).unwrap().1), [0, 0]);
        assert_eq!([12_000, 12_001].map(|size| place(Bytes(size)).unwrap().1), [11, 12]);
    }
}
