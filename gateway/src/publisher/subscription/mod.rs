//! One subscriber's stream: snapshot, then changes and renewals, with starts overtaking everything (so a start may come
//! at any place, inside a snapshot too). A gap in the sequence is what was dropped before a resync.
//!
//! Nothing is buffered per subscriber but its waiting starts, the networks at which it has to look, and the place it has
//! reached in the shared ring of changes. Falling out of that ring is a resync: the marker, then a new snapshot read from the
//! published state.

mod changes;
mod snapshot;

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use spand_core::service;
use spand_proto::estimate::Estimate;
use spand_proto::push::{Endpoint, EstimateUpdate, ImminentStart, Update, UpdateEvent};
use tokio::sync::broadcast::Receiver;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep, interval_at, sleep_until};

use self::snapshot::Phase;
use super::Published;
use super::change::{Broadcast, Change, trigger};
use super::insight::Kind;
use super::leases::TooManyHosts;
use super::mailbox::{Mailbox, SubscribeError, Subscriber};
use super::talking::News;

/// A running subscription; ends when dropped.
#[derive(Debug)]
pub struct Subscription {
    published: Published,
    id: u64,
    mailbox: Arc<Mailbox>,
    changes: Receiver<Broadcast>,
    /// Changes received and not handed out yet, with the place of the next.
    batch: (Arc<[Change]>, usize),
    /// Number of the next change this subscription expects, of all ever told.
    next_number: u64,
    phase: Phase,
    /// Sizes of the host's services that are to be told, and when all of them are told again.
    sizes: std::vec::IntoIter<service::ServiceSize>,
    sizes_again: Instant,
    /// When to take more than starts.
    turn: Pin<Box<Sleep>>,
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
        let (changes, next_number) = shared.gather.listen()?;
        let now = published.now();
        let mut only_one = None;
        let mut subscribers = shared.subscribers.lock();
        let (id, mailbox, left_out) = subscribers.add((subscriber, now), addresses, &shared.config, |addresses| {
            let joined = shared.leases.lock().join(addresses, now);
            let joined = joined.map_err(|TooManyHosts(hosts)| SubscribeError::TooManyHosts(hosts))?;
            only_one = joined.was_only_one;
            Ok(joined.host)
        })?;
        if let Some(holder) = only_one {
            subscribers.tell_anew(holder);
        }
        drop(subscribers);
        published.measures().addresses_left_out.inc_by(left_out as u64);
        let every = shared.config.renewal;
        let mut renewal = interval_at(Instant::now() + every, every);
        renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            published: published.clone(),
            id,
            mailbox,
            changes,
            batch: (Arc::from([]), 0),
            next_number,
            phase: Phase::Begin,
            sizes: Vec::new().into_iter(),
            sizes_again: Instant::now(),
            turn: Box::pin(sleep_until(Instant::now())),
            renewal,
            sequence: 0,
        })
    }

    /// The next update; `None` when the gateway stops. Cancelling this loses nothing.
    pub async fn next(&mut self) -> Option<Update> {
        loop {
            // Others may run after 128 messages at most. The transport asks a stream that has nothing more once again before it
            // lets go of its task, so that it has to say so until it is run anew: `yield_now` says it once.
            consume_budget().await;
            if let Some(start) = self.next_start() {
                return Some(self.number(UpdateEvent::ImminentStart(start)));
            }
            // What was dropped is said first; a snapshot follows that anyway.
            if self.mailbox.take_anew() && !matches!(self.phase, Phase::Resync(..)) {
                self.phase = Phase::Begin;
            }
            if let Some(event) = self.next_marked().or_else(|| self.next_in_hand()) {
                return Some(self.number(event));
            }
            tokio::select! {
                biased;
                () = self.mailbox.arrived() => {}
                _ = self.renewal.tick() => {
                    if matches!(self.phase, Phase::Live) && Instant::now() >= self.sizes_again {
                        self.tell_sizes();
                    }
                    let lifetime = self.published.config().lifetime;
                    return Some(self.number(UpdateEvent::Renewal { lifetime }));
                }
                () = self.turn.as_mut() => self.take_turn()?,
            }
        }
    }

    fn next_start(&self) -> Option<ImminentStart> {
        let (event, estimate) = self.mailbox.take()?;
        let delay = self.published.now().since(event.at);
        self.published.measures().start_sent_seconds.observe(delay.as_secs_f64());
        Some(ImminentStart {
            host: Endpoint { address: event.host, port: None },
            remote: Endpoint { address: event.remote, port: None },
            trigger: trigger(event.trigger),
            observed: event.at,
            delay,
            estimate: self.update(&estimate),
        })
    }

    /// What there is to say of a network that was marked: the lease changed, which does not wait for a turn since others wait
    /// for the news, or, where hosts are told only of networks that they talk with, anything did.
    fn next_marked(&mut self) -> Option<UpdateEvent> {
        loop {
            let network = self.mailbox.take_mark()?;
            match self.published.news(self.mailbox.holder, network) {
                Some(News::Estimate(estimate)) => {
                    self.phase.count();
                    return Some(UpdateEvent::Estimate(self.update(&estimate)));
                }
                Some(News::Withdrawn(reason)) => return Some(UpdateEvent::Withdrawal { network, reason }),
                None => {}
            }
        }
    }

    /// The next of what was taken at the last turn.
    fn next_in_hand(&mut self) -> Option<UpdateEvent> {
        match self.phase {
            Phase::Live => self.next_change(),
            _ => self.next_of_snapshot(),
        }
    }

    /// Takes the next page or the next changes; `None` when the gateway stops.
    fn take_turn(&mut self) -> Option<()> {
        match self.phase {
            Phase::Snapshot { .. } => self.take_page(),
            _ => self.take_changes(),
        }
    }

    fn update(&self, estimate: &Estimate) -> EstimateUpdate {
        let share = estimate.share_segments(estimate.mss);
        let mut leases = self.published.shared.leases.lock();
        let lease = leases.lease(self.mailbox.holder, estimate.network, share, self.published.now());
        drop(leases);
        EstimateUpdate { estimate: estimate.clone(), lifetime: self.published.config().lifetime, lease: Some(lease) }
    }

    fn number(&mut self, event: UpdateEvent) -> Update {
        self.sequence += 1;
        Update { sequence: self.sequence, event }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.published.shared.subscribers.lock().remove(self.id);
        self.published.shared.leases.lock().leave(self.mailbox.holder, self.published.now());
        if let Some(name) = &self.mailbox.subscriber.host_name {
            self.published.shared.insight.note(self.published.now(), Kind::Agent, "left", name.to_string());
        }
    }
}
