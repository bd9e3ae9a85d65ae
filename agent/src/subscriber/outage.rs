//! What of a lost gateway is worth a line of the log: the first failure, each new reason, and a count now and then. Pure.

use spand_proto::units::{Micros, Timestamp};

/// Time between two lines about one outage that has no new reason.
const REMINDER: Micros = Micros::from_secs(600);

/// Reasons remembered between two such lines. What comes beyond waits for the next one.
const MOST_REASONS: usize = 8;

/// Attempts to reach the gateway that failed, one after the other.
#[derive(Debug, Default)]
pub struct Outage(Option<Current>);

#[derive(Debug)]
struct Current {
    since: Timestamp,
    logged: Timestamp,
    attempts: u64,
    reasons: Vec<String>,
}

/// What a failure adds to what the log has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum News {
    /// The gateway was lost just now, or could not be reached at the start.
    Lost,
    /// A reason that was not logged lately.
    Reason(Lasting),
    /// The same reasons, and ten minutes have passed.
    Reminder(Lasting),
}

/// How long an outage has lasted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Lasting {
    /// Failures, with the one that it began with.
    pub attempts: u64,
    /// Time since that one.
    pub time: Micros,
}

impl Outage {
    /// Counts a failure at `now`; what is to be logged of it.
    pub fn on_failure(&mut self, why: &str, now: Timestamp) -> Option<News> {
        let Some(current) = &mut self.0 else {
            self.0 = Some(Current { since: now, logged: now, attempts: 1, reasons: vec![why.to_owned()] });
            return Some(News::Lost);
        };
        current.attempts += 1;
        let lasting = Lasting { attempts: current.attempts, time: now.since(current.since) };
        let known = current.reasons.iter().any(|reason| reason == why);
        if now.since(current.logged) >= REMINDER {
            current.logged = now;
            current.reasons = vec![why.to_owned()];
            return Some(News::Reminder(lasting));
        }
        if known || current.reasons.len() >= MOST_REASONS {
            return None;
        }
        current.logged = now;
        current.reasons.push(why.to_owned());
        Some(News::Reason(lasting))
    }

    /// It is over: how long it lasted, where there was one.
    pub fn end(&mut self, now: Timestamp) -> Option<Lasting> {
        let ended = self.0.take()?;
        Some(Lasting { attempts: ended.attempts, time: now.since(ended.since) })
    }

    /// How long it has lasted, where there is one.
    pub fn lasting(&self, now: Timestamp) -> Option<Lasting> {
        let current = self.0.as_ref()?;
        Some(Lasting { attempts: current.attempts, time: now.since(current.since) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000_000 + second * 1_000_000)
    }

    fn lasting(attempts: u64, seconds: u64) -> Lasting {
        Lasting { attempts, time: Micros::from_secs(seconds) }
    }

    #[test]
    fn the_first_failure_and_new_reasons_are_logged_and_the_rest_is_counted() {
        let mut outage = Outage::default();
        assert_eq!(outage.on_failure("ended", at(0)), Some(News::Lost));
        assert_eq!(outage.on_failure("refused", at(1)), Some(News::Reason(lasting(2, 1))));
        assert!((2..300).all(|second| outage.on_failure("refused", at(second)).is_none()));
        assert_eq!(outage.on_failure("ended", at(300)), None, "a reason that is known from before is no news");
        assert_eq!(outage.on_failure("refused", at(600)), None, "ten minutes from the last line, not from the first");
        assert_eq!(outage.on_failure("refused", at(601)), Some(News::Reminder(lasting(303, 601))));
        assert_eq!(outage.on_failure("refused", at(602)), None);
        assert_eq!(outage.on_failure("ended", at(603)), Some(News::Reason(lasting(305, 603))), "none since that line");
        assert_eq!((outage.end(at(610)), outage.end(at(611))), (Some(lasting(305, 610)), None));
        assert_eq!(outage.on_failure("refused", at(700)), Some(News::Lost));
    }

    #[test]
    fn a_gateway_that_refuses_in_ever_new_words_has_a_few_lines_in_ten_minutes() {
        let mut outage = Outage::default();
        let lines = (0..6_000).filter(|second| outage.on_failure(&format!("reason {second}"), at(*second)).is_some());
        let lines = lines.count();
        assert!((10..=10 * MOST_REASONS).contains(&lines), "{lines}");
    }
}
