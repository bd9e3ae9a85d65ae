//! Streams of subscribers.

use super::*;

#[tokio::test]
async fn a_subscriber_gets_the_snapshot_then_changes_and_its_own_starts() {
    let rig = Rig::new(ApiConfig::default()).await;
    let mut updates = client(&rig).await.subscribe(wish(&["10.0.0.1"])).await.unwrap().into_inner();
    let mut snapshot = Vec::new();
    loop {
        match updates.message().await.unwrap().unwrap().event.unwrap() {
            Update::SnapshotBegin(begin) => assert_eq!((begin.contract_version, begin.networks), (1, 3)),
            Update::Estimate(update) => snapshot.push(update.estimate.unwrap().network),
            Update::SnapshotEnd(end) => break assert_eq!(end.networks, 3),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(snapshot, [GOOD, WIDE, SIX]);

    let host = |address: &str| address.parse().unwrap();
    let start = StartImminent {
        host: host("10.0.0.1"),
        remote: host("192.0.2.7"),
        network: GOOD.parse().unwrap(),
        trigger: Trigger::PassiveOpen,
        at: Timestamp(9_998_000_000),
    };
    let of_another = StartImminent { host: host("10.0.0.2"), ..start };
    let moved = Event::estimate(estimate(WIDE, 100.0));
    let events = vec![moved, Event::StartImminent(of_another), Event::StartImminent(start)];
    rig.published.apply(Batch { events, ..Batch::new() });
    let Update::ImminentStart(start) = updates.message().await.unwrap().unwrap().event.unwrap() else {
        panic!("a start does not wait for changes");
    };
    assert_eq!(
        (start.host_address.as_str(), start.remote_address.as_str(), start.delay_us),
        ("10.0.0.1", "192.0.2.7", 2_000)
    );
    assert_eq!(start.estimate.unwrap().estimate.unwrap().age_us, 1_000_000);
    let change = updates.message().await.unwrap().unwrap();
    assert!(matches!(change.event.unwrap(), Update::Estimate(update) if update.lifetime_ms == 60_000));
    assert_eq!(change.sequence, 7);
    rig.end().await;
}

/// Reads until an estimate or a start of `network` with this share comes; every network that was named until then.
async fn named_until(updates: &mut tonic::Streaming<v1::Update>, network: &str, segments: f64) -> Vec<String> {
    let mut named = Vec::new();
    loop {
        let update = match updates.message().await.unwrap().unwrap().event.unwrap() {
            Update::Estimate(update) => update,
            Update::ImminentStart(start) => start.estimate.unwrap(),
            Update::Withdrawal(withdrawal) => panic!("{withdrawal:?}"),
            _ => continue,
        };
        let estimate = update.estimate.unwrap();
        let is_last = estimate.network == network && (estimate.share_bytes / 1_448.0 - segments).abs() < 0.5;
        named.push(estimate.network);
        if is_last {
            return named;
        }
    }
}

#[tokio::test]
async fn hosts_that_use_different_networks_get_different_ones() {
    let publisher = PublisherConfig { to_hosts: ToHosts::InUse, ..PublisherConfig::default() };
    let rig = Rig::publishing(ApiConfig::default(), publisher).await;
    let mut one = client(&rig).await.subscribe(wish(&["10.0.0.1"])).await.unwrap().into_inner();
    let mut two = client(&rig).await.subscribe(wish(&["10.0.0.2"])).await.unwrap().into_inner();
    for updates in [&mut one, &mut two] {
        let Update::SnapshotBegin(begin) = updates.message().await.unwrap().unwrap().event.unwrap() else {
            panic!("a stream begins with its snapshot");
        };
        assert_eq!(begin.networks, 0, "no network is in use yet");
    }
    let start = |host: &str, remote: &str, network: &str| StartImminent {
        host: host.parse().unwrap(),
        remote: remote.parse().unwrap(),
        network: network.parse().unwrap(),
        trigger: Trigger::PassiveOpen,
        at: Timestamp(9_998_000_000),
    };
    assert!(rig.published.push_start(start("10.0.0.1", "192.0.2.7", GOOD)));
    assert!(rig.published.push_start(start("10.0.0.2", "198.51.100.7", WIDE)));
    assert_eq!(named_until(&mut one, GOOD, 20.0).await, [GOOD]);
    assert_eq!(named_until(&mut two, WIDE, 200.0).await, [WIDE]);

    // All of them change, and then each host uses another one: the messages of the change have arrived before that.
    let moved = [(GOOD, 40.0), (WIDE, 100.0), (SIX, 90.0)].map(|(network, wc)| Event::estimate(estimate(network, wc)));
    rig.published.apply(Batch { events: moved.into(), ..Batch::new() });
    let own = |named: Vec<String>, network: &str| named.iter().all(|named| named == network);
    assert!(own(named_until(&mut one, GOOD, 40.0).await, GOOD));
    assert!(own(named_until(&mut two, WIDE, 100.0).await, WIDE));
    assert_eq!(client(&rig).await.report(report(1, &["2001:db8:7::1"])).await.unwrap().into_inner().accepted, 1);
    let named = named_until(&mut one, SIX, 90.0).await;
    assert!(named.iter().all(|named| named != WIDE), "{named:?}");
    assert!(rig.published.push_start(start("10.0.0.2", "192.0.2.9", GOOD)));
    let named = named_until(&mut two, GOOD, 40.0).await;
    assert!(named.iter().all(|named| named != SIX), "{named:?}");

    let agents =
        async |network: &str| rig.get(&format!("/v1/history/{network}")).await.1["distribution"]["agents"].as_u64();
    assert_eq!((agents(GOOD).await, agents(WIDE).await, agents(SIX).await), (Some(2), Some(1), Some(1)));
    rig.end().await;
}

#[tokio::test]
async fn a_subscription_ends_with_its_client_and_with_the_gateway() {
    let rig = Rig::new(ApiConfig::default()).await;
    let first = client(&rig).await.subscribe(wish(&["10.0.0.1"])).await.unwrap();
    assert_eq!(rig.published.subscriber_count(), 1);
    drop(first);
    while rig.published.subscriber_count() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut second = client(&rig).await.subscribe(wish(&["10.0.0.1"])).await.unwrap().into_inner();
    rig.end().await;
    let status = loop {
        match second.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("ended without a word"),
            Err(status) => break status,
        }
    };
    check(&status, Code::Unavailable, "stops");
}
