//! A twin that keeps every single thing it was told and answers by going through all of it.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::flow::sample::Limiter;
use crate::window::view::{LimitCounts, NoEstimate};

/// What one network was told, and the answers that follow.
#[derive(Default)]
struct Twin {
    told: Vec<(Timestamp, u8, Told)>,
}

#[derive(Clone, Copy, Debug)]
enum Told {
    Sample { segments: f64, connection: u64, reason: SampleReason },
    Rtt { us: u64, host: u8 },
    Loss,
    Limiter(Limiter),
}

/// The parts of a view that the twin works out.
#[derive(Debug, PartialEq)]
struct Answer {
    share: Result<f64, NoEstimate>,
    samples: u32,
    lower_bounds: u32,
    connections: u32,
    loss_connections: Option<u32>,
    losses: u64,
    limits: LimitCounts,
    rtt_us: Option<(u64, u64)>,
}

impl Twin {
    fn answer(&self, n: u8, now: Timestamp) -> Option<Answer> {
        let config = WindowConfig::default();
        let bucket = |at: Timestamp| at.0 / (config.bucket.0 * 1_000);
        let live: Vec<_> = self
            .told
            .iter()
            .filter(|(at, network, _)| *network == n && bucket(*at) + u64::from(config.buckets.get()) > bucket(now))
            .map(|(at, _, told)| (*at, *told))
            .collect();
        if live.is_empty() {
            return None;
        }
        let all: Vec<_> = live
            .iter()
            .filter_map(|(_, told)| match told {
                Told::Sample { segments, connection, reason } => Some((*segments, *connection, *reason)),
                _ => None,
            })
            .collect();
        let sampled: Vec<_> = all.iter().filter(|(_, _, reason)| !reason.is_lower_bound()).copied().collect();
        let connections = |of: &[(f64, u64, SampleReason)]| -> u32 {
            of.iter().map(|(_, connection, _)| connection).collect::<BTreeSet<_>>().len().try_into().unwrap()
        };
        let lossy: Vec<_> = sampled.iter().filter(|(_, _, reason)| reason.is_loss()).copied().collect();
        let rtts: Vec<(u64, u8)> = live
            .iter()
            .filter_map(|(_, told)| if let Told::Rtt { us, host } = told { Some((*us, *host)) } else { None })
            .collect();
        let count = |limiter| {
            u64::try_from(live.iter().filter(|(_, told)| matches!(told, Told::Limiter(l) if *l == limiter)).count())
                .unwrap()
        };
        let share = if sampled.len() < 3 {
            Err(NoEstimate::TooFewSamples)
        } else if connections(&sampled) < 2 {
            Err(NoEstimate::TooFewConnections)
        } else {
            Ok(share(&sampled))
        };
        Some(Answer {
            loss_connections: share.is_ok().then(|| connections(&lossy)),
            share,
            samples: sampled.len().try_into().unwrap(),
            lower_bounds: (all.len() - sampled.len()).try_into().unwrap(),
            connections: connections(&all),
            losses: live.iter().filter(|(_, told)| matches!(told, Told::Loss)).count().try_into().unwrap(),
            limits: LimitCounts {
                window: count(Limiter::Window),
                receiver: count(Limiter::Receiver),
                application: count(Limiter::Application),
            },
            rtt_us: rtts.iter().map(|(us, _)| *us).min().map(|min| (min, mean_rtt(&rtts))),
        })
    }
}

/// Their mean, in which the host with more than half of them weighs as much as all others.
fn mean_rtt(rtts: &[(u64, u8)]) -> u64 {
    let mean = |of: &dyn Fn(u8) -> bool| {
        let some: Vec<u64> = rtts.iter().filter(|(_, host)| of(*host)).map(|(us, _)| *us).collect();
        let n = u64::try_from(some.len()).unwrap();
        (n, (some.iter().sum::<u64>() + n / 2).checked_div(n).unwrap_or(0))
    };
    for h in 0..9 {
        let ((own, own_mean), (others, mean)) = (mean(&|host| host == h), mean(&|host| host != h));
        if others > 0 && own > others {
            return (own_mean + mean).div_ceil(2);
        }
    }
    mean(&|_| true).1
}

/// The weighted average; one weight per sample.
fn share(sampled: &[(f64, u64, SampleReason)]) -> f64 {
    let host = |connection: u64| connection % 200;
    let of_host = |h: u64| sampled.iter().filter(|(_, connection, _)| host(*connection) == h).count();
    let weight = |connection: u64| {
        let (own, others) = (of_host(host(connection)), sampled.len() - of_host(host(connection)));
        if others > 0 && own > others { others as f64 / own as f64 } else { 1.0 }
    };
    let total: f64 = sampled.iter().map(|(_, connection, _)| weight(*connection)).sum();
    sampled.iter().map(|(segments, connection, _)| segments * weight(*connection)).sum::<f64>() / total
}

fn answer(view: &NetworkView) -> Answer {
    Answer {
        share: view.estimate.as_ref().map(|e| e.share.bytes() / 1_000.0).ok_or_else(|| view.why_not.unwrap()),
        samples: view.samples,
        lower_bounds: view.lower_bounds,
        connections: view.connections,
        loss_connections: view.estimate.as_ref().map(|estimate| estimate.loss_connections),
        losses: view.losses,
        limits: view.limits,
        rtt_us: view.rtt_min.zip(view.rtt_mean).map(|(min, mean)| (min.0, mean.0)),
    }
}

fn assert_same(table: &NetworkTable, twin: &Twin, now: Timestamp) {
    for n in 0..3 {
        let (mut here, mut there) = (table.view(network(n), now).map(|view| answer(&view)), twin.answer(n, now));
        if let (Some(Answer { share: Ok(a), .. }), Some(Answer { share: Ok(b), .. })) = (&mut here, &mut there) {
            assert!((*a - *b).abs() < 1e-6 * *b, "share of network {n}: {a} instead of {b}");
            *a = *b;
        }
        assert_eq!(here, there, "network {n}");
        assert_eq!(table.estimate(network(n), now).is_some(), here.is_some_and(|answer| answer.share.is_ok()));
    }
}

fn tell(table: &mut NetworkTable, at: Timestamp, n: u8, told: Told) {
    match told {
        Told::Sample { segments, connection, reason } => table.add(&sample(n, at, segments, connection, reason)),
        Told::Rtt { us, host } => {
            table.add_rounds(network(n), at, [198, 51, n, host].into(), RttSum::of(Micros(us)), LimitCounts::default());
        }
        Told::Loss => table.add_loss(network(n), at),
        Told::Limiter(limiter) => {
            let mut limits = LimitCounts::default();
            limits.add(limiter);
            table.add_rounds(network(n), at, [198, 51, n, 1].into(), RttSum::default(), limits);
        }
    }
}

fn anything() -> impl Strategy<Value = Told> {
    use SampleReason::{Ecn, End, EndAppLimited, EndReceiverLimited, Loss};
    let reason = prop::sample::select(vec![End, End, End, Loss, Ecn, EndAppLimited, EndReceiverLimited]);
    // 14 connections to 7 hosts: fewer than a bucket keeps apart.
    let connection = (0..7_u64, 0..2_u64).prop_map(|(host, other)| host * host / 8 + 200 * other);
    let limiter = prop::sample::select(vec![Limiter::Window, Limiter::Receiver, Limiter::Application]);
    prop_oneof![
        4 => (1.0..200.0, connection, reason)
            .prop_map(|(segments, connection, reason)| Told::Sample { segments, connection, reason }),
        // Half of them to one host, so that it has more than half now and then.
        2 => (1_000..900_000_u64, 0..9_u8).prop_map(|(us, host)| Told::Rtt { us, host: host.max(4) }),
        1 => Just(Told::Loss),
        1 => limiter.prop_map(Told::Limiter),
    ]
}

fn history() -> impl Strategy<Value = Vec<(u64, u8, Told)>> {
    let gap_ms = prop_oneof![8 => 0..4_000_u64, 3 => 4_000..40_000_u64, 1 => 40_000..700_000_u64];
    prop::collection::vec((gap_ms, 0..3_u8, anything()), 1..120)
}

proptest! {
    #[test]
    fn every_answer_is_that_of_the_twin(history in history(), expire: bool, later_s in 0..400_u64) {
        let (mut table, mut twin, mut now) = (table(10), Twin::default(), START);
        for (gap_ms, n, told) in history {
            now = now.after(Micros::from_millis(gap_ms));
            if expire {
                prop_assert!(table.expire(now, usize::MAX));
            }
            tell(&mut table, now, n, told);
            twin.told.push((now, n, told));
            assert_same(&table, &twin, now);
        }
        assert_same(&table, &twin, now.after(Micros::from_secs(later_s)));
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
        for (at, near, told) in history {
            let near_base = near & 1 == 0;
            let at = Timestamp(if near_base { base.saturating_add(near.into()) } else { at });
            tell(&mut table, at, u8::try_from(near % 5).unwrap(), told);
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
            let (mut now, mut told_of) = (START, Vec::new());
            for (gap_ms, n, told) in &history {
                now = now.after(Micros::from_millis(*gap_ms));
                table.expire(now, 1);
                tell(&mut table, now, *n, *told);
                told_of.extend(events(&mut table));
            }
            (told_of, table.views(now), table.changed_records(9), table.evicted())
        };
        prop_assert_eq!(run(seeds.0), run(seeds.1));
    }

    #[test]
    fn a_restart_answers_as_before_less_what_aged(history in history(), down_s in 0..400_u64, more in history()) {
        let (mut before, mut after, mut now) = (table(10), table(10), START);
        for (gap_ms, n, told) in history {
            now = now.after(Micros::from_millis(gap_ms));
            tell(&mut before, now, n, told);
        }
        now = now.after(Micros::from_secs(down_s));
        for (network, record) in before.changed_records(usize::MAX) {
            after.restore(network, record.unwrap(), now);
        }
        prop_assert_eq!(before.views(now), after.views(now));
        for (gap_ms, n, told) in more {
            now = now.after(Micros::from_millis(gap_ms));
            tell(&mut before, now, n, told);
            tell(&mut after, now, n, told);
            prop_assert_eq!(before.views(now), after.views(now));
        }
    }
}
