//! Whether one subscriber's messages leave others their turns, the way that the transport asks for them.

use std::future::poll_fn;
use std::task::Poll;

use spand_core::event::{StartImminent, Trigger};
use spand_proto::v1;
use spand_proto::v1::spand_client::SpandClient;
use spand_proto::v1::update::Event as Update;

use super::*;

/// Counts how often it is read, which is a few times for each message.
#[derive(Clone, Default)]
struct Readings(Arc<AtomicU64>);

impl PacketClock for Readings {
    fn now(&self) -> Timestamp {
        self.0.fetch_add(1, Ordering::Relaxed);
        Timestamp(10_000_000_000)
    }
}

/// The transport hands out what it has when a stream has nothing more, and asks again within the same poll of its task: a
/// stream that says "not now" only once goes on.
#[tokio::test]
async fn a_subscriber_with_much_to_read_leaves_others_their_turns() {
    let clock = Readings::default();
    let published = Published::new(PublisherConfig::default(), clock.clone());
    published.apply(Batch { events: vec![Event::estimate(estimate(GOOD, 20.0))], ..Batch::new() });
    let (stop, stopped) = watch::channel(false);
    let grpc = bind().await;
    let address = grpc.local_addr().unwrap();
    let api = Api::new(ApiConfig::default(), published.clone(), None);
    let server = tokio::spawn(async move { api.serve_grpc(grpc, stopped).await });
    let wish = v1::SubscribeRequest {
        contract_version: 1,
        host_name: "web-1".to_owned(),
        addresses: vec!["10.0.0.1".to_owned()],
        agent: None,
        cluster: String::new(),
        networks: Vec::new(),
    };
    let mut client = SpandClient::connect(format!("http://{address}")).await.unwrap();
    let mut updates = client.subscribe(wish).await.unwrap().into_inner();
    while !matches!(updates.message().await.unwrap().unwrap().event.unwrap(), Update::SnapshotEnd(_)) {}

    let start = StartImminent {
        host: "10.0.0.1".parse().unwrap(),
        remote: "192.0.2.7".parse().unwrap(),
        network: GOOD.parse().unwrap(),
        trigger: Trigger::PassiveOpen,
        at: Timestamp(9_998_000_000),
    };
    for _ in 0..1_000 {
        assert!(published.push_start(start));
    }
    clock.0.store(0, Ordering::Relaxed);
    let (all, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (counted, longest) = (Arc::clone(&all), Arc::clone(&most));
    // Always ready to run, unlike one that yields, which waits until nobody else is.
    let other = tokio::spawn(poll_fn(move |context| {
        let since_last_turn = clock.0.swap(0, Ordering::Relaxed);
        counted.fetch_add(since_last_turn, Ordering::Relaxed);
        longest.fetch_max(since_last_turn, Ordering::Relaxed);
        context.waker().wake_by_ref();
        Poll::<()>::Pending
    }));
    for _ in 0..1_000 {
        assert!(matches!(updates.message().await.unwrap().unwrap().event.unwrap(), Update::ImminentStart(_)));
    }
    other.abort();
    assert!(other.await.unwrap_err().is_cancelled());
    let messages = most.load(Ordering::Relaxed) * 1_000 / all.load(Ordering::Relaxed);
    assert!(messages <= 150, "{messages} messages before another task had its turn");
    stop.send(true).unwrap();
    server.await.unwrap();
}
