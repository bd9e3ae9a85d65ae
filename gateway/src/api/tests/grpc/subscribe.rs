//! Streams of subscribers.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::time::Instant;

use tokio::net::UnixListener;
use tokio::task::AbortHandle;
use tonic::transport::Endpoint;

use super::*;
use crate::api::Listening;
use crate::config::Config;

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

// By a Unix socket, beside TCP.

#[tokio::test]
async fn the_socket_s_mode_proves_agents_of_this_machine_and_their_connections_count_with_all_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.sock");
    let text = "[agents]\nidentity = \"peer_address\"\n[api]\nconnections_per_peer = 2\n";
    let config = Config::parse(text, Path::new("gateway.toml")).unwrap();
    let published = Published::new(PublisherConfig::default(), SetClock(Arc::new(AtomicU64::new(10_000_000_000))));
    let access = Access::open(&config).unwrap();
    let api = Api::with_access(config.api(), access, published.clone(), (None, None), &Confined::default());
    let tcp = bind().await;
    let address = tcp.local_addr().unwrap();
    let listening = Listening { tcp: Some(tcp), unix: Some(UnixListener::bind(&path).unwrap()) };
    let (stop, stopped) = watch::channel(false);
    let (served, refusals) = (api.clone(), api);
    let server = tokio::spawn(async move { served.serve_grpc(listening, stopped).await });

    let socket = format!("unix:{}", path.display());
    let mut local = SpandClient::connect(socket.clone()).await.unwrap();
    let mut other = SpandClient::connect(format!("http://{address}")).await.unwrap();
    let refused = other.subscribe(wish(&["203.0.113.9"])).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let stream = local.subscribe(wish(&["203.0.113.9"])).await.unwrap().into_inner();
    assert_eq!(published.subscriber_count(), 1);
    assert!(other.query(query(vec![question("192.0.2.7")])).await.is_ok());

    let mut third = SpandClient::connect(socket).await.unwrap();
    assert!(third.query(query(vec![question("192.0.2.7")])).await.is_ok());
    assert_eq!(refusals.shared.measures.displaced(), 1, "the limit of a peer is one for both ways in");
    drop((third, stream, other, local));
    stop.send(true).unwrap();
    server.await.unwrap();
}

// One client that subscribes and resets its stream again and again, on a connection of its own, beside an honest one.

/// Networks in every new subscriber's snapshot.
const NETWORKS: u16 = 4_000;
const HONEST: &str = "10.0.0.1";

/// A client that connects from another address than the others.
async fn hostile(rig: &Rig) -> SpandClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", rig.grpc)).unwrap();
    SpandClient::new(endpoint.local_address(Some([127, 0, 0, 2].into())).connect().await.unwrap())
}

fn fill(rig: &Rig) {
    let network = |n: u16| format!("100.{}.{}.0/24", n >> 8, n & 255);
    let events = (0..NETWORKS).map(|n| Event::estimate(estimate(&network(n), 20.0)));
    rig.published.apply(Batch { events: events.collect(), ..Batch::new() });
}

/// Subscribes and resets, for as long as it is let; counts how often.
async fn flood(rig: &Rig) -> (Arc<AtomicU64>, AbortHandle) {
    let mut client = hostile(rig).await;
    let subscribed = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&subscribed);
    let task = tokio::spawn(async move {
        loop {
            // Dropped with its unread messages: the stream is reset.
            if let Ok(stream) = client.subscribe(wish(&["10.0.9.9"])).await {
                drop(stream.into_inner().message().await);
                counted.fetch_add(1, Ordering::Relaxed);
            }
            tokio::task::yield_now().await;
        }
    });
    (subscribed, task.abort_handle())
}

/// A whole snapshot, and how long it took.
async fn snapshot(client: &mut SpandClient<Channel>) -> (Duration, tonic::Streaming<v1::Update>) {
    let began = Instant::now();
    let mut updates = client.subscribe(wish(&[HONEST])).await.unwrap().into_inner();
    while !matches!(updates.message().await.unwrap().unwrap().event.unwrap(), Update::SnapshotEnd(_)) {}
    (began.elapsed(), updates)
}

#[tokio::test]
async fn a_client_that_subscribes_and_resets_holds_up_neither_snapshots_nor_starts() {
    let often = NonZeroU32::new(1_000_000).unwrap();
    let rig = Rig::new(ApiConfig { requests_per_s: often, subscriptions_per_s: often, ..ApiConfig::default() }).await;
    fill(&rig);
    let mut honest = client(&rig).await;
    let (alone, updates) = snapshot(&mut honest).await;
    drop(updates);

    let (subscribed, flood) = flood(&rig).await;
    while subscribed.load(Ordering::Relaxed) < 200 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (beside, mut updates) = snapshot(&mut honest).await;
    println!("a snapshot: {alone:?} alone, {beside:?} beside {subscribed:?} subscriptions");
    assert!(beside < alone * 10, "{beside:?} beside the flood, {alone:?} alone");

    let start = StartImminent {
        host: HONEST.parse().unwrap(),
        remote: "192.0.2.7".parse().unwrap(),
        network: GOOD.parse().unwrap(),
        trigger: Trigger::PassiveOpen,
        at: Timestamp(9_998_000_000),
    };
    let mut between = Vec::new();
    for _ in 0..50 {
        let before = subscribed.load(Ordering::Relaxed);
        assert!(rig.published.push_start(start));
        while !matches!(updates.message().await.unwrap().unwrap().event.unwrap(), Update::ImminentStart(_)) {}
        between.push(subscribed.load(Ordering::Relaxed) - before);
    }
    between.sort_unstable();
    assert!(between[48] <= 8, "subscriptions of the other client served before a start came: {between:?}");
    flood.abort();
    rig.end().await;
}

#[tokio::test]
async fn a_client_subscribes_so_often_and_is_then_refused_while_others_are_not() {
    let streams_per_peer = NonZeroUsize::new(8).unwrap();
    let subscriptions_per_s = NonZeroU32::MIN;
    let rig = Rig::new(ApiConfig { streams_per_peer, subscriptions_per_s, ..ApiConfig::default() }).await;
    let mut often = hostile(&rig).await;
    let mut refused = Vec::new();
    for _ in 0..30 {
        refused.extend(often.subscribe(wish(&["10.0.9.9"])).await.err());
    }
    // One more for each second that it took, which is none but on a very busy machine.
    assert!((12..=22).contains(&refused.len()), "{}", refused.len());
    for status in &refused {
        check(status, Code::ResourceExhausted, "subscribes too often");
    }
    assert!(client(&rig).await.subscribe(wish(&[HONEST])).await.is_ok(), "another address is another client");
    let (_, metrics) = rig.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    let counted = format!("spand_api_refused_total{{api=\"grpc\",reason=\"subscription_rate\"}} {}\n", refused.len());
    assert!(metrics.contains(&counted), "{metrics}");
    rig.end().await;
}
