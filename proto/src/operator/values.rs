//! Values of options on the command line, as people write them.

use std::num::NonZeroU64;
use std::time::Duration;

/// Units of sizes: decimal as on a link, or binary.
const UNITS: [(&str, u64); 6] =
    [("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];

/// A number of bytes above 0, such as `65536`, `100k` or `64Ki`.
///
/// # Errors
/// It is none, in words for the command line.
pub fn parse_bytes(text: &str) -> Result<NonZeroU64, String> {
    let plain = text.strip_suffix('B').unwrap_or(text);
    let unit = UNITS.iter().find_map(|(name, unit)| Some((plain.strip_suffix(name)?, *unit)));
    let kilo = plain.strip_suffix('K').map(|number| (number, 1_000));
    let (number, unit) = unit.or(kilo).unwrap_or((plain, 1));
    let bytes = number.trim_end().parse().ok().and_then(|number: u64| NonZeroU64::new(number.checked_mul(unit)?));
    bytes.ok_or_else(|| {
        "give whole bytes above 0, with k, M or G for thousands, such as 100k, or Ki, Mi or Gi".to_owned()
    })
}

/// Whole seconds: `5`, or a length with its unit such as `5s` or `1m`.
///
/// # Errors
/// It is none, or outside `least` and `most`, in words for the command line.
pub fn parse_seconds(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let length = text.parse().map(Duration::from_secs).or_else(|_| humantime::parse_duration(text)).ok();
    let whole = length.filter(|length| length.subsec_nanos() == 0).map(|length| length.as_secs());
    let within = whole.filter(|seconds| (least..=most).contains(seconds));
    within.ok_or_else(|| format!("give {least} to {most} whole seconds, such as 5 or 5s"))
}

/// A whole number, at least 1.
///
/// # Errors
/// It is none, in words for the command line.
pub fn parse_positive(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|&number| number > 0).ok_or_else(|| "give a whole number, at least 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units_of_thousands_or_of_1024() {
        for (text, bytes) in [
            ("1", 1),
            ("65536", 65_536),
            ("100k", 100_000),
            ("100K", 100_000),
            ("100 kB", 100_000),
            ("64Ki", 65_536),
            ("64KiB", 65_536),
            ("2M", 2_000_000),
            ("1GB", 1_000_000_000),
        ] {
            assert_eq!(parse_bytes(text).map(NonZeroU64::get), Ok(bytes), "{text}");
        }
        for text in ["", "0", "0k", "k", "1.5M", "-1", "many", "10T", "18446744073709551615k", "1kk"] {
            assert!(parse_bytes(text).unwrap_err().contains("such as 100k"), "{text}");
        }
    }

    #[test]
    fn seconds_are_a_number_or_a_length() {
        for (text, seconds) in [("5", 5), ("5s", 5), ("1m", 60), ("1h", 3_600)] {
            assert_eq!(parse_seconds(text, 1, 3_600), Ok(seconds), "{text}");
        }
        for text in ["", "0", "500ms", "1.5", "1500ms", "2h", "soon", "192.0.2.1"] {
            assert_eq!(parse_seconds(text, 1, 3_600).unwrap_err(), "give 1 to 3600 whole seconds, such as 5 or 5s");
        }
    }
}
