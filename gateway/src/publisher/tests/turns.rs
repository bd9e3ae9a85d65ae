//! Turns of the pace: one for each client that waits, and nothing for what was not taken.

use std::net::IpAddr;

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;

const NETWORKS: u16 = 2_000;
const HONEST: [u8; 4] = [10, 0, 0, 7];

fn known() -> Vec<Event> {
    let network = |n: u16| {
        let [high, low] = n.to_be_bytes();
        Network::of([100, high, low, 1].into())
    };
    (0..NETWORKS).map(|n| Event::estimate(Estimate { network: network(n), ..estimate(0, 10_000.0, 0) })).collect()
}

/// A subscription of a client with these addresses.
fn of_client(published: &Published, client: &str, address: IpAddr) -> Subscription {
    let client = Some(Client::Certificate(client.to_owned()));
    published.subscribe_as(Subscriber { client, ..Subscriber::default() }, &[address]).unwrap()
}

/// How long an honest host waits for its whole snapshot, by the paused clock.
async fn snapshot(published: &Published) -> (Duration, Subscription) {
    let began = Instant::now();
    let mut subscription = of_client(published, "honest", HONEST.into());
    let mut twin = Twin::default();
    while twin.ends == 0 {
        twin.take(subscription.next().await.unwrap());
    }
    assert_eq!(twin.held.len(), usize::from(NETWORKS));
    (began.elapsed(), subscription)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_subscribes_and_leaves_again_and_again_holds_up_nobody() {
    let (published, _) = publisher(PublisherConfig::default());
    apply(&published, known());
    settle().await;
    let (alone, subscription) = snapshot(&published).await;
    drop(subscription);

    let floods = published.clone();
    let flood = tokio::spawn(async move {
        // A new stream every 0.2 ms for as long as it is let, as one connection with streams that it resets can have them.
        loop {
            for n in 0..5u8 {
                let mut stream = of_client(&floods, "hostile", [10, 0, 9, n].into());
                // The beginning of the snapshot, and what the turn has, if it came.
                for _ in 0..3 {
                    _ = stream.next().now_or_never();
                }
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    tokio::time::sleep(Duration::from_secs(10)).await;
    let floods = published.clone();
    let more = tokio::spawn(async move {
        // One that waits for its turn, and leaves with the first message that it has then.
        loop {
            let mut stream = of_client(&floods, "hostile", [10, 0, 9, 9].into());
            while !matches!(stream.next().await.unwrap().event, UpdateEvent::Estimate(_)) {}
        }
    });
    let (beside, mut subscription) = snapshot(&published).await;
    // Were its turns whole pages, every other page would be its own.
    assert!(beside <= alone * 3 / 2, "{beside:?} beside a flood of subscriptions, {alone:?} alone");
    more.abort();

    apply(&published, [Event::estimate(estimate(1, 10_000.0, 0))]);
    let pushed = Instant::now();
    assert!(published.push_start(start(HONEST, 1)));
    while !matches!(subscription.next().await.unwrap().event, UpdateEvent::ImminentStart(_)) {}
    assert_eq!(pushed.elapsed(), Duration::ZERO, "a start waits for no turn");
    assert!(published.measures().pace_unused.get() > 0);
    flood.abort();
}

#[tokio::test(start_paused = true)]
async fn a_client_has_one_turn_however_many_streams_it_has() {
    let (published, _) = publisher(PublisherConfig::default());
    apply(&published, known());
    settle().await;
    let (alone, subscription) = snapshot(&published).await;
    drop(subscription);
    let mut readers = JoinSet::new();
    for n in 0..100 {
        let mut stream = of_client(&published, "greedy", [10, 0, 9, n].into());
        readers.spawn(async move {
            let mut twin = Twin::default();
            while twin.ends == 0 {
                twin.take(stream.next().await.unwrap());
            }
            twin.held.len()
        });
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    let (beside, _subscription) = snapshot(&published).await;
    assert!(beside <= alone * 5 / 2, "{beside:?} beside a hundred streams of another client, {alone:?} alone");
    for held in readers.join_all().await {
        assert_eq!(held, usize::from(NETWORKS), "each of them has it all in the end");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_does_not_read_costs_others_no_more_than_the_turns_that_it_had() {
    let (published, _) = publisher(PublisherConfig::default());
    apply(&published, known());
    settle().await;
    let (alone, subscription) = snapshot(&published).await;
    drop(subscription);
    let mut silent: Vec<_> = (0..100).map(|n| of_client(&published, "silent", [10, 0, 9, n].into())).collect();
    for stream in &mut silent {
        // Requests its turn and never checks whether it was granted.
        assert!(matches!(stream.next().await.unwrap().event, UpdateEvent::SnapshotBegin { .. }));
        assert!(stream.next().now_or_never().is_none_or(|update| update.is_some()));
    }
    let (beside, _subscription) = snapshot(&published).await;
    assert!(beside <= alone * 5 / 2, "{beside:?} beside streams that do not read, {alone:?} alone");
}
