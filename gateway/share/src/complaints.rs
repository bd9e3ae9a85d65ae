//! When people are warned of the link: not of a server that is restarted, and of what stays as it is once an hour.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A fault that is over sooner is not worth a line.
const LASTS: Duration = Duration::from_secs(2);
/// Between two lines with the same sentence.
const AGAIN: Duration = Duration::from_secs(3_600);
/// Sentences that are remembered: those of the servers in turn.
const MOST: usize = 64;

/// Faults of the link.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    /// Since when it is not as it should be.
    since: Option<Instant>,
    logged: BTreeMap<String, Instant>,
    /// The last line was that it is as it should be.
    right_was_logged: bool,
}

impl Complaints {
    /// It is not as it should be, for this reason: whether to say so now.
    pub(super) fn is_due(&mut self, why: &str, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        if now.duration_since(since) < LASTS {
            return false;
        }
        if self.logged.get(why).is_some_and(|at| now.duration_since(*at) < AGAIN) {
            return false;
        }
        if self.logged.len() >= MOST {
            self.logged.retain(|_, at| now.duration_since(*at) < AGAIN);
        }
        let has_room = self.logged.len() < MOST;
        if has_room {
            self.logged.insert(why.to_owned(), now);
            self.right_was_logged = false;
        }
        has_room
    }

    /// It is as it should be.
    pub(super) fn right(&mut self) {
        self.since = None;
    }

    /// It is as it should be: whether to say so, at first and after a complaint.
    pub(super) fn over(&mut self) -> bool {
        self.since = None;
        !std::mem::replace(&mut self.right_was_logged, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_logged_once_an_hour_and_its_end_once() {
        let (mut complaints, begun) = (Complaints::default(), Instant::now());
        assert!(complaints.over(), "at first");
        assert!(!complaints.over());
        assert!(!complaints.is_due("a", begun), "it may be over soon");
        assert!(complaints.is_due("a", begun + LASTS) && !complaints.is_due("a", begun + 2 * LASTS));
        assert!(complaints.is_due("b", begun + 2 * LASTS), "another server says something else");
        assert!(complaints.over() && !complaints.over());
        // Down again, for the same reason: its hour is not over.
        assert!(!complaints.is_due("a", begun + 3 * LASTS) && !complaints.is_due("a", begun + 9 * LASTS));
        assert!(!complaints.over(), "nothing was logged");
        complaints.right();
        let later = begun + 2 * AGAIN;
        assert!(!complaints.is_due("a", later) && complaints.is_due("a", later + LASTS));
        for n in 0..2 * MOST {
            complaints.is_due(&n.to_string(), later + LASTS);
        }
        assert_eq!(complaints.logged.len(), MOST);
    }
}
