//! What happened: the newest of each kind, so that many of one kind do not push out another.

use std::collections::VecDeque;

use spand_proto::units::Timestamp;
use strum::{IntoStaticStr, VariantArray};

/// Entries kept of each kind. At the limit the oldest of the kind goes, counted.
const KEPT: usize = 256;

/// What an entry is about.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, PartialEq, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// Advice about a network is no longer in force.
    Withdrawal,
    /// Advice was taken back after losses in first flights, or came back.
    Retreat,
    /// A table or queue was full and something went.
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
    /// To whom: a network, an interface, a host or a part; empty where the name says it all.
    pub subject: String,
    /// How often: more than once where a limit was reached again and again.
    pub count: u64,
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
        self.added += 1;
        let Some(kept) = self.kept.get_mut(entry.kind as usize) else { return };
        if kept.len() >= KEPT {
            kept.pop_front();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: Kind, count: u64) -> Entry {
        Entry { sequence: 0, at: Timestamp(count), kind, what: "expired", subject: String::new(), count }
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
