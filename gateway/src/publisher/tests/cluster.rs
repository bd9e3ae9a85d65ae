//! What publishers of a cluster take from each other.

use spand_core::event::Established;
use spand_core::sharing::{Addressed, GatewayId, HeldBack, Notice, TapId};
use spand_proto::no_estimate::Outcomes;
use spand_proto::units::Segments;
use tokio::sync::mpsc;

use super::retreats::{compare, flight, lose};
use super::*;

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
        limits: spand_core::window::bucket::LimitCounts::default(),
        parallel: all,
        parallel_at_samples: all,
        parallel_here: here,
        followed: spand_core::flow::sample_rate::SampleRate::ALL,
        outcomes: Outcomes::default(),
        traffic: spand_core::window::traffic::NetworkTraffic::default(),
        needed: (3, 2),
        compared: Vec::new(),
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
