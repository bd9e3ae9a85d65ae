//! How much is told at a time: to all hosts together, in the middle of snapshots and after them.

use tokio::time::Instant;

use super::*;

fn wide(n: u16, share_bytes: f64) -> Estimate {
    let [high, low] = n.to_be_bytes();
    Estimate { network: Network::of([100, high, low, 1].into()), ..estimate(0, share_bytes, 0) }
}

fn known(networks: u16, share_bytes: f64) -> Vec<Event> {
    (0..networks).map(|n| Event::Estimate(wide(n, share_bytes))).collect()
}

fn hosts(published: &Published, count: u8) -> Vec<Subscription> {
    (0..count).map(|n| published.subscribe(&[[10, 0, 1, n].into()]).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn networks_without_an_estimate_take_nothing_from_the_pace() {
    let (published, _) = publisher(PublisherConfig::default());
    told(&published, known(20_100, 10_000.0));
    let gone = |n| Event::Withdrawn { network: wide(n, 1.0).network, reason: Withdrawal::Expired };
    told(&published, (0..20_000).map(gone));
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
