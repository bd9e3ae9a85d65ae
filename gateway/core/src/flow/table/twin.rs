//! A twin of the table: a plain list that every answer is searched in.

#![expect(clippy::unwrap_used, reason = "compiled for tests and fuzzing only, where a panic is the finding")]
#![allow(unreachable_pub, reason = "public to fuzzing alone")]

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use super::*;
use crate::config::FlowReports;
use crate::flow::connection::Role;
use crate::types::{ConnectionId, SampleRate};
use crate::wire::segment::Endpoint;

/// The table and its twin, with the same inputs at the same times.
#[derive(Debug)]
pub struct Pair {
    table: FlowTable,
    twin: Vec<Item>,
    limit: usize,
    now: Timestamp,
    /// The tick to which the wheel was turned.
    turned: u64,
    /// Counts what was put at the end of a list.
    queued: u64,
}

/// A connection as the twin knows it.
#[derive(Debug)]
struct Item {
    port: u16,
    key: Key,
    last_at: Timestamp,
    queued_at: Timestamp,
    queued: u64,
    idleness: Idleness,
    /// The tick at which its timer is due.
    due: Option<u64>,
}

/// Slots of the wheel, as its documentation has it.
const SLOTS: u64 = 256;

impl Pair {
    /// Both empty, with room for `limit` connections.
    pub fn new(limit: usize) -> Self {
        let connections = NonZeroUsize::new(limit).unwrap();
        let limits = Limits { connections, ..Limits::default() };
        let table = FlowTable::new(&limits, 7);
        Self { table, twin: Vec::new(), limit, now: Timestamp(0), turned: 0, queued: 0 }
    }

    /// Advances the clock by this many milliseconds.
    pub fn wait(&mut self, ms: u64) {
        self.now = self.now.after(Micros::from_millis(ms));
    }

    /// A connection on `port` opens, unless it is there; where there is no room the least wanted one goes first.
    pub fn open(&mut self, port: u16) {
        if self.twin.iter().any(|item| item.port == port) {
            return;
        }
        if self.table.is_full() {
            let key = self.table.least_wanted().unwrap();
            let port = self.twin.iter().find(|item| item.key == key).unwrap().port;
            self.close(port);
        }
        let connection = Connection::new(
            ConnectionId(port.into()),
            [Role::default(); 2],
            true,
            FlowReports::None,
            (SampleRate::ALL, Timestamp(0)),
        );
        let key = self.table.insert(tuple(port), connection, self.now).unwrap();
        let queued = self.next_queued();
        let (last_at, idleness) = (self.now, Idleness::Other);
        self.twin.push(Item { port, key, last_at, queued_at: last_at, queued, idleness, due: None });
    }

    /// The connection on `port` goes, where there is one.
    pub fn close(&mut self, port: u16) {
        let Some(place) = self.twin.iter().position(|item| item.port == port) else { return };
        let item = self.twin.swap_remove(place);
        assert!(self.table.remove(item.key).is_some());
        assert!(self.table.remove(item.key).is_none(), "it goes once");
    }

    /// A packet of the connection on `port`, after which it is established or not.
    pub fn packet(&mut self, port: u16, established: bool) {
        let idleness = if established { Idleness::Established } else { Idleness::Other };
        let (now, queued) = (self.now, self.next_queued());
        let Some(item) = self.twin.iter_mut().find(|item| item.port == port) else { return };
        self.table.take(item.key, now, |_| ((), idleness)).unwrap();
        item.last_at = now;
        if item.idleness != idleness || now.since(item.queued_at) >= REQUEUE {
            (item.queued_at, item.queued, item.idleness) = (now, queued, idleness);
        }
    }

    /// Has the connection on `port` evaluated in this many milliseconds.
    pub fn arm(&mut self, port: u16, in_ms: u64) {
        let deadline = self.now.after(Micros::from_millis(in_ms));
        let turned = self.turned;
        let Some(item) = self.twin.iter_mut().find(|item| item.port == port) else { return };
        self.table.arm(item.key, deadline);
        let tick = (deadline.0 >> TICK_BITS) + 1;
        item.due.get_or_insert(tick.clamp(turned + 1, turned + SLOTS - 1));
    }

    /// Turns the wheel to now: exactly those whose timer came are given, each once.
    pub fn turn(&mut self) {
        let tick = self.now.0 >> TICK_BITS;
        let given: Vec<Key> = std::iter::from_fn(|| self.table.due(self.now)).collect();
        let is_due = |item: &Item| item.due.is_some_and(|due| due <= tick);
        let expected: BTreeSet<u32> = self.twin.iter().filter(|item| is_due(item)).map(|item| item.key.0).collect();
        assert_eq!(given.len(), expected.len(), "each once");
        assert_eq!(given.iter().map(|key| key.0).collect::<BTreeSet<_>>(), expected);
        self.twin.iter_mut().filter(|item| is_due(item)).for_each(|item| item.due = None);
        self.turned = self.turned.max(tick);
    }

    /// Ends those silent too long.
    pub fn expire(&mut self) {
        while let Some(key) = self.table.expired(self.now) {
            let item = self.twin.iter().find(|item| item.key == key).unwrap();
            let patience = if item.idleness == Idleness::Other { 120 } else { 3_600 };
            assert!(self.now.since(item.last_at) >= Micros::from_secs(patience));
            let port = item.port;
            self.close(port);
        }
    }

    /// Panics where table and twin differ.
    pub fn compare(&self) {
        assert_eq!(self.table.len(), self.twin.len());
        assert!(self.table.len() <= self.limit);
        assert_eq!(self.table.is_full(), self.twin.len() >= self.limit);
        for item in &self.twin {
            assert_eq!(self.table.find(&tuple(item.port)), Some(item.key), "port {}", item.port);
            assert!(self.table.get(item.key).is_some());
        }
        let first = |idleness| {
            let of = self.twin.iter().filter(|item| item.idleness == idleness);
            of.min_by_key(|item| item.queued).map(|item| item.key)
        };
        let (other, established) = (first(Idleness::Other), first(Idleness::Established));
        let opening = self.twin.iter().filter(|item| item.idleness == Idleness::Other).count();
        let wanted = if opening > self.limit / RESERVED { other } else { established.or(other) };
        assert_eq!(self.table.least_wanted(), wanted);
        let end = |key: Option<Key>, seconds| {
            let item = self.twin.iter().find(|item| Some(item.key) == key)?;
            Some(item.last_at.after(Micros::from_secs(seconds)))
        };
        let timer = self.twin.iter().filter_map(|item| item.due).min();
        let due = [timer.map(|tick| Timestamp(tick << TICK_BITS)), end(other, 120), end(established, 3_600)];
        assert_eq!(self.table.next_due(), due.into_iter().flatten().min());
    }

    fn next_queued(&mut self) -> u64 {
        self.queued += 1;
        self.queued
    }
}

fn tuple(port: u16) -> Tuple {
    let end = |port| Endpoint { address: [192, 0, 2, 1].into(), port };
    Tuple::of(end(port), end(443)).0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_answer_is_that_of_the_twin(
            limit in 1..40_usize,
            steps in prop::collection::vec((0..8_u8, 0..50_u16, 0..9_000_u64), 1..200),
        ) {
            let mut pair = Pair::new(limit);
            for (step, port, ms) in steps {
                match step {
                    0 | 1 => pair.open(port),
                    2 => pair.close(port),
                    3 => pair.packet(port, ms % 3 > 0),
                    4 => pair.arm(port, ms),
                    5 => pair.turn(),
                    6 => pair.wait(ms * if port == 0 { 900 } else { 1 }),
                    _ => pair.expire(),
                }
                pair.compare();
            }
        }
    }
}
