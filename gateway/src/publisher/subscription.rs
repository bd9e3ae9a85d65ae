//! One subscriber's stream: snapshot, then changes and renewals, with starts overtaking everything (so a start may come
//! at any place, inside a snapshot too). A gap in the sequence is what was dropped before a resync.
//!
//! Nothing is buffered per subscriber but its waiting starts and the place it has reached in the shared ring of
//! changes. Falling out of that ring is a resync: the marker, then a new snapshot read from the published state.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use spand_core::service;
use spand_proto::contract::ContractVersion;
use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::push::{Endpoint, EstimateUpdate, ImminentStart, ResyncReason, ServiceSize, Update, UpdateEvent};
use spand_proto::units::Micros;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep, interval_at, sleep_until};

use super::Published;
use super::change::{Broadcast, Change, trigger};
use super::insight::Kind;
use super::mailbox::{Mailbox, SubscribeError, Subscriber};

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
    next_change: u64,
    phase: Phase,
    /// Sizes of the host's services that are to be told, and when all of them are told again.
    sizes: std::vec::IntoIter<service::ServiceSize>,
    sizes_again: Instant,
    /// When to take more than starts.
    turn: Pin<Box<Sleep>>,
    renewal: Interval,
    sequence: u64,
    /// Messages other than starts since this task last let others run.
    in_a_row: u32,
}

#[derive(Debug)]
enum Phase {
    /// Say that changes were lost, then begin anew.
    Resync(ResyncReason, u64),
    Begin,
    /// Pages of the published state, one at each turn.
    Snapshot {
        after: Option<Network>,
        page: std::vec::IntoIter<Network>,
        sent: u32,
    },
    /// The last page was sent.
    End {
        sent: u32,
    },
    /// Changes, as far as there are some at each turn.
    Live,
}

/// Networks of one page of a snapshot.
const SNAPSHOT_PAGE: u32 = 256;

/// Time between two turns of changes. Subscribers take theirs at different times within it, so that a start never waits
/// for all of them to be told the same news at once.
const TURN: Duration = Duration::from_millis(100);

/// Messages in a row after which others may run: about 100 µs of encoding.
const YIELD_AFTER: u32 = 32;

impl Subscription {
    /// Subscribes a host with its addresses.
    pub(super) fn begin(
        published: &Published,
        subscriber: Subscriber,
        addresses: &[IpAddr],
    ) -> Result<Self, SubscribeError> {
        let shared = &published.shared;
        // Listening before the snapshot is read: a change in between comes twice rather than never.
        let (changes, next_change) = shared.gather.listen()?;
        let now = published.now();
        let mut only_one = None;
        let mut subscribers = shared.subscribers.lock();
        let (id, mailbox) = subscribers.add((subscriber, now), addresses, &shared.config, |addresses| {
            let (holder, was_only_one) = shared.leases.lock().join(addresses, now);
            only_one = was_only_one;
            holder
        })?;
        if let Some(holder) = only_one {
            subscribers.tell_anew(holder);
        }
        drop(subscribers);
        let every = shared.config.renewal;
        let mut renewal = interval_at(Instant::now() + every, every);
        renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            published: published.clone(),
            id,
            mailbox,
            changes,
            batch: (Arc::from([]), 0),
            next_change,
            phase: Phase::Begin,
            sizes: Vec::new().into_iter(),
            sizes_again: Instant::now(),
            turn: Box::pin(sleep_until(Instant::now())),
            renewal,
            sequence: 0,
            in_a_row: 0,
        })
    }

    /// The next update; `None` when the gateway stops. Cancelling this loses nothing.
    pub async fn next(&mut self) -> Option<Update> {
        loop {
            if let Some(start) = self.next_start() {
                return Some(self.number(UpdateEvent::ImminentStart(start)));
            }
            if self.mailbox.take_anew() {
                self.phase = Phase::Begin;
            }
            if self.in_a_row >= YIELD_AFTER {
                self.in_a_row = 0;
                tokio::task::yield_now().await;
                continue;
            }
            if let Some(event) = self.next_lease().or_else(|| self.next_in_hand()) {
                self.in_a_row += 1;
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

    /// The estimate of a network in which the lease changed: it does not wait for a turn, since others wait for the news.
    fn next_lease(&mut self) -> Option<UpdateEvent> {
        let estimate = loop {
            let network = self.mailbox.take_lease()?;
            if let Some(estimate) = self.published.estimate(network) {
                break estimate;
            }
        };
        if let Phase::Snapshot { sent, .. } | Phase::End { sent } = &mut self.phase {
            *sent += 1;
        }
        Some(UpdateEvent::Estimate(self.update(&estimate)))
    }

    fn next_in_hand(&mut self) -> Option<UpdateEvent> {
        match &mut self.phase {
            Phase::Resync(reason, dropped_updates) => {
                let event = UpdateEvent::Resync { reason: *reason, dropped_updates: *dropped_updates };
                self.phase = Phase::Begin;
                Some(event)
            }
            Phase::Begin => {
                self.phase = Phase::Snapshot { after: None, page: Vec::new().into_iter(), sent: 0 };
                self.turn.as_mut().reset(self.published.shared.pace.reserve(SNAPSHOT_PAGE));
                let networks = u32::try_from(self.published.estimate_count()).unwrap_or(u32::MAX);
                Some(UpdateEvent::SnapshotBegin { version: ContractVersion::CURRENT, networks })
            }
            Phase::Snapshot { page, sent, .. } => {
                // Read anew and not kept from the page: a slow reader gets what holds when it reads.
                let estimate = page.find_map(|network| self.published.estimate(network))?;
                *sent += 1;
                Some(UpdateEvent::Estimate(self.update(&estimate)))
            }
            Phase::End { sent } => {
                let networks = *sent;
                self.phase = Phase::Live;
                self.published.shared.leases.lock().told_anew(self.mailbox.holder, self.published.now());
                self.tell_sizes();
                self.turn.as_mut().reset(first_turn(self.id));
                Some(UpdateEvent::SnapshotEnd { networks })
            }
            Phase::Live => {
                if let Some(size) = self.sizes.next() {
                    return Some(UpdateEvent::ServiceSize(self.size(&size)));
                }
                let (changes, place) = &mut self.batch;
                let own = |change: &Change| match change {
                    Change::Service(size) => self.mailbox.addresses().binary_search(&size.service.ip()).is_ok(),
                    Change::Estimate(_) | Change::Withdrawn(..) => true,
                };
                let next = changes.iter().skip(*place).position(own);
                *place = next.map_or(changes.len(), |skipped| *place + skipped + 1);
                let change = changes.get(place.checked_sub(1).filter(|_| next.is_some())?)?.clone();
                Some(match change {
                    Change::Estimate(estimate) => UpdateEvent::Estimate(self.update(&estimate)),
                    Change::Withdrawn(network, reason) => UpdateEvent::Withdrawal { network, reason },
                    Change::Service(size) => UpdateEvent::ServiceSize(self.size(&size)),
                })
            }
        }
    }

    /// Has all sizes of the host's own services told, now and before they would run out.
    fn tell_sizes(&mut self) {
        let of = |address: &IpAddr| self.published.services(Some(*address), None, usize::MAX);
        self.sizes = self.mailbox.addresses().iter().flat_map(of).collect::<Vec<_>>().into_iter();
        self.sizes_again = Instant::now() + Duration::from(self.published.config().retell);
    }

    fn size(&self, size: &service::ServiceSize) -> ServiceSize {
        let service::ServiceSize { service, quantile, transfers } = *size;
        // Two may be lost before it runs out, as with estimates.
        let lifetime = Micros(self.published.config().retell.0.saturating_mul(3));
        ServiceSize { service, quantile, transfers, lifetime }
    }

    /// Takes the next page or the next changes; `None` when the gateway stops.
    fn take_turn(&mut self) -> Option<()> {
        let Phase::Snapshot { after, page, sent } = &mut self.phase else {
            return self.take_changes();
        };
        let shared = &self.published.shared;
        if shared.gather.is_closed() {
            return None;
        }
        let views = self.published.page(*after, SNAPSHOT_PAGE as usize);
        let Some(last) = views.last() else {
            self.phase = Phase::End { sent: *sent };
            return Some(());
        };
        *after = Some(last.network);
        let estimated = views.iter().filter(|view| view.estimate.is_some());
        *page = estimated.map(|view| view.network).collect::<Vec<_>>().into_iter();
        self.turn.as_mut().reset(shared.pace.reserve(SNAPSHOT_PAGE));
        Some(())
    }

    /// Takes a batch of changes from the ring, and waits for the next turn once there is none.
    fn take_changes(&mut self) -> Option<()> {
        match self.changes.try_recv() {
            Ok(Broadcast::Changes { first, changes }) => {
                self.next_change = first + changes.len() as u64;
                self.batch = (changes, 0);
            }
            Ok(Broadcast::Replaced) => {
                self.published.measures().resyncs_state_replaced.inc();
                self.restart(ResyncReason::StateReplaced)?;
            }
            Err(TryRecvError::Lagged(_)) => {
                self.published.measures().resyncs_slow_reader.inc();
                self.restart(ResyncReason::SlowReader)?;
            }
            Err(TryRecvError::Empty) => {
                let next = self.turn.deadline() + TURN;
                self.turn.as_mut().reset(next.max(Instant::now()));
            }
            Err(TryRecvError::Closed) => return None,
        }
        Some(())
    }

    /// Lets go of everything not handed out and begins anew at the present state.
    fn restart(&mut self, reason: ResyncReason) -> Option<()> {
        let (changes, next_change) = self.published.shared.gather.listen().ok()?;
        let dropped = next_change.saturating_sub(self.next_change);
        self.published.measures().changes_dropped.inc_by(dropped);
        self.sequence += dropped;
        self.changes = changes;
        self.next_change = next_change;
        self.batch = (Arc::from([]), 0);
        self.phase = Phase::Resync(reason, dropped);
        Some(())
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

/// A subscriber's first turn of changes, at its own place between two turns.
fn first_turn(id: u64) -> Instant {
    // Steps of the golden ratio's share spread any number of consecutive subscribers evenly.
    let place = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    Instant::now() + TURN.mul_f64(place as f64 / f64::from(u32::MAX))
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
