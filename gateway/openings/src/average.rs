//! The average window of the senders under way, sampled each second (Yu & Newman, section 5.4, after TCP/SPAND).

use spand_proto::units::{Timestamp, Window};

/// Whole minutes that the average is of.
const MINUTES: u64 = 5;
/// As many places and one for the minute under way.
const PLACES: usize = 6;
/// Seconds made up for at most after a gap without any report: nothing before counts any more.
const MOST_SECONDS: u64 = 300;

const SECOND_NANOS: u64 = 1_000_000_000;

/// Windows of all senders and their number, summed over the seconds of each minute.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Average {
    /// The last second that was sampled; 0 before the first report.
    second: u64,
    minutes: [Minute; PLACES],
}

#[derive(Clone, Copy, Debug, Default)]
struct Minute {
    index: u64,
    bytes: f64,
    senders: f64,
}

impl Average {
    /// Samples every second that began since the last call, up to `now`. `of`: the sum of the windows at a moment, in bytes, and the number
    /// of senders.
    pub(crate) fn advance(&mut self, now: Timestamp, of: impl Fn(Timestamp) -> (f64, f64)) {
        let second = now.0 / SECOND_NANOS;
        let before = self.second;
        self.second = before.max(second);
        if before == 0 {
            return;
        }
        let first = (before + 1).max(second.saturating_sub(MOST_SECONDS));
        for second in first..=second {
            let (bytes, senders) = of(Timestamp(second.saturating_mul(SECOND_NANOS)));
            if senders <= 0.0 {
                // None comes back without a report.
                return;
            }
            self.add(second, bytes, senders);
        }
    }

    fn add(&mut self, second: u64, bytes: f64, senders: f64) {
        let index = second / 60;
        let place = usize::try_from(index % PLACES as u64).unwrap_or_default();
        let Some(minute) = self.minutes.get_mut(place) else { return };
        if minute.index != index {
            *minute = Minute { index, ..Minute::default() };
        }
        minute.bytes += bytes;
        minute.senders += senders;
    }

    /// The mean window of a sender over the last five whole minutes: renewed each minute.
    pub(crate) fn mean(&self, now: Timestamp) -> Option<Window> {
        let minute = now.0 / SECOND_NANOS / 60;
        let counts = |index: u64| index < minute && index.saturating_add(MINUTES) >= minute;
        let (bytes, senders) = self
            .minutes
            .iter()
            .filter(|minute| counts(minute.index))
            .fold((0.0, 0.0), |(bytes, senders), minute| (bytes + minute.bytes, senders + minute.senders));
        if senders > 0.0 { Window::from_bytes(bytes / senders) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp((60_000 + second) * SECOND_NANOS + SECOND_NANOS / 2)
    }

    fn mean(average: &Average, second: u64) -> Option<f64> {
        average.mean(at(second)).map(Window::bytes)
    }

    #[test]
    fn it_is_renewed_each_minute_and_holds_five() {
        let mut average = Average::default();
        average.advance(at(0), |_| (1.0, 1.0));
        // Three senders of 10 KB together for 59 s, then one of 8 KB.
        average.advance(at(59), |_| (10_000.0, 3.0));
        assert_eq!(mean(&average, 59), None, "no whole minute yet");
        assert_eq!(mean(&average, 60), Some(10_000.0 / 3.0));
        average.advance(at(119), |_| (8_000.0, 1.0));
        assert_eq!(mean(&average, 119), Some(10_000.0 / 3.0), "as of the minute before");
        let both = (59.0 * 10_000.0 + 60.0 * 8_000.0) / (59.0 * 3.0 + 60.0);
        assert_eq!(mean(&average, 120), Some(both));
        assert_eq!(mean(&average, 359), Some(both), "the first is the fifth before");
        assert_eq!(mean(&average, 360), Some(8_000.0));
        assert_eq!(mean(&average, 420), None);
    }

    #[test]
    fn a_gap_costs_bounded_work_and_nobody_comes_back_in_it() {
        let calls = std::cell::Cell::new(0);
        let mut average = Average::default();
        average.advance(at(0), |_| (1.0, 1.0));
        average.advance(Timestamp(u64::MAX), |_| {
            calls.set(calls.get() + 1);
            (1.0, 1.0)
        });
        assert_eq!(calls.get(), 301);
        let mut average = Average::default();
        average.advance(at(0), |_| (1.0, 1.0));
        average.advance(at(200), |moment| if moment < at(2) { (5.0, 1.0) } else { (0.0, 0.0) });
        assert_eq!(mean(&average, 200), Some(5.0), "two seconds with a sender");
    }
}
