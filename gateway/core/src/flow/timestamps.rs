//! Round trips measured by the timestamps option (RFC 7323 section 4): a value sent with data, and its first echo.
//!
//! The first sighting of a value is timed and later packets with the same value are not; pure acknowledgements and
//! zero-window probes are not timed at all, since nothing obliges the peer to answer them at once. Kept apart from
//! sequence and acknowledgement samples.

use arrayvec::ArrayVec;
use spand_proto::units::{Micros, Timestamp};

use crate::flow::rtt::LONGEST_ROUND_TRIP;
use crate::flow::sequence::{is_after, low_half};

/// Values waiting for their echo at a time. With the table full no further value is timed until one is answered, which
/// thins the samples of a long path without changing any.
const WAITING: usize = 8;

/// A value, and when it was sent: the low half in microseconds, since every sender has these.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    value: u32,
    sent_us: u32,
}

/// Timestamp values of one sender that wait for their echo.
#[derive(Clone, Debug, Default)]
pub(crate) struct EchoTimer {
    /// In the order in which they were sent.
    waiting: ArrayVec<Waiting, WAITING>,
    /// The newest value that was sent.
    newest: Option<u32>,
}

impl EchoTimer {
    /// A packet that wants an answer left with `value`.
    pub(crate) fn sent(&mut self, value: u32, at: Timestamp) {
        if self.is_newest(value) {
            self.newest = Some(value);
            // A full table leaves this value untimed.
            _ = self.waiting.try_push(Waiting { value, sent_us: low_half(at.0 / 1_000) });
        }
    }

    /// A packet that wants no answer left with `value`: a later one with the same value is not its first sighting.
    pub(crate) fn sent_untimed(&mut self, value: u32) {
        if self.is_newest(value) {
            self.newest = Some(value);
        }
    }

    fn is_newest(&self, value: u32) -> bool {
        self.newest.is_none_or(|newest| is_after(value, newest))
    }

    /// The peer echoed `value`; returns the round trip where this is its first echo.
    pub(crate) fn echoed(&mut self, value: u32, at: Timestamp) -> Option<Micros> {
        let timed = self.waiting.iter().find(|waiting| waiting.value == value).copied();
        // What lies before an echoed value will not be echoed any more.
        self.waiting.retain(|waiting| is_after(waiting.value, value));
        let rtt = Micros(low_half(at.0 / 1_000).wrapping_sub(timed?.sent_us).into());
        (rtt <= LONGEST_ROUND_TRIP).then_some(rtt)
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
