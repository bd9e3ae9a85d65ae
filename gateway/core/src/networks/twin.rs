//! A twin that keeps every single input and answers by going through all of them.

#![expect(clippy::unwrap_used, reason = "compiled for tests and fuzzing only, where a panic is the finding")]
#![allow(unreachable_pub, reason = "public to fuzzing alone")]

use std::collections::{BTreeMap, BTreeSet};

use spand_proto::units::{Bytes, Micros, Window};

use super::view::NetworkView;
use super::*;
use crate::estimate::NoEstimate;
use crate::flow::pending::PendingStats;
use crate::types::{ConnectionId, Limiter, SampleReason};

/// A start in the middle of a bucket.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_700_000_005_000_000);

/// The table and its twin, with the same inputs at the same times.
#[derive(Debug)]
pub struct Pair {
    table: NetworkTable,
    twin: Twin,
    now: Timestamp,
}

impl Pair {
    /// Both empty.
    pub fn new() -> Self {
        let ten = NonZeroUsize::new(10).unwrap();
        let table = NetworkTable::new(WindowConfig::default(), ten, RuleKind::Spand, 7);
        Self { table, twin: Twin::default(), now: START }
    }

    /// Advances the clock by this many milliseconds.
    pub fn wait(&mut self, ms: u64) {
        self.now = self.now.after(Micros::from_millis(ms));
    }

    /// Looks after all networks that are due.
    pub fn expire(&mut self) {
        assert!(self.table.expire(self.now, usize::MAX));
        while self.table.poll_event().is_some() {}
    }

    /// Feeds both an input of network `n`, 0 to 2.
    pub fn feed(&mut self, n: u8, inputs: Input) {
        feed(&mut self.table, self.now, n, inputs);
        self.twin.inputs.push((self.now, n, inputs));
        while self.table.poll_event().is_some() {}
    }

    /// The table goes and comes back from what it gave to the store; the twin forgets nothing. Round trips still counted as
    /// parallel are not kept over a restart, and not compared.
    pub fn restart(&mut self) {
        let records = self.table.changed_records(usize::MAX);
        let mut after = Self::new().table;
        for (network, record) in records {
            if let Some(record) = record {
                after.restore(network, record, self.now);
            }
        }
        self.table = after;
    }

    /// Panics where their answers differ `later_ms` from now.
    pub fn compare(&self, later_ms: u64) {
        assert_same(&self.table, &self.twin, self.now.after(Micros::from_millis(later_ms)));
    }
}

/// The inputs of one network, and the answers that follow.
#[derive(Debug, Default)]
struct Twin {
    inputs: Vec<(Timestamp, u8, Input)>,
}

/// One input of a network.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// A window of this many segments of 1,000 bytes, or a lower bound.
    Sample {
        /// Its size.
        segments: f64,
        /// Whose it is; the host is the number modulo 200.
        connection: u64,
        /// Where it comes from.
        reason: SampleReason,
    },
    /// A round trip in microseconds to host 0 to 8.
    Rtt {
        /// How long.
        us: u64,
        /// The remote host.
        host: u8,
    },
    /// A loss event.
    Loss,
    /// A round trip of a sender that was limited so.
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
    loss_window: Option<f64>,
    buffer: Option<f64>,
    losses: u64,
    limits: LimitCounts,
    rtt_us: Option<(u64, u64)>,
}

impl Twin {
    fn answer(&self, n: u8, now: Timestamp) -> Option<Answer> {
        let config = WindowConfig::default();
        let bucket = |at: Timestamp| at.0 / (config.bucket.0 * 1_000);
        let live: Vec<_> = self
            .inputs
            .iter()
            .filter(|(at, network, _)| *network == n && bucket(*at) + u64::from(config.buckets.get()) > bucket(now))
            .map(|(at, _, inputs)| (*at, *inputs))
            .collect();
        if live.is_empty() {
            return None;
        }
        let all: Vec<_> = live
            .iter()
            .filter_map(|(_, inputs)| match inputs {
                Input::Sample { segments, connection, reason } => Some((*segments, *connection, *reason)),
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
            .filter_map(|(_, inputs)| if let Input::Rtt { us, host } = inputs { Some((*us, *host)) } else { None })
            .collect();
        let count = |limiter| {
            u64::try_from(
                live.iter().filter(|(_, inputs)| matches!(inputs, Input::Limiter(l) if *l == limiter)).count(),
            )
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
            loss_window: (share.is_ok() && !lossy.is_empty())
                .then(|| lossy.iter().map(|(segments, ..)| segments).sum::<f64>() / lossy.len() as f64),
            buffer: share.is_ok().then(|| buffer(&live, &lossy)).flatten(),
            share,
            samples: sampled.len().try_into().unwrap(),
            lower_bounds: (all.len() - sampled.len()).try_into().unwrap(),
            connections: connections(&all),
            losses: live.iter().filter(|(_, inputs)| matches!(inputs, Input::Loss)).count().try_into().unwrap(),
            limits: LimitCounts {
                window: count(Limiter::Window),
                receiver: count(Limiter::Receiver),
                application: count(Limiter::Application),
            },
            rtt_us: rtts.iter().map(|(us, _)| *us).min().map(|min| (min, mean_rtt(&rtts))),
        })
    }
}

/// Of each connection's losses but those by marks; of each host the mean; the upper median, times the senders of the busiest bucket.
fn buffer(live: &[(Timestamp, Input)], lossy: &[(f64, u64, SampleReason)]) -> Option<f64> {
    let mut connections: BTreeMap<(u64, u64), Vec<f64>> = BTreeMap::new();
    for (segments, connection, _) in lossy.iter().filter(|(_, _, reason)| *reason == SampleReason::Loss) {
        let [min, rtt] = rtts_at_loss(*connection, *segments).map(|us| us as f64);
        connections.entry((connection % 200, *connection)).or_default().push(segments * (1.0 - min / rtt));
    }
    let mut hosts: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let (mean, mut agreeing) = (|of: &[f64]| of.iter().sum::<f64>() / of.len() as f64, 0);
    for ((host, _), shown) in &connections {
        let center = mean(shown);
        let squares: Vec<f64> = shown.iter().map(|one| (one - center).powi(2)).collect();
        if mean(&squares).sqrt() <= 0.5 * center {
            hosts.entry(*host).or_default().push(center);
            agreeing += 1;
        }
    }
    let upper = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    if agreeing < 3 {
        return None;
    }
    let mut voices = if hosts.len() == 1 {
        hosts.into_values().next().unwrap()
    } else {
        hosts.values().map(|own| mean(own)).collect()
    };
    let middle = upper(&mut voices);
    if upper(&mut voices.iter().map(|voice| (voice - middle).abs()).collect()) > 0.5 * middle {
        return None;
    }
    let mut busiest = 1.0_f64;
    for bucket in live.iter().map(|(at, _)| at.0 / 10_000_000_000).collect::<BTreeSet<_>>() {
        let own = || live.iter().filter(|(at, _)| at.0 / 10_000_000_000 == bucket);
        let rtts: Vec<u64> =
            own().filter_map(|(_, input)| if let Input::Rtt { us, .. } = input { Some(*us) } else { None }).collect();
        let limited = own().filter(|(_, input)| matches!(input, Input::Limiter(Limiter::Window))).count();
        let n = rtts.len() as u64;
        let rtt = (rtts.iter().sum::<u64>() + n / 2).checked_div(n).unwrap_or(0);
        busiest = busiest.max(limited as f64 * rtt as f64 / 10e6);
    }
    Some(middle * busiest)
}

/// Smallest and newest round trip of a connection at a loss.
fn rtts_at_loss(connection: u64, segments: f64) -> [u64; 2] {
    [20_000, 21_000 + connection % 5 * 9_000 + u64::from(segments > 30.0) * 70_000]
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
        loss_window: view.estimate.as_ref().and_then(|estimate| Some(estimate.loss_window?.bytes() / 1_000.0)),
        buffer: view.estimate.as_ref().and_then(|estimate| Some(estimate.buffer?.bytes() / 1_000.0)),
        losses: view.losses,
        limits: view.limits,
        rtt_us: view.rtt_min.zip(view.rtt_mean).map(|(min, mean)| (min.0, mean.0)),
    }
}

fn assert_same(table: &NetworkTable, twin: &Twin, now: Timestamp) {
    for n in 0..3 {
        let (mut here, mut there) = (table.view(network(n), now).map(|view| answer(&view)), twin.answer(n, now));
        if let (Some(here), Some(there)) = (&mut here, &mut there) {
            let windows = [
                ("share", here.share.as_mut().ok(), there.share.ok()),
                ("window at losses", here.loss_window.as_mut(), there.loss_window),
                ("buffer", here.buffer.as_mut(), there.buffer),
            ];
            for (what, a, b) in windows {
                let (Some(a), Some(b)) = (a, b) else { continue };
                assert!((*a - b).abs() < 1e-6 * b, "{what} of network {n}: {a} instead of {b}");
                *a = b;
            }
        }
        assert_eq!(here, there, "network {n}");
        assert_eq!(table.estimate(network(n), now).is_some(), here.is_some_and(|answer| answer.share.is_ok()));
    }
}

pub(super) fn feed(table: &mut NetworkTable, at: Timestamp, n: u8, inputs: Input) {
    match inputs {
        Input::Sample { segments, connection, reason } => table.add(&sample(n, at, segments, connection, reason)),
        Input::Rtt { us, host } => {
            table.add_rounds(network(n), at, [198, 51, n, host].into(), RttSum::of(Micros(us)), LimitCounts::default());
        }
        Input::Loss => table.add_loss(network(n), at, sender(n, 1), Micros::from_millis(100)),
        Input::Limiter(limiter) => {
            let mut pending = PendingStats::default();
            pending.count(limiter);
            table.add_rounds(network(n), at, [198, 51, n, 1].into(), RttSum::default(), pending.limits());
        }
    }
}

/// Network number `n`.
pub(crate) fn network(n: u8) -> Network {
    Network::of(IpAddr::from([198, 51, n, 0]))
}

/// A window of this many segments of 1,000 bytes towards network `n`, by a connection to the host of the same number.
pub(crate) fn sample(n: u8, at: Timestamp, segments: f64, connection: u64, reason: SampleReason) -> WindowSample {
    let host = u8::try_from(connection % 200).unwrap();
    let [least, rtt] = rtts_at_loss(connection, segments);
    WindowSample {
        at,
        network: network(n),
        remote: [198, 51, n, host].into(),
        connection: ConnectionId(connection),
        window: Window::from_bytes(segments * 1_000.0).unwrap(),
        mss: Bytes(1_000),
        reason,
        reduced_before: true,
        transfer: Bytes(100_000),
        advised: false,
        rtt_min: Some(Micros(least)),
        rtt: Some(Micros(rtt)),
    }
}

/// A sender to network `n`, to the host of the same number as its connection.
pub(super) fn sender(n: u8, connection: u64) -> SenderId {
    let host = u8::try_from(connection % 200).unwrap();
    SenderId { connection: ConnectionId(connection), remote: [198, 51, n, host].into() }
}
