//! Which gateway is tried next, and when: the order of preference, what failed, and what is up again. Takes the time and
//! random numbers as arguments; does no IO.

use std::time::Duration;

use spand_proto::units::{Micros, Timestamp};

use super::choice::Place;
use super::{Backoff, Timing};
use crate::config;

/// The gateways in the order in which this host prefers them, and how each did.
#[derive(Debug)]
pub(crate) struct Candidates {
    each: Vec<Candidate>,
    /// The one that this host is subscribed to.
    seat: Option<usize>,
    /// No attempt before it: hosts that lost a gateway together spread out.
    from: Timestamp,
    spread: Duration,
    timing: Timing,
}

#[derive(Debug)]
struct Candidate {
    place: Place,
    backoff: Backoff,
    /// The end of its own pause.
    not_before: Timestamp,
    /// When it is looked at next, while this host is subscribed to one that it prefers less.
    look: Timestamp,
    /// Since when it has answered.
    up_since: Option<Timestamp>,
    last_error: Option<String>,
}

/// A gateway as `status` shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Standing {
    pub(crate) place: Place,
    pub(crate) last_error: Option<String>,
    /// When it is tried or looked at next; none where it is in use, or waits for another one's failure.
    pub(crate) next_attempt: Option<Timestamp>,
    /// Since when a preferred one has answered again.
    pub(crate) up_since: Option<Timestamp>,
}

impl Candidates {
    pub(crate) fn new(places: Vec<Place>, gateway: &config::Gateway, timing: Timing) -> Self {
        let longest = Duration::from_millis(gateway.retry_max_ms.get());
        let backoff = Backoff::new(Duration::from_millis(gateway.retry_min_ms.get()), longest);
        let candidate = |place| Candidate {
            place,
            backoff,
            not_before: Timestamp(0),
            look: Timestamp(0),
            up_since: None,
            last_error: None,
        };
        Self {
            each: places.into_iter().map(candidate).collect(),
            seat: None,
            from: Timestamp(0),
            spread: timing.spread.min(longest),
            timing,
        }
    }

    /// Where this host is subscribed, else the gateway that it prefers.
    pub(crate) fn seat(&self) -> usize {
        self.seat.unwrap_or(0)
    }

    /// The gateway to try next, and when: of those whose pause is over the most preferred, else the one whose pause ends
    /// first.
    pub(crate) fn next(&self, now: Timestamp) -> (usize, Timestamp) {
        let start = now.max(self.from);
        let times = self.each.iter().enumerate().map(|(at, candidate)| (at, candidate.not_before.max(start)));
        // The first of equal ones.
        times.min_by_key(|(_, when)| *when).unwrap_or((0, start))
    }

    /// This host is subscribed to it.
    pub(crate) fn on_subscribed(&mut self, at: usize) {
        self.seat = Some(at);
    }

    /// It gave a whole snapshot: only then it counts as well, not when it ends every stream at once.
    pub(crate) fn on_whole(&mut self, at: usize) {
        if let Some(candidate) = self.each.get_mut(at) {
            candidate.backoff.reset();
            candidate.last_error = None;
        }
    }

    /// It could not be subscribed to.
    pub(crate) fn on_failed(&mut self, at: usize, why: String, now: Timestamp, jitter: f64) {
        if self.seat == Some(at) {
            self.seat = None;
        }
        let Some(candidate) = self.each.get_mut(at) else { return };
        candidate.not_before = now.after(candidate.backoff.next(jitter).into());
        candidate.look = candidate.not_before;
        candidate.up_since = None;
        candidate.last_error = Some(why);
    }

    /// The stream from it ended. All attempts wait for a moment that is drawn for this host; it is the last of them to be tried
    /// then, since the connection to a gateway that died takes its time to fail.
    pub(crate) fn on_lost(&mut self, at: usize, why: String, now: Timestamp, [spread, jitter]: [f64; 2]) {
        self.seat = None;
        self.from = now.after(self.spread.mul_f64(spread.clamp(0.0, 1.0)).into());
        let is_alone = self.each.len() == 1;
        self.on_failed(at, why, if is_alone { now } else { self.from }, jitter);
    }

    /// Of the gateways that this host prefers to the one in use, the one to look at next, and when.
    pub(crate) fn next_look(&self, now: Timestamp) -> Option<(usize, Timestamp)> {
        let better = self.each.iter().take(self.seat()).enumerate();
        better.map(|(at, candidate)| (at, candidate.look.max(now))).min_by_key(|(_, when)| *when)
    }

    /// A look at it found it up; whether it has been so for `patience`, so that this host returns to it. The next look is at a
    /// moment that `jitter`, from 0 to 1, shifts.
    pub(crate) fn on_up(&mut self, at: usize, now: Timestamp, patience: Duration, jitter: f64) -> bool {
        let Some(candidate) = self.each.get_mut(at) else { return false };
        candidate.last_error = None;
        candidate.backoff.reset();
        candidate.look = now.after(self.timing.look.mul_f64(0.5 + jitter.clamp(0.0, 1.0)).into());
        let since = *candidate.up_since.get_or_insert(now);
        now.since(since) >= Micros::from(patience)
    }

    /// How each is, for people.
    pub(crate) fn standings(&self, now: Timestamp) -> Vec<Standing> {
        let standing = |(at, candidate): (usize, &Candidate)| {
            let next = match self.seat {
                None => Some(candidate.not_before.max(self.from)),
                Some(seat) if at < seat => Some(candidate.look),
                Some(_) => None,
            };
            Standing {
                place: candidate.place.clone(),
                last_error: candidate.last_error.clone(),
                next_attempt: next.filter(|when| *when > now),
                up_since: candidate.up_since.filter(|_| self.seat.is_some_and(|seat| at < seat)),
            }
        };
        self.each.iter().enumerate().map(standing).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000_000 + ms * 1_000)
    }

    fn candidates(count: usize) -> Candidates {
        let place = |n: usize| Place { url: format!("https://gateway-{n}"), group: 1, rank: n + 1 };
        Candidates::new((0..count).map(place).collect(), &config::Gateway::default(), Timing::default())
    }

    fn failed(candidates: &mut Candidates, which: usize, ms: u64) {
        candidates.on_failed(which, format!("failure at {ms}"), at(ms), 1.0);
    }

    #[test]
    fn each_is_tried_in_order_and_again_only_after_its_own_pause() {
        let mut three = candidates(3);
        assert_eq!(three.next(at(0)), (0, at(0)));
        failed(&mut three, 0, 0);
        assert_eq!(three.next(at(1)), (1, at(1)));
        failed(&mut three, 1, 100);
        assert_eq!(three.next(at(100)), (2, at(100)));
        failed(&mut three, 2, 150);
        assert_eq!(three.next(at(150)), (0, at(200)), "all wait: the one whose pause ends first");
        failed(&mut three, 0, 200);
        assert_eq!(three.next(at(200)), (1, at(300)), "the first one's second pause is 400 ms");
        failed(&mut three, 1, 300);
        assert_eq!(three.next(at(300)), (2, at(350)));
        assert_eq!(three.next(at(600)), (0, at(600)), "of those whose pause is over the most preferred");
        three.on_subscribed(0);
        three.on_whole(0);
        failed(&mut three, 0, 1_000);
        assert_eq!(three.next(at(1_200)).0, 0, "its pauses began again");
    }

    #[test]
    fn after_a_loss_all_wait_for_the_moment_drawn_and_the_lost_one_is_last() {
        let mut three = candidates(3);
        three.on_subscribed(0);
        three.on_lost(0, "ended".to_owned(), at(0), [0.75, 0.0]);
        assert_eq!(three.next(at(0)), (1, at(1_500)));
        failed(&mut three, 1, 1_500);
        assert_eq!(three.next(at(1_500)), (2, at(1_500)));
        failed(&mut three, 2, 1_500);
        assert_eq!(three.next(at(1_500)), (0, at(1_550)));
        let mut earliest = candidates(2);
        earliest.on_subscribed(0);
        earliest.on_lost(0, "ended".to_owned(), at(0), [0.0, 0.0]);
        assert_eq!(earliest.next(at(0)), (1, at(0)));
    }

    #[test]
    fn a_gateway_alone_is_tried_within_the_spread() {
        let mut alone = candidates(1);
        for draws in [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]] {
            alone.on_subscribed(0);
            alone.on_whole(0);
            alone.on_lost(0, "ended".to_owned(), at(0), draws);
            let (_, when) = alone.next(at(0));
            assert!(when >= at(50) && when <= at(2_000), "{draws:?}: {when:?}");
        }
    }

    #[test]
    fn a_preferred_gateway_is_returned_to_once_it_stayed_up_and_not_while_it_comes_and_goes() {
        let patience = Duration::from_secs(150);
        let mut two = candidates(2);
        failed(&mut two, 0, 0);
        two.on_subscribed(1);
        assert_eq!(two.next_look(at(0)), Some((0, at(200))));
        assert!(!two.on_up(0, at(1_000), patience, 0.5));
        assert_eq!(two.next_look(at(1_000)), Some((0, at(11_000))));
        assert!(!two.on_up(0, at(150_000), patience, 0.5));
        failed(&mut two, 0, 150_500);
        assert!(!two.on_up(0, at(160_000), patience, 0.5), "it starts over");
        assert!(!two.on_up(0, at(309_000), patience, 0.5));
        assert!(two.on_up(0, at(310_000), patience, 0.5));
        two.on_subscribed(0);
        assert_eq!(two.next_look(at(311_000)), None, "none is preferred to the first");
    }

    #[test]
    fn what_is_shown_is_when_each_is_tried_and_why_it_failed() {
        let mut three = candidates(3);
        failed(&mut three, 0, 0);
        let next = |candidates: &Candidates, ms| {
            candidates.standings(at(ms)).into_iter().map(|s| s.next_attempt).collect::<Vec<_>>()
        };
        assert_eq!(next(&three, 10), [Some(at(200)), None, None]);
        three.on_subscribed(1);
        assert_eq!(next(&three, 10), [Some(at(200)), None, None]);
        assert!(!three.on_up(0, at(300), Duration::from_secs(120), 0.5));
        let shown = three.standings(at(300));
        assert_eq!((shown[0].up_since, &shown[0].last_error), (Some(at(300)), &None));
        assert_eq!(next(&three, 300), [Some(at(10_300)), None, None]);
        failed(&mut three, 0, 10_300);
        assert_eq!(three.standings(at(10_300))[0].last_error.as_deref(), Some("failure at 10300"));
        assert_eq!(three.standings(at(10_300))[0].up_since, None);
    }
}
