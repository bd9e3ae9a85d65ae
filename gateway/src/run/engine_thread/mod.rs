//! The engine's thread: packets in order of time, time without packets, and what comes of both to publisher and store.
//!
//! A start goes to its host before the next packet is looked at. Everything else is collected over the packets that were
//! waiting and handed over together. Nothing here blocks: the store has a thread of its own.

mod publish;

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant};

use spand_core::counters::Ignored;
use spand_core::engine::Engine;
use spand_core::event::Event;
use spand_core::networks::reported::ReportedConnection;
use spand_core::service::TransferEnded;
use spand_core::types::SampleRate;
use spand_proto::units::{Micros, Timestamp};

use super::capture::Captures;
use super::grouping::Groups;
use super::order::Order;
use super::queue::{FrameBatch, Taken};
use super::reported;
use super::shedding::Shedding;
use crate::publisher::{Batch, Published};
use crate::sharing::EngineEnd;
use crate::store::StoreWriter;

/// How far the engine's time stays behind the clock when no packets come: what the kernel or a capture thread still holds
/// is not older than this, so it is not taken for time running backwards.
const GRACE: Micros = Micros::from_millis(50);
/// How often changed networks go to publisher and store, and numbers to the metrics.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);
/// So few packets taken at once do not wait for anything: what is due may happen, however long that takes.
const FEW_PACKETS: usize = 64;
/// Shortest wait for packets: a timeout that is due already is looked at no oftener.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
/// Packets wait no longer for what is due in one turn.
const DUE_FOR: Duration = Duration::from_millis(2);
/// Events handed to the publisher at a time.
const EVENTS: usize = 1_024;

/// Transfers that may wait for the first engine.
const TRANSFERS: usize = 65_536;

/// What becomes of transfers whose size is wanted.
#[derive(Debug)]
enum Transfers {
    /// The first engine keeps them; the others' come here.
    Keep(Receiver<TransferEnded>),
    /// Sends to the first engine.
    Send(SyncSender<TransferEnded>),
}

/// Owns the engine and everything only its thread touches.
pub(super) struct EngineThread {
    pub(super) engine: Engine,
    pub(super) published: Published,
    pub(super) captures: Arc<Captures>,
    pub(super) store: Option<Arc<StoreWriter>>,
    /// Which of the engines it is.
    shard: usize,
    transfers: Transfers,
    /// What hosts reported of its networks.
    pub(super) reported: Receiver<ReportedConnection>,
    /// Where it shares with other gateways.
    share: Option<EngineEnd>,
    shedding: Shedding,
    /// In force in the engine.
    groups: Arc<Groups>,
    pub(super) batch: Batch,
    events_lost: u64,
    /// When the first packet was captured.
    oldest: Option<Timestamp>,
    /// When the newest packet was captured.
    newest: Option<Timestamp>,
    /// There is more to do than fitted into the turn: what else comes is taken first, and not waited for.
    pub(super) more_waits: bool,
}

impl EngineThread {
    /// A thread's work for each engine; the first keeps the services of all.
    pub(super) fn each(
        engines: Vec<Engine>,
        published: &Published,
        captures: &Arc<Captures>,
        store: Option<&Arc<StoreWriter>>,
        share: Vec<EngineEnd>,
    ) -> Vec<Self> {
        let (sender, receiver) = mpsc::sync_channel(TRANSFERS);
        let (mut receiver, mut share) = (Some(receiver), share.into_iter());
        let reported = reported::receivers(engines.len(), published, captures);
        let each = engines.into_iter().zip(reported).enumerate().map(|(shard, (engine, reported))| {
            let transfers = receiver.take().map_or_else(|| Transfers::Send(sender.clone()), Transfers::Keep);
            let shared = (published.clone(), Arc::clone(captures), store.cloned());
            Self::new((shard, engine), (transfers, reported), share.next(), shared)
        });
        each.collect()
    }

    fn new(
        (shard, mut engine): (usize, Engine),
        (transfers, reported): (Transfers, Receiver<ReportedConnection>),
        share: Option<EngineEnd>,
        (published, captures, store): (Published, Arc<Captures>, Option<Arc<StoreWriter>>),
    ) -> Self {
        // Counts starts from here on: under overload the limit of each network follows from them.
        engine.keep(SampleRate::ALL);
        let events_lost = engine.counters().ignored(Ignored::EventQueueFull);
        let groups = captures.grouping.in_force();
        Self {
            engine,
            published,
            captures,
            store,
            shard,
            transfers,
            reported,
            share,
            shedding: Shedding::new(Instant::now()),
            groups,
            batch: Batch::new(),
            events_lost,
            oldest: None,
            newest: None,
            more_waits: false,
        }
    }

    /// Runs until the queue is closed and empty; then everything known is saved.
    pub(super) fn run(mut self) {
        let mut packets = Vec::new();
        let mut order = Order::default();
        let mut published = Instant::now();
        loop {
            let wait = if self.more_waits {
                Duration::ZERO
            } else {
                self.until_due().map_or(PUBLISH_INTERVAL, Duration::from).clamp(SHORTEST_WAIT, PUBLISH_INTERVAL)
            };
            self.more_waits = false;
            let captures = Arc::clone(&self.captures);
            let Some(queue) = captures.queues.get(self.shard) else { return };
            match queue.take(&mut packets, Instant::now() + wait) {
                Taken::Packets => {
                    self.shed(&packets, queue.limit(), Instant::now());
                    self.packets(&packets, &mut order);
                    if packets.iter().map(FrameBatch::len).sum::<usize>() < FEW_PACKETS {
                        self.pass_time(before(self.published.now(), GRACE));
                    }
                }
                Taken::Nothing => self.pass_time(before(self.published.now(), GRACE)),
                Taken::Closed => break,
            }
            self.regroup();
            self.take_transfers();
            self.take_reported();
            self.share();
            self.hand_over();
            if published.elapsed() >= PUBLISH_INTERVAL {
                published = Instant::now();
                self.publish_state();
            }
        }
        self.save_all();
    }

    /// Takes other prefixes where there are; what they drop is withdrawn before another packet is looked at.
    pub(super) fn regroup(&mut self) {
        if self.captures.grouping.renew(&mut self.groups) {
            let Groups { internal, networks, own_listeners, .. } = self.groups.as_ref();
            self.engine.set_own_listeners(own_listeners.clone());
            let gone = self.engine.set_prefixes(internal.clone(), networks.clone());
            tracing::info!(engine = self.shard, networks_dropped = gone, "new prefixes are in force");
            self.take_events();
        }
    }

    /// Follows fewer connections where too many packets waited, more where there is room again.
    pub(super) fn shed(&mut self, waiting: &[FrameBatch], limit: usize, now: Instant) {
        let waiting = waiting.iter().map(FrameBatch::len).sum();
        if let Some(kept) = self.shedding.look(waiting, limit, now) {
            tracing::warn!(
                engine = self.shard,
                followed = kept.share(),
                waiting,
                "the part of the starts that is followed changed"
            );
            self.engine.keep(kept);
        }
    }

    fn packets(&mut self, batches: &[FrameBatch], order: &mut Order) {
        for (at, frame) in order.by_time(batches) {
            self.engine.handle_frame(at, &frame);
            self.oldest.get_or_insert(at);
            self.newest = self.newest.max(Some(at));
            self.take_events();
        }
    }

    /// Time until the engine's next timeout is due.
    fn until_due(&self) -> Option<Micros> {
        self.engine.poll_timeout().map(|due| due.after(GRACE).since(self.published.now()))
    }

    /// Lets what is due by `now` happen at its own time, a little at a time, so that no packet waits for many networks to age. Between
    /// packets the engine sees to that itself.
    fn pass_time(&mut self, now: Timestamp) {
        let (begun, mut latest) = (Instant::now(), None);
        while let Some(due) = self.engine.poll_timeout().filter(|&due| due <= now && Some(due) > latest) {
            self.engine.handle_timeout(due);
            self.take_events();
            latest = Some(due);
            if begun.elapsed() >= DUE_FOR {
                self.more_waits = true;
                return;
            }
        }
    }

    pub(super) fn take_events(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::StartImminent(start) => {
                    if self.published.push_start(start) {
                        self.engine.note_advised(start.host, start.remote, start.at);
                    }
                }
                Event::Established(connection) => self.published.established(&connection),
                Event::DirectionEnded(_) => {}
                Event::TransferEnded(ended) => self.send_transfer(ended),
                event => self.batch.events.push(event),
            }
            if self.batch.events.len() >= EVENTS {
                self.hand_over();
            }
        }
    }

    /// Sends a transfer to the first engine; if its queue is full, the transfer is dropped, counted.
    fn send_transfer(&mut self, ended: TransferEnded) {
        if let Transfers::Send(sender) = &self.transfers
            && sender.try_send(ended).is_err()
        {
            self.engine.transfer_queue_full();
        }
    }

    /// Takes the transfers of the other engines.
    fn take_transfers(&mut self) {
        if let Transfers::Keep(receiver) = &self.transfers {
            for ended in receiver.try_iter() {
                self.engine.take_transfer(ended);
            }
            self.take_events();
        }
    }

    /// Exchanges cells with other gateways.
    pub(super) fn share(&mut self) {
        if let Some(end) = &mut self.share {
            self.more_waits |= end.turn(&mut self.engine, self.published.now());
            self.take_events();
        }
    }

    /// Gives the publisher what has been collected.
    fn hand_over(&mut self) {
        if let Some(batch) = self.due() {
            self.published.apply(batch);
        }
    }

    /// What has been collected, due from now on: until something came there was nothing to publish.
    pub(super) fn due(&mut self) -> Option<Batch> {
        let due = !self.batch.events.is_empty() || self.batch.engine.is_some();
        due.then(|| Batch { polled: Instant::now(), ..std::mem::take(&mut self.batch) })
    }
}

/// The moment `span` before `now`.
fn before(now: Timestamp, span: Micros) -> Timestamp {
    Timestamp(now.0.saturating_sub(span.0.saturating_mul(1_000)))
}
