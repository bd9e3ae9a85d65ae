//! Round trips measured by the timestamps option (RFC 7323 section 4): a value sent with data, and its first echo.
//!
//! The first sighting of a value is timed and later packets with the same value are not; pure acknowledgements and
//! zero-window probes are not timed at all, since nothing obliges the peer to answer them at once. Kept apart from
//! sequence and acknowledgement samples.

use arrayvec::ArrayVec;
use spand_proto::units::{Micros, Timestamp};

use crate::flow::rtt::round_trip;
use crate::flow::sequence::is_after;

/// Values waiting for their echo at a time. With the table full no further value is timed until one is answered, which
/// thins the samples of a long path and changes none of them.
const WAITING: usize = 8;

/// Timestamp values of one sender that wait for their echo.
#[derive(Clone, Debug, Default)]
pub(crate) struct EchoTimer {
    waiting: ArrayVec<(u32, Timestamp), WAITING>,
    newest: Option<u32>,
}

impl EchoTimer {
    /// A packet that wants an answer left with `value`.
    pub(crate) fn sent(&mut self, value: u32, at: Timestamp) {
        if self.newest.is_some_and(|newest| !is_after(value, newest)) {
            return;
        }
        self.newest = Some(value);
        // A full table leaves this value untimed.
        let _full = self.waiting.try_push((value, at));
    }

    /// A packet that wants no answer left with `value`: a later one with the same value is not its first sighting.
    pub(crate) fn sent_untimed(&mut self, value: u32) {
        if self.newest.is_none_or(|newest| is_after(value, newest)) {
            self.newest = Some(value);
        }
    }

    /// The peer echoed `value`; returns the round trip where this is its first echo.
    pub(crate) fn echoed(&mut self, value: u32, at: Timestamp) -> Option<Micros> {
        if self.waiting.is_empty() {
            return None;
        }
        let rtt =
            self.waiting.iter().find(|(sent, _)| *sent == value).and_then(|(_, sent_at)| round_trip(*sent_at, at));
        // What lies before an echoed value will not be echoed any more.
        self.waiting.retain(|(sent, _)| is_after(*sent, value));
        rtt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Timestamp {
        Timestamp(n * 1_000_000)
    }

    #[test]
    fn the_first_sighting_and_the_first_echo_count() {
        let mut timer = EchoTimer::default();
        timer.sent(7, ms(0));
        timer.sent(7, ms(1));
        assert_eq!(timer.echoed(7, ms(30)), Some(Micros(30_000)));
        assert_eq!(timer.echoed(7, ms(90)), None, "an echo is used once");
    }

    #[test]
    fn a_value_first_seen_on_a_pure_acknowledgement_is_not_timed() {
        let mut timer = EchoTimer::default();
        timer.sent_untimed(7);
        timer.sent(7, ms(500));
        assert_eq!(timer.echoed(7, ms(501)), None);
    }

    #[test]
    fn values_wrap_and_skipped_ones_go() {
        let mut timer = EchoTimer::default();
        timer.sent(u32::MAX, ms(0));
        timer.sent(3, ms(5));
        assert_eq!(timer.echoed(3, ms(10)), Some(Micros(5_000)));
        assert_eq!(timer.echoed(u32::MAX, ms(11)), None);
    }

    #[test]
    fn a_full_table_times_again_after_an_echo() {
        let mut timer = EchoTimer::default();
        for value in 1..=100 {
            timer.sent(value, ms(u64::from(value)));
        }
        assert_eq!(timer.echoed(50, ms(200)), None);
        timer.sent(101, ms(300));
        assert_eq!(timer.echoed(101, ms(310)), Some(Micros(10_000)));
    }
}
