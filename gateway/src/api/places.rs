//! Bounded places for connections of a listener and for live streams. No peer can take them all.
//!
//! If none is left, a new connection replaces an unused one: first one that has completed no request, then one that is idle
//! after a request, then one whose peer does not read its answer. Among these it is the oldest of the peer with most. A
//! connection in use is replaced only if its peer has at least two more than the new one's. So a peer with many connections
//! displaces its own, and a peer with none gets one unless as many peers as there are places are active.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use crate::buckets::key;

/// Places beyond the limit for this machine's own programs, such as what asks whether the gateway is healthy.
pub(super) const RESERVED: usize = 16;
/// Requests of one connection whose bodies are read at a time; others wait. Each has 256 KiB at most.
pub(super) const BODIES: usize = 2;
/// A peer that reads nothing for so long may lose its place to another.
const STALLED: Duration = Duration::from_secs(1);

/// The places. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Places {
    limit: usize,
    reserved: usize,
    per_peer: NonZeroUsize,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// In the order in which they were taken.
    places: BTreeMap<u64, Entry>,
    peers: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Entry {
    peer: IpAddr,
    work: Arc<Work>,
    displace: oneshot::Sender<()>,
}

/// What is done with a place.
#[derive(Debug)]
struct Work {
    requests: AtomicUsize,
    completed: AtomicBool,
    unread_since: Mutex<Option<Instant>>,
    bodies: Arc<Semaphore>,
    /// Why the connection ended, where it has.
    ended: OnceLock<&'static str>,
}

/// A place; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    id: u64,
    work: Mark,
    displaced: Option<oneshot::Receiver<()>>,
}

/// Says what is done with a place. The default is of no place.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark(Option<Arc<Work>>);

/// A request that was let in, until its answer has left.
#[derive(Debug)]
pub(super) struct Request(Mark);

/// Why there is no place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NoPlace {
    /// The peer's are all in use.
    OfPeer,
    /// All are in use.
    AtAll,
}

/// How much a place is used: those that are used least go first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Use {
    /// No request was let in yet.
    Nothing,
    /// None is under way.
    Idle,
    /// Its peer does not read.
    Unread,
    /// It works.
    Works,
}

impl Places {
    /// At most `limit` in all and `per_peer` of one peer: an IPv4 address, an IPv6 /64.
    pub(super) fn new(limit: NonZeroUsize, per_peer: NonZeroUsize, reserved: usize) -> Self {
        Self { limit: limit.get(), reserved, per_peer, table: Arc::default() }
    }

    /// A place for a peer; also whether another lost its own for it.
    pub(super) fn take(&self, from: IpAddr) -> Result<(Place, bool), NoPlace> {
        let peer = key(from);
        let limit = self.limit + if from.to_canonical().is_loopback() { self.reserved } else { 0 };
        let mut table = self.table.lock();
        let own = table.peers.get(&peer).copied().unwrap_or_default();
        let displaced = if own >= self.per_peer.get() {
            let unused = |entry: &Entry, used| entry.peer == peer && used < Use::Works;
            Some(table.least_used(unused).ok_or(NoPlace::OfPeer)?)
        } else if table.places.len() >= limit {
            let peers = &table.peers;
            let may_go = |entry: &Entry, used| {
                let count = peers.get(&entry.peer).copied().unwrap_or_default();
                count >= own && (used < Use::Works || count > own + 1)
            };
            Some(table.least_used(may_go).ok_or(NoPlace::AtAll)?)
        } else {
            None
        };
        if let Some(entry) = displaced.and_then(|id| table.remove(id)) {
            // One that is gone meanwhile needs no word.
            _ = entry.displace.send(());
        }
        let id = table.next;
        table.next += 1;
        *table.peers.entry(peer).or_default() += 1;
        let (displace, closed) = oneshot::channel();
        let work = Arc::new(Work {
            requests: AtomicUsize::new(0),
            completed: AtomicBool::new(false),
            unread_since: Mutex::new(None),
            bodies: Arc::new(Semaphore::new(BODIES)),
            ended: OnceLock::new(),
        });
        table.places.insert(id, Entry { peer, work: Arc::clone(&work), displace });
        drop(table);
        let place = Place { places: self.clone(), id, work: Mark(Some(work)), displaced: Some(closed) };
        Ok((place, displaced.is_some()))
    }
}

impl Table {
    fn least_used(&self, may_go: impl Fn(&Entry, Use) -> bool) -> Option<u64> {
        let now = Instant::now();
        let used = self.places.iter().map(|(id, entry)| (*id, entry, entry.work.used(now)));
        let may_go = used.filter(|(_, entry, used)| may_go(entry, *used));
        let first = may_go.min_by_key(|(id, entry, used)| {
            let count = self.peers.get(&entry.peer).copied().unwrap_or_default();
            (*used, Reverse(count), *id)
        });
        first.map(|(id, _, _)| id)
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.places.remove(&id)?;
        if let Some(count) = self.peers.get_mut(&entry.peer) {
            *count -= 1;
            if *count == 0 {
                self.peers.remove(&entry.peer);
            }
        }
        Some(entry)
    }
}

impl Work {
    fn used(&self, now: Instant) -> Use {
        if self.requests.load(Ordering::Relaxed) > 0 {
            let unread = self.unread_since.lock().is_some_and(|since| now.saturating_duration_since(since) >= STALLED);
            if unread { Use::Unread } else { Use::Works }
        } else if self.completed.load(Ordering::Relaxed) {
            Use::Idle
        } else {
            Use::Nothing
        }
    }
}

impl Place {
    /// What to say what is done with it by.
    pub(super) fn mark(&self) -> Mark {
        self.work.clone()
    }

    /// Whether another got it; the task that polls is woken when one does.
    pub(super) fn poll_displaced(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(displaced) = &mut self.displaced else { return Poll::Pending };
        let ready = Pin::new(displaced).poll(cx).is_ready();
        if ready {
            self.displaced = None;
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Ends when another got it.
    pub(super) async fn displaced(&mut self) {
        std::future::poll_fn(|cx| self.poll_displaced(cx)).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.places.table.lock().remove(self.id));
    }
}

impl Mark {
    /// A request was let in, with all of its body.
    pub(super) fn request(&self) -> Request {
        if let Some(work) = &self.0 {
            work.requests.fetch_add(1, Ordering::Relaxed);
            work.completed.store(true, Ordering::Relaxed);
        }
        Request(self.clone())
    }

    /// The peer has not read what was written, or has.
    pub(super) fn unread(&self, unread: bool) {
        if let Some(work) = &self.0 {
            let mut since = work.unread_since.lock();
            *since = unread.then(|| since.unwrap_or_else(Instant::now));
        }
    }

    /// The connection ended. The first reason stays.
    pub(super) fn ended(&self, why: &'static str) {
        if let Some(work) = &self.0 {
            work.ended.get_or_init(|| why);
        }
    }

    /// Why the connection ended, where it has.
    pub(super) fn why_ended(&self) -> Option<&'static str> {
        self.0.as_ref()?.ended.get().copied()
    }

    /// Whose turn it is among the bodies of a connection.
    pub(super) fn bodies(&self) -> Arc<Semaphore> {
        self.0.as_ref().map_or_else(|| Arc::new(Semaphore::new(BODIES)), |work| Arc::clone(&work.bodies))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(work) = &self.0.0 {
            work.requests.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn peer(n: u16) -> IpAddr {
        let [high, low] = n.to_be_bytes();
        IpAddr::from([192, 0, high, low])
    }

    fn places(limit: usize, per_peer: usize) -> Places {
        let count = |n| NonZeroUsize::new(n).unwrap();
        Places::new(count(limit), count(per_peer), RESERVED)
    }

    fn is_displaced(place: &mut Place) -> bool {
        place.poll_displaced(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn half_open_connections_of_few_peers_leave_everyone_a_place() {
        let places = places(256, 64);
        let (mut honest, _) = places.take(peer(1)).unwrap();
        let idle = honest.mark().request();
        drop(idle);
        let mut hostile: Vec<Place> = (0..640).map(|n| places.take(peer(100 + n % 5)).unwrap().0).collect();
        assert!(!is_displaced(&mut honest), "idle after a request, and of a peer with one");
        let (mut health, displaced) = places.take(peer(2)).unwrap();
        assert!(displaced);
        hostile.extend((0..640).map(|n| places.take(peer(100 + n % 5)).unwrap().0));
        assert!(!is_displaced(&mut honest) && !is_displaced(&mut health), "who has many displaces its own");
        assert_eq!(hostile.iter_mut().map(is_displaced).filter(|displaced| !displaced).count(), 254);
        assert!(hostile.iter_mut().take(640).all(|place| place.displaced.is_none()), "the oldest go first");
    }

    #[test]
    fn a_peer_with_none_gets_the_place_of_one_with_many_even_where_all_work() {
        let places = places(6, 5);
        let mut held: Vec<(Place, Request)> = Vec::new();
        for n in [2, 2, 1, 1, 1, 1] {
            let (place, _) = places.take(peer(n)).unwrap();
            let request = place.mark().request();
            held.push((place, request));
        }
        assert_eq!(places.take(peer(1)).unwrap_err(), NoPlace::AtAll);
        let (third, displaced) = places.take(peer(3)).unwrap();
        assert!(displaced && is_displaced(&mut held[2].0), "the oldest of the peer with most");
        assert!(!is_displaced(&mut held[0].0), "and not the oldest of all");
        let _works = third.mark().request();
        // Who reads nothing loses its place before who works does.
        held[1].0.mark().unread(true);
        *held[1].0.mark().0.unwrap().unread_since.lock() = Instant::now().checked_sub(STALLED);
        let (_fourth, _) = places.take(peer(4)).unwrap();
        assert!(is_displaced(&mut held[1].0) && !is_displaced(&mut held[3].0));
    }

    #[test]
    fn a_peer_has_a_bounded_number_in_use_and_its_unused_ones_close_first() {
        let places = places(100, 2);
        let (mut one, _) = places.take(peer(1)).unwrap();
        let (two, _) = places.take(peer(1)).unwrap();
        let _works = two.mark().request();
        let (three, displaced) = places.take(peer(1)).unwrap();
        assert!(displaced && is_displaced(&mut one));
        let _also = three.mark().request();
        assert_eq!(places.take(peer(1)).unwrap_err(), NoPlace::OfPeer);
        drop((one, two));
        assert!(!places.take(peer(1)).unwrap().1);
    }

    #[test]
    fn this_machine_s_programs_have_places_of_their_own() {
        let places = places(4, 4);
        let mut held = Vec::new();
        for n in 0..4 {
            let (place, _) = places.take(peer(n)).unwrap();
            let request = place.mark().request();
            held.push((place, request));
        }
        assert_eq!(places.take(peer(9)).unwrap_err(), NoPlace::AtAll, "everyone has one, and works");
        assert!(!places.take(IpAddr::from([127, 0, 0, 1])).unwrap().1);
        drop(held);
        assert!(places.table.lock().places.is_empty() && places.table.lock().peers.is_empty());
    }
}
