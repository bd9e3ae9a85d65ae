//! Round trips measured by the timestamps option (RFC 7323 section 4): a value sent with data, and its first echo.
//!
//! The first sighting of a value is timed and later packets with the same value are not; pure acknowledgements and
//! zero-window probes are not timed at all, since nothing obliges the peer to answer them at once. Kept apart from
//! sequence and acknowledgement samples.

use spand_proto::units::{Micros, Timestamp};

use crate::flow::rtt::round_trip;
use crate::flow::sequence::is_after;

/// Values waiting for their echo at a time. With the table full no further value is timed until one is answered, which
/// thins the samples of a long path without changing any.
const WAITING: usize = 8;

/// Timestamp values of one sender that wait for their echo.
#[derive(Clone, Debug, Default)]
pub(crate) struct EchoTimer {
    /// Values in the order in which they were sent, and beside each when it was: together they would take a third more room.
    values: [u32; WAITING],
    sent_at: [Timestamp; WAITING],
    waiting: u8,
    /// A value was sent, the newest that.
    sent: bool,
    newest: u32,
}

impl EchoTimer {
    /// A packet that wants an answer left with `value`.
    pub(crate) fn sent(&mut self, value: u32, at: Timestamp) {
        if !self.is_newest(value) {
            return;
        }
        (self.sent, self.newest) = (true, value);
        let place = usize::from(self.waiting);
        // A full table leaves this value untimed.
        if let (Some(waiting), Some(sent_at)) = (self.values.get_mut(place), self.sent_at.get_mut(place)) {
            (*waiting, *sent_at) = (value, at);
            self.waiting += 1;
        }
    }

    /// A packet that wants no answer left with `value`: a later one with the same value is not its first sighting.
    pub(crate) fn sent_untimed(&mut self, value: u32) {
        if self.is_newest(value) {
            (self.sent, self.newest) = (true, value);
        }
    }

    fn is_newest(&self, value: u32) -> bool {
        !self.sent || is_after(value, self.newest)
    }

    /// The peer echoed `value`; returns the round trip where this is its first echo.
    pub(crate) fn echoed(&mut self, value: u32, at: Timestamp) -> Option<Micros> {
        let (mut rtt, mut kept) = (None, 0);
        for place in 0..usize::from(self.waiting) {
            let (Some(sent), Some(sent_at)) = (self.values.get(place).copied(), self.sent_at.get(place).copied())
            else {
                break;
            };
            if sent == value {
                rtt = round_trip(sent_at, at);
            }
            // What lies before an echoed value will not be echoed any more.
            if is_after(sent, value) {
                if let (Some(to), Some(to_at)) = (self.values.get_mut(kept), self.sent_at.get_mut(kept)) {
                    (*to, *to_at) = (sent, sent_at);
                }
                kept += 1;
            }
        }
        self.waiting = u8::try_from(kept).unwrap_or(self.waiting);
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
