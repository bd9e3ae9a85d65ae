//! What the end of a retreat leads to.

use std::net::SocketAddr;

use spand_proto::units::Segments;

use super::*;

fn pass(clock: &SetClock, ms: u64) {
    clock.0.store(ms * 1_000_000, Ordering::Relaxed);
}

/// Six advised starts that lose: the network's share is halved.
fn lose(published: &Published) {
    for port in 1..=6 {
        let ends: [SocketAddr; 2] = [(HOST, 443).into(), ([198, 51, 1, 9], port).into()];
        let began = Some(Timestamp(0));
        let flight = FirstFlight { ends, lost: true, began, advised: Segments(40), acknowledged: Bytes(0) };
        published.first_flights(&[(network(1), flight)]);
    }
}

#[tokio::test(start_paused = true)]
async fn leases_rise_with_the_share_at_the_end_of_a_retreat() {
    let (published, clock) = publisher(PublisherConfig::default());
    let hosts = [HOST, OTHER].map(|host| published.subscribe(&[host.into()]).unwrap());
    let share = 1_448.0 * 40.0;
    told(&published, [Event::Estimate(estimate(1, share, 0))]);
    lose(&published);
    let holders: Vec<u64> = published.subscribers().iter().map(|subscriber| subscriber.holder).collect();
    let leased = || published.leases_of(network(1), &holders).iter().map(|lease| lease.0).sum::<u32>();
    // The news that the first is not the only one any more is old.
    pass(&clock, 290_000);
    told(&published, [Event::Estimate(estimate(1, share, 290))]);
    for host in [HOST, OTHER] {
        published.push_start(start(host, 1));
    }
    for ms in [291_000, 293_000, 295_000] {
        pass(&clock, ms);
        settle().await;
    }
    assert_eq!(leased(), 15, "20 segments, less what is kept back");
    pass(&clock, 300_100);
    settle().await;
    assert_eq!(published.estimate(network(1)).unwrap().share, Window::from_bytes(share).unwrap());
    settle().await;
    assert_eq!(leased(), 30);
    drop(hosts);
}
