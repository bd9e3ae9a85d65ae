//! The hub: a thread between the engines of this gateway and the exchange. It packs cells and decides what leaves; it estimates nothing, and
//! nobody waits for it.

mod receive;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use spand_cells::{Addressed, Cell, Digest, GatewayId};
use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::complaints::Complaints;
use crate::digests::{Digests, Missing};
use crate::engine_end::{EngineCounts, EngineEnd, HubEnd, List, ToEngine, cells, ends};
use crate::exchange::{Exchange, Incoming, Link, LinkState, MESSAGE_BYTES, Outgoing, Topic};
use crate::format::{BatchWriter, Member, NOTICES_AT_ONCE, write_again, write_member};
use crate::losses::Losses;
use crate::measure::TopicLabel;
use crate::members::Members;
use crate::notices::{NOTICES, NoticeEnd};
use crate::outliers::Warned;
use crate::publisher::Publisher;
use crate::status::{ShareStatus, ShareView};

/// Messages that may wait for the exchange, and from it: with cells, and others.
const MESSAGES: usize = 1_024;
const WITH_CELLS: usize = 512;
const OTHERS: usize = 512;
/// How long a cell of an open bucket waits for others, and how many times as long one of a closed bucket.
const GATHER: Duration = Duration::from_millis(100);
const CLOSED_TICKS: u64 = 5;
/// Notices that come within this time of a message leave with the next one.
const REST: Duration = Duration::from_millis(2);
/// How soon after messages get through again cells are sent again: others that lost their connection, too, are there by then.
const AGAIN_AFTER: Duration = if cfg!(test) { Duration::from_millis(100) } else { Duration::from_secs(1) };
/// How soon cells are offered again to an engine that had no room.
const HELD: Duration = Duration::from_millis(2);
/// How often a gateway says who it is.
const MEMBER: Duration = if cfg!(test) { Duration::from_millis(500) } else { Duration::from_secs(5) };
/// Cells that came are compared with the digests of members at most once in this time: a member may send any number of messages.
const COMPARED: Duration = if cfg!(test) { Duration::from_millis(100) } else { Duration::from_secs(1) };
/// The digest of a bucket is named this long after its end: late packets have been added by then, and its cells have left.
const SETTLED: Micros = Micros::from_secs(5);

/// Bytes of what may wait between the hub and the exchange, in both directions, and at the publisher's end of it.
pub(super) const fn most_bytes() -> usize {
    (MESSAGES + WITH_CELLS + OTHERS) * MESSAGE_BYTES + NOTICES * size_of::<Addressed>()
}

/// Finds the engine that a network belongs to.
pub type Owner = Box<dyn Fn(Network) -> usize + Send>;

/// A running hub.
#[derive(Debug)]
pub struct Sharing {
    status: ShareStatus,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What a hub works with.
struct Hub {
    members: Members,
    bucket: Micros,
    engines: Vec<HubEnd>,
    owner: Owner,
    /// Cells of the last message for which an engine had no room yet: the exchange waits for them, since what is dropped here is not sent again.
    held: VecDeque<(Topic, Network, Cell)>,
    clock: Arc<dyn Publisher>,
    outgoing: mpsc::Sender<Outgoing>,
    batches: BTreeMap<(Topic, Option<GatewayId>), BatchWriter>,
    notices: NoticeEnd,
    state: LinkState,
    was_up: bool,
    losses: Losses,
    /// When the link changed.
    changed: Instant,
    /// What did not come of others, and they asked for.
    digests: Digests,
    /// When cells were last compared with digests.
    compared: Option<Instant>,
    warned: Warned,
    complaints: Complaints,
    /// Gateways that were logged as seeing the same packets.
    duplicates: BTreeSet<GatewayId>,
    status: ShareStatus,
}

impl Sharing {
    /// Starts a hub for this many engines, on a thread of its own.
    ///
    /// # Errors
    ///
    /// Where the thread or what it waits with cannot be had.
    pub fn start<E: Exchange>(
        exchange: E,
        own: Member,
        engines: usize,
        owner: Owner,
        published: Arc<dyn Publisher>,
    ) -> io::Result<(Self, Vec<EngineEnd>)> {
        let (sender, cells) = cells();
        let (outgoing, to_exchange) = mpsc::channel(MESSAGES);
        let ((with_cells, cells_of_others), (from_exchange, others)) =
            (mpsc::channel(WITH_CELLS), mpsc::channel(OTHERS));
        let (state, seen) = watch::channel(LinkState::default());
        let streams = Arc::default();
        let status = ShareStatus::from(ShareView {
            own: Some(own.clone()),
            streams: Arc::clone(&streams),
            ..ShareView::default()
        });
        let link = Link { outgoing: to_exchange, cells: with_cells, incoming: from_exchange, state, streams };
        status.measures.configured.set(1);
        let (engine_ends, hub_ends): (Vec<_>, Vec<_>) =
            (0..engines).map(|_| ends(sender.clone(), status.clone())).unzip();
        let (notices, waiting) = NoticeEnd::new(Arc::clone(&published));
        let hub = Hub {
            bucket: own.bucket,
            members: Members::new(own),
            engines: hub_ends,
            owner,
            held: VecDeque::new(),
            clock: published,
            outgoing,
            batches: BTreeMap::new(),
            notices,
            state: LinkState::default(),
            was_up: false,
            losses: Losses::default(),
            changed: Instant::now(),
            digests: Digests::default(),
            compared: None,
            warned: Warned::default(),
            complaints: Complaints::default(),
            duplicates: BTreeSet::new(),
            status: status.clone(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("share".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = Box::new(exchange).run(link) => tracing::error!("the exchange ended"),
                    () = hub.run(cells, waiting, (cells_of_others, others), seen) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok((Self { status, stop: Some(stop), thread: Some(thread) }, engine_ends))
    }

    /// How it is.
    pub fn status(&self) -> &ShareStatus {
        &self.status
    }

    /// Ends it, and waits until it has ended.
    pub fn stop(self) {}
}

impl Drop for Sharing {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has logged it.
            drop(thread.join());
        }
    }
}

impl Hub {
    async fn run(
        mut self,
        mut cells: mpsc::Receiver<List>,
        mut notices: mpsc::Receiver<Addressed>,
        (mut cells_of_others, mut others): (mpsc::Receiver<Incoming>, mpsc::Receiver<Incoming>),
        mut state: watch::Receiver<LinkState>,
    ) {
        let mut gather = interval(GATHER);
        gather.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut member = interval(MEMBER);
        member.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut ticks, mut waiting, mut is_resting) = (0_u64, Vec::new(), false);
        let (rest, held) = (sleep(REST), sleep(HELD));
        tokio::pin!(rest, held);
        loop {
            tokio::select! {
                changed = state.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let new = state.borrow_and_update().clone();
                    self.link(new);
                }
                // There is a sender as long as there are engines; when they have ended, what is on its way still leaves.
                Some((to, cells)) = cells.recv() => {
                    for (network, cell) in cells {
                        self.send(to, network, &cell);
                    }
                }
                _ = notices.recv_many(&mut waiting, NOTICES_AT_ONCE), if !is_resting => {
                    self.notify(std::mem::take(&mut waiting));
                    rest.as_mut().reset(tokio::time::Instant::now() + REST);
                    is_resting = true;
                }
                () = &mut rest, if is_resting => is_resting = false,
                message = others.recv() => match message {
                    Some(message) => self.receive(&message),
                    None => return,
                },
                message = cells_of_others.recv(), if self.held.is_empty() => match message {
                    Some(message) => {
                        self.receive(&message);
                        held.as_mut().reset(tokio::time::Instant::now() + HELD);
                    }
                    None => return,
                },
                () = &mut held, if !self.held.is_empty() => {
                    self.hand_over();
                    held.as_mut().reset(tokio::time::Instant::now() + HELD);
                }
                _ = gather.tick() => {
                    ticks += 1;
                    let all = ticks.is_multiple_of(CLOSED_TICKS);
                    let due = self.batches.keys().filter(|(topic, _)| all || *topic == Topic::Open);
                    for (topic, to) in due.copied().collect::<Vec<_>>() {
                        self.flush(topic, to);
                    }
                    self.send_again();
                    self.complain();
                }
                _ = member.tick() => self.announce(),
            }
        }
    }

    fn send(&mut self, to: Option<GatewayId>, network: Network, cell: &Cell) {
        let closed = cell.as_of.0 >= self.end_of(cell.index());
        let topic = match to {
            Some(_) => Topic::Again,
            None if closed => Topic::Closed,
            None => Topic::Open,
        };
        if !self.state.carries() {
            if to.is_none() {
                self.losses.lost(cell.index());
            }
            return;
        }
        if to.is_none() {
            self.losses.leaves(cell.index(), self.current());
        }
        if !self.batch(topic, to, cell).add(network, cell) {
            self.flush(topic, to);
            self.batch(topic, to, cell).add(network, cell);
        }
    }

    /// Sends notices. What has no room is lost: each says what that costs.
    fn notify(&mut self, notices: Vec<Addressed>) {
        if !self.state.carries() || notices.is_empty() {
            return;
        }
        let count = notices.len() as u64;
        for message in self.notices.messages(notices, self.clock.now()) {
            let bytes = message.payload.len() as u64;
            if self.outgoing.try_send(message).is_ok() {
                self.status.measures.bytes_sent.inc_by(bytes);
            } else {
                self.status.measures.notices_dropped.inc_by(count);
            }
        }
    }

    fn batch(&mut self, topic: Topic, to: Option<GatewayId>, cell: &Cell) -> &mut BatchWriter {
        let new = || BatchWriter::new(cell.gateway, cell.tap, self.bucket);
        self.batches.entry((topic, to)).or_insert_with(new)
    }

    fn flush(&mut self, topic: Topic, to: Option<GatewayId>) {
        let Some(batch) = self.batches.remove(&(topic, to)).filter(|batch| !batch.is_empty()) else { return };
        let cells = batch.len() as u64;
        let payload = batch.finish();
        let (bytes, label) = (payload.len() as u64, TopicLabel::of(topic));
        if self.outgoing.try_send(Outgoing { topic, to, payload }).is_ok() {
            self.status.measures.cells_sent.get_or_create(&label).inc_by(cells);
            self.status.measures.bytes_sent.inc_by(bytes);
        } else {
            self.status.measures.dropped.inc_by(cells);
            // One that asked asks again.
            if to.is_none() {
                self.losses.lost_on_the_way(self.current());
            }
        }
    }

    /// Has the engines send again what may not have arrived, once messages get through.
    fn send_again(&mut self) {
        let is_early = self.changed.elapsed() < AGAIN_AFTER;
        if !self.state.carries() || is_early || self.outgoing.capacity() < MESSAGES / 2 {
            return;
        }
        let Some(from) = self.losses.take() else { return };
        for engine in &self.engines {
            if engine.engine.try_send(ToEngine::SendAgain(from)).is_err() {
                self.losses.lost(from);
            }
        }
    }

    /// What became of cells at each engine.
    fn counts(&self) -> Vec<EngineCounts> {
        self.engines.iter().map(|end| end.counts.lock().clone()).collect()
    }

    /// Asks other gateways for what did not come of them.
    fn ask_for_missing(&mut self, counts: &[EngineCounts]) {
        // What came waits for an engine.
        if !self.state.carries() || !self.held.is_empty() {
            return;
        }
        // A gateway with too little room asks for nothing that it had none for.
        let no_room = |of: &(GatewayId, u64)| counts.iter().any(|counts| counts.table.no_room.contains(of));
        let mut heard = BTreeMap::<(GatewayId, u64), Digest>::new();
        for (key, digest) in counts.iter().flat_map(|counts| &counts.table.heard) {
            let all = heard.entry(*key).or_default();
            *all = all.with(*digest);
        }
        for Missing { gateway, buckets } in self.digests.ask(
            self.members.compatible(),
            |of, sent| heard.get(of) == Some(sent) || no_room(of),
            Instant::now(),
        ) {
            let count = buckets.len() as u64;
            tracing::debug!(
                gateway = gateway.0,
                count,
                "buckets of a gateway did not come whole; it is asked for them"
            );
            self.status.measures.buckets_asked.inc_by(count);
            let ask = Outgoing { topic: Topic::Host, to: Some(gateway), payload: write_again(&buckets) };
            // Where there is no room it is asked again.
            drop(self.outgoing.try_send(ask));
        }
    }

    /// What left of closed buckets, as this gateway names it.
    fn sent(counts: &[EngineCounts], clock: Timestamp, bucket_nanos: u64) -> Vec<(u64, Digest)> {
        let settled = clock.0.saturating_sub(SETTLED.0 * 1_000) / bucket_nanos;
        let mut sent = BTreeMap::<u64, Digest>::new();
        for (index, digest) in counts.iter().flat_map(|counts| &counts.table.sent) {
            let all = sent.entry(*index).or_default();
            *all = all.with(*digest);
        }
        sent.into_iter().filter(|(index, digest)| *index < settled && digest.cells > 0).collect()
    }

    /// The link changed.
    fn link(&mut self, state: LinkState) {
        if state == self.state {
            return;
        }
        let carried = self.state.carries();
        if matches!(state, LinkState::Down(_)) {
            // What was on its way is perhaps lost. Where it is known, it changes nothing when it comes again.
            self.losses.lost_on_the_way(self.current());
        }
        if state == LinkState::Up && self.complaints.over() {
            tracing::info!("sharing with other gateways");
        }
        if state.carries() && !self.was_up {
            self.was_up = true;
            // Others may not have heard this gateway before: everything of the window.
            self.losses.lost(0);
        }
        self.status.measures.up.set((state == LinkState::Up).into());
        let now = Instant::now();
        let mut view = self.status.view.lock();
        (view.link, view.since) = (state.clone(), Some(now));
        if state == LinkState::Up {
            view.first_up.get_or_insert(now);
        }
        if carried {
            view.up_until = Some(now);
        }
        drop(view);
        self.state = state;
        if carried != self.state.carries() {
            self.changed = now;
            let again = self.notices.again();
            // Others take notices of those whom they know.
            self.announce();
            self.notify(again);
        }
    }

    /// Warns of a link that is not as it should be.
    fn complain(&mut self) {
        match &self.state {
            LinkState::Down(why) if self.complaints.is_due(why, Instant::now()) => {
                tracing::warn!(why, "not sharing; going on with what is known; this is logged once an hour");
            }
            LinkState::Degraded(why) if self.complaints.is_due(why, Instant::now()) => {
                tracing::warn!(
                    why,
                    "sharing, but nothing is kept for gateways that are away; this is logged once an hour"
                );
            }
            LinkState::Up => self.complaints.right(),
            _ => {}
        }
    }

    /// Says who this gateway is, and forgets who is gone.
    fn announce(&mut self) {
        let clock = self.clock.now();
        let counts = self.counts();
        let digests = Self::sent(&counts, clock, self.bucket_nanos());
        let payload = write_member(self.members.own(clock, digests));
        if self.state.carries() {
            // The next one comes soon.
            drop(self.outgoing.try_send(Outgoing::to_all(Topic::Member, payload)));
        }
        if self.state.carries() && self.notices.is_time_for_seats(clock) {
            let seats = self.notices.seats_again(clock);
            self.notify(seats);
        }
        for gone in self.members.forget_gone(Instant::now()) {
            let GatewayId(number) = gone.member.gateway;
            tracing::warn!(
                gateway = number,
                name = gone.member.name,
                "a gateway is gone; what it saw counts until it ages"
            );
        }
        self.show(&counts);
    }

    fn show(&mut self, counts: &[EngineCounts]) {
        self.status.measures.set_engines(counts);
        for warning in self.warned.take(counts, Instant::now()) {
            let sentence = warning.sentence();
            tracing::warn!("{sentence}");
            self.notices.note_outlier(sentence);
        }
        self.warn_of_duplicates();
        self.show_members();
    }

    /// Warns of gateways that see the same packets and are no mirror group.
    fn warn_of_duplicates(&mut self) {
        let own = self.members.own_as_it_was().tap;
        let others = self.members.all().filter(|known| known.member.tap != own);
        for Member { gateway, name, .. } in others.map(|known| &known.member) {
            if self.status.measures.is_duplicate(*gateway) && self.duplicates.insert(*gateway) {
                let GatewayId(number) = gateway;
                tracing::warn!(
                    "gateway {number} ({name}) sees a fifth or more of the connections that this gateway sees, whose round trips and losses \
                     count twice: give both the same share.mirror_group, or mirror each packet to one of them, see docs/operate/share.md"
                );
            }
        }
    }

    fn show_members(&mut self) {
        self.notices.set_members(self.members.own_as_it_was(), self.members.all());
        let members: Vec<_> = self.members.all().cloned().collect();
        self.status.measures.members.set(i64::try_from(members.len()).unwrap_or(i64::MAX));
        let mut view = self.status.view.lock();
        view.cells_received.retain(|gateway, _| members.iter().any(|known| known.member.gateway == *gateway));
        view.members = members;
    }

    fn end_of(&self, index: u64) -> u64 {
        Timestamp(index.saturating_add(1).saturating_mul(self.bucket_nanos())).0
    }

    /// The number of the bucket that is open now.
    fn current(&self) -> u64 {
        self.clock.now().0 / self.bucket_nanos()
    }

    fn bucket_nanos(&self) -> u64 {
        self.bucket.0.max(1).saturating_mul(1_000)
    }
}
