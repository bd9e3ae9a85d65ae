//! A host that comes from another gateway of the cluster: what lives on, and what it is sent before the pages of the snapshot.

use spand_core::sharing::{GatewayId, HeldBack, Notice};
use spand_proto::contract::Cluster;

use super::*;

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
