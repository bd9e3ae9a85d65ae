//! What publishers of a cluster take from each other.

use std::net::IpAddr;

use spand_cells::{Addressed, GatewayId, HeldBack, Notice, StartSeen, TapId};
use spand_core::event::Established;
use spand_proto::contract::Cluster;
use spand_proto::no_estimate::Outcomes;
use spand_proto::push::ImminentStart;
use spand_proto::units::Segments;
use spand_share::exchange::LinkState;
use spand_share::format::Member;
use spand_share::memory::MemoryHub;
use spand_share::{ShareView, Sharing};
use tokio::sync::mpsc;

use super::retreats::{compare, flight, lose};
use super::*;
use crate::patience::{PATIENCE, eventually};
use crate::publisher::retreat::FirstFlight;

const SHARE: f64 = 1_448.0 * 40.0;
const OF_OTHER: GatewayId = GatewayId(2);

/// A publisher with an estimate of the first network, and what it has others know.
fn sharing() -> (Published, SetClock, mpsc::Receiver<Addressed>) {
    let (published, clock) = publisher(PublisherConfig::default());
    let (sender, notices) = mpsc::channel(8_192);
    published.share_by(sender);
    apply(&published, [Event::estimate(estimate(1, SHARE, 0))]);
    (published, clock, notices)
}

fn at(clock: &SetClock, ms: u64) {
    clock.0.store(ms * 1_000_000, Ordering::Relaxed);
}

/// Without who is subscribed.
fn all(notices: &mut mpsc::Receiver<Addressed>) -> Vec<Notice> {
    let all = std::iter::from_fn(|| notices.try_recv().ok()).map(|addressed| addressed.notice);
    all.filter(|notice| !matches!(notice, Notice::Seat { .. })).collect()
}

fn segments(published: &Published) -> Option<u32> {
    let view = published.lookup([198, 51, 1, 9].into())?;
    view.estimate.as_ref().map(|estimate| estimate.share_segments(estimate.mss).0)
}

#[tokio::test(start_paused = true)]
async fn a_retreat_at_one_gateway_is_one_at_the_other() {
    let ((one, clock, mut from_one), (other, other_clock, mut from_other)) = (sharing(), sharing());
    lose(&one, 9, 1..=6);
    let notices = all(&mut from_one);
    assert!(matches!(notices.as_slice(), [Notice::HeldBack(HeldBack { withdrawn: None, .. })]), "{notices:?}");
    let mut subscription = other.subscribe(&[OTHER.into()]).unwrap();
    let mut twin = Twin::default();
    twin.read(&mut subscription).await;
    other.take_notices(GatewayId(1), Timestamp(0), &notices);
    assert_eq!((segments(&one), segments(&other), other.retreats()), (Some(10), Some(10), 1));
    twin.read(&mut subscription).await;
    assert_eq!(twin.held[&network(1)].share_segments(Bytes(1_448)), Segments(10));
    assert_eq!(all(&mut from_other), [], "what came from another is not sent on");
    assert_eq!(other.measures().retreats_of_others.get(), 1);

    // Losses of before it came are accounted for; six under what is left withdraw it, at both.
    lose(&other, 9, 1..=6);
    assert_eq!(other.held_back().first().and_then(|held| held.withdrawn), None);
    for clock in [&clock, &other_clock] {
        at(clock, 10_000);
    }
    lose(&other, 9, 11..=16);
    one.take_notices(OF_OTHER, Timestamp(0), &all(&mut from_other));
    flight(&one, 9, 20, false);
    assert_eq!((segments(&one), segments(&other)), (Some(10), Some(10)), "it does not grow");

    for clock in [&clock, &other_clock] {
        at(clock, 70_001);
    }
    settle().await;
    apply(&one, [Event::estimate(estimate(1, SHARE, 70))]);
    assert_eq!(segments(&one), Some(10));
    flight(&one, 9, 21, false);
    assert_eq!((segments(&one), all(&mut from_one)), (Some(11), Vec::new()), "each lets it grow by itself");
}

#[tokio::test(start_paused = true)]
async fn a_retreat_for_slower_transfers_is_one_at_the_other() {
    let (one, _, mut from_one) = sharing();
    compare(&one);
    let notices = all(&mut from_one);
    assert!(matches!(notices.as_slice(), [Notice::HeldBack(HeldBack { withdrawn: None, .. })]), "{notices:?}");
}

#[tokio::test(start_paused = true)]
async fn the_harshest_of_two_retreats_is_in_force_and_an_old_one_is_none() {
    let (published, clock, _notices) = sharing();
    at(&clock, 400_000);
    let held = |share: f64, halved_ms: u64| {
        let cap = Window::from_bytes(1_448.0 * share).unwrap();
        let halved = Timestamp(halved_ms * 1_000_000);
        Notice::HeldBack(HeldBack { network: network(1), cap, halved, withdrawn: None })
    };
    apply(&published, [Event::estimate(estimate(1, SHARE, 400))]);
    for (notice, expected) in [
        (held(5.0, 99_999), 40),
        (held(30.0, 390_000), 30),
        (held(15.0, 380_000), 15),
        (held(25.0, 395_000), 15),
        (held(12.0, 999_000), 12),
    ] {
        published.take_notices(OF_OTHER, Timestamp(0), &[notice]);
        assert_eq!(segments(&published), Some(expected));
    }
    // One of a clock that is ahead lasts no longer than one of this clock.
    at(&clock, 700_001);
    settle().await;
    apply(&published, [Event::estimate(estimate(1, SHARE, 700))]);
    assert_eq!((segments(&published), published.retreats()), (Some(40), 0));
}

#[tokio::test(start_paused = true)]
async fn a_network_that_is_not_known_yet_is_held_back_once_it_is() {
    let (one, _, mut from_one) = sharing();
    lose(&one, 9, 1..=6);
    let (other, _) = publisher(PublisherConfig::default());
    other.take_notices(GatewayId(1), Timestamp(0), &all(&mut from_one));
    assert_eq!((segments(&other), other.retreats()), (None, 0));
    apply(&other, [Event::estimate(estimate(1, SHARE, 0))]);
    assert_eq!((segments(&other), other.retreats()), (Some(10), 1));
}

#[tokio::test(start_paused = true)]
async fn a_retreat_of_one_address_stays_where_it_is() {
    let (published, _, mut notices) = sharing();
    flight(&published, 8, 1, false);
    lose(&published, 9, 1..=6);
    assert_eq!((published.address_retreats(), all(&mut notices)), (1, Vec::new()));
    assert_eq!(published.held_back(), []);
}

const TAP: fn(u16) -> (GatewayId, TapId) = |gateway| (GatewayId(gateway), TapId::of_gateway(GatewayId(gateway)));

/// The first network with this many connections at once at this gateway's tap, and at all.
fn crowd(here: u32, all: u32) -> Event {
    let estimate = estimate(1, SHARE, 0);
    let (samples, connections, losses) = (estimate.samples, estimate.connections, estimate.losses);
    Event::Network(Box::new(NetworkView {
        network: estimate.network,
        why_not: None,
        rtt_min: estimate.rtt_min,
        rtt_mean: estimate.rtt_mean,
        samples,
        lower_bounds: 0,
        connections,
        losses,
        limits: spand_core::types::LimitCounts::default(),
        parallel: all,
        parallel_at_samples: all,
        parallel_here: here,
        reported: None,
        followed: spand_core::types::SampleRate::ALL,
        outcomes: Outcomes::default(),
        traffic: spand_core::networks::traffic::NetworkTraffic::default(),
        needed: (3, 2),
        compared: Vec::new(),
        addresses: Vec::new(),
        newest: None,
        estimate: Some(estimate),
    }))
}

fn budget(published: &Published) -> Option<u32> {
    published.shared.state.read().networks.budget(network(1)).map(|budget| budget.0)
}

#[tokio::test(start_paused = true)]
async fn a_gateway_has_the_budget_of_its_own_tap_beside_others() {
    let (published, _, _notices) = sharing();
    let with = |others: &[(u16, TapId)]| {
        let others = others.iter().map(|(gateway, tap)| (GatewayId(*gateway), *tap)).collect();
        published.set_members((GatewayId(1), TapId::of_group(7)), others);
    };
    apply(&published, [crowd(2, 5)]);
    assert_eq!(budget(&published), Some(5 * 40), "alone");
    with(&[(2, TapId(2))]);
    assert_eq!(budget(&published), Some(2 * 40), "three of the five are of another tap");
    with(&[(2, TapId(2)), (3, TapId::of_group(7))]);
    assert_eq!(budget(&published), Some(2 * 40 / 2), "gateway 3 sees the same two");
    apply(&published, [crowd(0, 3)]);
    assert_eq!(budget(&published), Some(0));
    apply(&published, [crowd(0, 0)]);
    assert_eq!(budget(&published), Some(40 / 3), "nobody sees any");
}

#[tokio::test(start_paused = true)]
async fn what_a_gateway_lends_is_no_more_than_there_is() {
    let (published, clock, mut notices) = sharing();
    published.set_members(TAP(1), [TAP(2)].into());
    apply(&published, [crowd(0, 2)]);
    let mut subscription = published.subscribe(&[HOST.into()]).unwrap();
    let mut twin = Twin::default();
    published.take_notices(OF_OTHER, Timestamp(0), &[Notice::Seat { host: OTHER.into(), here: true }]);
    twin.read(&mut subscription).await;
    at(&clock, 2_000);
    let lease = Notice::Lease { network: network(1), segments: u32::MAX, as_of: Timestamp(7) };
    published.take_notices(OF_OTHER, Timestamp(2_000_000_000), &[lease]);
    assert!(all(&mut notices).contains(&Notice::Settled { network: network(1), as_of: Timestamp(7) }));
    assert!(published.push_start(start(HOST, 1)));
    twin.read(&mut subscription).await;
    assert_eq!(twin.leases[&network(1)], 80);
}

/// Connections of all hosts that count as demand for a network.
fn confirmed(published: &Published, n: u8) -> f64 {
    published.shared.state.read().leases.confirmed(network(n), published.now())
}

#[tokio::test(start_paused = true)]
async fn of_a_gateway_that_is_not_known_or_is_this_one_only_what_it_holds_back_counts() {
    let (published, _, mut notices) = sharing();
    published.set_members(TAP(1), BTreeMap::new());
    let mut subscription = published.subscribe(&[HOST.into()]).unwrap();
    let seats: Vec<_> = std::iter::from_fn(|| notices.try_recv().ok()).map(|sent| sent.notice).collect();
    assert_eq!(seats, [Notice::Seat { host: HOST.into(), here: true }]);
    for from in [GatewayId(1), OF_OTHER] {
        published.take_notices(from, Timestamp(0), &seats);
    }
    assert_eq!((published.seats_elsewhere(), published.host_count()), (0, 1));
    let mut twin = Twin::default();
    twin.read(&mut subscription).await;
    assert_eq!((twin.leases[&network(1)], twin.resyncs), (40, 0), "it is the only host");
}

#[tokio::test(start_paused = true)]
async fn budgets_are_divided_again_as_soon_as_there_is_another_gateway() {
    let (published, clock, _notices) = sharing();
    published.set_members(TAP(1), BTreeMap::new());
    apply(&published, [crowd(1, 3)]);
    let mut subscription = published.subscribe(&[HOST.into()]).unwrap();
    let mut twin = Twin::default();
    assert!(published.push_start(start(HOST, 1)));
    at(&clock, 3_000);
    twin.read(&mut subscription).await;
    assert_eq!(twin.leases[&network(1)], 120, "alone it has the whole");
    published.set_members(TAP(1), [TAP(2)].into());
    settle().await;
    twin.read(&mut subscription).await;
    assert_eq!(twin.leases[&network(1)], 40, "what its own tap shows");
}

/// Hands what each has the other know over until there is nothing left.
async fn exchange(ends: &mut [(&Published, &mut mpsc::Receiver<Addressed>); 2]) {
    for _ in 0..10 {
        for [from, to] in [[0, 1], [1, 0]] {
            let gateway = GatewayId(if from == 0 { 1 } else { 2 });
            let notices: Vec<_> = std::iter::from_fn(|| ends[from].1.try_recv().ok()).map(|sent| sent.notice).collect();
            ends[to].0.take_notices(gateway, ends[from].0.now(), &notices);
        }
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_has_its_part_of_the_budget_at_the_egress_that_it_uses() {
    let ((one, one_clock, mut from_one), (two, two_clock, mut from_two)) = (sharing(), sharing());
    one.set_members(TAP(1), [TAP(2)].into());
    two.set_members(TAP(2), [TAP(1)].into());
    apply(&one, [crowd(2, 2)]);
    apply(&two, [crowd(0, 2)]);
    let mut own = one.subscribe(&[HOST.into()]).unwrap();
    let mut other = two.subscribe(&[OTHER.into()]).unwrap();
    let (mut own_twin, mut other_twin) = (Twin::default(), Twin::default());
    let mut ends = [(&one, &mut from_one), (&two, &mut from_two)];
    exchange(&mut ends).await;
    own_twin.read(&mut own).await;
    other_twin.read(&mut other).await;
    // The first host was the only one, with a whole share of every budget, until its snapshot has ended.
    for clock in [&one_clock, &two_clock] {
        at(clock, 2_000);
    }
    assert!(one.push_start(start(OTHER, 1)), "gateway 1 sees a start of the host at gateway 2");
    exchange(&mut ends).await;
    assert!(confirmed(&two, 1) < 0.1);
    one.established(&Established { host: OTHER.into(), network: network(1) });
    exchange(&mut ends).await;
    assert!(confirmed(&two, 1) > 0.9, "its connection counts where the host is");
    other_twin.read(&mut other).await;
    assert_eq!((other_twin.starts, other_twin.leases[&network(1)]), (1, 20), "a quarter of two shares");
    for _ in 0..3 {
        assert!(one.push_start(start(HOST, 1)));
        one.established(&Established { host: HOST.into(), network: network(1) });
    }
    for step in 0..60 {
        for clock in [&one_clock, &two_clock] {
            at(clock, 2_500 + step * 500);
        }
        exchange(&mut ends).await;
        own_twin.read(&mut own).await;
        other_twin.read(&mut other).await;
        let held = own_twin.leases[&network(1)] + other_twin.leases[&network(1)];
        assert!(held <= 80, "{held} segments of 80");
    }
    let leases = [&own_twin, &other_twin].map(|twin| twin.leases[&network(1)]);
    assert_eq!(leases, [45, 15], "three quarters of the budget, three connections to one");
}

// A host that comes from another gateway of the cluster: what lives on, and what it is sent before the pages of the snapshot.

/// A gateway of the cluster "main", which knows what the others see where `knows` is set.
fn member(config: PublisherConfig, knows: bool) -> (Published, SetClock) {
    let (published, clock) = publisher(config);
    published.join_cluster(Cluster::new("main").unwrap(), move |_| knows);
    (published, clock)
}

fn comes_from(published: &Published, cluster: &str) -> Subscription {
    let subscriber = Subscriber { cluster: Cluster::new(cluster), ..Subscriber::default() };
    published.subscribe_as(subscriber, &[HOST.into()]).unwrap()
}

/// The kinds of the first events until the snapshot is whole.
async fn events(subscription: &mut Subscription) -> Vec<String> {
    let mut events = Vec::new();
    loop {
        match subscription.next().await.unwrap().event {
            UpdateEvent::Adopted { lifetime } => events.push(format!("adopted {}", lifetime.0 / 1_000_000)),
            UpdateEvent::SnapshotBegin { cluster, .. } => {
                events.push(format!("begin {}", cluster.as_ref().map_or("", Cluster::as_str)));
            }
            UpdateEvent::Estimate(update) => events.push(update.estimate.network.to_string()),
            UpdateEvent::Withdrawal { network, .. } => events.push(format!("not {network}")),
            UpdateEvent::SnapshotEnd { .. } => return events,
            _ => {}
        }
    }
}

fn gone(n: u8) -> Event {
    Event::Withdrawn { network: network(n), reason: Withdrawal::TooFew }
}

#[tokio::test(start_paused = true)]
async fn a_host_of_the_cluster_is_adopted_and_sent_first_what_was_withdrawn_meanwhile() {
    let (published, clock) = member(PublisherConfig::default(), true);
    apply(&published, (1..=5).map(|n| Event::estimate(estimate(n, 40_000.0, 0))));
    let pass = |s: u64| clock.0.store(s * 1_000_000_000, Ordering::Relaxed);
    apply(&published, [gone(1)]);
    pass(30);
    apply(&published, [gone(5), gone(3)]);
    apply(&published, [Event::estimate(estimate(3, 40_000.0, 30))]);
    pass(61);
    settle().await;
    let mut subscription = comes_from(&published, "main");
    let [two, three, four, five] = [2, 3, 4, 5].map(|n| network(n).to_string());
    assert_eq!(
        events(&mut subscription).await,
        ["adopted 60".to_owned(), "begin main".to_owned(), format!("not {five}"), two, three, four],
        "the first withdrawal is older than any advice, and the third network has an estimate again"
    );
    assert_eq!(published.measures().subscriptions_adopted.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn only_a_host_that_asks_is_adopted_by_a_gateway_of_its_cluster_that_knows_the_others() {
    let in_use = PublisherConfig { to_hosts: ToHosts::InUse, ..PublisherConfig::default() };
    let cases = [
        (member(PublisherConfig::default(), true), "", "begin main"),
        (member(PublisherConfig::default(), true), "other", "begin main"),
        (member(PublisherConfig::default(), false), "main", "begin main"),
        (member(in_use, true), "main", "begin main"),
        (publisher(PublisherConfig::default()), "main", "begin "),
    ];
    for ((published, _), cluster, first) in cases {
        assert_eq!(events(&mut comes_from(&published, cluster)).await[0], first, "{cluster}");
        assert_eq!(published.measures().subscriptions_adopted.get(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn where_hosts_get_what_they_use_one_is_adopted_with_the_networks_that_it_names() {
    let in_use = PublisherConfig { to_hosts: ToHosts::InUse, ..PublisherConfig::default() };
    let (published, clock) = member(in_use, true);
    apply(&published, (1..=4).map(|n| Event::estimate(estimate(n, 40_000.0, 0))));
    apply(&published, [gone(4)]);
    clock.0.store(1_000_000_000, Ordering::Relaxed);
    settle().await;
    let held = [2, 3, 4, 5].map(network);
    let mut subscription = comes_from(&published, "main").holding(&held);
    let [two, three, four] = [2, 3, 4].map(|n| network(n).to_string());
    let expected =
        ["adopted 60".to_owned(), "begin main".to_owned(), format!("not {four}"), two.clone(), three.clone()];
    assert_eq!(events(&mut subscription).await, expected);
    // They are in use until they are not for long, whatever stream of the host asks.
    assert_eq!(events(&mut comes_from(&published, "")).await[1..], [two, three]);
}

#[tokio::test(start_paused = true)]
async fn more_withdrawals_than_are_remembered_adopt_no_host_for_a_lifetime() {
    let (published, clock) = member(PublisherConfig::default(), true);
    for _ in 0..2_049 {
        apply(&published, [Event::estimate(estimate(1, 40_000.0, 0)), gone(1)]);
    }
    settle().await;
    assert_eq!(events(&mut comes_from(&published, "main")).await[0], "begin main");
    clock.0.store(61_000_000_000, Ordering::Relaxed);
    assert_eq!(events(&mut comes_from(&published, "main")).await[0], "adopted 60");
}

#[tokio::test(start_paused = true)]
async fn what_is_held_back_comes_before_the_pages() {
    let (published, clock) = member(PublisherConfig::default(), true);
    apply(&published, (1..=4).map(|n| Event::estimate(estimate(n, 40_000.0, 0))));
    let held = |n, withdrawn| {
        let cap = Window::from_bytes(20_000.0).unwrap();
        Notice::HeldBack(HeldBack { network: network(n), cap, halved: Timestamp(0), withdrawn })
    };
    published.take_notices(GatewayId(9), Timestamp(0), &[held(4, None), held(3, Some(Timestamp(60_000_000_000)))]);
    settle().await;
    clock.0.store(1_000_000_000, Ordering::Relaxed);
    let [one, two, three, four] = [1, 2, 3, 4].map(|n| network(n).to_string());
    let seen = events(&mut comes_from(&published, "main")).await;
    assert_eq!(seen[2..], [three.clone(), four.clone(), one, two, three, four]);
}

// Publishers that share through memory.

struct Gateway {
    published: Published,
    sharing: Sharing,
}

fn join(hub: &MemoryHub, number: u16) -> Gateway {
    let gateway = GatewayId(number);
    let own = Member {
        gateway,
        tap: TapId::of_gateway(gateway),
        instance: number.into(),
        name: format!("gateway-{number}"),
        version: "0".to_owned(),
        bucket: Micros::from_secs(10),
        buckets: 30,
        rule: RuleKind::Robust,
        prefixes: 0,
        clock: Timestamp(0),
        digests: Vec::new(),
        address: None,
    };
    let clock = SetClock::default();
    clock.0.store(NOW.0, Ordering::Relaxed);
    let published = Published::new(PublisherConfig::default(), clock);
    let (sharing, _) =
        Sharing::start(hub.member(gateway), own, 1, Box::new(|_| 0), Arc::new(published.clone())).unwrap();
    Gateway { published, sharing }
}

const NOW: Timestamp = Timestamp(1_700_000_003_000_000_000);

fn now_known(gateway: &Gateway) -> Estimate {
    let estimate = Estimate { refreshed: NOW, ..estimate(1, 40.0 * 1_448.0, 0) };
    apply(&gateway.published, [Event::estimate(estimate.clone())]);
    estimate
}

fn until(gateways: &[Gateway], what: &str, is_so: impl Fn(&ShareView) -> bool) {
    eventually(what, || gateways.iter().all(|gateway| is_so(&gateway.sharing.status().view())));
}

/// Six advised starts of a gateway's hosts lose, where it has this estimate.
fn retreats(gateway: &Gateway, estimate: &Estimate) {
    let remote = estimate.network.prefix().addr();
    for port in 1..=6 {
        let ends = [(IpAddr::from([10, 0, 0, 1]), 443).into(), (remote, port).into()];
        let advised = estimate.share_segments(estimate.mss);
        let flight =
            FirstFlight { ends, lost: true, began: Some(NOW), advised, acknowledged: Bytes(0), application_of: None };
        gateway.published.first_flights(&Client::Address(remote), &[(estimate.network, flight)]);
    }
}

#[test]
fn a_retreat_reaches_who_is_there_who_was_away_and_who_comes_later() {
    let hub = MemoryHub::new();
    let mut gateways = vec![join(&hub, 1), join(&hub, 2)];
    let estimate = now_known(&gateways[0]);
    until(&gateways, "they know each other", |view| view.link == LinkState::Up && view.members.len() == 1);
    hub.set_up(false);
    until(&gateways, "both notice", |view| matches!(view.link, LinkState::Down(_)));
    // The network is known at the other only afterwards.
    retreats(&gateways[0], &estimate);
    hub.set_up(true);
    gateways.push(join(&hub, 3));
    let received = |gateway: &Gateway| gateway.sharing.status().measures().notices_received.get();
    eventually("it arrives", || gateways[1..].iter().all(|gateway| received(gateway) > 0));
    for gateway in &gateways {
        now_known(gateway);
        let view = gateway.published.lookup(estimate.network.prefix().addr()).unwrap();
        let share = view.estimate.as_ref().map(|estimate| estimate.share);
        assert_eq!(share, Some(Window::from_segments(Segments(10), estimate.mss)));
    }
}

/// The next start that a subscriber hears of.
async fn next_start(subscription: &mut Subscription) -> ImminentStart {
    loop {
        if let UpdateEvent::ImminentStart(start) = subscription.next().await.unwrap().event {
            return start;
        }
    }
}

#[test]
fn a_start_reaches_its_host_whichever_gateway_it_is_subscribed_at() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let hub = MemoryHub::new();
    let [one, other] = [join(&hub, 1), join(&hub, 2)];
    now_known(&one);
    now_known(&other);
    let host = [10, 0, 0, 1];
    let mut subscription = other.published.subscribe(&[host.into()]).unwrap();
    eventually("its seat is known", || one.published.seats_elsewhere() == 1);

    let start = StartImminent { at: NOW, ..start(host, 1) };
    assert!(one.published.push_start(start));
    let pushed =
        runtime.block_on(async { tokio::time::timeout(PATIENCE, next_start(&mut subscription)).await.unwrap() });
    let of_client = IpAddr::from([198, 51, 1, 0]);
    assert_eq!((pushed.host.address, pushed.observed), (host.into(), NOW));
    assert_eq!(pushed.trigger, spand_proto::push::Trigger::PassiveOpen);
    assert_eq!(pushed.remote.address, of_client, "the client's address stays where it was seen");

    let to_nobody = StartImminent { host: IpAddr::from([10, 0, 0, 2]), ..start };
    let to_unknown = StartImminent { network: "203.0.113.0/24".parse().unwrap(), ..start };
    assert!(!one.published.push_start(to_nobody) && !one.published.push_start(to_unknown));
    let measures = one.published.measures();
    assert_eq!((measures.starts_handed_on.get(), measures.starts_no_subscriber.get()), (1, 2));
    drop(subscription);
    eventually("it has left", || one.published.seats_elsewhere() == 0);
    assert!(!one.published.push_start(start));
}

#[tokio::test(start_paused = true)]
async fn a_gateway_hands_over_a_bounded_number_of_starts_for_a_host() {
    let (published, _clock, _notices) = sharing();
    published.set_members(TAP(1), [TAP(2)].into());
    let hosts = [[10, 0, 0, 1], [10, 0, 0, 2]];
    let _subscription = published.subscribe(&hosts.map(IpAddr::from)).unwrap();
    let StartImminent { network, trigger, at, .. } = start(hosts[0], 1);
    let of = |host: [u8; 4]| Notice::Start(StartSeen { host: host.into(), network, trigger, at });
    // Some are refused also where a slow machine takes a minute for all of them.
    let many = vec![of(hosts[0]); 54_000];
    published.take_notices(OF_OTHER, Timestamp(0), &many);
    let measures = published.measures();
    let (came, refused) = (measures.starts_of_others.get(), measures.starts_of_others_refused.get());
    assert!(came == 54_000 && (1..=54_000 - 1_024).contains(&refused), "{refused} of {came}");
    assert_eq!(measures.starts_pushed.get(), came - refused);
    published.take_notices(OF_OTHER, Timestamp(0), &[of(hosts[1])]);
    assert_eq!(measures.starts_of_others_refused.get(), refused, "those of another host are not counted together");
}
