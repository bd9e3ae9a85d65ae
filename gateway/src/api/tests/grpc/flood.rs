//! One client that subscribes and resets its stream again and again, on a connection of its own, beside an honest one.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Instant;

use tokio::task::AbortHandle;
use tonic::transport::Endpoint;

use super::*;

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
        check(status, Code::ResourceExhausted, "api.subscriptions_per_s");
    }
    assert!(client(&rig).await.subscribe(wish(&[HONEST])).await.is_ok(), "another address is another client");
    let (_, metrics) = rig.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    let counted = format!("spand_api_refused_total{{api=\"grpc\",reason=\"subscription_rate\"}} {}\n", refused.len());
    assert!(metrics.contains(&counted), "{metrics}");
    rig.end().await;
}
