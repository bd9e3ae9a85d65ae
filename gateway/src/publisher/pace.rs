//! The pace of estimates, of snapshots and of changes: all subscribers together, one page at a time, clients in turn.
//!
//! Starts, ends of estimates and leases that changed do not wait for it, and are not counted.
//!
//! A hundred agents that come back at once (the gateway was restarted) would otherwise have a million messages encoded,
//! sent and decoded before anything else; a start would wait behind them in every queue there is.
//!
//! A page is charged when its turn comes, never before, so that at most one page is outstanding; what its stream did not
//! send of it is credited when the stream ends. Waiting clients have turns by round robin, however many streams each has.

use std::collections::{BTreeMap, HashMap};
use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Time for one message: 50,000 a second over all subscribers, about a fifth of a core. 100 agents that
/// come back at once have 10,000 networks each within 20 seconds, and one alone within a fifth of one.
const MESSAGE: Duration = Duration::from_micros(20);
/// A turn that comes late by no more than this (a timer's resolution, a busy runtime) does not delay the next one.
const LATE: Duration = Duration::from_millis(10);

/// The client whose streams share a turn.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Client {
    /// The names in the certificate that it authenticated with.
    Certificate(String),
    /// Where it connected from: an IPv4 address, an IPv6 /64.
    Address(IpAddr),
    /// A host, where nothing else is known of the client.
    Host(u64),
}

/// Schedules the subscribers' turns. Clones share the schedule.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    turns: Mutex<Turns>,
    /// A turn is waited for where none was, or may come sooner.
    changed: Notify,
    unused: Counter,
}

/// Turns that are waited for: at most one for each subscription.
#[derive(Debug, Default)]
struct Turns {
    /// When all messages that were charged have had their time.
    free: Option<Instant>,
    clients: HashMap<Client, Queue>,
    /// Clients that wait, the next one first.
    round: BTreeMap<u64, Client>,
    next: u64,
}

/// The turns for which one client waits, in the order requested.
#[derive(Debug, Default)]
struct Queue {
    /// Its position in the round.
    place: u64,
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    messages: u32,
    asked: Instant,
    granted: Arc<Granted>,
}

#[derive(Debug, Default)]
struct Granted {
    is: AtomicBool,
    news: Notify,
}

/// One subscription's turn, waited for or granted. When dropped, what was not sent is credited.
#[derive(Debug)]
pub(super) struct Turn {
    pace: Pace,
    client: Client,
    number: u64,
    granted: Arc<Granted>,
    /// Messages that were not taken yet.
    left: u32,
}

impl Pace {
    /// An empty schedule; messages that were charged and not sent are counted in `unused`.
    pub(super) fn new(unused: Counter) -> Self {
        Self { inner: Arc::new(Inner { turns: Mutex::default(), changed: Notify::new(), unused }) }
    }

    /// Requests a turn of `messages`.
    pub(super) fn request(&self, client: &Client, messages: u32) -> Turn {
        let now = Instant::now();
        let granted = Arc::new(Granted::default());
        let mut turns = self.inner.turns.lock();
        let was_empty = turns.round.is_empty();
        let waiting = Waiting { messages, asked: now, granted: Arc::clone(&granted) };
        let number = turns.add(client, waiting);
        turns.grant(now);
        drop(turns);
        if was_empty {
            self.inner.changed.notify_one();
        }
        Turn { pace: self.clone(), client: client.clone(), number, granted, left: messages }
    }

    /// Grants turns as they are due. Never ends.
    pub(super) async fn run(&self) {
        loop {
            let due = self.inner.turns.lock().grant(Instant::now());
            let due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = self.inner.changed.notified() => {}
                () = due => {}
            }
        }
    }

    fn credit(&self, messages: u32, now: Instant) {
        if messages == 0 {
            return;
        }
        let mut turns = self.inner.turns.lock();
        let free = turns.free.and_then(|free| free.checked_sub(MESSAGE * messages));
        turns.free = Some(free.map_or(now, |free| free.max(now)));
        drop(turns);
        self.inner.unused.inc_by(messages.into());
        self.inner.changed.notify_one();
    }
}

impl Turns {
    fn add(&mut self, client: &Client, waiting: Waiting) -> u64 {
        let number = self.next;
        self.next += 1;
        if !self.clients.contains_key(client) {
            self.clients.insert(client.clone(), Queue { place: number, waiting: BTreeMap::new() });
            self.round.insert(number, client.clone());
        }
        if let Some(queue) = self.clients.get_mut(client) {
            queue.waiting.insert(number, waiting);
        }
        number
    }

    /// Cancels a turn. `false`: it was granted already.
    fn remove(&mut self, client: &Client, number: u64) -> bool {
        let Some(queue) = self.clients.get_mut(client) else { return false };
        let waited = queue.waiting.remove(&number).is_some();
        if queue.waiting.is_empty() {
            self.round.remove(&queue.place);
            self.clients.remove(client);
        }
        waited
    }

    /// Grants what is due; returns when the next one is due.
    fn grant(&mut self, now: Instant) -> Option<Instant> {
        loop {
            self.round.first_key_value()?;
            if let Some(free) = self.free.filter(|free| *free > now) {
                return Some(free);
            }
            let Waiting { messages, asked, granted } = self.take_next()?;
            // One that waited for the pace is not charged for what woke it late.
            let waited = self.free.filter(|free| asked < *free);
            let late = now.checked_sub(LATE).unwrap_or(now);
            self.free = Some(waited.map_or(now, |free| free.max(late)) + MESSAGE * messages);
            granted.is.store(true, Ordering::Release);
            granted.news.notify_one();
        }
    }

    /// The next turn of the next client, which moves to the end of the round if it waits for another.
    fn take_next(&mut self) -> Option<Waiting> {
        let (_, client) = self.round.pop_first()?;
        let queue = self.clients.get_mut(&client)?;
        let (_, waiting) = queue.waiting.pop_first()?;
        if queue.waiting.is_empty() {
            self.clients.remove(&client);
        } else {
            queue.place = self.next;
            self.next += 1;
            self.round.insert(queue.place, client);
        }
        Some(waiting)
    }
}

impl Turn {
    /// Whether it came.
    pub(super) fn is_granted(&self) -> bool {
        self.granted.is.load(Ordering::Acquire)
    }

    /// Returns when it has come. Cancelling this loses nothing.
    pub(super) async fn granted(&self) {
        while !self.is_granted() {
            self.granted.news.notified().await;
        }
    }

    /// One of its messages was taken.
    pub(super) fn take(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_granted() && self.pace.inner.turns.lock().remove(&self.client, self.number) {
            return;
        }
        self.pace.credit(self.left, Instant::now());
    }
}
