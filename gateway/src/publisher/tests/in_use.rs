//! Hosts to which only the networks that they use are advertised.

use super::*;

fn in_use() -> PublisherConfig {
    PublisherConfig { to_hosts: ToHosts::InUse, ..PublisherConfig::default() }
}

fn known(count: u8) -> Vec<Event> {
    (1..=count).map(|n| Event::estimate(estimate(n, 10_000.0, 0))).collect()
}

fn moved(n: u8) -> [Event; 1] {
    [Event::estimate(estimate(n, 20_000.0, 0))]
}

fn moved_share() -> Window {
    Window::from_bytes(20_000.0).unwrap()
}

fn held(twin: &Twin) -> Vec<Network> {
    twin.held.keys().copied().collect()
}

fn pass(clock: &SetClock, s: u64) {
    clock.0.store(s * 1_000_000_000, Ordering::Relaxed);
}

#[tokio::test(start_paused = true)]
async fn a_host_hears_of_a_network_with_its_first_start_and_then_of_its_changes() {
    let (published, _) = publisher(in_use());
    apply(&published, known(3));
    let (mut one, mut two) =
        (published.subscribe(&[HOST.into()]).unwrap(), published.subscribe(&[OTHER.into()]).unwrap());
    let (mut one_sees, mut two_sees) = (Twin::default(), Twin::default());
    one_sees.read(&mut one).await;
    two_sees.read(&mut two).await;
    assert_eq!((held(&one_sees), held(&two_sees)), (vec![], vec![]), "no network is in use");

    assert!(published.push_start(start(HOST, 1)) && published.push_start(start(OTHER, 2)));
    apply(&published, [moved(1), moved(2), moved(3)].concat());
    one_sees.read(&mut one).await;
    two_sees.read(&mut two).await;
    assert_eq!((held(&one_sees), held(&two_sees)), (vec![network(1)], vec![network(2)]));
    assert_eq!(one_sees.held[&network(1)].share, moved_share());
    assert_eq!((one_sees.starts, two_sees.starts), (1, 1));
    let before = two_sees.sequence;

    apply(&published, [Event::Withdrawn { network: network(1), reason: Withdrawal::TooFew }]);
    one_sees.read(&mut one).await;
    two_sees.read(&mut two).await;
    assert_eq!(one_sees.withdrawn, [(network(1), WithdrawalReason::TooFew)]);
    assert_eq!((two_sees.sequence, two_sees.withdrawn.len()), (before, 0), "which is no concern of the other");
    apply(&published, known(1));
    one_sees.read(&mut one).await;
    assert_eq!(held(&one_sees), [network(1)], "it comes back while the host uses it");
    assert_eq!(published.advertised_to(network(1)).unwrap().len(), 1);
    assert_eq!(published.advertised_pairs(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_estimate_that_appears_after_the_use_is_sent() {
    let (published, _) = publisher(in_use());
    let mut subscription = published.subscribe(&[HOST.into()]).unwrap();
    assert!(!published.push_start(start(HOST, 1)), "nothing to push yet");
    apply(&published, known(2));
    let mut twin = Twin::default();
    twin.read(&mut subscription).await;
    assert_eq!(held(&twin), [network(1)]);
}

#[tokio::test(start_paused = true)]
async fn what_a_host_reports_is_a_talk_and_its_estimate_comes_at_once() {
    let (published, _) = publisher(in_use());
    apply(&published, known(2));
    let mut subscription = published.subscribe(&[HOST.into()]).unwrap();
    let mut twin = Twin::default();
    twin.read(&mut subscription).await;
    published.used_destinations(&[(OTHER.into(), network(1))]);
    published.used_destinations(&[(HOST.into(), network(2))]);
    twin.read(&mut subscription).await;
    assert_eq!(held(&twin), [network(2)]);
}

#[tokio::test(start_paused = true)]
async fn a_network_that_lapses_is_withdrawn_since_a_renewal_would_keep_it() {
    let (published, clock) = publisher(in_use());
    apply(&published, known(2));
    let mut subscription = published.subscribe(&[HOST.into()]).unwrap();
    let mut twin = Twin::default();
    assert!(published.push_start(start(HOST, 1)) && published.push_start(start(HOST, 2)));
    twin.read(&mut subscription).await;
    pass(&clock, 301);
    assert!(!published.push_start(start(HOST, 2)), "the estimate is old");
    apply(&published, [1, 2].map(|n| Event::estimate(estimate(n, 10_000.0, 301))));
    pass(&clock, 599);
    twin.read(&mut subscription).await;
    assert_eq!(held(&twin), [network(1), network(2)]);
    pass(&clock, 600);
    twin.read(&mut subscription).await;
    assert_eq!((held(&twin), &*twin.withdrawn), (vec![network(2)], &[(network(1), WithdrawalReason::Quiet)][..]));
    assert_eq!(published.measures().destinations_expired.get(), 1);
    apply(&published, [Event::estimate(estimate(1, 30_000.0, 600))]);
    twin.read(&mut subscription).await;
    assert_eq!(held(&twin), [network(2)], "and is no longer advertised");
    assert!(published.push_start(start(HOST, 1)));
    twin.read(&mut subscription).await;
    assert_eq!(held(&twin), [network(1), network(2)], "until it is used again");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_holds_what_the_host_talks_with_after_a_resync_and_for_one_that_comes_back() {
    let (published, clock) = publisher(in_use());
    apply(&published, known(200));
    let mut subscription = published.subscribe(&[HOST.into()]).unwrap();
    let mut twin = Twin::default();
    for n in 1..=100 {
        assert!(published.push_start(start(HOST, n)));
    }
    twin.read(&mut subscription).await;
    assert_eq!(twin.held.len(), 100);
    let views = published.page(None, 200).iter().skip(50).map(|view| NetworkView::clone(view)).collect();
    published.replace(views, |_| true, None);
    twin.read(&mut subscription).await;
    assert_eq!((twin.resyncs, twin.came.len()), (1, 50));
    assert_eq!(held(&twin), (51..=100).map(network).collect::<Vec<_>>());

    drop(subscription);
    pass(&clock, 60);
    let mut again = published.subscribe(&[HOST.into()]).unwrap();
    let mut twin = Twin::default();
    twin.read(&mut again).await;
    assert_eq!(twin.held.len(), 50, "the same addresses are the same host");
    drop(again);
    pass(&clock, 122);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut again = published.subscribe(&[HOST.into()]).unwrap();
    let mut twin = Twin::default();
    twin.read(&mut again).await;
    assert_eq!((twin.held.len(), published.advertised_pairs()), (0, 0), "forgotten with its leases");
}

#[tokio::test(start_paused = true)]
async fn a_list_is_bounded_and_what_goes_is_withdrawn() {
    let config = PublisherConfig { destinations_per_host: NonZeroUsize::new(2).unwrap(), ..in_use() };
    let (published, clock) = publisher(config);
    apply(&published, known(3));
    let mut subscription = published.subscribe(&[HOST.into()]).unwrap();
    let mut twin = Twin::default();
    twin.read(&mut subscription).await;
    for (s, n) in [(0, 1), (1, 2)] {
        pass(&clock, s);
        assert!(published.push_start(start(HOST, n)));
    }
    for n in 100..200 {
        assert!(!published.push_start(start(HOST, n)), "spoofed: no estimate");
    }
    twin.read(&mut subscription).await;
    assert_eq!(held(&twin).len(), 1, "one place is taken from what is held, and the others from each other");
    pass(&clock, 2);
    assert!(published.push_start(start(HOST, 3)));
    twin.read(&mut subscription).await;
    assert_eq!(held(&twin), [network(2), network(3)]);
    assert_eq!(twin.withdrawn, [(network(1), WithdrawalReason::Quiet)]);
    assert_eq!(published.measures().destinations_evicted.get(), 101);
}

#[tokio::test(start_paused = true)]
async fn a_reader_with_too_much_waiting_gets_a_snapshot() {
    let config = PublisherConfig { destinations_per_host: NonZeroUsize::new(4).unwrap(), ..in_use() };
    let (published, clock) = publisher(config);
    apply(&published, known(20));
    let mut subscription = published.subscribe(&[HOST.into()]).unwrap();
    let mut twin = Twin::default();
    twin.read(&mut subscription).await;
    for n in 1..=20 {
        pass(&clock, u64::from(n));
        assert!(published.push_start(start(HOST, n)));
    }
    twin.read(&mut subscription).await;
    assert_eq!(held(&twin), [network(17), network(18), network(19), network(20)]);
    assert!(published.measures().dirty_overflows.get() > 0);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_went_from_a_full_queue_leaves_its_estimate() {
    let (published, _) = publisher(PublisherConfig { waiting_starts: NonZeroUsize::MIN, ..in_use() });
    apply(&published, known(2));
    let mut subscription = published.subscribe(&[HOST.into()]).unwrap();
    let mut twin = Twin::default();
    twin.read(&mut subscription).await;
    assert!(published.push_start(start(HOST, 1)) && published.push_start(start(HOST, 2)));
    twin.read(&mut subscription).await;
    assert_eq!((twin.starts, held(&twin)), (1, vec![network(1), network(2)]));
}

#[tokio::test(start_paused = true)]
async fn the_host_that_starts_gets_its_lease_and_the_other_nothing() {
    let (published, clock) = publisher(in_use());
    apply(&published, [Event::estimate(estimate(1, 40.0 * 1_448.0, 0))]);
    let (mut one, mut two) =
        (published.subscribe(&[HOST.into()]).unwrap(), published.subscribe(&[OTHER.into()]).unwrap());
    let (mut one_sees, mut two_sees) = (Twin::default(), Twin::default());
    one_sees.read(&mut one).await;
    two_sees.read(&mut two).await;
    pass(&clock, 2);
    assert!(published.push_start(start(OTHER, 1)));
    two_sees.read(&mut two).await;
    pass(&clock, 3);
    two_sees.read(&mut two).await;
    one_sees.read(&mut one).await;
    assert_eq!((two_sees.leases[&network(1)], one_sees.leases.len()), (30, 0));
}

#[tokio::test(start_paused = true)]
async fn a_page_holds_networks_with_an_estimate_alone_and_as_many_as_it_may() {
    let (published, _) = publisher(in_use());
    apply(&published, (200..=250).map(|n| Event::estimate(estimate(n, 10_000.0, 0))));
    let _subscription = published.subscribe(&[HOST.into()]).unwrap();
    let host_id = published.subscribers()[0].host_id;
    (0..=220).for_each(|n| published.used_destinations(&[(HOST.into(), network(n))]));
    assert_eq!(published.advertised_page(host_id, None, 20), (200..220).map(network).collect::<Vec<_>>());
    assert_eq!(published.advertised_page(host_id, Some(network(219)), 20), [network(220)]);
    assert_eq!(published.advertised_page(host_id, Some(network(220)), 20), []);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_hosts_that_come_and_go_leave_nothing() {
    let long = Micros::from_secs(100_000);
    let (published, clock) = publisher(PublisherConfig { max_age: long, destination_idle: long, ..in_use() });
    apply(&published, known(100));
    for n in 0..10_000_u32 {
        // Hosts that are gone count until their advice has expired: no more than `subscribers` within that time.
        pass(&clock, u64::from(n / 10));
        let host = (0x0a00_0000 + n).to_be_bytes();
        let mut subscription = published.subscribe(&[host.into()]).unwrap();
        let network = u8::try_from(n % 100 + 1).unwrap();
        assert!(published.push_start(start(host, network)), "host {n}");
        if n % 1_000 == 0 {
            let mut twin = Twin::default();
            twin.read(&mut subscription).await;
            assert_eq!(twin.starts, 1, "host {n}");
        }
    }
    assert_eq!(published.subscriber_count(), 0);
    pass(&clock, 10_000);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!((published.advertised_pairs(), published.shared.outbound.lock().destinations.pairs()), (0, 0));
}
