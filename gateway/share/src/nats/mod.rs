//! The exchange over NATS `JetStream`.
//!
//! Subjects are `spand.<cluster>.<site>.<topic>.<gateway>`: a gateway's user may publish to its own alone, so a subject says whom a
//! message is of. Everything is heard as it is published. The site's stream `spand-<cluster>-<site>` keeps closed buckets in memory for the
//! length of a window, for who is away; who comes reads it once ([`catch_up`]). NATS holds nothing that gateways do not hold themselves, and
//! nothing for a single gateway: no consumer that another could take away.
//!
//! Of the client little is expected: each connection is a [`session`] that ends with its first fault.

mod catch_up;
mod config;
mod fault;
mod session;
mod stream;
mod streams;
mod subjects;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_nats::ServerAddr;
use parking_lot::Mutex;
use rand::seq::SliceRandom;
use tokio::sync::watch;
use tokio::time::sleep;

pub(super) use self::config::most_bytes;
pub use self::config::{
    DEFAULT_REPLICAS, DEFAULT_STREAM_BYTES, DEFAULT_WINDOW, NatsConfig, NatsIdentity, NatsLogin, NatsTls,
};
use self::session::{Backoff, Ended};
use self::subjects::Subjects;
use super::exchange::{Exchange, Link, LinkState};

/// Waits between connections.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The same where nobody refuses anything: as while a leader is elected, which is soon.
const LONGEST_WAIT_FOR_ABSENT: Duration = Duration::from_secs(1);
/// Different warnings that are remembered as logged.
const LOGGED: usize = 64;

/// Carries messages by NATS.
#[derive(Debug)]
pub struct NatsExchange {
    nats: Nats,
}

/// What all sessions have in common.
#[derive(Clone, Debug)]
struct Nats {
    config: Arc<NatsConfig>,
    subjects: Arc<Subjects>,
    logged: Arc<Mutex<BTreeSet<String>>>,
}

impl NatsExchange {
    /// Connects to nothing yet.
    pub fn new(config: NatsConfig) -> Self {
        let subjects = Arc::new(Subjects::new(&config.cluster, &config.site, config.gateway));
        Self { nats: Nats { config: Arc::new(config), subjects, logged: Arc::default() } }
    }
}

impl Nats {
    /// Warns of something that stays as it is, the first time.
    fn say_once(&self, what: &str) {
        let mut logged = self.logged.lock();
        if logged.len() < LOGGED && logged.insert(what.to_owned()) {
            tracing::warn!("{what}");
        }
    }
}

impl Exchange for NatsExchange {
    async fn run(self: Box<Self>, mut link: Link) {
        let nats = &self.nats;
        let mut servers = match nats.config.addresses() {
            Ok(servers) => servers,
            Err(error) => {
                set(&link.state, LinkState::Down(error));
                return session::ended(&mut link.outgoing).await;
            }
        };
        let mut since = SystemTime::now() - nats.config.window;
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        servers.shuffle(&mut rand::rng());
        let mut has_been_up = false;
        loop {
            let fault = match session::run(nats, &servers, &mut since, &mut link, has_been_up).await {
                Ended::ForGood => return,
                Ended::Failed(fault, was_up) => {
                    has_been_up |= was_up;
                    if was_up {
                        backoff.reset();
                    }
                    fault
                }
            };
            let wait = backoff.wait_at_most(if fault.is_absence { LONGEST_WAIT_FOR_ABSENT } else { LONGEST_WAIT });
            set(&link.state, LinkState::Down(fault.sentence));
            another_first(&mut servers);
            tokio::select! {
                () = sleep(wait) => {}
                () = session::ended(&mut link.outgoing) => return,
            }
        }
    }
}

/// The next one is tried first: where a server accepts connections and does not work, the others get their turn.
fn another_first(servers: &mut [ServerAddr]) {
    if !servers.is_empty() {
        servers.rotate_left(1);
    }
}

/// Tells the state where it changed.
fn set(state: &watch::Sender<LinkState>, now: LinkState) {
    state.send_if_modified(|before| {
        let is_new = *before != now;
        *before = now;
        is_new
    });
}
