//! One subscriber's stream: snapshot, then changes and renewals, with starts overtaking everything (so a start may come
//! at any place, inside a snapshot too). A gap in the sequence is what was dropped before a resync.
//!
//! Nothing is buffered per subscriber but its waiting starts, its dirty networks, and its position
//! in the shared ring of changes. That ring is emptied into the dirty set ten times a second, also in
//! the middle of a snapshot. Dirty networks and those of the snapshot take turns as the pace allows; withdrawals do not
//! wait for it. Falling out of the ring is a resync: the marker, then a new snapshot read from the published state.

mod changes;
mod snapshot;

use std::collections::BTreeMap;
use std::future::pending;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use spand_core::service::ServiceSize;
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::push::{Endpoint, EstimateUpdate, ImminentStart, Update, UpdateEvent};
use spand_proto::units::Segments;
use tokio::sync::broadcast::Receiver;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use self::snapshot::Phase;
use super::Published;
use super::change::{Broadcast, trigger};
use super::leases::TooManyHosts;
use super::pace::{Client, Turn};
use super::subscribers::{SubscribeError, Subscriber, SubscriberQueue};

/// A running subscription; ends when dropped.
#[derive(Debug)]
pub struct Subscription {
    published: Published,
    id: u64,
    queue: Arc<SubscriberQueue>,
    changes: Receiver<Broadcast>,
    /// Number of the next change that this subscription expects, counted from the first one ever sent.
    next_number: u64,
    phase: Phase,
    /// Whose streams share their turns.
    client: Client,
    /// The page being sent, and its turn.
    page: std::vec::IntoIter<Network>,
    turn: Option<Turn>,
    /// What is sent before the pages of the first snapshot to a host that is adopted, and whether the page is of it.
    ahead: std::vec::IntoIter<Network>,
    page_is_ahead: bool,
    /// Networks of which the host holds advice as it subscribes.
    held: Vec<Network>,
    /// Sizes of the host's services that are to be sent, and when all of them are sent again.
    sizes: BTreeMap<SocketAddr, ServiceSize>,
    sizes_again: Instant,
    /// When to read the ring of changes.
    turns: Interval,
    renewal: Interval,
    sequence: u64,
}

impl Subscription {
    /// Subscribes a host with its addresses.
    pub(super) fn begin(
        published: &Published,
        subscriber: Subscriber,
        addresses: &[IpAddr],
    ) -> Result<Self, SubscribeError> {
        let shared = &published.shared;
        // Listening before the snapshot is read: a change in between comes twice rather than never.
        let mut outbound = shared.outbound.lock();
        let (changes, next_number) = outbound.gather.listen()?;
        let now = published.now();
        let mut only_one = None;
        let (id, queue, left_out) =
            outbound.subscribers.add((subscriber, now), addresses, &shared.config, |addresses| {
                let joined = shared.state.write().leases.join(addresses, now);
                let joined = joined.map_err(|TooManyHosts(hosts)| SubscribeError::TooManyHosts(hosts))?;
                only_one = joined.request_snapshot;
                Ok(joined.host)
            })?;
        if let Some(host_id) = only_one {
            outbound.subscribers.request_snapshot(host_id);
        }
        drop(outbound);
        published.notify_seats(queue.addresses(), true);
        published.measures().addresses_left_out.inc_by(left_out as u64);
        let every = shared.config.renewal;
        let mut renewal = interval_at(Instant::now() + every, every);
        renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            published: published.clone(),
            id,
            client: queue.subscriber.client.clone().unwrap_or(Client::Host(queue.host_id)),
            queue,
            changes,
            next_number,
            phase: Phase::Adopt,
            page: Vec::new().into_iter(),
            turn: None,
            ahead: Vec::new().into_iter(),
            page_is_ahead: false,
            held: Vec::new(),
            sizes: BTreeMap::new(),
            sizes_again: Instant::now(),
            turns: changes::turns(id),
            renewal,
            sequence: 0,
        })
    }

    /// The same, of a host that holds advice about these networks.
    pub(super) fn holding(mut self, held: &[Network]) -> Self {
        self.held = held.to_vec();
        self
    }

    /// The next update; `None` when the gateway stops. Cancelling this loses nothing.
    pub async fn next(&mut self) -> Option<Update> {
        loop {
            // Yields to other tasks after at most 128 messages. The transport polls a pending stream once more before it yields, so
            // the stream must stay pending until its task runs again; `yield_now` is pending only once.
            consume_budget().await;
            if let Some(start) = self.next_start() {
                return Some(self.number(UpdateEvent::ImminentStart(start)));
            }
            // A snapshot is always completed: with more changes than can be sent it would restart for ever.
            if matches!(self.phase, Phase::Live) && self.queue.needs_snapshot() {
                self.phase = Phase::Begin;
            }
            // A marker of dropped changes comes before anything else.
            let event = self.next_marker().or_else(|| self.next_urgent()).or_else(|| self.next_in_turn());
            if let Some(event) = event {
                return Some(self.number(event));
            }
            tokio::select! {
                biased;
                () = self.queue.arrived() => {}
                _ = self.renewal.tick() => {
                    if matches!(self.phase, Phase::Live) && Instant::now() >= self.sizes_again {
                        self.queue_sizes();
                    }
                    let lifetime = self.published.config().lifetime;
                    return Some(self.number(UpdateEvent::Renewal { lifetime }));
                }
                _ = self.turns.tick() => self.take_changes()?,
                () = granted(self.turn.as_ref()) => {}
            }
        }
    }

    fn next_start(&self) -> Option<ImminentStart> {
        let (event, estimate) = self.queue.take()?;
        let now = self.published.now();
        let delay = now.since(event.at);
        let lease = self.published.shared.state.write().lease(self.queue.host_id, &estimate, now);
        self.published.measures().start_sent_seconds.observe(delay.as_secs_f64());
        Some(ImminentStart {
            host: Endpoint { address: event.host, port: None },
            remote: Endpoint { address: event.remote, port: None },
            trigger: trigger(event.trigger),
            observed: event.at,
            delay,
            estimate: self.update(&estimate, lease),
        })
    }

    /// What is not paced: an estimate ended, or a lease changed for which other hosts wait.
    fn next_urgent(&mut self) -> Option<UpdateEvent> {
        let network = self.queue.take_now()?;
        Some(self.state_of(network))
    }

    /// The current state of a network as an update.
    fn state_of(&mut self, network: Network) -> UpdateEvent {
        match self.published.advice_for(self.queue.host_id, network) {
            Ok((estimate, lease)) => {
                self.phase.count();
                UpdateEvent::Estimate(self.update(&estimate, lease))
            }
            Err(reason) => UpdateEvent::Withdrawal { network, reason },
        }
    }

    fn update(&self, estimate: &Estimate, lease: Segments) -> EstimateUpdate {
        EstimateUpdate { estimate: estimate.clone(), lifetime: self.published.config().lifetime, lease: Some(lease) }
    }

    fn number(&mut self, event: UpdateEvent) -> Update {
        self.sequence += 1;
        Update { sequence: self.sequence, event }
    }
}

/// Returns when there is a turn and it has come.
async fn granted(turn: Option<&Turn>) {
    match turn {
        Some(turn) => turn.granted().await,
        None => pending().await,
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut outbound = self.published.shared.outbound.lock();
        outbound.subscribers.remove(self.id);
        let left = outbound.subscribers.unclaimed(self.queue.addresses());
        drop(outbound);
        self.published.notify_seats(&left, false);
        self.published.shared.state.write().leases.leave(self.queue.host_id, self.published.now());
        self.published.shared.insight.agent(self.published.now(), "left", &self.queue.subscriber);
    }
}
