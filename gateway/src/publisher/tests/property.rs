//! Any order of events and reads.

use std::num::NonZeroUsize;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Tell(u8, f64),
    Withdraw(u8),
    Settle,
    Read(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..6, prop::sample::select(vec![1_000.0, 2_000.0, 3_000.0])).prop_map(|(n, share)| Step::Tell(n, share)),
        2 => (0u8..6).prop_map(Step::Withdraw),
        2 => Just(Step::Settle),
        2 => (1u8..8).prop_map(Step::Read),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_a_reader_ends_with_what_is_published(steps in prop::collection::vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let two = NonZeroUsize::new(2).unwrap();
            let (published, _) = publisher(PublisherConfig { backlog_batches: two, ..PublisherConfig::default() });
            let mut subscription = published.subscribe(&[HOST.into()]).unwrap();
            let mut twin = Twin::default();
            for step in steps {
                match step {
                    Step::Tell(n, share) => told(&published, [Event::Estimate(estimate(n, share, 0))]),
                    Step::Withdraw(n) => {
                        told(&published, [Event::Withdrawn { network: network(n), reason: Withdrawal::Expired }]);
                    }
                    Step::Settle => settle().await,
                    Step::Read(times) => {
                        for _ in 0..times {
                            twin.take(subscription.next().await.unwrap());
                        }
                    }
                }
            }
            settle().await;
            twin.read(&mut subscription).await;
            let held: Vec<_> = twin.held.values().cloned().collect();
            let published: Vec<_> = published.page(None, 100).iter().filter_map(|view| view.estimate.clone()).collect();
            assert_eq!(held, published);
        });
    }
}
