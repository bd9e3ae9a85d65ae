//! How much is sent at a time: to all hosts together, during snapshots and after them.

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;

fn wide(n: u16, share_bytes: f64) -> Estimate {
    let [high, low] = n.to_be_bytes();
    Estimate { network: Network::of([100, high, low, 1].into()), ..estimate(0, share_bytes, 0) }
}

fn known(networks: u16, share_bytes: f64) -> Vec<Event> {
    (0..networks).map(|n| Event::estimate(wide(n, share_bytes))).collect()
}

fn hosts(published: &Published, count: u8) -> Vec<Subscription> {
    (0..count).map(|n| published.subscribe(&[[10, 0, 1, n].into()]).unwrap()).collect()
}

/// Reads each subscription in a separate task until nothing more arrives.
fn read_all(subscriptions: Vec<Subscription>) -> JoinSet<Twin> {
    let mut readers = JoinSet::new();
    for mut subscription in subscriptions {
        readers.spawn(async move {
            let mut twin = Twin::default();
            twin.read(&mut subscription).await;
            twin
        });
    }
    readers
}

fn in_force(published: &Published) -> BTreeMap<Network, Estimate> {
    let views = published.page(None, usize::MAX);
    views.iter().filter_map(|view| Some((view.network, view.estimate.clone()?))).collect()
}

#[tokio::test(start_paused = true)]
async fn snapshots_that_outlast_the_ring_end_without_a_resync_and_lose_nothing() {
    // The ring reaches back 0.16 s; the snapshots take 0.48 s by the pace.
    let config = PublisherConfig { backlog_batches: NonZeroUsize::new(8).unwrap(), ..PublisherConfig::default() };
    let (published, _) = publisher(config);
    apply(&published, known(6_000, 10_000.0));
    settle().await;
    let readers = read_all(hosts(&published, 4));
    for round in 0..100u16 {
        let (moved, gone, back) = (round * 59, round * 53 + 7, round * 47 + 3);
        let withdrawn = Event::Withdrawn { network: wide(gone, 1.0).network, reason: Withdrawal::Expired };
        apply(&published, [Event::estimate(wide(moved, 20_000.0)), withdrawn, Event::estimate(wide(back, 30_000.0))]);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let twins = readers.join_all().await;
    assert_eq!(published.measures().resyncs_slow_reader.get(), 0);
    assert_eq!(published.measures().changes_dropped.get(), 0);
    let held = in_force(&published);
    assert!((5_900..6_000).contains(&held.len()));
    for twin in twins {
        assert!(twin.held == held);
    }
}

#[tokio::test(start_paused = true)]
async fn snapshots_end_however_much_changes_meanwhile() {
    let config = PublisherConfig { leased_networks: NonZeroUsize::new(100).unwrap(), ..PublisherConfig::default() };
    let (published, _) = publisher(config);
    apply(&published, known(2_000, 10_000.0));
    settle().await;
    let readers = read_all(hosts(&published, 4));
    for share in [20_000.0, 10_000.0].repeat(5) {
        apply(&published, known(2_000, share));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let overflowed = published.measures().dirty_overflows.get();
    assert!(overflowed > 100, "more changed in each turn than may wait: {overflowed}");
    for twin in readers.join_all().await {
        // By the pace one takes 0.16 s, half of it for changes.
        assert!(twin.ends >= 6 && twin.resyncs == 0, "{} snapshots", twin.ends);
        assert!(twin.held == in_force(&published));
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_all_subscribers_is_bounded_and_one_with_too_much_gets_a_snapshot() {
    let places = |n| NonZeroUsize::new(n).unwrap();
    let config =
        PublisherConfig { waiting_networks: places(400), subscribers: places(10), ..PublisherConfig::default() };
    let (published, _) = publisher(config);
    apply(&published, known(2_000, 10_000.0));
    settle().await;
    let readers = read_all(hosts(&published, 4));
    let mut most = 0;
    for share in [20_000.0, 10_000.0].repeat(5) {
        apply(&published, known(2_000, share));
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            most = most.max(published.shared.outbound.lock().subscribers.dirty());
        }
    }
    // Half of an equal part in each of two sets, beyond what all may have together.
    assert!((200..=400 + 4 * 40).contains(&most), "{most} waited");
    assert!(published.measures().dirty_overflows.get() > 100);
    for twin in readers.join_all().await {
        assert!(twin.held == in_force(&published));
    }
    assert_eq!(
        published.shared.outbound.lock().subscribers.dirty(),
        0,
        "the total is zero after the last subscription"
    );
}

#[tokio::test(start_paused = true)]
async fn an_end_does_not_wait_for_the_pace() {
    let (published, _) = publisher(PublisherConfig::default());
    apply(&published, known(2_560, 10_000.0));
    settle().await;
    // A round of pages takes half a second.
    let mut subscriptions = hosts(&published, 100);
    let mut one = subscriptions.pop().unwrap();
    let others = read_all(subscriptions);
    let mut twin = Twin::default();
    while twin.came.len() < 200 {
        twin.take(one.next().await.unwrap());
    }
    let network = twin.came[100];
    apply(&published, [Event::Withdrawn { network, reason: Withdrawal::TooFew }]);
    let withdrawn_at = Instant::now();
    while twin.withdrawn.is_empty() {
        twin.take(one.next().await.unwrap());
    }
    assert_eq!(twin.withdrawn, [(network, WithdrawalReason::TooFew)]);
    assert!(withdrawn_at.elapsed() <= Duration::from_millis(150), "{:?}", withdrawn_at.elapsed());
    assert!(twin.came.len() < 2_560);
    drop(others);
}

#[tokio::test(start_paused = true)]
async fn changes_are_paced_and_overtaken_ones_are_not_sent() {
    let (published, _) = publisher(PublisherConfig::default());
    apply(&published, known(2_000, 10_000.0));
    settle().await;
    let mut subscriptions = hosts(&published, 20);
    let mut twins = Vec::new();
    for subscription in &mut subscriptions {
        let mut twin = Twin::default();
        twin.read(subscription).await;
        twin.came.clear();
        twins.push(twin);
    }
    let began = Instant::now();
    let mut readers = JoinSet::new();
    for (mut subscription, mut twin) in subscriptions.into_iter().zip(twins) {
        readers.spawn(async move {
            let mut last = Duration::ZERO;
            while let Ok(update) = tokio::time::timeout(Duration::from_millis(500), subscription.next()).await {
                twin.take(update.unwrap());
                last = began.elapsed();
            }
            (subscription, twin, last)
        });
    }
    // 40,000 messages for all hosts, each time: 0.8 s.
    for round in 0..5 {
        apply(&published, known(2_000, 20_000.0 + 10_000.0 * f64::from(round)));
        tokio::time::sleep(Duration::from_millis(160)).await;
    }
    let (mut messages, mut until) = (0u32, Duration::ZERO);
    let mut one = None;
    while let Some(read) = readers.join_next().await {
        let (subscription, twin, last) = read.unwrap();
        assert!(twin.held == in_force(&published));
        messages += u32::try_from(twin.came.len()).unwrap();
        until = until.max(last);
        one = Some((subscription, twin));
    }
    assert!(until >= Duration::from_micros(20) * messages, "{messages} messages in {until:?}");
    assert!(messages <= 100_000, "{messages} of 200,000, of which most were overtaken");

    let (mut subscription, mut twin) = one.unwrap();
    let lone = Instant::now();
    apply(&published, [Event::estimate(wide(7, 90_000.0))]);
    twin.came.clear();
    while twin.came.is_empty() {
        twin.take(subscription.next().await.unwrap());
    }
    assert!(lone.elapsed() <= Duration::from_millis(125), "one that is alone does not wait: {:?}", lone.elapsed());
}

#[tokio::test(start_paused = true)]
async fn networks_without_an_estimate_take_nothing_from_the_pace() {
    let (published, _) = publisher(PublisherConfig::default());
    apply(&published, known(20_100, 10_000.0));
    let gone = |n| Event::Withdrawn { network: wide(n, 1.0).network, reason: Withdrawal::Expired };
    apply(&published, (0..20_000).map(gone));
    settle().await;
    assert_eq!((published.network_count(), published.estimate_count()), (20_100, 100));
    let began = Instant::now();
    for mut subscription in hosts(&published, 10) {
        let mut twin = Twin::default();
        while twin.came.len() < 100 {
            twin.take(subscription.next().await.unwrap());
        }
    }
    // A thousand messages are 20 ms of the pace; timers of one millisecond are waited for.
    assert!(began.elapsed() <= Duration::from_millis(40), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_ceases_to_be_the_only_one_inside_its_snapshot_holds_its_leases_until_the_next() {
    let (published, clock) = publisher(PublisherConfig::default());
    apply(&published, known(600, 40.0 * 1_448.0));
    settle().await;
    let mut one = published.subscribe(&[HOST.into()]).unwrap();
    let mut one_sees = Twin::default();
    while one_sees.came.len() < 300 {
        one_sees.take(one.next().await.unwrap());
    }
    let mut two = published.subscribe(&[OTHER.into()]).unwrap();
    let pass = |s: u64| clock.0.store(s * 1_000_000_000, Ordering::Relaxed);
    for (snapshot, first_lease) in [(1, 0), (2, 10)] {
        while one_sees.ends < snapshot {
            one_sees.take(one.next().await.unwrap());
        }
        pass(snapshot * 2);
        let network = wide(1, 1.0).network;
        assert!(published.push_start(StartImminent { network, ..start(OTHER, 1) }));
        let start = loop {
            if let UpdateEvent::ImminentStart(start) = two.next().await.unwrap().event {
                break start;
            }
        };
        assert_eq!(start.estimate.lease.unwrap().0, first_lease, "after {snapshot} snapshots");
    }
    assert!(one_sees.leases.values().all(|lease| *lease == 0));
    assert_eq!((one_sees.resyncs, one_sees.held.len()), (0, 600));
}
