//! At which moments of capture time the state is shown: `--at` and `--every`.

use std::str::FromStr;
use std::time::UNIX_EPOCH;

use spand_proto::units::{Micros, Timestamp};

/// A moment of capture time as it is written on the command line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Moment {
    /// After the first packet, as in `90s` or `+1h 30m`.
    SinceStart(Micros),
    /// In UTC (RFC 3339), as in `2018-03-05T15:07:15.5Z`.
    At(Timestamp),
}

/// Which moments were asked for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Moments {
    /// Only the end.
    #[default]
    End,
    /// These, and the end.
    At(Vec<Moment>),
    /// Each time this much of capture time has passed since the first packet (at least [`SHORTEST`]), and the end. Of
    /// moments in a row at which no network is known only the first is shown.
    Every(Micros),
}

/// A text that is neither a moment nor a duration.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is no moment: write a time since the first packet (90s, 1h 30m) or in UTC (2018-03-05T15:07:15Z)")]
pub struct NotAMoment(String);

impl FromStr for Moment {
    type Err = NotAMoment;

    fn from_str(text: &str) -> Result<Self, NotAMoment> {
        if let Ok(offset) = humantime::parse_duration(text.strip_prefix('+').unwrap_or(text)) {
            return Ok(Self::SinceStart(Micros::from(offset)));
        }
        let since_epoch = humantime::parse_rfc3339(text).ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let nanos = since_epoch.and_then(|since| u64::try_from(since.as_nanos()).ok());
        nanos.map(|nanos| Self::At(Timestamp(nanos))).ok_or_else(|| NotAMoment(text.to_owned()))
    }
}

/// Shortest time between two periodic moments, so that the output stays in proportion to the capture.
const SHORTEST: Micros = Micros::from_millis(1);

/// Reads the duration of `--every`.
pub(super) fn parse_interval(text: &str) -> Result<Micros, String> {
    match humantime::parse_duration(text) {
        Ok(interval) if Micros::from(interval) >= SHORTEST => Ok(Micros::from(interval)),
        Ok(_) => Err("shorter than 1 ms: choose a longer one".to_owned()),
        Err(_) => Err("write a number with a unit, such as 10s or 5m".to_owned()),
    }
}

/// Gives the moments that lie before a packet, one after another.
#[derive(Debug)]
pub(super) enum Schedule {
    /// Latest first, so that the next one is popped.
    Listed(Vec<Timestamp>),
    /// The next one, and the time between two.
    Periodic(Timestamp, Micros),
}

impl Schedule {
    /// The schedule of a capture whose first packet came at `start`.
    pub(super) fn new(moments: &Moments, start: Timestamp) -> Self {
        match moments {
            Moments::End => Self::Listed(Vec::new()),
            Moments::At(moments) => {
                let absolute = moments.iter().map(|moment| match *moment {
                    Moment::SinceStart(offset) => start.after(offset),
                    Moment::At(at) => at,
                });
                let mut listed: Vec<_> = absolute.collect();
                listed.sort_unstable_by(|a, b| b.cmp(a));
                listed.dedup();
                Self::Listed(listed)
            }
            Moments::Every(interval) => {
                let interval = SHORTEST.max(*interval);
                Self::Periodic(start.after(interval), interval)
            }
        }
    }

    /// The next moment strictly before `packet`: what came exactly at a moment belongs to it.
    pub(super) fn next_before(&mut self, packet: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Listed(listed) => {
                let due = listed.last().is_some_and(|&at| at < packet);
                if due { listed.pop() } else { None }
            }
            Self::Periodic(next, interval) => {
                let due = *next;
                (due < packet).then(|| {
                    *next = due.after(*interval);
                    due
                })
            }
        }
    }

    /// Passes over the periodic moments before `change`, since nothing is known until then.
    pub(super) fn skip_to(&mut self, change: Timestamp) {
        if let Self::Periodic(next, interval) = self {
            let step_ns = interval.0.saturating_mul(1_000);
            let behind = change.0.saturating_sub(next.0).div_ceil(step_ns);
            *next = next.after(Micros(interval.0.saturating_mul(behind)));
        }
    }

    pub(super) fn is_periodic(&self) -> bool {
        matches!(self, Self::Periodic(..))
    }

    /// The listed moments that lie at or after the last packet; a period ends with the capture.
    pub(super) fn after_the_end(self) -> Vec<Timestamp> {
        match self {
            Self::Listed(mut listed) => {
                listed.reverse();
                listed
            }
            Self::Periodic(..) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: u64) -> Timestamp {
        Timestamp(s * 1_000_000_000)
    }

    fn drain(schedule: &mut Schedule, packet: u64) -> Vec<u64> {
        std::iter::from_fn(|| schedule.next_before(seconds(packet))).map(|at| at.0 / 1_000_000_000).collect()
    }

    #[test]
    fn moments_are_read_as_offset_or_utc() {
        assert_eq!("+1m 30s".parse(), Ok(Moment::SinceStart(Micros::from_secs(90))));
        assert_eq!("90s".parse(), Ok(Moment::SinceStart(Micros::from_secs(90))));
        assert_eq!("1970-01-01T00:00:01.5Z".parse(), Ok(Moment::At(Timestamp(1_500_000_000))));
        for bad in ["", "yesterday", "90", "1969-12-31T23:59:59Z", "2018-13-01T00:00:00Z"] {
            assert!(bad.parse::<Moment>().is_err(), "{bad:?}");
        }
        assert!(parse_interval("10us").is_err());
        assert_eq!(parse_interval("10s"), Ok(Micros::from_secs(10)));
    }

    #[test]
    fn listed_moments_come_once_and_in_order() {
        let moments = Moments::At(vec!["20s".parse().unwrap(), Moment::At(seconds(105)), "5s".parse().unwrap()]);
        let mut schedule = Schedule::new(&moments, seconds(100));
        assert_eq!(drain(&mut schedule, 105), Vec::<u64>::new(), "a packet at the moment still belongs to it");
        assert_eq!(drain(&mut schedule, 106), vec![105]);
        assert_eq!(schedule.after_the_end(), vec![seconds(120)]);
    }

    #[test]
    fn a_period_counts_from_the_first_packet() {
        let mut schedule = Schedule::new(&Moments::Every(Micros::from_secs(10)), seconds(100));
        assert_eq!(drain(&mut schedule, 125), vec![110, 120]);
        schedule.skip_to(seconds(1_000_000_003));
        assert_eq!(drain(&mut schedule, 1_000_000_023), vec![1_000_000_010, 1_000_000_020]);
        schedule.skip_to(seconds(1_000_000_040));
        assert_eq!(drain(&mut schedule, 1_000_000_041), vec![1_000_000_040], "what comes at a moment belongs to it");
    }

    #[test]
    fn no_period_is_too_short_to_get_on() {
        let mut schedule = Schedule::new(&Moments::Every(Micros(0)), seconds(0));
        assert_eq!(schedule.next_before(seconds(1)), Some(Timestamp(1_000_000)));
        schedule.skip_to(Timestamp(u64::MAX));
        assert_eq!(schedule.next_before(Timestamp(u64::MAX)), None);
    }
}
