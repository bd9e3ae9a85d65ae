//! What is sent, to which subscriber, and in which order.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_snapshot_comes_first_and_then_only_what_moved() {
    let (published, clock) = publisher(PublisherConfig::default());
    apply(&published, [1, 2].map(|n| Event::estimate(estimate(n, 10_000.0, 0))));
    settle().await;
    let mut subscription = published.subscribe(&[HOST.into()]).unwrap();
    let mut twin = Twin::default();
    twin.read(&mut subscription).await;
    assert_eq!(twin.held.len(), 2);
    assert_eq!(twin.sequence, 4, "begin, two estimates, end");

    apply(&published, [Event::estimate(estimate(1, 10_900.0, 10))]);
    twin.read(&mut subscription).await;
    assert_eq!(twin.sequence, 4, "9 % is not advertised");
    apply(&published, [Event::estimate(estimate(1, 11_100.0, 20))]);
    twin.read(&mut subscription).await;
    assert_eq!(twin.sequence, 5, "11 % is");
    clock.0.store(121_000_000_000, Ordering::Relaxed);
    apply(&published, [Event::estimate(estimate(1, 11_100.0, 121))]);
    twin.read(&mut subscription).await;
    assert_eq!(twin.sequence, 6, "the advertised estimate had grown old");
    apply(&published, [Event::Withdrawn { network: network(2), reason: Withdrawal::Expired }]);
    twin.read(&mut subscription).await;
    assert_eq!(twin.held.keys().copied().collect::<Vec<_>>(), [network(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_start_overtakes_a_snapshot() {
    let (published, clock) = publisher(PublisherConfig::default());
    apply(&published, (0..=255).map(|n| Event::estimate(estimate(n, 10_000.0, 0))));
    let mut subscription = published.subscribe(&[HOST.into()]).unwrap();
    for _ in 0..100 {
        subscription.next().await.unwrap();
    }
    clock.0.store(3_000_000, Ordering::Relaxed);
    assert!(published.push_start(start(HOST, 250)));
    let UpdateEvent::ImminentStart(start) = subscription.next().await.unwrap().event else {
        panic!("something else came first");
    };
    assert_eq!(start.estimate.estimate.network, network(250));
    assert_eq!(start.delay, Micros::from_millis(3));
}

#[tokio::test(start_paused = true)]
async fn snapshots_take_turns_and_a_start_does_not_wait_for_its() {
    let (published, _) = publisher(PublisherConfig::default());
    apply(&published, (0..=255).map(|n| Event::estimate(estimate(n, 10_000.0, 0))));
    let began = tokio::time::Instant::now();
    let mut readers: Vec<_> = (0..10u8).map(|n| published.subscribe(&[[10, 0, 0, n].into()]).unwrap()).collect();
    for reader in &mut readers {
        assert!(matches!(reader.next().await.unwrap().event, UpdateEvent::SnapshotBegin { .. }));
    }
    assert!(published.push_start(start([10, 0, 0, 9], 1)));
    let last = readers.last_mut().unwrap();
    assert!(matches!(last.next().await.unwrap().event, UpdateEvent::ImminentStart(_)));
    assert_eq!(began.elapsed(), Duration::ZERO);
    for reader in &mut readers {
        assert!(matches!(reader.next().await.unwrap().event, UpdateEvent::Estimate(_)));
    }
    // Nine pages of 256 messages at 50,000 a second lie before the tenth.
    assert!(began.elapsed() >= Duration::from_micros(9 * 5_120));
}

#[tokio::test(start_paused = true)]
async fn a_start_reaches_only_its_host_and_only_with_an_estimate() {
    let (published, _) = publisher(PublisherConfig::default());
    apply(&published, [Event::estimate(estimate(1, 10_000.0, 0))]);
    let mut mine = published.subscribe(&["::ffff:10.0.0.1".parse().unwrap()]).unwrap();
    let mut other = published.subscribe(&[[10, 0, 0, 2].into()]).unwrap();
    let to = |host, n| Event::StartImminent(start(host, n));
    let batch = Batch { events: vec![to(HOST, 1), to(HOST, 7), to([10, 0, 0, 3], 1)], ..Batch::new() };
    assert_eq!(published.apply(batch), [start(HOST, 1)], "only the first is advised");
    let (mut received_by_mine, mut received_by_other) = (Twin::default(), Twin::default());
    received_by_mine.read(&mut mine).await;
    received_by_other.read(&mut other).await;
    assert_eq!((received_by_mine.starts, received_by_other.starts), (1, 0));
    let measures = published.measures();
    assert_eq!((measures.starts_no_estimate.get(), measures.starts_no_subscriber.get()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_resynchronised_with_the_number_of_lost_changes() {
    let two = NonZeroUsize::new(2).unwrap();
    let (published, _) = publisher(PublisherConfig { backlog_batches: two, ..PublisherConfig::default() });
    let mut subscription = published.subscribe(&[HOST.into()]).unwrap();
    let mut twin = Twin::default();
    twin.read(&mut subscription).await;
    for round in 1..=10 {
        apply(&published, [Event::estimate(estimate(round, 10_000.0, 0))]);
        settle().await;
    }
    apply(&published, [Event::Withdrawn { network: network(1), reason: Withdrawal::TooFew }]);
    settle().await;
    twin.read(&mut subscription).await;
    assert_eq!((twin.resyncs, twin.dropped), (1, 11));
    assert_eq!(twin.held.len(), 9);
    assert_eq!(published.measures().resyncs_slow_reader.get(), 1);
    assert_eq!(published.measures().changes_dropped.get(), 11);
}

#[tokio::test(start_paused = true)]
async fn waiting_starts_are_bounded_and_the_oldest_goes() {
    let one = NonZeroUsize::MIN;
    let (published, _) = publisher(PublisherConfig { waiting_starts: one, ..PublisherConfig::default() });
    apply(&published, [1, 2].map(|n| Event::estimate(estimate(n, 10_000.0, 0))));
    let mut subscription = published.subscribe(&[HOST.into()]).unwrap();
    assert!(published.push_start(start(HOST, 1)) && published.push_start(start(HOST, 2)));
    assert!(
        matches!(subscription.next().await.unwrap().event, UpdateEvent::ImminentStart(start) if start.estimate.estimate.network == network(2))
    );
    assert_eq!(published.measures().starts_overflowed.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn every_limit_on_subscribers_refuses_the_next_one() {
    let limit = |n| NonZeroUsize::new(n).unwrap();
    let config = PublisherConfig {
        subscribers: limit(3),
        subscribers_per_address: limit(2),
        addresses: limit(2),
        ..PublisherConfig::default()
    };
    let (published, _) = publisher(config);
    let host = |n| [10, 0, 0, n].into();
    let refused = |addresses: &[IpAddr]| published.subscribe(addresses).unwrap_err();
    assert_eq!(refused(&[]), SubscribeError::NoAddress);
    assert_eq!(refused(&[host(1), host(2), host(3)]), SubscribeError::TooManyAddresses { found: 3, limit: 2 });
    let kept = [published.subscribe(&[host(1)]).unwrap(), published.subscribe(&[host(1)]).unwrap()];
    assert_eq!(refused(&[host(1)]), SubscribeError::AddressTaken { address: host(1), limit: 2 });
    let third = published.subscribe(&[host(1), host(2)]).unwrap();
    assert_eq!(
        published.measures().addresses_left_out.get(),
        1,
        "an address that many hosts have refuses none of them"
    );
    assert_eq!(published.subscribers().last().unwrap().addresses, [host(2)]);
    assert_eq!(refused(&[host(4)]), SubscribeError::Full(3));
    drop(kept);
    drop(third);
    assert_eq!(published.subscriber_count(), 0);
    assert!(published.subscribe(&[host(1)]).is_ok(), "the places are free again");
    assert_eq!(published.measures().subscriptions_refused.get(), 4);
}

#[tokio::test(start_paused = true)]
async fn advice_is_renewed_while_nothing_moves() {
    let (published, _) = publisher(PublisherConfig::default());
    let mut subscription = published.subscribe(&[HOST.into()]).unwrap();
    Twin::default().read(&mut subscription).await;
    let before = tokio::time::Instant::now();
    assert_eq!(subscription.next().await.unwrap().event, UpdateEvent::Renewal { lifetime: Micros::from_secs(60) });
    assert!(before.elapsed() <= Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn a_replaced_state_is_sent_again_and_the_end_ends_all() {
    let (published, _) = publisher(PublisherConfig::default());
    apply(&published, [1, 2].map(|n| Event::estimate(estimate(n, 10_000.0, 0))));
    let mut subscription = published.subscribe(&[HOST.into()]).unwrap();
    let mut twin = Twin::default();
    twin.read(&mut subscription).await;
    let view = NetworkView::clone(&published.network(network(2)).unwrap());
    published.replace(vec![view], |_| true, None);
    twin.read(&mut subscription).await;
    assert_eq!((twin.resyncs, twin.held.len()), (1, 1));
    published.replace(Vec::new(), |own| own != network(2), None);
    assert!(published.network(network(2)).is_some(), "another engine's network stays");
    published.replace(Vec::new(), |own| own == network(2), None);
    assert_eq!(published.network_count(), 0);
    twin.read(&mut subscription).await;
    assert_eq!((twin.resyncs, twin.held.len()), (2, 0));
    published.close();
    assert_eq!(subscription.next().await, None);
    assert_eq!(published.subscribe(&[HOST.into()]).unwrap_err(), SubscribeError::Closed);
}

#[tokio::test(start_paused = true)]
async fn an_address_finds_its_longest_network_and_no_stale_estimate() {
    let (published, clock) = publisher(PublisherConfig::default());
    let wide = Estimate { network: "198.51.0.0/16".parse().unwrap(), ..estimate(1, 5_000.0, 0) };
    let six = Estimate { network: "2001:db8:1::/48".parse().unwrap(), ..estimate(1, 5_000.0, 0) };
    apply(&published, [estimate(1, 10_000.0, 0), wide.clone(), six.clone()].map(Event::estimate));
    let found = |address: &str| published.lookup(address.parse().unwrap()).map(|view| view.network);
    assert_eq!(found("198.51.1.77"), Some(network(1)));
    assert_eq!(found("::ffff:198.51.2.77"), Some(wide.network));
    assert_eq!(found("2001:db8:1:2::3"), Some(six.network));
    assert_eq!(found("192.0.2.1"), None);
    assert_eq!(published.page(Some(wide.network), 2).len(), 2);
    clock.0.store(301_000_000_000, Ordering::Relaxed);
    assert_eq!(published.estimate(network(1)), None);
    assert!(published.network(network(1)).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_host_gets_the_sizes_of_its_own_services_periodically() {
    let (published, _) = publisher(PublisherConfig::default());
    let size = |host, port, quantile| Event::ServiceSize(service_size(host, port, quantile));
    apply(&published, [size(HOST, 443, 30_000), size(HOST, 80, 9_000), size([10, 0, 0, 2], 443, 1_000)]);
    settle().await;
    let mut subscription = published.subscribe(&["::ffff:10.0.0.1".parse().unwrap()]).unwrap();
    let mut twin = Twin::default();
    twin.read(&mut subscription).await;
    let at = |port: u16| SocketAddr::from((HOST, port));
    let own = [(at(80), 9_000), (at(443), 30_000)];
    assert_eq!(twin.sizes, own);
    let began = tokio::time::Instant::now();

    twin.sizes.clear();
    apply(&published, [size(HOST, 443, 32_900), size([10, 0, 0, 2], 443, 5_000)]);
    twin.read(&mut subscription).await;
    assert_eq!(twin.sizes, [], "9 % is not sent, nor a size of another host");
    apply(&published, [size(HOST, 443, 33_100)]);
    twin.read(&mut subscription).await;
    assert_eq!(twin.sizes, [(at(443), 33_100)], "the change is relative to the first size sent");
    assert_eq!(published.measures().service_sizes.get(), 5);

    twin.sizes.clear();
    apply(&published, [Event::ServiceForgotten(at(80))]);
    while twin.sizes.is_empty() {
        let Update { sequence, event } = subscription.next().await.unwrap();
        if let UpdateEvent::ServiceSize(size) = &event {
            assert_eq!((size.lifetime, size.transfers), (Micros::from_secs(300), 12));
        }
        twin.take(Update { sequence, event });
    }
    assert!(began.elapsed() <= Duration::from_secs(121), "sent again long before it expires");
    assert_eq!(twin.sizes, [(at(443), 33_100)], "an evicted size is not sent again");
    published.replace(Vec::new(), |_| true, Some(vec![service_size(HOST, 22, 700)]));
    twin.sizes.clear();
    twin.read(&mut subscription).await;
    assert_eq!(twin.sizes, [(at(22), 700)]);
}

#[tokio::test(start_paused = true)]
async fn a_budget_counts_no_crowd_in_which_the_share_was_not_measured() {
    let (published, _clock) = publisher(PublisherConfig::default());
    apply(&published, [Event::estimate(estimate(1, 40.0 * 1_448.0, 0))]);
    settle().await;
    let view = NetworkView::clone(&published.network(network(1)).unwrap());
    for (parallel, parallel_at_samples, budget) in [(200, 1, 40), (200, 5, 200), (3, 200, 120), (0, 0, 40)] {
        published.replace(vec![NetworkView { parallel, parallel_at_samples, ..view.clone() }], |_| true, None);
        assert_eq!(
            published.shared.state.read().networks.budget(network(1)),
            Some(spand_proto::units::Segments(budget)),
            "{parallel}, {parallel_at_samples}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn budgets_are_leased_to_the_hosts_that_start_connections() {
    let (published, clock) = publisher(PublisherConfig::default());
    apply(&published, [1, 2].map(|n| Event::estimate(estimate(n, 40.0 * 1_448.0, 0))));
    settle().await;
    let mut one = published.subscribe(&[HOST.into()]).unwrap();
    let mut two_sees = Twin::default();
    let mut one_sees = Twin::default();
    one_sees.read(&mut one).await;
    assert_eq!(one_sees.leases.values().copied().collect::<Vec<_>>(), [40, 40], "the only host has all of it");

    let mut two = published.subscribe(&[[10, 0, 0, 2].into()]).unwrap();
    two_sees.read(&mut two).await;
    one_sees.read(&mut one).await;
    assert_eq!(one_sees.leases.values().copied().collect::<Vec<_>>(), [0, 0], "and gets a message when it is not");
    assert_eq!((one_sees.resyncs, one_sees.held.len()), (0, 2), "by a snapshot without a loss");
    let pass = |s: u64| clock.0.store(s * 1_000_000_000, Ordering::Relaxed);
    pass(2);
    assert!(published.push_start(start([10, 0, 0, 2], 1)));
    two_sees.read(&mut two).await;
    assert_eq!(two_sees.leases[&network(1)], 10, "with its first start");
    pass(3);
    two_sees.read(&mut two).await;
    assert_eq!(two_sees.leases[&network(1)], 30, "and gets an increase on its own");
    assert_eq!(two_sees.leases[&network(2)], 0);
    assert!(published.measures().leases_advertised.get() > 0);
    assert_eq!(published.leased_networks(), 1);
    apply(&published, [Event::estimate(estimate(1, 20.0 * 1_448.0, 2))]);
    two_sees.read(&mut two).await;
    assert_eq!(two_sees.leases[&network(1)], 15, "a budget that shrank");
}
