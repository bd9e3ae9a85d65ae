//! The desks for single starts: one table for all applications of a user that have none of their own, so that what they reserve of a
//! budget counts together. Does no IO.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spand_advice::{Answer, Question, Started, Table, ToApplication};
use spand_proto::network::Network;
use spand_proto::units::Timestamp;
use tokio::sync::Notify;

use super::Heard;
use super::server::Way;
use crate::clock::Clock;

/// The desks of all users who asked for single starts.
#[derive(Clone)]
pub(super) struct Desks {
    /// Networks that each has room for.
    networks: NonZeroUsize,
    way: Way,
    of: Arc<Mutex<BTreeMap<u32, Desk>>>,
}

impl Desks {
    pub(super) fn new(networks: NonZeroUsize, way: Way) -> Self {
        Self { networks, way, of: Arc::default() }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<u32, Desk>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A user's.
    pub(super) fn of(&self, uid: u32) -> Desk {
        let new = || Desk::new(uid, self.networks, self.way.clone());
        self.all().entry(uid).or_insert_with(new).clone()
    }

    /// Forgets the networks that no start was asked for since this was last called: their parts of leases are others' again.
    pub(super) fn forget(&self, now: Timestamp) {
        self.all().values().for_each(|desk| desk.forget(now));
    }

    /// A user has no connection any more.
    pub(super) fn close(&self, uid: u32) {
        if let Some(desk) = self.all().remove(&uid) {
            desk.hear(self.way.0.leave(desk.number));
        }
    }
}

/// Answers single questions.
#[derive(Clone)]
pub(super) struct Desk {
    table: Arc<Mutex<Table>>,
    number: u64,
    way: Way,
}

impl Desk {
    /// For at most this many networks; the one that was asked for longest ago makes room.
    fn new(uid: u32, networks: NonZeroUsize, way: Way) -> Self {
        let number = way.0.join(String::new(), uid, Arc::new(Notify::new()));
        Self { table: Arc::new(Mutex::new(Table::new(networks))), number, way }
    }

    fn forget(&self, now: Timestamp) {
        let (offers, _) = &self.way;
        let (unused, gone) = offers.forget_unused(self.number);
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        for network in gone {
            table.take(ToApplication::Gone(network));
        }
        table.expire(now);
        drop(table);
        self.hear(unused);
    }

    fn hear(&self, changed: impl IntoIterator<Item = Network>) {
        for network in changed {
            // At a full queue the parts of leases follow with the next decision about everything.
            drop(self.way.1.try_send(Heard::Watched(network)));
        }
    }

    /// How one connection starts.
    pub(super) fn start(&self, question: &Question, clock: Clock) -> Answer {
        let address = question.destination.ip().to_canonical();
        let (offers, _) = &self.way;
        let (new, gone) = offers.watch(self.number, address, false);
        let now = clock.now();
        let network = Network::of(address);
        let begun = offers.use_part(self.number, network, now).then_some(network);
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if new.is_some() {
            // So that the answer about an unknown network has its reason.
            table.watch(address);
        }
        for line in offers.lines(self.number, now) {
            table.take(line);
        }
        let answer = table.start(question, now);
        drop(table);
        self.hear(begun.into_iter().chain(gone));
        answer
    }

    /// A first flight is over, or its connection.
    pub(super) fn over(&self, question: &Question, answer: &mut Answer, flight: Option<(u32, u32)>, clock: Clock) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.over(answer, question.destination.ip().to_canonical(), flight, clock.now());
    }
}

/// The answer as it is sent.
pub(super) fn started(id: u64, answer: &Answer) -> Started {
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    match &answer.start {
        Err(reason) => Started {
            id,
            advised: false,
            reason: Some(*reason),
            window_bytes: None,
            threshold_bytes: None,
            burst_bytes: None,
            rate_bytes_per_s: None,
            lifetime_us: None,
        },
        Ok(start) => Started {
            id,
            advised: true,
            reason: None,
            window_bytes: Some(start.window_bytes),
            threshold_bytes: start.threshold_bytes,
            burst_bytes: start.pacing.map(|pacing| pacing.burst_bytes),
            rate_bytes_per_s: start.pacing.map(|pacing| pacing.bytes_per_s),
            lifetime_us: Some(us(start.lifetime)),
        },
    }
}
