//! Answers that cost much to make: `/metrics`, and what looks at every network or host.
//!
//! They are made one at a time, away from the threads that push to agents, with a rest after each, so that however often is asked
//! they take no more than a part of one processor. An answer that is the same for all is made once for all who wait for it, and
//! never before they asked. Of the others each peer has one turn, then the next peer.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;
use tokio::time::{Instant, sleep_until};
use tonic::codegen::Bytes;

use super::metrics::Written;
use crate::buckets::key;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Costly {
    pub(super) metrics: Shared<Result<Written, fmt::Error>>,
    pub(super) benefit: Shared<Bytes>,
    pub(super) traffic: Shared<Bytes>,
    pub(super) share: Shared<Bytes>,
    /// Lists of networks and of hosts.
    pub(super) lists: Lists,
}

/// Time between two makings of an answer that is shared.
const APART: Duration = Duration::from_millis(50);
/// An answer that is shared takes at most this part of one processor.
const SHARED_PART: u32 = 10;
/// All others together.
const LISTS_PART: u32 = 2;

/// Makes one thing at a time.
#[derive(Debug)]
struct Maker<T> {
    last: Arc<Turn<Last<T>>>,
    part: u32,
    apart: Duration,
}

#[derive(Debug)]
struct Last<T> {
    /// The next one may begin.
    rested: Instant,
    /// When it was begun, and what it is.
    made: Option<(Instant, T)>,
}

impl<T: Clone + Send + 'static> Maker<T> {
    fn new(part: u32, apart: Duration) -> Self {
        Self { last: Arc::new(Turn::new(Last { rested: Instant::now(), made: None })), part, apart }
    }

    /// The result of `make`, or of one started for another caller since this was called. It continues when its caller is gone, and
    /// so does its turn.
    async fn shared(&self, make: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        let asked = Instant::now();
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some((_, made)) = last.made.as_ref().filter(|(begun, _)| *begun >= asked) {
            return Ok(made.clone());
        }
        sleep_until(last.rested).await;
        let (part, apart) = (self.part, self.apart);
        let making = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let made = make();
            last.rested = rested(begun, Instant::now(), part, apart);
            last.made = Some((begun, made.clone()));
            made
        });
        making.await
    }

    /// What `make` makes, for its caller alone.
    async fn own<U: Send + 'static>(&self, make: impl FnOnce() -> U + Send + 'static) -> Result<U, JoinError> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        sleep_until(last.rested).await;
        let (part, apart) = (self.part, self.apart);
        let making = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let made = make();
            last.rested = rested(begun, Instant::now(), part, apart);
            made
        });
        making.await
    }
}

/// When the next one may begin: what lies between the beginnings of two is `part` times what the first took, and `apart` at least.
fn rested(begun: Instant, ended: Instant, part: u32, apart: Duration) -> Instant {
    begun + (ended.duration_since(begun) * part).max(apart)
}

/// An answer that is the same for all who ask.
#[derive(Debug)]
pub(super) struct Shared<T>(Maker<T>);

impl<T: Clone + Send + 'static> Shared<T> {
    /// The answer as it is now. Fails where `make` panicked.
    pub(super) async fn get(&self, make: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        self.0.shared(make).await
    }
}

impl<T: Clone + Send + 'static> Default for Shared<T> {
    fn default() -> Self {
        Self(Maker::new(SHARED_PART, APART))
    }
}

/// Answers that are each asker's own: one at a time, peers in turn.
#[derive(Debug)]
pub(super) struct Lists {
    maker: Maker<()>,
    /// Those who wait or are served; no more than there are connections.
    peers: Arc<Mutex<HashMap<IpAddr, Queue>>>,
}

/// Who waits of one peer.
#[derive(Debug)]
struct Queue {
    waiting: usize,
    first: Arc<Semaphore>,
}

/// A place in a peer's queue; given back when dropped.
#[derive(Debug)]
struct Place {
    peers: Arc<Mutex<HashMap<IpAddr, Queue>>>,
    peer: IpAddr,
}

impl Lists {
    /// What `make` makes, when it is this peer's turn. Fails where it panicked.
    pub(super) async fn make<T: Send + 'static>(
        &self,
        peer: IpAddr,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let (_place, first) = self.queue(peer);
        // Never closed, so an error cannot come.
        let _first: Option<OwnedSemaphorePermit> = first.acquire_owned().await.ok();
        self.maker.own(make).await
    }

    fn queue(&self, peer: IpAddr) -> (Place, Arc<Semaphore>) {
        let peer = key(peer);
        let mut peers = self.peers.lock();
        let queue = peers.entry(peer).or_insert_with(|| Queue { waiting: 0, first: Arc::new(Semaphore::new(1)) });
        queue.waiting += 1;
        let first = Arc::clone(&queue.first);
        drop(peers);
        (Place { peers: Arc::clone(&self.peers), peer }, first)
    }
}

impl Default for Lists {
    fn default() -> Self {
        Self { maker: Maker::new(LISTS_PART, Duration::ZERO), peers: Arc::default() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut peers = self.peers.lock();
        if let Some(queue) = peers.get_mut(&self.peer) {
            queue.waiting -= 1;
            if queue.waiting == 0 {
                peers.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::FutureExt;
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn an_answer_is_made_once_for_all_who_wait_and_never_before_they_asked() {
        let shared = Arc::new(Shared::default());
        let made = Arc::new(AtomicU32::new(0));
        let ask = || {
            let (shared, made) = (Arc::clone(&shared), Arc::clone(&made));
            async move {
                // Others ask while the first one is made.
                let make =
                    move || (std::thread::sleep(Duration::from_millis(20)), made.fetch_add(1, Ordering::Relaxed)).1;
                shared.get(make).await.unwrap()
            }
        };
        assert_eq!(ask().await, 0);
        let mut asked: JoinSet<u32> = (0..100).map(|_| ask()).collect();
        let mut got = Vec::new();
        while let Some(answer) = asked.join_next().await {
            got.push(answer.unwrap());
        }
        assert!(got.iter().all(|answer| *answer >= 1), "of before they asked: {got:?}");
        assert!(made.load(Ordering::Relaxed) <= 3, "{made:?} were made for two times of asking");
        let before = made.load(Ordering::Relaxed);
        assert_eq!(ask().await, before, "and who asks later gets another");
    }

    #[tokio::test]
    async fn who_leaves_while_an_answer_is_made_does_not_have_another_made_beside_it() {
        let lists = Arc::new(Lists::default());
        let at_once = Arc::new(AtomicU32::new(0));
        let most = Arc::new(AtomicU32::new(0));
        for n in 0..20 {
            let (at_once, most) = (Arc::clone(&at_once), Arc::clone(&most));
            let make = move || {
                most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(2));
                at_once.fetch_sub(1, Ordering::SeqCst);
            };
            let asked = lists.make([192, 0, 2, n].into(), make);
            drop(tokio::time::timeout(Duration::from_millis(1), asked).await);
        }
        lists.make([192, 0, 2, 99].into(), || ()).await.unwrap();
        assert_eq!(most.load(Ordering::SeqCst), 1);
        assert!(lists.peers.lock().is_empty(), "nothing is kept of those who left");
    }

    #[tokio::test]
    async fn a_peer_waits_for_one_answer_of_another_however_many_that_asked_for() {
        let lists = Arc::new(Lists::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        let ask = |peer: u8| {
            let (lists, order) = (Arc::clone(&lists), Arc::clone(&order));
            async move { lists.make([192, 0, 2, peer].into(), move || order.lock().push(peer)).await.unwrap() }
        };
        let mut waiting: Vec<_> = [1, 1, 1, 1, 1, 2].into_iter().map(|peer| Box::pin(ask(peer))).collect();
        for asked in &mut waiting {
            // Each takes its place.
            assert!(asked.now_or_never().is_none());
        }
        futures::future::join_all(waiting).await;
        assert_eq!(*order.lock(), [1, 2, 1, 1, 1, 1]);
    }

    #[test]
    fn what_takes_long_rests_long() {
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        assert_eq!(rested(begun, after(1), 10, APART), after(50));
        assert_eq!(rested(begun, after(40), 10, APART), after(400));
        assert_eq!(rested(begun, after(40), 2, Duration::ZERO), after(80));
    }
}
