//! Any order of events and reads.

use proptest::prelude::*;

use super::super::networks::worth_advertising;
use super::retreats::{flight, lose};
use super::*;

#[derive(Clone, Debug)]
enum Step {
    Estimate(u8, f64),
    Withdraw(u8),
    Settle,
    Read(u8),
    Start(u8),
    Use(u8),
    Pass(u8),
    Lose(u8),
}

/// Steps where only networks in use are advertised.
fn step_or_talk() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => step(),
        2 => (0u8..6).prop_map(Step::Start),
        1 => (0u8..6).prop_map(Step::Use),
        1 => (1u8..100).prop_map(Step::Pass),
        1 => (7u8..10).prop_map(Step::Lose),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..6, prop::sample::select(vec![1_000.0, 2_000.0, 3_000.0])).prop_map(|(n, share)| Step::Estimate(n, share)),
        2 => (0u8..6).prop_map(Step::Withdraw),
        2 => Just(Step::Settle),
        2 => (1u8..8).prop_map(Step::Read),
        1 => (7u8..10).prop_map(Step::Lose),
    ]
}

/// Takes the steps with a subscriber; what it holds in the end, what is published, and the networks that it uses.
fn held_and_published(steps: Vec<Step>, config: PublisherConfig) -> (Vec<Estimate>, Vec<Estimate>, Vec<Network>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (published, clock) = publisher(config);
        let mut subscription = published.subscribe(&[HOST.into()]).unwrap();
        let host_id = published.subscribers()[0].host_id;
        let mut twin = Twin::default();
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Estimate(n, share) => apply(&published, [Event::estimate(estimate(n, share, 1_000_000))]),
                Step::Withdraw(n) => {
                    apply(&published, [Event::Withdrawn { network: network(n), reason: Withdrawal::Expired }]);
                }
                Step::Settle => settle().await,
                Step::Read(times) => {
                    for _ in 0..times {
                        twin.take(subscription.next().await.unwrap());
                    }
                }
                Step::Start(n) => drop(published.push_start(start(HOST, n))),
                Step::Use(n) => published.used_destinations(&[(HOST.into(), network(n))]),
                // A row of one address beside a start that arrives whole, or of several.
                Step::Lose(address) => {
                    if address != 7 {
                        flight(&published, 7, number * 8, false);
                    }
                    lose(&published, address, number * 8 + 1..=number * 8 + 6);
                }
                Step::Pass(s) => drop(clock.0.fetch_add(u64::from(s) * 1_000_000_000, Ordering::Relaxed)),
            }
        }
        settle().await;
        twin.read(&mut subscription).await;
        let published_now = published.page(None, 100).iter().filter_map(|view| view.estimate.clone()).collect();
        (twin.held.into_values().collect(), published_now, published.advertised_page(host_id, None, 100))
    })
}

/// Whether a reader holds an estimate of each published network and of no other, as near as the publisher promises: the one that
/// it read last and the one in force now are both within [`PublisherConfig::change`] of the one advertised last.
fn agree(held: &[Estimate], published: &[Estimate]) -> bool {
    let config = PublisherConfig::default();
    let twice = PublisherConfig { change: 2.0 * config.change / (1.0 - config.change), ..config };
    let near = |(held, published): (&Estimate, &Estimate)| {
        held.network == published.network && !worth_advertising(held, published, &twice)
    };
    held.len() == published.len() && held.iter().zip(published).all(near)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn whatever_happens_a_reader_ends_with_what_is_published(steps in prop::collection::vec(step(), 1..80)) {
        let two = NonZeroUsize::new(2).unwrap();
        let config = PublisherConfig { backlog_batches: two, ..PublisherConfig::default() };
        let (held, published, _) = held_and_published(steps, config);
        for own in published.iter().filter(|own| own.network.prefix().prefix_len() == 32) {
            let around = published.iter().find(|around| around.network == network(1));
            prop_assert!(around.is_some_and(|around| own.share <= around.share), "{:?} in {:?}", own, around);
        }
        prop_assert_eq!(held, published);
    }

    #[test]
    fn whatever_happens_a_reader_ends_with_what_is_published_of_its_networks(
        steps in prop::collection::vec(step_or_talk(), 1..80),
        places in 1usize..6,
    ) {
        let config = PublisherConfig {
            to_hosts: ToHosts::InUse,
            destinations_per_host: NonZeroUsize::new(places).unwrap(),
            backlog_batches: NonZeroUsize::new(2).unwrap(),
            waiting_starts: NonZeroUsize::new(2).unwrap(),
            ..PublisherConfig::default()
        };
        let (held, mut published, talked) = held_and_published(steps, config);
        published.retain(|estimate| talked.contains(&estimate.network));
        prop_assert!(agree(&held, &published), "{:?} held, {:?} published", held, published);
    }
}
