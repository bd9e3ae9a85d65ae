//! What holds for the robust rule on any window.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use proptest::prelude::*;

use super::*;
use crate::window::record::CONTRIBUTIONS_PER_BUCKET;

#[derive(Clone, Debug)]
struct Drawn {
    reason: SampleReason,
    segments: f64,
    host: u8,
    bucket: u8,
    connection: u64,
}

prop_compose! {
    fn drawn()(
        reason in prop::sample::select(&[End, Loss, EndAppLimited, EndReceiverLimited][..]),
        segments in 1.0..2_000.0_f64,
        host in 0_u8..12,
        bucket in 0_u8..30,
        connection in 0_u64..40,
    ) -> Drawn {
        Drawn { reason, segments, host, bucket, connection }
    }
}

/// A window with these samples, in their order within each bucket.
fn window(mut drawn: Vec<Drawn>) -> Path {
    drawn.sort_by_key(|one| one.bucket);
    let mut path = Path::new(RuleKind::Robust);
    let begin = path.now;
    for one in drawn {
        path.now = begin.after(Micros::from_secs(10 * u64::from(one.bucket)));
        let sample = path.sample(one.reason, one.segments, one.host);
        path.add(&WindowSample { connection: ConnectionId(one.connection), advised: false, ..sample });
    }
    path.now = begin.after(Micros::from_secs(290));
    path
}

fn share_of(path: &Path) -> Option<f64> {
    path.rule.share(path.record.slice(path.now, &path.config)).map(|share| share.segments_f64(MSS))
}

proptest! {
    #[test]
    fn it_lies_within_its_samples_and_a_tenth_above_with_evidence(drawn in prop::collection::vec(drawn(), 1..120)) {
        let path = window(drawn.clone());
        let values = || drawn.iter().filter(|one| !one.reason.is_lower_bound()).map(|one| one.segments);
        let (least, most) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
        let bound = drawn.iter().filter(|one| one.reason.is_lower_bound()).map(|one| one.segments).fold(0.0, f64::max);
        if let Some(share) = share_of(&path) {
            prop_assert!(share >= least - 1e-6, "{share} is below {least}");
            prop_assert!(share <= most.max(bound.min(most * 1.1)) + 1e-6, "{share} is above {most} and {bound}");
        } else {
            prop_assert!(values().next().is_none());
        }
    }

    #[test]
    fn which_connection_came_first_in_a_bucket_says_nothing(drawn in prop::collection::vec(drawn(), 1..200), seed: u64) {
        let source = |one: &Drawn| (one.bucket, one.host, one.connection);
        let mut sources: Vec<_> = drawn.iter().map(source).collect();
        sources.sort_unstable();
        sources.dedup();
        // No more in a bucket than it keeps apart.
        prop_assume!(sources.chunk_by(|one, next| one.0 == next.0).all(|bucket| bucket.len() <= CONTRIBUTIONS_PER_BUCKET));
        // Each connection's own samples stay in order.
        let mut other = drawn.clone();
        other.sort_by_cached_key(|one| BuildHasherDefault::<DefaultHasher>::default().hash_one((seed, source(one))));
        let [one, other] = [drawn, other].map(window);
        prop_assert_eq!(&one.record, &other.record);
        let bits = |path: &Path| share_of(path).map(f64::to_bits);
        prop_assert_eq!(bits(&one), bits(&other));
    }

    #[test]
    fn no_single_address_moves_it_beyond_its_weight(
        honest in prop::collection::vec((15.0..25.0_f64, 0_u8..10, 0_u8..30, any::<bool>()), 40..120),
        lies in prop::collection::vec(drawn(), 1..200),
    ) {
        let mut drawn: Vec<_> = (0..).zip(honest).map(|(connection, (segments, host, bucket, lost))| {
            let reason = if lost { Loss } else { End };
            Drawn { reason, segments, host, bucket, connection }
        }).collect();
        // Nobody is silent at last, and every host is there.
        drawn.extend((0..10).flat_map(|host| [25, 29].map(|bucket| {
            Drawn { reason: Loss, segments: 20.0, host, bucket, connection: 500 + u64::from(host) }
        })));
        drawn.extend(lies.into_iter().map(|lie| Drawn { host: 66, connection: 1_000 + lie.connection, ..lie }));
        let share = share_of(&window(drawn)).unwrap();
        prop_assert!((11.0..34.0).contains(&share), "{share} although all others lie between 15 and 25");
    }
}
