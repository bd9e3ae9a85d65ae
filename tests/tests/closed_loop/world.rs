//! Simulates one bottleneck. Senders are beside the tap, the engine sees their packets, the publisher advises, and hosts start by the advice and
//! report.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use spand_core::config::EngineConfig;
use spand_core::engine::Engine;
use spand_core::event::Event as Found;
use spand_core::wire::Frame;
use spand_gateway::api::{Api, ApiConfig};
use spand_gateway::publisher::{Batch, PacketClock, Published, PublisherConfig};
use spand_proto::network::Network;
use spand_proto::units::{Bytes, BytesPerSecond, Micros, Timestamp};
use spand_tests::lab::path::{Hop, Link, LinkConfig, Packet as OnLink, Queue};
use spand_tests::trace::frame::encode;
use spand_tests::trace::packet::{ACK, FIN, MSS, PSH, Packet, SYN, Tuple, control};
use spand_tests::trace::receiver::{Acknowledgement, Receiver};

use crate::congestion::{Algorithm, BbrState, CubicState};
use crate::host::{Host, Outcome};
use crate::sender::{Next, Sender, Start};

/// When a run begins: some day.
const EPOCH_NS: u64 = 1_700_000_000_000_000_000;
/// The bottleneck: 200 full-sized packets a second over a round trip of 300 ms. Windows are those of a fast path, and the packets of ten
/// minutes are few.
pub(crate) const RATE: BytesPerSecond = BytesPerSecond(200 * 1_500);
const DELAY: Duration = Duration::from_millis(150);
const BACK_NS: u64 = 150_000_000;
/// What the path holds beside its queue, in segments.
pub(crate) const PIPE: u32 = 60;
/// Host and gateway hear of each other in steps of this: much less than a round trip.
const STEP_NS: u64 = 100_000_000;
/// How far the engine's time stays behind where no packets come, as in the gateway.
const GRACE: Micros = Micros::from_millis(50);
/// Bytes of headers on the link, with timestamps.
const HEADERS: u32 = 52;
const SERVER_ISN: u32 = 1_000_000;
const CLIENT_ISN: u32 = 5_000_000;
const REQUEST: u32 = 300;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Law {
    Reno,
    Cubic,
    Bbr,
}

impl Law {
    fn begin(self) -> Algorithm {
        match self {
            Self::Reno => Algorithm::Reno,
            Self::Cubic => Algorithm::Cubic(CubicState::default()),
            Self::Bbr => Algorithm::Bbr(BbrState::default()),
        }
    }
}

/// Someone who fetches one thing after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) host: usize,
    /// The last byte of its address.
    pub(crate) client: u8,
    pub(crate) law: Law,
    /// The smallest and largest transfer, of which the logarithm is drawn evenly.
    pub(crate) bytes: (f64, f64),
    /// The longest pause in seconds.
    pub(crate) pause_s: f64,
    /// When it comes and goes, in seconds.
    pub(crate) from_s: f64,
    pub(crate) until_s: f64,
    /// Part of what arrives that it claims not to have got.
    pub(crate) denies: f64,
}

impl User {
    pub(crate) const fn new(host: usize, client: u8, law: Law) -> Self {
        Self { host, client, law, bytes: (3e4, 3e6), pause_s: 2.0, from_s: 0.0, until_s: f64::INFINITY, denies: 0.0 }
    }

    /// One that sends nearly all the time.
    pub(crate) const fn bulk(host: usize, client: u8, law: Law) -> Self {
        Self { bytes: (1e6, 4e6), pause_s: 0.2, ..Self::new(host, client, law) }
    }
}

enum Event {
    Begin(usize),
    Request(Opened),
    Send(u32),
    Timer(u32),
}

/// A connection whose handshake is under way.
struct Opened {
    user: usize,
    tuple: Tuple,
    size: u32,
    answered_ns: u64,
}

struct Connection {
    opened: Opened,
    began_ns: u64,
    advised: Option<u32>,
    is_released: bool,
    is_reported: bool,
    sender: Sender,
    receiver: Receiver,
    wakes_ns: Option<u64>,
    /// When its timer is looked at.
    timer_ns: u64,
}

#[derive(Clone, Default)]
struct Clock(Arc<AtomicU64>);

impl PacketClock for Clock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

/// What the path and its users did in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Second {
    /// The share that is advised, in segments.
    pub(crate) share: Option<f64>,
    /// Segments above the default that were granted and not yet acknowledged: the most of the second.
    pub(crate) granted: u32,
    /// What `docs/explain/definitions.md` allows of them.
    pub(crate) budget: u32,
}

/// A loss that a sender met in congestion avoidance, and its window then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    pub(crate) second: f64,
    pub(crate) user: usize,
    pub(crate) window: f64,
}

pub(crate) struct World {
    rng: StdRng,
    link: Link,
    pub(crate) hosts: Vec<Host>,
    users: Vec<User>,
    connections: BTreeMap<u32, Connection>,
    events: BTreeMap<(u64, u32), Event>,
    /// Acknowledgements under way, in order: nothing overtakes on the path.
    answers: VecDeque<(u64, u32, Acknowledgement)>,
    order: u32,
    now_ns: u64,
    engine: Engine,
    frame: Vec<u8>,
    frame_ns: u64,
    batch: Batch,
    clock: Clock,
    pub(crate) published: Published,
    api: Api,
    pub(crate) seconds: Vec<Second>,
    /// What senders met.
    pub(crate) losses: Vec<Loss>,
    /// Transfers, and those that started on advice.
    pub(crate) starts: (u32, u32),
}

/// The network of all clients.
fn network() -> Network {
    Network::of([203, 0, 113, 0].into())
}

impl World {
    /// Nobody has sent yet. Needs a runtime whose time is paused.
    pub(crate) fn new(seed: u64, queue: u32, hosts: u8, agent: &str) -> Self {
        let clock = Clock::default();
        clock.0.store(EPOCH_NS, Ordering::Relaxed);
        let published = Published::new(PublisherConfig::default(), clock.clone());
        tokio::spawn(published.clone().run());
        let engine =
            EngineConfig { internal: vec!["10.0.0.0/8".parse().unwrap()], hash_seed: seed, ..EngineConfig::default() };
        Self {
            rng: StdRng::seed_from_u64(seed),
            link: Link::new(&LinkConfig::new(Hop::new(Some(RATE), Queue::Packets(queue), DELAY)), seed),
            hosts: (1..=hosts).map(|n| Host::new(&published, Ipv4Addr::new(10, 0, 0, n), agent)).collect(),
            users: Vec::new(),
            connections: BTreeMap::new(),
            events: BTreeMap::new(),
            answers: VecDeque::new(),
            order: 0,
            now_ns: EPOCH_NS,
            engine: Engine::new(engine),
            frame: Vec::new(),
            frame_ns: EPOCH_NS,
            batch: Batch::new(),
            clock,
            api: Api::new(ApiConfig::default(), published.clone(), None),
            published,
            seconds: Vec::new(),
            losses: Vec::new(),
            starts: (0, 0),
        }
    }

    pub(crate) fn add(&mut self, user: User) {
        let from_ns = EPOCH_NS + nanoseconds(user.from_s + self.rng.random_range(0.0..1.0) * user.pause_s.min(1.0));
        self.users.push(user);
        self.at(from_ns, Event::Begin(self.users.len() - 1));
    }

    pub(crate) fn set_rate(&mut self, rate: BytesPerSecond) {
        self.link.set_rate(rate);
    }

    /// Mean of the share in these seconds, of those that had one.
    pub(crate) fn mean_share(&self, seconds: std::ops::Range<usize>) -> f64 {
        let shares = self.seconds[seconds].iter().filter_map(|second| second.share);
        let (sum, count) = shares.fold((0.0, 0), |(sum, count), share| (sum + share, count + 1));
        sum / f64::from(count)
    }

    /// Runs until N seconds have passed since the beginning.
    pub(crate) async fn run_until(&mut self, second: usize) {
        while self.seconds.len() < second {
            let step_ns = self.now_ns + STEP_NS;
            loop {
                let event_ns = self.events.first_key_value().map_or(u64::MAX, |((at_ns, _), _)| *at_ns);
                let answer_ns = self.answers.front().map_or(u64::MAX, |(at_ns, ..)| *at_ns);
                if event_ns.min(answer_ns) > step_ns {
                    break;
                }
                self.set_now(event_ns.min(answer_ns));
                if event_ns < answer_ns {
                    if let Some((_, event)) = self.events.pop_first() {
                        self.happen(event);
                    }
                } else if let Some((_, id, answer)) = self.answers.pop_front() {
                    self.acknowledged(id, &answer);
                }
            }
            self.set_now(step_ns);
            self.step().await;
        }
    }

    fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.clock.0.store(now_ns, Ordering::Relaxed);
    }

    fn now_us(&self) -> u64 {
        self.now_ns / 1_000
    }

    /// What gateway and hosts do beside packets.
    async fn step(&mut self) {
        let now = Timestamp(self.now_ns);
        let mut latest = None;
        let until = now.before(GRACE);
        while let Some(due) = self.engine.poll_timeout().filter(|due| *due <= until && Some(*due) > latest) {
            self.engine.handle_timeout(due);
            latest = Some(due);
            self.take_events();
        }
        let steps = (self.now_ns - EPOCH_NS) / STEP_NS;
        drop(self.engine.changed_networks(64, now));
        self.take_events();
        if !self.batch.events.is_empty() {
            self.published.apply(std::mem::take(&mut self.batch));
        }
        for host in &mut self.hosts {
            host.report(&self.api, now).await;
        }
        tokio::time::sleep(Duration::from_nanos(STEP_NS)).await;
        for host in &mut self.hosts {
            host.listen(now);
        }
        let estimate = self.published.estimate(network());
        if steps.is_multiple_of(10) {
            let share = estimate.as_ref().map(|estimate| estimate.share.segments_f64(Bytes(MSS.into())));
            self.seconds.push(Second { share, ..Second::default() });
        }
        let view = self.published.network(network());
        let parallel = view.map_or(1, |view| view.parallel.min(view.parallel_at_samples).max(1));
        let budget = estimate.map_or(0, |estimate| estimate.share_segments(estimate.mss).0 * parallel);
        if let Some(second) = self.seconds.last_mut() {
            second.budget = second.budget.max(budget);
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            match event {
                Found::StartImminent(start) => {
                    if self.published.push_start(start) {
                        self.engine.note_advised(start.host, start.remote, start.at);
                    }
                }
                Found::Established(connection) => self.published.established(&connection),
                Found::DirectionEnded(_) | Found::TransferEnded(_) => {}
                event => self.batch.events.push(event),
            }
        }
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        self.order += 1;
        self.events.insert((at_ns, self.order), event);
    }

    /// The tap sees a packet that echoes the timestamp of `echo_ns`.
    fn tap(&mut self, tuple: &Tuple, packet: Packet, echo_ns: u64) {
        self.frame_ns = self.now_ns.max(self.frame_ns + 1_000);
        let packet = Packet { echo_ns: Some(echo_ns), ..packet };
        let wire_len = u32::try_from(encode(&mut self.frame, 0, self.frame_ns, tuple, &packet)).unwrap();
        let frame = Frame { link_type: 1, wire_len, input: 0, data: &self.frame };
        self.engine.handle_frame(Timestamp(self.frame_ns), &frame);
        self.take_events();
    }

    /// When a packet that leaves now is at its client, where it arrives.
    fn carry(&mut self, bytes: u32) -> Option<u64> {
        self.link.offer(self.now_ns, OnLink { length: bytes, ecn: false, push: false }).ok().map(|passed| passed.due_ns)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Begin(user) => self.begin(user),
            Event::Request(opened) => self.request(opened),
            Event::Send(id) => self.with(id, |_, connection| connection.wakes_ns = None),
            Event::Timer(id) => self.with(id, |world, connection| world.timer(id, connection)),
        }
    }

    fn begin(&mut self, index: usize) {
        let user = self.users[index];
        if self.now_ns >= EPOCH_NS + nanoseconds(user.until_s.min(1e6)) {
            return;
        }
        let port = 1_024 + u16::try_from(self.order % 60_000).unwrap();
        let server = (self.hosts[user.host].address, 443);
        let tuple = Tuple { server, client: (Ipv4Addr::new(203, 0, 113, user.client), port) };
        let (least, most) = user.bytes;
        let size = (self.rng.random_range(0.0..=1.0) * (most / least).ln()).exp() * least;
        let size = u32::try_from(whole(size)).unwrap();
        self.tap(&tuple, control(false, CLIENT_ISN, 0, SYN, 0), self.now_ns);
        self.tap(&tuple, control(true, SERVER_ISN, CLIENT_ISN + 1, SYN | ACK, 0), self.now_ns);
        // One that is lost is sent again when the queue is shorter: no part of what is looked at.
        let due_ns = self.carry(HEADERS).unwrap_or(self.now_ns + BACK_NS);
        let opened = Opened { user: index, tuple, size, answered_ns: self.now_ns };
        self.at(due_ns + BACK_NS, Event::Request(opened));
    }

    fn request(&mut self, opened: Opened) {
        let (tuple, answered_ns, user) = (opened.tuple, opened.answered_ns, self.users[opened.user]);
        self.tap(&tuple, control(false, CLIENT_ISN + 1, SERVER_ISN + 1, ACK, 0), answered_ns);
        self.tap(&tuple, control(false, CLIENT_ISN + 1, SERVER_ISN + 1, ACK | PSH, REQUEST), answered_ns);
        self.order += 1;
        let (id, now, rtt) = (self.order, Timestamp(self.now_ns), Micros((self.now_ns - answered_ns) / 1_000));
        let start = self.hosts[user.host].start(id, tuple.client.0.into(), rtt, now);
        self.starts = (self.starts.0 + 1, self.starts.1 + u32::from(start.is_some()));
        let granted = self.hosts.iter().map(|host| host.reserved(network())).sum();
        if let Some(second) = self.seconds.last_mut() {
            second.granted = second.granted.max(granted);
        }
        let (segments, plain) = (u64::from(opened.size.div_ceil(MSS)), start.unwrap_or(Start::PLAIN));
        let connection = Connection {
            opened,
            began_ns: self.now_ns,
            advised: start.map(|start| start.window),
            is_released: false,
            is_reported: false,
            sender: Sender::new(user.law.begin(), segments, plain, rtt.0, self.now_us()),
            receiver: Receiver::new(answered_ns),
            wakes_ns: None,
            timer_ns: u64::MAX,
        };
        self.connections.insert(id, connection);
        self.with(id, |_, _| ());
    }

    /// Something happens to a connection, and it does what follows.
    fn with(&mut self, id: u32, happens: impl FnOnce(&mut Self, &mut Connection)) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        happens(self, &mut connection);
        let (sent, lost) = connection.sender.first_flight;
        // A first flight that was lost for the most part is reported at once.
        if connection.advised.is_some() && lost > sent / 2 && !connection.is_reported {
            connection.is_reported = true;
            self.report(&connection, None);
        }
        if connection.sender.is_past_first_flight() && !connection.is_released {
            connection.is_released = true;
            self.hosts[self.users[connection.opened.user].host].release(id);
        }
        if connection.sender.is_done() {
            return self.end(connection);
        }
        self.send(id, &mut connection);
        // Its timer may now run out earlier.
        let timer_ns = (connection.sender.timer_us * 1_000).max(self.now_ns + 1_000);
        if timer_ns < connection.timer_ns {
            connection.timer_ns = timer_ns;
            self.at(timer_ns, Event::Timer(id));
        }
        self.connections.insert(id, connection);
    }

    fn send(&mut self, id: u32, connection: &mut Connection) {
        loop {
            match connection.sender.next_to_send(self.now_us()) {
                Next::Nothing => return,
                Next::Send(number) => self.transmit(id, connection, number),
                Next::Wait(_) if connection.wakes_ns.is_some() => return,
                Next::Wait(at_us) => {
                    let at_ns = (at_us * 1_000).max(self.now_ns + 1_000);
                    connection.wakes_ns = Some(at_ns);
                    self.at(at_ns, Event::Send(id));
                }
            }
        }
    }

    fn transmit(&mut self, id: u32, connection: &mut Connection, number: u64) {
        let Opened { user, tuple, size, .. } = connection.opened;
        let offset = u32::try_from(number).unwrap() * MSS;
        let len = MSS.min(size - offset);
        let is_last = offset + len == size;
        let flags = if is_last { ACK | PSH } else { ACK };
        let packet = control(true, SERVER_ISN + 1 + offset, CLIENT_ISN + 1 + REQUEST, flags, len);
        self.tap(&tuple, packet, self.now_ns);
        let Some(due_ns) = self.carry(len + HEADERS) else { return };
        let denies = self.users[user].denies;
        if denies > 0.0 && self.rng.random_bool(denies) {
            return;
        }
        if let Some(answer) = connection.receiver.take((offset, len), self.frame_ns, is_last || number < 2) {
            self.answers.push_back((due_ns + BACK_NS, id, answer));
        }
    }

    fn acknowledged(&mut self, id: u32, answer: &Acknowledgement) {
        self.with(id, |world, connection| {
            let sack = answer.sack.iter().map(|(from, to)| (SERVER_ISN + 1 + from, SERVER_ISN + 1 + to)).collect();
            let packet = control(false, CLIENT_ISN + 1 + REQUEST, SERVER_ISN + 1 + answer.ack, ACK, 0);
            world.tap(&connection.opened.tuple, Packet { sack, ..packet }, answer.echo_ns);
            let segment = |offset: u32| u64::from(offset.div_ceil(MSS));
            let sacked = answer.sack.iter().map(|(from, to)| segment(*from)..segment(*to));
            connection.sender.on_ack(world.now_us(), segment(answer.ack), sacked);
        });
    }

    fn timer(&mut self, id: u32, connection: &mut Connection) {
        if connection.timer_ns == self.now_ns {
            connection.timer_ns = u64::MAX;
            if connection.sender.timer_us <= self.now_us()
                && let Some(number) = connection.sender.on_timer(self.now_us())
            {
                self.transmit(id, connection, number);
            }
        }
    }

    fn report(&mut self, connection: &Connection, ended: Option<Timestamp>) {
        let (Opened { user, tuple, size, .. }, sender) = (&connection.opened, &connection.sender);
        let outcome = Outcome {
            remote: SocketAddr::new(tuple.client.0.into(), tuple.client.1),
            began: Timestamp(connection.began_ns),
            ended,
            acknowledged: u64::from(*size).min(sender.una * u64::from(MSS)),
            sent_again: sender.sent_again,
            advised: connection.advised,
            first_flight: sender.first_flight,
        };
        self.hosts[self.users[*user].host].ended(outcome);
    }

    fn end(&mut self, connection: Connection) {
        self.report(&connection, Some(Timestamp(self.now_ns)));
        let Opened { user, tuple, size, .. } = connection.opened;
        let (client_seq, server_seq) = (CLIENT_ISN + 1 + REQUEST, SERVER_ISN + 1 + size);
        self.tap(&tuple, control(false, client_seq, server_seq, FIN | ACK, 0), self.now_ns);
        self.tap(&tuple, control(true, server_seq, client_seq + 1, FIN | ACK, 0), self.now_ns);
        self.tap(&tuple, control(false, client_seq + 1, server_seq + 1, ACK, 0), self.now_ns);
        let second = |us: u64| (us - EPOCH_NS / 1_000) as f64 / 1e6;
        let at_losses = connection.sender.at_losses.into_iter();
        self.losses.extend(at_losses.map(|(at_us, window)| Loss { second: second(at_us), user, window }));
        let pause_s = self.users[user].pause_s * self.rng.random_range(0.05..1.0);
        self.at(self.now_ns + nanoseconds(pause_s), Event::Begin(user));
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    whole(seconds * 1e9)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times and sizes, never negative")]
fn whole(number: f64) -> u64 {
    number as u64
}
