//! The table against its twin, through any history.

use proptest::prelude::*;

use super::*;
use crate::networks::twin::{Input, Pair, feed};
use crate::types::Limiter;

fn anything() -> impl Strategy<Value = Input> {
    use SampleReason::{Ecn, End, EndAppLimited, EndReceiverLimited, Loss};
    let reason = prop::sample::select(vec![End, End, End, Loss, Ecn, EndAppLimited, EndReceiverLimited]);
    // 14 connections to 7 hosts: fewer than a bucket keeps apart.
    let connection = (0..7_u64, 0..2_u64).prop_map(|(host, other)| host * host / 8 + 200 * other);
    let limiter = prop::sample::select(vec![Limiter::Window, Limiter::Receiver, Limiter::Application]);
    prop_oneof![
        4 => (1.0..200.0, connection, reason)
            .prop_map(|(segments, connection, reason)| Input::Sample { segments, connection, reason }),
        // Half of them to one host, so that it has more than half now and then.
        2 => (1_000..900_000_u64, 0..9_u8).prop_map(|(us, host)| Input::Rtt { us, host: host.max(4) }),
        1 => Just(Input::Loss),
        1 => limiter.prop_map(Input::Limiter),
    ]
}

fn history() -> impl Strategy<Value = Vec<(u64, u8, Input)>> {
    let gap_ms = prop_oneof![8 => 0..4_000_u64, 3 => 4_000..40_000_u64, 1 => 40_000..700_000_u64];
    prop::collection::vec((gap_ms, 0..3_u8, anything()), 1..120)
}

proptest! {
    #[test]
    fn every_answer_is_that_of_the_twin(history in history(), expire: bool, restart_after in 0..150_usize, later_s in 0..400_u64) {
        let mut pair = Pair::new();
        for (step, (gap_ms, n, inputs)) in history.into_iter().enumerate() {
            pair.wait(gap_ms);
            if expire {
                pair.expire();
            }
            if step == restart_after {
                pair.restart();
            }
            pair.feed(n, inputs);
            pair.compare(0);
        }
        pair.compare(later_s * 1_000);
    }

    #[test]
    fn no_time_and_no_length_of_a_bucket_hangs_or_panics(
        history in prop::collection::vec((any::<u64>(), any::<u32>(), anything()), 1..40),
        base: u64,
        lengths in (any::<u64>(), 1..u32::MAX, any::<u64>(), any::<u64>()),
        usual: bool,
    ) {
        let (bucket, buckets, max_age, refresh) = lengths;
        let odd = WindowConfig {
            bucket: Micros(bucket),
            buckets: buckets.try_into().unwrap(),
            max_age: Micros(max_age),
            refresh: Micros(refresh),
            ..WindowConfig::default()
        };
        let config = if usual { WindowConfig::default() } else { odd };
        let mut table = NetworkTable::new(config, NonZeroUsize::new(2).unwrap(), RuleKind::Robust, 0);
        for (at, near, inputs) in history {
            let near_base = near & 1 == 0;
            let at = Timestamp(if near_base { base.saturating_add(near.into()) } else { at });
            feed(&mut table, at, u8::try_from(near % 5).unwrap(), inputs);
            prop_assert!(table.expire(at, usize::MAX));
            while table.poll_event().is_some() {}
            table.views(at);
        }
    }

    #[test]
    fn no_answer_depends_on_the_hash(history in history(), seeds: (u64, u64)) {
        let run = |seed| {
            // Room for two of the three networks, so that it is also about who has to go.
            let two = NonZeroUsize::new(2).unwrap();
            let mut table = NetworkTable::new(WindowConfig::default(), two, RuleKind::Spand, seed);
            let (mut now, mut emitted) = (START, Vec::new());
            for (gap_ms, n, inputs) in &history {
                now = now.after(Micros::from_millis(*gap_ms));
                table.expire(now, 1);
                feed(&mut table, now, *n, *inputs);
                emitted.extend(events(&mut table));
            }
            (emitted, table.views(now), table.changed_records(9), table.evicted())
        };
        prop_assert_eq!(run(seeds.0), run(seeds.1));
    }

    #[test]
    fn a_restart_answers_as_before_less_what_aged(history in history(), down_s in 0..400_u64, more in history()) {
        let (mut before, mut after, mut now) = (table(10), table(10), START);
        for (gap_ms, n, inputs) in history {
            now = now.after(Micros::from_millis(gap_ms));
            feed(&mut before, now, n, inputs);
        }
        now = now.after(Micros::from_secs(down_s));
        for (network, record) in before.changed_records(usize::MAX) {
            after.restore(network, record.unwrap(), now);
        }
        prop_assert_eq!(before.views(now), after.views(now));
        for (gap_ms, n, inputs) in more {
            now = now.after(Micros::from_millis(gap_ms));
            feed(&mut before, now, n, inputs);
            feed(&mut after, now, n, inputs);
            prop_assert_eq!(before.views(now), after.views(now));
        }
    }
}
