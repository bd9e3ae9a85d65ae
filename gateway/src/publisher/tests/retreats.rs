//! What retreats lead to, of networks and of single addresses, and their ends.

use std::net::IpAddr;

use spand_proto::comparison::Place;
use spand_proto::units::Segments;

use super::*;

const SHARE: f64 = 1_448.0 * 40.0;

fn pass(clock: &SetClock, ms: u64) {
    clock.0.store(ms * 1_000_000, Ordering::Relaxed);
}

/// N advised starts towards an address of the first network that lose, one after another.
pub(super) fn lose(published: &Published, address: u8, ports: std::ops::RangeInclusive<u16>) {
    for port in ports {
        flight(published, address, port, true);
    }
}

pub(super) fn flight(published: &Published, address: u8, port: u16, lost: bool) {
    let ends: [SocketAddr; 2] = [(HOST, 443).into(), ([198, 51, 1, address], port).into()];
    let (began, acknowledged) = (Some(published.now()), Bytes(if lost { 0 } else { 100_000 }));
    let flight = FirstFlight { ends, lost, began, advised: Segments(40), acknowledged, application_of: None };
    published.first_flights(&Client::Address(HOST.into()), &[(network(1), flight)]);
}

fn remote(address: u8) -> IpAddr {
    [198, 51, 1, address].into()
}

/// The prefix of an address of the first network.
pub(super) fn own(address: u8) -> Network {
    format!("198.51.1.{address}/32").parse().unwrap()
}

/// What a connection to an address is advised by, and the share in segments.
pub(super) fn advised(published: &Published, address: u8) -> (Network, Option<u32>) {
    let view = published.lookup(remote(address)).unwrap();
    (view.network, view.estimate.as_ref().map(|estimate| estimate.share_segments(estimate.mss).0))
}

/// The first network has a neighbour with advised starts beside the address 9, which loses six first flights.
fn one_loses(published: &Published) {
    apply(published, [Event::estimate(estimate(1, SHARE, 0))]);
    flight(published, 8, 1, false);
    lose(published, 9, 1..=6);
}

#[tokio::test(start_paused = true)]
async fn losses_of_one_address_hold_back_its_own_advice_and_return_it() {
    let (published, clock) = publisher(PublisherConfig::default());
    let mut subscription = published.subscribe(&[OTHER.into()]).unwrap();
    let mut twin = Twin::default();
    one_loses(&published);
    assert_eq!((advised(&published, 9), advised(&published, 8)), ((own(9), Some(10)), (network(1), Some(40))));
    assert_eq!((published.retreats(), published.address_retreats(), published.network_count()), (0, 1, 1));
    twin.read(&mut subscription).await;
    assert_eq!(twin.held.keys().copied().collect::<Vec<_>>(), [network(1), own(9)]);
    assert_eq!((twin.held[&own(9)].loss_connections, twin.held[&network(1)].loss_connections), (1, 3));
    let entries = published.log(0, 10).0;
    let retreat = entries.iter().find(|entry| entry.kind == Kind::Retreat).unwrap();
    assert_eq!((retreat.what, retreat.subject.as_str()), ("halved", "198.51.1.9/32"));

    pass(&clock, 10_000);
    lose(&published, 9, 11..=16);
    assert_eq!((advised(&published, 9), advised(&published, 8)), ((own(9), Some(10)), (network(1), Some(40))));
    twin.read(&mut subscription).await;
    assert_eq!(twin.held[&own(9)].share_segments(Bytes(1_448)), Segments(10), "the window of plain TCP");
    assert_eq!(published.measures().withdrawals.get(), 0, "else it would have its network's advice");

    // What is withdrawn grows from the end of the minute on, and is forgotten with the samples.
    pass(&clock, 70_000);
    settle().await;
    apply(&published, [Event::estimate(estimate(1, SHARE, 70))]);
    flight(&published, 9, 21, false);
    assert_eq!(advised(&published, 9), (own(9), Some(11)), "it grows by a segment with what arrives whole");
    pass(&clock, 369_999);
    settle().await;
    assert_eq!(published.address_retreats(), 1);
    pass(&clock, 370_000);
    settle().await;
    assert_eq!(advised(&published, 9), (network(1), Some(40)));
    assert_eq!((published.address_retreats(), published.estimate_count()), (0, 1));
    twin.read(&mut subscription).await;
    assert_eq!(twin.held.keys().copied().collect::<Vec<_>>(), [network(1)]);
    assert_eq!(twin.withdrawn, [(own(9), WithdrawalReason::Expired)]);
}

#[tokio::test(start_paused = true)]
async fn an_address_with_advice_of_its_own_follows_its_network() {
    let (published, _) = publisher(PublisherConfig::default());
    let mut subscription = published.subscribe(&[OTHER.into()]).unwrap();
    let mut twin = Twin::default();
    one_loses(&published);
    for (share, own_share) in [(30, 10), (9, 9), (60, 10)] {
        apply(&published, [Event::estimate(estimate(1, f64::from(share) * 1_448.0, 0))]);
        assert_eq!((advised(&published, 9).1, advised(&published, 8).1), (Some(own_share), Some(share)));
    }
    let view = NetworkView::clone(&published.network(network(1)).unwrap());
    let crowded = NetworkView { parallel: 5, parallel_at_samples: 5, ..view };
    apply(&published, [Event::Network(Box::new(crowded))]);
    let budgets = [network(1), own(9)].map(|network| published.shared.state.read().networks.budget(network).unwrap().0);
    assert_eq!(budgets, [300, 10], "of five connections, and of one");
    twin.read(&mut subscription).await;
    assert_eq!(twin.held.len(), 2);
    apply(&published, [Event::Withdrawn { network: network(1), reason: Withdrawal::TooFew }]);
    twin.read(&mut subscription).await;
    assert_eq!((advised(&published, 9), twin.held.len()), ((own(9), None), 0), "there is nothing to start on");
    apply(&published, [Event::estimate(estimate(1, SHARE, 0))]);
    twin.read(&mut subscription).await;
    assert_eq!(twin.held[&own(9)].share_segments(Bytes(1_448)), Segments(10));
    apply(&published, [Event::Withdrawn { network: network(1), reason: Withdrawal::Evicted }]);
    twin.read(&mut subscription).await;
    assert_eq!((published.network_count(), published.address_retreats(), twin.held.len()), (0, 0, 0));
    apply(&published, [Event::estimate(estimate(1, SHARE, 0))]);
    assert_eq!(advised(&published, 9), (network(1), Some(40)), "forgotten with its network");
}

#[tokio::test(start_paused = true)]
async fn two_addresses_hold_back_their_networks_advice_and_the_losses_of_each_so_far() {
    let (published, clock) = publisher(PublisherConfig::default());
    apply(&published, [Event::estimate(estimate(1, SHARE, 0))]);
    flight(&published, 8, 1, false);
    lose(&published, 9, 1..=5);
    lose(&published, 7, 1..=3);
    assert_eq!((advised(&published, 9), published.retreats()), ((network(1), Some(10)), 1));
    pass(&clock, 2_000);
    lose(&published, 9, 11..=15);
    assert_eq!(published.address_retreats(), 0, "those before the network's retreat were answered by it");
    lose(&published, 9, 16..=16);
    assert_eq!((advised(&published, 9), advised(&published, 8)), ((own(9), Some(10)), (network(1), Some(10))));
    lose(&published, 7, 11..=13);
    assert_eq!(published.retreats(), 1);
    let withdrawn = published.measures().first_flights.get_or_create(&FlightLabels { verdict: "withdrawn" }).get();
    assert_eq!(withdrawn, 1, "three of each, on the network's advice");
}

#[tokio::test(start_paused = true)]
async fn a_clean_start_of_an_address_ends_its_row_and_one_of_a_neighbour_does_not() {
    let (published, _) = publisher(PublisherConfig::default());
    apply(&published, [Event::estimate(estimate(1, SHARE, 0))]);
    flight(&published, 8, 1, false);
    lose(&published, 9, 1..=5);
    flight(&published, 9, 6, false);
    lose(&published, 9, 7..=11);
    assert_eq!(published.address_retreats(), 0);
    flight(&published, 8, 2, false);
    lose(&published, 9, 12..=12);
    assert_eq!(published.address_retreats(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_starts_on_advice_of_its_own_says_nothing_of_its_networks() {
    let (published, clock) = publisher(PublisherConfig::default());
    one_loses(&published);
    flight(&published, 8, 2, false);
    lose(&published, 7, 1..=2);
    pass(&clock, 2_000);
    flight(&published, 9, 21, false);
    lose(&published, 9, 22..=22);
    lose(&published, 6, 1..=3);
    assert_eq!(published.retreats(), 0, "its loss does not count among the six");
    lose(&published, 7, 3..=3);
    assert_eq!(published.retreats(), 1, "its clean start ends no row");
}

#[tokio::test(start_paused = true)]
async fn an_address_that_the_prefix_list_makes_a_network_is_one() {
    let (published, _) = publisher(PublisherConfig::default());
    one_loses(&published);
    apply(&published, [Event::estimate(Estimate { network: own(9), ..estimate(1, SHARE, 0) })]);
    assert_eq!(advised(&published, 9), (own(9), Some(40)));
    assert_eq!((published.network_count(), published.address_retreats(), published.retreats()), (2, 0, 0));
    lose(&published, 9, 11..=16);
    assert_eq!(advised(&published, 9), (own(9), Some(40)), "it is treated as a network");
}

#[tokio::test(start_paused = true)]
async fn hosts_that_use_an_address_get_its_own_advice() {
    let config = PublisherConfig { to_hosts: ToHosts::InUse, ..PublisherConfig::default() };
    let (published, clock) = publisher(config);
    let mut streams = [HOST, OTHER].map(|host| published.subscribe(&[host.into()]).unwrap());
    let mut twins = [Twin::default(), Twin::default()];
    apply(&published, [Event::estimate(estimate(1, SHARE, 0))]);
    for host in [HOST, OTHER] {
        assert!(published.push_start(start(host, 1)));
    }
    one_loses(&published);
    for (twin, stream) in twins.iter_mut().zip(&mut streams) {
        twin.read(stream).await;
    }
    let held = |twin: &Twin| twin.held.keys().copied().collect::<Vec<_>>();
    assert_eq!(held(&twins[0]), [network(1), own(9)], "at once, since it reported the losses");
    assert_eq!(held(&twins[1]), [network(1)]);
    assert!(published.push_start(start(OTHER, 1)), "towards the address");
    twins[1].read(&mut streams[1]).await;
    assert_eq!((held(&twins[1]), twins[1].starts), (vec![network(1), own(9)], 2));
    assert_eq!(twins[1].held[&own(9)].share_segments(Bytes(1_448)), Segments(10));

    pass(&clock, 300_000);
    settle().await;
    for (twin, stream) in twins.iter_mut().zip(&mut streams) {
        twin.read(stream).await;
        assert_eq!(twin.withdrawn, [(own(9), WithdrawalReason::Expired)]);
    }
}

#[tokio::test(start_paused = true)]
async fn leases_rise_with_the_share_at_the_end_of_a_retreat() {
    let (published, clock) = publisher(PublisherConfig::default());
    let hosts = [HOST, OTHER].map(|host| published.subscribe(&[host.into()]).unwrap());
    let share = SHARE;
    apply(&published, [Event::estimate(estimate(1, share, 0))]);
    lose(&published, 9, 1..=6);
    let host_ids: Vec<u64> = published.subscribers().iter().map(|subscriber| subscriber.host_id).collect();
    let leased = || published.leases_of(network(1), &host_ids).iter().map(|lease| lease.0).sum::<u32>();
    // The message that the first is no longer the only one has arrived.
    pass(&clock, 290_000);
    apply(&published, [Event::estimate(estimate(1, share, 290))]);
    for host in [HOST, OTHER] {
        published.push_start(start(host, 1));
    }
    for ms in [291_000, 293_000, 295_000] {
        pass(&clock, ms);
        settle().await;
    }
    assert_eq!(leased(), 8, "10 segments, less what is kept back");
    pass(&clock, 300_100);
    settle().await;
    assert_eq!(published.estimate(network(1)).unwrap().share, Window::from_bytes(share).unwrap());
    settle().await;
    assert_eq!(leased(), 30);
    drop(hosts);
}

/// Transfers of two clients of the first network, 30 of each in each arm: advised ones take twice as long as controls.
pub(super) fn compare(published: &Published) {
    for n in 0..30 {
        for (client, arm) in [(1, 0), (1, 1), (3, 0), (3, 1)] {
            let ends = [(HOST, 443).into(), ([198, 51, 1, client], 40_000 + n).into()];
            let us = (if arm == 0 { 200_000 } else { 100_000 }) + u64::from(n) * 100;
            let place = Place { class: 2, arm, duration: Micros(us) };
            published.transfers(&[(network(1), Transfer { ends, place, began: published.now() })]);
        }
    }
}

fn retreats_seen(published: &Published) -> Vec<&'static str> {
    let entries = published.log(0, 100).0.into_iter();
    entries.filter(|entry| entry.kind == Kind::Retreat).map(|entry| entry.what).collect()
}

#[tokio::test(start_paused = true)]
async fn advice_that_makes_transfers_slower_is_taken_back_and_returns() {
    let (published, clock) = publisher(PublisherConfig::default());
    pass(&clock, 2_000);
    compare(&published);
    assert_eq!(retreats_seen(&published), [""; 0], "without an estimate there is nothing to take back");
    apply(&published, [Event::estimate(estimate(1, SHARE, 2))]);
    compare(&published);
    assert_eq!((advised(&published, 9), published.retreats()), ((network(1), Some(10)), 1));
    compare(&published);
    assert_eq!(retreats_seen(&published), ["slower"], "what is held back is not compared");
    flight(&published, 9, 1, false);
    assert_eq!(advised(&published, 9).1, Some(10), "at most a segment a round trip");
    pass(&clock, 2_100);
    flight(&published, 9, 2, false);
    assert_eq!(advised(&published, 9).1, Some(11));

    pass(&clock, 302_000);
    settle().await;
    assert_eq!((advised(&published, 9).1, published.retreats()), (Some(40), 0));
    compare(&published);
    assert_eq!(published.retreats(), 0, "a host may not have heard of it yet");
    pass(&clock, 303_000);
    compare(&published);
    assert_eq!(advised(&published, 9).1, Some(10));
    pass(&clock, 303_100);
    flight(&published, 9, 3, false);
    assert_eq!(advised(&published, 9).1, Some(10), "not within a minute of the second one");
    assert_eq!(retreats_seen(&published), ["slower", "over", "slower_withdrawn"]);
    assert_eq!(published.measures().retreats_slower.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn slower_transfers_on_advice_of_an_address_say_nothing_of_its_network() {
    let (published, clock) = publisher(PublisherConfig::default());
    apply(&published, [Event::estimate(estimate(1, SHARE, 0))]);
    flight(&published, 8, 1, false);
    lose(&published, 3, 1..=6);
    assert_eq!(advised(&published, 3), (own(3), Some(10)));
    pass(&clock, 2_000);
    compare(&published);
    assert_eq!(published.retreats(), 0, "half of them are its own");
    pass(&clock, 310_000);
    settle().await;
    compare(&published);
    assert_eq!(published.retreats(), 1);
}
