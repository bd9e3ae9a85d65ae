//! Moments as every output has them: RFC 3339, in UTC.

use std::time::{Duration, UNIX_EPOCH};

use crate::units::Timestamp;

const NS_PER_S: u64 = 1_000_000_000;
/// The end of the year 9999: beyond it there is no such text.
const LAST_UNIX_S: u64 = 253_402_300_799;

/// Seconds since 1970-01-01 00:00 UTC.
pub fn rfc3339_unix_s(unix_s: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(unix_s.min(LAST_UNIX_S))).to_string()
}

/// A moment to the nearest second.
pub fn rfc3339(at: Timestamp) -> String {
    rfc3339_unix_s(at.0.saturating_add(NS_PER_S / 2) / NS_PER_S)
}

/// A moment with its milliseconds.
pub fn rfc3339_ms(at: Timestamp) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_nanos(at.0)).to_string()
}

/// A moment with all nine places.
pub fn rfc3339_ns(at: Timestamp) -> String {
    humantime::format_rfc3339_nanos(UNIX_EPOCH + Duration::from_nanos(at.0)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_cut_or_rounded_as_their_names_say() {
        let at = Timestamp(1_800_000_000_999_600_001);
        assert_eq!(rfc3339(at), "2027-01-15T08:00:01Z");
        assert_eq!(rfc3339_ms(at), "2027-01-15T08:00:00.999Z");
        assert_eq!(rfc3339_ns(at), "2027-01-15T08:00:00.999600001Z");
        assert_eq!(rfc3339_unix_s(0), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn no_moment_is_too_late_to_be_written() {
        assert_eq!(rfc3339_unix_s(u64::MAX), "9999-12-31T23:59:59Z");
        for write in [rfc3339, rfc3339_ms, rfc3339_ns] {
            assert!(write(Timestamp(u64::MAX)).starts_with("2554-07-21T23:34:3"));
        }
    }
}
