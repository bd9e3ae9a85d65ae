//! Gateways that share through memory.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use spand_cells::{Addressed, GatewayId, HeldBack, Notice, Pseudonyms, Shares, Sharing as EngineSharing, TapId};
use spand_core::config::{EngineConfig, WindowConfig};
use spand_core::engine::Engine;
use spand_core::networks::NetworkTable;
use spand_core::types::{ConnectionId, SampleReason, WindowSample};
use spand_proto::estimate::{Estimate, RuleKind};
use spand_proto::network::Network;
use spand_proto::units::{Bytes, Micros, Timestamp, Window};
use tokio::sync::mpsc::Sender;

use super::exchange::{Exchange, Link, LinkState, Topic};
use super::format::{BatchWriter, Member, Notices, read_batch, write_notices};
use super::members::tests::member;
use super::memory::{MemoryExchange, MemoryHub};
use super::*;
use crate::patience::{PATIENCE, eventually};

const START: Timestamp = Timestamp(1_700_000_003_000_000_000);
const REMOTE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 9));

/// A publisher whose clock stands, ahead of the others' by this much, and that has nothing for others.
#[derive(Debug)]
struct Stands(Micros);

impl Publisher for Stands {
    fn now(&self) -> Timestamp {
        START.after(self.0)
    }

    fn share_by(&self, _notices: Sender<Addressed>) {}

    fn set_members(&self, _own: (GatewayId, TapId), _members: BTreeMap<GatewayId, TapId>) {}

    fn take_notices(&self, _from: GatewayId, _sent: Timestamp, _notices: &[Notice]) {}

    fn held_back(&self) -> Vec<HeldBack> {
        Vec::new()
    }

    fn seated(&self) -> Vec<IpAddr> {
        Vec::new()
    }

    fn outlier_found(&self, _sentence: String) {}
}

struct Gateway {
    number: u16,
    now: Timestamp,
    engine: Engine,
    end: EngineEnd,
    sharing: Sharing,
}

fn join(hub: &MemoryHub, own: &Member) -> Gateway {
    join_with(hub, own, Micros(0))
}

fn join_with(hub: &MemoryHub, own: &Member, ahead: Micros) -> Gateway {
    join_by(hub.member(own.gateway), own, ahead)
}

fn join_by(exchange: impl Exchange, own: &Member, ahead: Micros) -> Gateway {
    let pseudonyms = Pseudonyms::new([9; 16]);
    let sharing = EngineSharing { gateway: own.gateway, tap: own.tap, pseudonyms };
    let engine = Engine::new(EngineConfig::default()).sharing(Some(sharing));
    let (sharing, mut ends) =
        Sharing::start(exchange, own.clone(), 1, Box::new(|_| 0), Arc::new(Stands(ahead))).unwrap();
    Gateway { number: own.gateway.0, now: START, engine, end: ends.remove(0), sharing }
}

impl Gateway {
    /// Has seen three connections.
    fn saw(&mut self, segments: f64) {
        self.saw_connections(0..3, segments);
    }

    fn saw_connections(&mut self, connections: Range<u64>, segments: f64) {
        let limit = NonZeroUsize::new(1).unwrap();
        let mut table = NetworkTable::new(WindowConfig::default(), limit, RuleKind::Robust, 0);
        table.changed_records(0);
        for connection in connections {
            table.add(&sample(connection, segments));
        }
        let (network, record) = table.changed_records(1).remove(0);
        self.engine.restore(network, record.unwrap(), START);
    }

    fn turn(&mut self) -> Option<Estimate> {
        self.end.turn(&mut self.engine, self.now);
        self.engine.handle_timeout(self.now);
        while self.engine.poll_event().is_some() {}
        self.engine.networks().estimate(Network::of(REMOTE), self.now)
    }
}

fn sample(connection: u64, segments: f64) -> WindowSample {
    WindowSample {
        at: START,
        network: Network::of(REMOTE),
        remote: REMOTE,
        connection: ConnectionId(connection),
        window: Window::from_bytes(segments * 1_448.0).unwrap(),
        mss: Bytes(1_448),
        reason: SampleReason::Loss,
        reduced_before: false,
        transfer: Bytes(100_000),
        advised: false,
        rtt_min: None,
        rtt: None,
    }
}

/// Turns both until `is_so`.
fn until(gateways: &mut [Gateway], what: &str, is_so: impl Fn(&mut [Gateway], &[Option<Estimate>]) -> bool) {
    eventually(what, || {
        let estimates: Vec<_> = gateways.iter_mut().map(Gateway::turn).collect();
        is_so(gateways, &estimates)
    });
}

fn share_bits(estimate: Option<&Estimate>) -> Option<u64> {
    estimate.map(|estimate| estimate.share.bytes().to_bits())
}

#[test]
fn what_one_gateway_saw_is_an_estimate_at_the_other_and_they_know_each_other() {
    let hub = MemoryHub::new();
    let mut gateways = [join(&hub, &member(1)), join(&hub, &member(2))];
    gateways[0].saw(20.0);
    until(&mut gateways, "the estimate arrives", |_, estimates| {
        let [one, other] = estimates else { return false };
        one.is_some() && share_bits(one.as_ref()) == share_bits(other.as_ref())
    });
    until(&mut gateways, "they know each other", |gateways, _| {
        gateways.iter().all(|gateway| {
            let view = gateway.sharing.status().view();
            view.link == LinkState::Up && view.members.len() == 1 && view.members[0].incompatible.is_none()
        })
    });
    assert!(gateways[1].engine.own_networks().is_empty());
    let view = gateways[1].sharing.status().view();
    assert!(view.cells_received[&GatewayId(1)] >= 1 && !view.lag.is_empty(), "{view:?}");
    assert_eq!(view.own.map(|own| own.gateway), Some(GatewayId(2)));
    // What is known already took nothing.
    gateways[1].sharing.status().change(|view| view.lag.clear());
    let known = |gateway: &Gateway| gateway.engine.sharing_counts().unwrap().known;
    let before = known(&gateways[1]);
    let own = gateways[0].engine.own_cells(Network::of(REMOTE), 0, START);
    gateways[0].end.send(None, own.into_iter().map(|cell| (Network::of(REMOTE), cell)).collect());
    until(&mut gateways, "it comes again", |gateways, _| known(&gateways[1]) > before);
    assert!(gateways[1].sharing.status().view().lag.is_empty());
}

#[test]
fn what_was_seen_while_the_exchange_was_away_arrives_when_it_is_back() {
    let hub = MemoryHub::new();
    let mut gateways = [join(&hub, &member(1)), join(&hub, &member(2))];
    until(&mut gateways, "both are up", |gateways, _| {
        gateways.iter().all(|gateway| gateway.sharing.status().view().link == LinkState::Up)
    });
    hub.set_up(false);
    until(&mut gateways, "both notice", |gateways, _| {
        gateways.iter().all(|gateway| matches!(gateway.sharing.status().view().link, LinkState::Down(_)))
    });
    gateways[0].saw(20.0);
    for _ in 0..30 {
        assert!(gateways[0].turn().is_some() && gateways[1].turn().is_none());
        std::thread::sleep(Duration::from_millis(10));
    }
    hub.set_up(true);
    until(&mut gateways, "it arrives", |_, estimates| estimates[1].is_some());
}

fn taken(gateway: &Gateway) -> u64 {
    gateway.engine.sharing_counts().map_or(0, |counts| counts.taken)
}

/// As when a gateway reads the whole window at its start: the hub decodes faster than an engine merges.
#[test]
fn more_cells_at_once_than_an_engine_has_room_for_all_count() {
    const CELLS: u32 = 40_000;
    let hub = MemoryHub::new();
    let mut gateways = [join(&hub, &member(1)), join(&hub, &member(2))];
    gateways[0].saw(20.0);
    let cell = gateways[0].engine.own_cells(Network::of(REMOTE), 0, START).remove(0);
    until(&mut gateways, "they know each other", |gateways, _| {
        gateways.iter().all(|gateway| gateway.sharing.status().view().members.len() == 1)
    });
    let of =
        |number: u32| (Network::of(std::net::Ipv4Addr::from_bits((80 << 24) + (number << 8)).into()), cell.clone());
    let numbers: Vec<u32> = (0..CELLS).collect();
    for some in numbers.chunks(1_000) {
        gateways[0].end.send(None, some.iter().copied().map(of).collect());
        // The other engine takes nothing meanwhile.
        std::thread::sleep(Duration::from_millis(10));
    }
    let third = join(&hub, &member(3));
    eventually("a new gateway is noticed while cells wait", || gateways[1].sharing.status().view().members.len() == 2);
    drop(third);
    let begun = Instant::now();
    let mut more_waited = false;
    while taken(&gateways[1]) < u64::from(CELLS) && begun.elapsed() < PATIENCE {
        more_waited |= gateways[1].end.turn(&mut gateways[1].engine, START);
    }
    assert!(more_waited, "packets wait for all of it");
    assert!(!gateways[1].end.turn(&mut gateways[1].engine, START), "nothing waits any more");
    let measures = gateways[1].sharing.status().measures();
    assert!(
        taken(&gateways[1]) >= u64::from(CELLS),
        "{} taken, {} dropped",
        taken(&gateways[1]),
        measures.dropped.get()
    );
}

/// Takes one message with closed cells and loses it, as servers can that die one after the other.
struct LosesOne {
    hub: MemoryExchange,
    loses: Arc<AtomicBool>,
}

impl Exchange for LosesOne {
    async fn run(self: Box<Self>, mut link: Link) {
        let (outgoing, kept) = tokio::sync::mpsc::channel(64);
        let mut to_others = std::mem::replace(&mut link.outgoing, kept);
        let carried = Box::new(self.hub).run(link);
        let loses = async {
            while let Some(sent) = to_others.recv().await {
                if sent.topic.is_kept() && self.loses.swap(false, Ordering::Relaxed) {
                    continue;
                }
                _ = outgoing.send(sent).await;
            }
        };
        tokio::join!(carried, loses);
    }
}

#[test]
fn closed_cells_that_the_servers_took_and_lost_are_asked_for() {
    let hub = MemoryHub::new();
    let loses = Arc::new(AtomicBool::new(false));
    let exchange = LosesOne { hub: hub.member(GatewayId(1)), loses: Arc::clone(&loses) };
    let ahead = Micros::from_secs(20);
    let mut gateways = [join_by(exchange, &member(1), ahead), join_with(&hub, &member(2), ahead)];
    until(&mut gateways, "they know each other", |gateways, _| {
        gateways.iter().all(|gateway| gateway.sharing.status().view().members.len() == 1)
    });
    // What is sent as a member joins is over.
    let settles = Instant::now();
    until(&mut gateways, "that is over", |_, _| settles.elapsed() > Duration::from_secs(1));
    gateways[0].saw(20.0);
    loses.store(true, Ordering::Relaxed);
    // The bucket closes, and its cell is lost.
    for gateway in &mut gateways {
        gateway.now = START.after(ahead);
    }
    until(&mut gateways, "it comes after all", |_, estimates| estimates[1].is_some());
    assert!(!loses.load(Ordering::Relaxed));
    let received = |gateway: &Gateway, topic| {
        let label = TopicLabel::of(topic);
        gateway.sharing.status().measures().cells_received.get_or_create(&label).get()
    };
    let is_counted = |gateway: &Gateway| gateway.sharing.status().measures().cells_taken.get() == 1;
    until(&mut gateways, "the hub knows that it came", |gateways, _| is_counted(&gateways[1]));
    // A slow machine asks once more before that.
    let asked = |gateway: &Gateway| gateway.sharing.status().measures().buckets_asked.get();
    let before = asked(&gateways[1]);
    assert!(before >= 1);
    // What is here is asked for no more.
    let begun = Instant::now();
    until(&mut gateways, "a while", |_, _| begun.elapsed() > Duration::from_secs(2));
    assert_eq!(asked(&gateways[1]), before);
    let [closed, again] = [Topic::Closed, Topic::Again].map(|topic| received(&gateways[1], topic));
    assert!(closed == 0 && (1..=before).contains(&again), "{closed} and {again} for {before}");
}

/// Loses the first message with cells and goes away for a moment then, as servers do that come back one by one; hands on the next one.
struct LosesFirst(std::sync::mpsc::Sender<u64>);

impl Exchange for LosesFirst {
    async fn run(self: Box<Self>, mut link: Link) {
        let mut is_lost = false;
        link.state.send_replace(LinkState::Up);
        while let Some(sent) = link.outgoing.recv().await {
            let Ok(batch) = read_batch(&sent.payload) else { continue };
            let Some((_, cell)) = batch.cells.first() else { continue };
            if is_lost {
                _ = self.0.send(cell.index());
            } else {
                is_lost = true;
                link.state.send_replace(LinkState::Down("for a moment".to_owned()));
                tokio::time::sleep(Duration::from_millis(100)).await;
                link.state.send_replace(LinkState::Up);
            }
        }
    }
}

#[test]
fn what_is_lost_while_old_buckets_are_sent_again_is_sent_once_more() {
    let (sender, arrived) = std::sync::mpsc::channel();
    // The bucket with the samples is ten before the current one.
    let mut own = join_by(LosesFirst(sender), &member(1), Micros::from_secs(100));
    own.saw(20.0);
    let mut index = None;
    eventually("it comes again", || {
        own.end.turn(&mut own.engine, START.after(Micros::from_secs(100)));
        index = arrived.try_recv().ok();
        index.is_some()
    });
    assert_eq!(index, Some(START.0 / 10_000_000_000));
}

/// Is as the test wants it; hands on the buckets of closed cells that come, with how it was then.
struct Obeys(tokio::sync::watch::Receiver<LinkState>, std::sync::mpsc::Sender<(LinkState, u64)>);

impl Exchange for Obeys {
    async fn run(mut self: Box<Self>, mut link: Link) {
        loop {
            tokio::select! {
                Ok(()) = self.0.changed() => drop(link.state.send_replace(self.0.borrow_and_update().clone())),
                sent = link.outgoing.recv() => {
                    let Some(sent) = sent else { return };
                    let Some(batch) = read_batch(&sent.payload).ok().filter(|_| sent.topic == Topic::Closed) else { continue };
                    let state = link.state.borrow().clone();
                    batch.cells.iter().for_each(|(_, cell)| drop(self.1.send((state.clone(), cell.index()))));
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_kept_leaves_at_once_and_what_was_lost_when_messages_get_through() {
    let (wish, wished) = tokio::sync::watch::channel(LinkState::Connecting);
    let (sender, left) = std::sync::mpsc::channel();
    // The bucket with the samples is ten before the current one, so that it is not among those that may be on their way.
    let mut own = join_by(Obeys(wished, sender), &member(1), Micros::from_secs(100));
    own.now = START.after(Micros::from_secs(100));
    let be = |own: &mut Gateway, state: LinkState| {
        wish.send_replace(state.clone());
        let begun = Instant::now();
        eventually("the state, and what it has sent again", || {
            own.turn();
            own.sharing.status().view().link == state && begun.elapsed() > Duration::from_millis(300)
        });
    };
    be(&mut own, LinkState::Up);
    let degraded = LinkState::Degraded("a leader is elected".to_owned());
    be(&mut own, degraded.clone());
    own.saw(20.0);
    let cells: Vec<_> = own
        .engine
        .own_cells(Network::of(REMOTE), 0, own.now)
        .into_iter()
        .map(|cell| (Network::of(REMOTE), cell))
        .collect();
    own.end.send(None, cells.clone());
    let index = START.0 / 10_000_000_000;
    assert_eq!(left.recv_timeout(PATIENCE), Ok((degraded.clone(), index)));
    // It leaves once more by itself, since its bucket is over.
    let begun = Instant::now();
    eventually("a while", || {
        own.turn();
        begun.elapsed() > Duration::from_secs(2)
    });
    while left.try_recv().is_ok() {}
    // Who was away asks for it.
    be(&mut own, LinkState::Up);
    assert!(left.try_recv().is_err());
    be(&mut own, LinkState::Down("the connection was lost".to_owned()));
    own.end.send(None, cells);
    be(&mut own, degraded.clone());
    assert_eq!(left.recv_timeout(PATIENCE), Ok((degraded, index)));
}

#[test]
fn a_gateway_with_which_nothing_can_be_shared_is_named_and_changes_nothing() {
    let hub = MemoryHub::new();
    let mut others = [
        (Member { bucket: Micros::from_secs(20), ..member(2) }, Incompatible::BucketLength),
        (Member { prefixes: 7, ..member(3) }, Incompatible::PrefixList),
    ]
    .map(|(own, expected)| (join(&hub, &own), expected));
    let mut own = join(&hub, &member(1));
    let mut late = join_with(&hub, &member(5), Micros::from_secs(15));
    let expected = |gateway: u16| others.iter().find(|(other, _)| other.number == gateway).map(|(_, why)| *why);
    let whys = [2, 3, 5].map(|gateway| (gateway, expected(gateway).unwrap_or(Incompatible::Clock)));
    until(std::slice::from_mut(&mut own), "all are named", |gateways, _| {
        let mut found: Vec<_> = gateways[0]
            .sharing
            .status()
            .view()
            .members
            .iter()
            .map(|known| (known.member.gateway.0, known.incompatible.unwrap()))
            .collect();
        found.sort_unstable();
        found == whys
    });
    for other in others.iter_mut().map(|(other, _)| other).chain([&mut late]) {
        other.saw(20.0);
        for _ in 0..60 {
            other.turn();
            assert_eq!(own.turn(), None);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_gateway_with_the_same_number_is_named_at_both() {
    let hub = MemoryHub::new();
    let mut gateways = [join(&hub, &member(1)), join(&hub, &Member { instance: 99, ..member(1) })];
    until(&mut gateways, "both are named", |gateways, _| {
        gateways.iter().all(|gateway| {
            gateway
                .sharing
                .status()
                .view()
                .members
                .iter()
                .any(|known| known.incompatible == Some(Incompatible::SameNumber))
        })
    });
}

#[test]
fn a_gateway_that_names_another_s_tap_as_its_own_changes_nothing() {
    let hub = MemoryHub::new();
    let mut gateways = [join(&hub, &member(1)), join(&hub, &Member { tap: TapId(1), ..member(2) })];
    gateways[1].saw(20.0);
    let refused = |gateway: &Gateway| {
        let label = ReasonLabel { reason: "gateway" };
        gateway.sharing.status().measures().refused.get_or_create(&label).get()
    };
    until(&mut gateways, "its cells are refused", |gateways, _| refused(&gateways[0]) > 0);
    assert_eq!(gateways[0].turn(), None);
}

#[test]
fn a_tap_that_lies_far_from_two_others_is_named_once_its_cells_came() {
    let hub = MemoryHub::new();
    let mut gateways = [1, 2, 3].map(|number| join(&hub, &member(number)));
    gateways[0].saw_connections(0..14, 20.0);
    gateways[1].saw_connections(20..34, 21.0);
    gateways[2].saw_connections(40..54, 90.0);
    let named = |gateway: &Gateway, tap: &str| {
        let label = TapLabel { tap: tap.to_owned() };
        gateway.sharing.status().measures().outliers.get(&label).map_or(0, |counter| counter.get())
    };
    until(&mut gateways, "all cells are there", |gateways, _| gateways.iter().all(|one| taken(one) == 2));
    for gateway in &mut gateways {
        // An estimate is evaluated a while after cells came.
        gateway.now = START.after(Micros::from_secs(5));
    }
    until(&mut gateways, "it is named", |gateways, _| gateways[..2].iter().all(|one| named(one, "gateway 3") > 0));
    assert!(gateways.iter().all(|one| named(one, "gateway 1") == 0 && named(one, "gateway 2") == 0));
}

#[test]
fn cells_and_notices_under_a_topic_of_something_else_are_refused() {
    let hub = MemoryHub::new();
    let mut both = [join(&hub, &member(1)), join(&hub, &member(3))];
    until(&mut both, "the first hears others", |both, _| !both[0].sharing.status().view().members.is_empty());
    let limit = NonZeroUsize::new(1).unwrap();
    let own = EngineSharing { gateway: GatewayId(2), tap: TapId(2), pseudonyms: Pseudonyms::new([9; 16]) };
    let mut table = NetworkTable::new(WindowConfig::default(), limit, RuleKind::Robust, 0).sharing(Some(own));
    table.add(&sample(7, 90.0));
    let cell = table.own_cells(Network::of(REMOTE), 0, START).remove(0);
    let mut batch = BatchWriter::new(GatewayId(2), TapId(2), WindowConfig::default().bucket);
    assert!(batch.add(Network::of(REMOTE), &cell));
    let cells = batch.finish();
    let seat = Notice::Seat { host: REMOTE, here: true };
    let seats = write_notices(&Notices { number: 1, notices: vec![seat] });
    let misplaced = [(Topic::Host, &cells), (Topic::Member, &cells), (Topic::Host, &seats), (Topic::Closed, &seats)];
    let count = misplaced.len() as u64;
    for (topic, payload) in misplaced {
        hub.say(GatewayId(2), topic, payload.clone());
    }
    let refused = |one: &Gateway| one.sharing.status().measures().refused_by_reason()[0].get("unreadable").copied();
    until(&mut both, "all are refused", |both, _| refused(&both[0]) == Some(count));
    assert_eq!(taken(&both[0]), 0);
    hub.say(GatewayId(2), Topic::Open, cells);
    until(&mut both, "in its place it counts", |both, _| taken(&both[0]) == 1);
}

#[test]
fn a_message_of_another_format_is_counted_as_that() {
    let hub = MemoryHub::new();
    let mut both = [join(&hub, &member(1)), join(&hub, &member(3))];
    until(&mut both, "the first hears others", |both, _| !both[0].sharing.status().view().members.is_empty());
    let mut message = BatchWriter::new(GatewayId(2), TapId(2), WindowConfig::default().bucket).finish();
    message[0] -= 1;
    hub.say(GatewayId(2), Topic::Open, message);
    let refused = |one: &Gateway| one.sharing.status().measures().refused_by_reason()[0].clone();
    until(&mut both, "it is refused", |both, _| refused(&both[0]).into_iter().eq([("format", 1)]));
}
