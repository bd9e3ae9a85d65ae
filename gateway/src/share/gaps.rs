//! Which messages with closed cells did not come, by their gateways' own numbers. Servers that die one after the other can lose messages
//! that they acknowledged, and number later ones like those; this finds out whatever the way was.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use spand_core::sharing::GatewayId;

use super::format::Place;

/// A message is missing when later ones have come for so long: a reader that is far behind reads newer ones first.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(10) };
/// The same where none came after it: a copy of another site's stream may be behind by as much.
const PATIENCE_AT_END: Duration = if cfg!(test) { Duration::from_millis(600) } else { Duration::from_secs(60) };
/// Messages after a missing one that are remembered. With more of them nobody waits any longer.
const MOST: usize = 256;

/// Of all gateways that are here or were lately.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    all: BTreeMap<GatewayId, Of>,
}

/// Of one gateway.
#[derive(Debug)]
struct Of {
    instance: u64,
    /// What came before this number, or was asked for.
    next: u64,
    /// What came after a gap: number, and oldest bucket.
    after: BTreeMap<u64, u64>,
    /// Oldest bucket of the last message before a gap.
    before: u64,
    /// The newest number that the gateway names.
    sent: u64,
    /// Since when something is missing.
    since: Option<Instant>,
}

/// What a gateway is to be asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Missing {
    pub(super) gateway: GatewayId,
    /// Messages that did not come.
    pub(super) messages: u64,
    /// The bucket from which on their cells are.
    pub(super) from: u64,
}

impl Of {
    /// Of one that has sent this much and of which nothing before it is awaited: who joins reads what is kept.
    fn new(instance: u64, sent: u64) -> Self {
        Self { instance, next: sent.saturating_add(1), after: BTreeMap::new(), before: 0, sent, since: None }
    }

    fn is_missing(&self) -> bool {
        !self.after.is_empty() || self.sent >= self.next
    }

    /// Notes since when something is missing.
    fn look(&mut self, now: Instant) {
        self.since = self.is_missing().then(|| self.since.unwrap_or(now));
    }

    /// What to ask for, once.
    fn ask(&mut self, gateway: GatewayId, now: Instant) -> Option<Missing> {
        let patience = if self.after.is_empty() { PATIENCE_AT_END } else { PATIENCE };
        let is_late = self.since.is_some_and(|since| now.duration_since(since) >= patience);
        if !is_late && self.after.len() < MOST {
            return None;
        }
        let newest = self.after.last_key_value().map_or(self.sent, |(number, _)| *number);
        let messages = (newest - self.next).saturating_add(1).saturating_sub(self.after.len() as u64);
        // A resend runs through older buckets: the one before and the one after lie on both sides of what is missing.
        let from = self.after.values().copied().chain([self.before]).min().unwrap_or_default();
        (self.next, self.since) = (newest.saturating_add(1), None);
        self.after.clear();
        Some(Missing { gateway, messages, from })
    }
}

impl Gaps {
    /// A gateway says how much it has sent.
    pub(super) fn sent(&mut self, gateway: GatewayId, Place { instance, number }: Place, now: Instant) {
        let of = self.all.entry(gateway).or_insert_with(|| Of::new(instance, number));
        if of.instance != instance {
            *of = Of::new(instance, number);
        }
        of.sent = of.sent.max(number);
        of.look(now);
    }

    /// A message came, whose oldest cell is of this bucket.
    pub(super) fn came(&mut self, gateway: GatewayId, Place { instance, number }: Place, oldest: u64, now: Instant) {
        let of = self.all.entry(gateway).or_insert_with(|| Of::new(instance, number.saturating_sub(1)));
        // One of an earlier process comes out of the stream when this one is known already: it is of no use here.
        if of.instance != instance || number < of.next {
            return;
        }
        of.after.insert(number, oldest);
        while let Some(oldest) = of.after.remove(&of.next) {
            (of.next, of.before, of.since) = (of.next.saturating_add(1), oldest, None);
        }
        of.look(now);
    }

    /// Whom to ask for what; that counts as asked.
    pub(super) fn ask(&mut self, now: Instant) -> Vec<Missing> {
        self.all.iter_mut().filter_map(|(gateway, of)| of.ask(*gateway, now)).collect()
    }

    /// Forgets those that are not here, where there are more than `most`: one that was cut off goes on with its numbers.
    pub(super) fn bound(&mut self, most: usize, is_here: impl Fn(GatewayId) -> bool) {
        if self.all.len() > most {
            self.all.retain(|gateway, _| is_here(*gateway));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: GatewayId = GatewayId(7);

    fn place(number: u64) -> Place {
        Place { instance: 1, number }
    }

    fn missing(messages: u64, from: u64) -> Vec<Missing> {
        vec![Missing { gateway: OTHER, messages, from }]
    }

    #[test]
    fn what_is_missing_for_long_is_asked_for_once_and_from_the_buckets_around_it() {
        let (mut gaps, begun) = (Gaps::default(), Instant::now());
        for (number, bucket) in [(5, 100), (6, 101), (9, 98), (10, 102)] {
            gaps.came(OTHER, place(number), bucket, begun);
        }
        assert_eq!(gaps.ask(begun), [], "it may still come");
        assert_eq!(gaps.ask(begun + PATIENCE), missing(2, 98));
        assert_eq!(gaps.ask(begun + 2 * PATIENCE), [], "once");
        // What came out of order is not missing.
        for number in [12, 13, 11, 14] {
            gaps.came(OTHER, place(number), 103, begun);
        }
        assert_eq!(gaps.ask(begun + PATIENCE), []);
        // The patience is that of each gap, not of the first of many.
        gaps.came(OTHER, place(16), 104, begun);
        gaps.came(OTHER, place(15), 104, begun);
        gaps.came(OTHER, place(18), 104, begun + PATIENCE);
        assert_eq!(gaps.ask(begun + PATIENCE), []);
        assert_eq!(gaps.ask(begun + 2 * PATIENCE), missing(1, 104));
    }

    #[test]
    fn the_last_messages_are_missed_by_what_the_gateway_says_of_itself() {
        let (mut gaps, begun) = (Gaps::default(), Instant::now());
        gaps.sent(OTHER, place(3), begun);
        assert_eq!(gaps.ask(begun + PATIENCE_AT_END), [], "what was sent before it was heard is read by who joins");
        gaps.came(OTHER, place(4), 50, begun);
        gaps.sent(OTHER, place(6), begun);
        assert_eq!(gaps.ask(begun + PATIENCE), [], "a copy may be behind");
        assert_eq!(gaps.ask(begun + PATIENCE_AT_END), missing(2, 50));
        gaps.sent(OTHER, place(6), begun + PATIENCE_AT_END);
        assert_eq!(gaps.ask(begun + 3 * PATIENCE_AT_END), []);
        // Another process of it counts from one.
        gaps.sent(OTHER, Place { instance: 2, number: 1 }, begun);
        gaps.came(OTHER, place(9), 60, begun);
        gaps.came(OTHER, Place { instance: 2, number: 2 }, 60, begun);
        assert_eq!(gaps.ask(begun + PATIENCE_AT_END), []);
        gaps.came(OTHER, Place { instance: 2, number: 4 }, 61, begun);
        assert_eq!(gaps.ask(begun + PATIENCE), missing(1, 60));
        gaps.came(OTHER, Place { instance: 2, number: 9 }, 62, begun);
        gaps.bound(1, |_| false);
        gaps.bound(0, |gateway| gateway == OTHER);
        assert_eq!(gaps.all.len(), 1);
        gaps.bound(0, |_| false);
        assert_eq!(gaps.ask(begun + PATIENCE), []);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut gaps, now) = (Gaps::default(), Instant::now());
        gaps.came(OTHER, place(1), 1, now);
        let numbers = 3..;
        for number in numbers.take(MOST - 1) {
            gaps.came(OTHER, place(number), 2, now);
            assert_eq!(gaps.ask(now), []);
        }
        gaps.came(OTHER, place(u64::MAX), 2, now);
        assert_eq!(gaps.ask(now).len(), 1, "nobody waits any longer");
        gaps.came(OTHER, place(u64::MAX), 2, now);
        assert_eq!(gaps.ask(now), []);
    }
}
