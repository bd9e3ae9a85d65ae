//! Log of events: the newest of each kind, so that a flood of one kind, or of one agent, does not displace the others.

use std::collections::{HashMap, VecDeque};

use spand_proto::units::{Micros, Timestamp};
use strum::{IntoStaticStr, VariantArray};

use crate::publisher::Client;

/// Entries kept per kind. At the limit the oldest of the kind is dropped, counted.
const KEPT: usize = 256;
/// What one agent does again within this time is one entry.
const AGAIN: Micros = Micros::from_secs(10);
/// Entries of one agent in that time. Further ones are dropped, counted.
const OF_ONE: usize = 8;

/// What an entry is about.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, PartialEq, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// Advice about a network is no longer in force.
    Withdrawal,
    /// Advice was taken back after losses in first flights or since it made transfers slower, or came back.
    Retreat,
    /// A table or queue was full and an entry was dropped.
    Limit,
    /// A part of the gateway stopped working or works again; the whole state was replaced.
    Part,
    /// An agent subscribed, left, or was refused.
    Agent,
}

impl Kind {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One thing that happened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Counts entries of all kinds from 1.
    pub sequence: u64,
    /// When.
    pub at: Timestamp,
    /// What it is about.
    pub kind: Kind,
    /// What happened, from a closed list for each kind.
    pub what: &'static str,
    /// What it concerns: a network, an interface, a host or a part; empty where the name suffices.
    pub subject: String,
    /// How often: more than once where a limit was reached, or an agent did the same, again and again.
    pub count: u64,
    /// Whose doing it is, where it is an agent's. Not shown.
    pub by: Option<Client>,
}

/// The newest entries.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Entries ever added.
    added: u64,
    kept: [VecDeque<Entry>; Kind::VARIANTS.len()],
    dropped: u64,
}

impl Log {
    pub(super) fn add(&mut self, entry: Entry) {
        let Some(kept) = self.kept.get_mut(entry.kind as usize) else { return };
        if entry.by.is_some() {
            let lately = kept.iter_mut().filter(|old| old.by == entry.by && entry.at.since(old.at) < AGAIN);
            let mut of_one = 0;
            for old in lately {
                if (old.what, &old.subject) == (entry.what, &entry.subject) {
                    old.count += entry.count;
                    return;
                }
                of_one += 1;
            }
            if of_one >= OF_ONE {
                self.dropped += 1;
                return;
            }
        }
        self.added += 1;
        if kept.len() >= KEPT {
            kept.remove(displaced(kept));
            self.dropped += 1;
        }
        kept.push_back(Entry { sequence: self.added, ..entry });
    }

    /// The sequence number of the next entry.
    pub(super) const fn next(&self) -> u64 {
        self.added + 1
    }

    /// Entries that had to go.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The newest `limit` entries from `sequence` on, in order; the sequence number of the next entry; and how many from
    /// `sequence` on are not among them.
    pub(super) fn since(&self, sequence: u64, limit: usize) -> (Vec<Entry>, u64, u64) {
        let mut entries: Vec<&Entry> = Vec::new();
        for kept in &self.kept {
            let first = kept.partition_point(|entry| entry.sequence < sequence);
            entries.extend(kept.range(first.max(kept.len().saturating_sub(limit))..));
        }
        entries.sort_unstable_by_key(|entry| entry.sequence);
        let first = entries.len().saturating_sub(limit);
        let entries: Vec<Entry> = entries.into_iter().skip(first).cloned().collect();
        let missing = self.next().saturating_sub(sequence.max(1)).saturating_sub(entries.len() as u64);
        (entries, self.next(), missing)
    }
}

/// The entry that is dropped for a new one: the oldest of the subject with most entries.
fn displaced(kept: &VecDeque<Entry>) -> usize {
    let mut counts: HashMap<Option<&Client>, usize> = HashMap::new();
    for entry in kept {
        *counts.entry(entry.by.as_ref()).or_default() += 1;
    }
    let most = counts.values().copied().max().unwrap_or_default();
    kept.iter().position(|entry| counts.get(&entry.by.as_ref()) == Some(&most)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: Kind, count: u64) -> Entry {
        Entry { sequence: 0, at: Timestamp(count), kind, what: "expired", subject: String::new(), count, by: None }
    }

    fn agent(by: &str, subject: &str, second: u64) -> Entry {
        let (by, at) = (Some(Client::Certificate(by.to_owned())), Timestamp(second * 1_000_000_000));
        Entry { sequence: 0, at, kind: Kind::Agent, what: "subscribed", subject: subject.to_owned(), count: 1, by }
    }

    #[test]
    fn one_agent_does_not_push_out_the_others() {
        let mut log = Log::default();
        (0..100).for_each(|n| log.add(agent(&format!("honest-{n}"), "web", 0)));
        // The same again and again, then by a thousand names.
        (0..1_000).for_each(|_| log.add(agent("hostile", "evil", 1)));
        (0..1_000).for_each(|n| log.add(agent("hostile", &format!("evil-{n}"), 1)));
        let of = |log: &Log, by: &str| {
            let (entries, _, _) = log.since(1, 10_000);
            entries
                .iter()
                .filter(|entry| matches!(&entry.by, Some(Client::Certificate(own)) if own.starts_with(by)))
                .count()
        };
        assert_eq!((of(&log, "honest"), of(&log, "hostile")), (100, OF_ONE));
        assert_eq!(log.since(1, 10_000).0[100].count, 1_000, "the same is one entry");
        // Slowly, for hours: its own go.
        (1..1_000).for_each(|n| log.add(agent("hostile", &format!("evil-{n}"), 20 * n)));
        assert_eq!((of(&log, "honest"), of(&log, "hostile")), (100, KEPT - 100));
        log.add(agent("honest-new", "web", 1_000_000));
        assert_eq!(of(&log, "honest"), 101);
    }

    #[test]
    fn many_of_one_kind_leave_the_others_and_what_is_gone_is_counted() {
        let mut log = Log::default();
        log.add(entry(Kind::Retreat, 0));
        (1..=300).for_each(|n| log.add(entry(Kind::Withdrawal, n)));
        log.add(entry(Kind::Limit, 301));
        let (entries, next, missing) = log.since(1, 1_000);
        assert_eq!((entries.len(), next, missing, log.dropped()), (258, 303, 44, 44));
        assert_eq!(entries[0].kind, Kind::Retreat);
        assert!(entries.is_sorted_by_key(|entry| entry.sequence));
        let (newest, _, missing) = log.since(1, 2);
        assert_eq!((newest[0].count, newest[1].kind, missing), (300, Kind::Limit, 300));
        assert_eq!(log.since(303, 10), (vec![], 303, 0));
        assert_eq!(log.since(302, 10).0[0].kind, Kind::Limit);
        assert_eq!(Log::default().since(0, 10), (vec![], 1, 0));
    }
}
