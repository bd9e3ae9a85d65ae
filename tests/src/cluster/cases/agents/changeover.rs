//! What became of the hosts of gateways that went away.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Row, Size};
use crate::cluster::gateway::{Gateway, Metrics};
use crate::cluster::hosts::{Hosts, Noted, THREADS, Total, What};
use crate::memory::threads_time;
use crate::starts::at_per_mille;

/// 99 % of hosts are subscribed elsewhere.
const ELSEWHERE_WITHIN: Duration = Duration::from_secs(15);
/// Most hosts of a gateway over the mean.
const UNEVEN: f64 = 1.3;
/// Subscriptions are counted within any such time.
const BURST: Duration = Duration::from_millis(100);
/// Most of them over the mean of the changeover.
const MOST_IN_BURST: f64 = 3.0;

/// Gateways that go away, and how all was just before.
pub(super) struct Step {
    pub(super) name: &'static str,
    /// Their hosts.
    pub(super) hosts: BTreeSet<usize>,
    /// The other gateways.
    pub(super) survivors: Vec<u16>,
    pub(super) metrics: Vec<Metrics>,
    pub(super) total: Total,
    pub(super) spent: Spent,
    pub(super) begun: Instant,
}

/// What it came to.
pub(super) struct Changeover {
    pub(super) step: Step,
    pub(super) log: Vec<Noted>,
    pub(super) metrics: Vec<Metrics>,
    pub(super) total: Total,
    pub(super) loads: String,
    pub(super) ratio: f64,
    pub(super) cores: String,
}

impl Step {
    /// Whether each of their hosts has a whole snapshot of another gateway: nothing that the lost ones gave is held.
    pub(super) fn is_over(&self, hosts: &Hosts) -> bool {
        self.firsts(&hosts.since(self.begun), What::Whole).len() == self.hosts.len()
    }

    /// When each of their hosts did this at another gateway for the first time, sorted.
    fn firsts(&self, log: &[Noted], what: What) -> Vec<Duration> {
        let mut missing = self.hosts.clone();
        let is_it = |noted: &&Noted| noted.what == what && self.survivors.contains(&noted.gateway);
        let firsts = log.iter().filter(is_it).filter(|noted| missing.remove(&noted.host));
        let mut delays: Vec<_> = firsts.map(|noted| noted.at.saturating_duration_since(self.begun)).collect();
        delays.sort_unstable();
        delays
    }
}

impl Changeover {
    /// When the last snapshot was whole.
    pub(super) fn whole(&self) -> Duration {
        self.step.firsts(&self.log, What::Whole).last().copied().unwrap_or_default()
    }

    pub(super) fn rows(&self, size: Size) -> Vec<Row> {
        let Self { step, log, loads, ratio, cores, .. } = self;
        let Step { name, hosts, .. } = step;
        let elsewhere = step.firsts(log, What::Subscribed);
        let whole = step.firsts(log, What::Whole);
        let at = |delays: &[Duration], per_mille| at_per_mille(delays, per_mille).as_secs_f64();
        let is_all = elsewhere.len() == hosts.len() && whole.len() == hosts.len();
        let failed = log.iter().filter(|noted| noted.what == What::Failed).count();
        let subscribed = format!(
            "{} of {}: first {:.1} s, 50 % {:.1} s, 99 % {:.1} s; snapshots whole 50 % {:.1} s, last {:.1} s; \
             {failed} streams and attempts ended; {cores}",
            elsewhere.len(),
            hosts.len(),
            at(&elsewhere, 0),
            at(&elsewhere, 500),
            at(&elsewhere, 990),
            at(&whole, 500),
            self.whole().as_secs_f64()
        );
        let missing =
            format!("{} subscribed, {} with a whole snapshot, of {}", elsewhere.len(), whole.len(), hosts.len());
        let in_time = is_all && at_per_mille(&elsewhere, 990) <= ELSEWHERE_WITHIN;
        let lapsed = self.total.lapsed - step.total.lapsed;
        let most = burst(&elsewhere);
        let even = mean(&elsewhere);
        let times = f64::from(most) / even.max(f64::MIN_POSITIVE);
        vec![
            Row::judged(format!("{name}: its hosts are elsewhere"), "all", missing, is_all),
            Row::timed(size, format!("{name}: 99 % elsewhere"), "<= 15 s", subscribed, in_time),
            Row::judged(format!("{name}: advice that lapsed"), "none", lapsed.to_string(), lapsed == 0),
            Row::timed(
                size,
                format!("{name}: loads of the others"),
                "most <= 1.3 of the mean",
                format!("{loads}: {ratio:.2}"),
                *ratio <= UNEVEN,
            ),
            Row::timed(
                size,
                format!("{name}: most subscriptions in any 100 ms"),
                "<= 3 times the mean",
                format!("{most}, mean {even:.1}: {times:.2} times"),
                times <= MOST_IN_BURST,
            ),
            Row::stated(format!("{name}: adopted"), self.adoption()),
        ]
    }

    /// Subscriptions adopted and not, as the others count them, and what that extended.
    fn adoption(&self) -> String {
        let grown = |name: &str| {
            let pairs = self.metrics.iter().zip(&self.step.metrics);
            pairs.map(|(after, before)| after.sum(name) - before.sum(name)).sum::<f64>()
        };
        let mut reasons = Vec::new();
        for (after, before) in self.metrics.iter().zip(&self.step.metrics) {
            let not = |(line, _): &(&str, f64)| line.starts_with("spand_publisher_subscriptions_not_adopted_total");
            reasons.extend(after.lines().filter(not).filter_map(|(line, value)| {
                let count = value - before.get(line);
                let reason = line.split('"').nth(1)?;
                (count > 0.5).then(|| format!("{reason} {count:.0}"))
            }));
        }
        format!(
            "{:.0} of {}, {:.0} not ({}); {} lifetimes extended",
            grown("spand_publisher_subscriptions_adopted_total"),
            self.step.hosts.len(),
            grown("spand_publisher_subscriptions_not_adopted_total"),
            if reasons.is_empty() { "no reason".to_owned() } else { reasons.join(", ") },
            self.total.adopted - self.step.total.adopted
        )
    }
}

/// The most within [`BURST`].
fn burst(sorted: &[Duration]) -> u32 {
    let within = |(place, from): (usize, &Duration)| {
        let later = sorted.iter().skip(place);
        u32::try_from(later.take_while(|at| **at < *from + BURST).count()).unwrap_or(u32::MAX)
    };
    sorted.iter().enumerate().map(within).max().unwrap_or_default()
}

/// How many come within [`BURST`] on average, from the first one until 99 % have: a single late one makes no long changeover.
fn mean(sorted: &[Duration]) -> f64 {
    let Some(first) = sorted.first() else { return 0.0 };
    let time = at_per_mille(sorted, 990).saturating_sub(*first).max(BURST);
    0.99 * sorted.len() as f64 * BURST.as_secs_f64() / time.as_secs_f64()
}

// Processor time beside the figures: on a small machine it is what limits them.

/// Processor time up to a moment.
#[derive(Debug)]
pub(super) struct Spent {
    at: Instant,
    hosts: Duration,
    /// By process: of one that was killed there is no more than that.
    gateways: BTreeMap<u32, Duration>,
}

impl Spent {
    /// Of the hosts of this process and of these gateways, as far as they run.
    pub(super) fn begin(gateways: &[Gateway]) -> Result<Self> {
        let hosts = threads_time("self")?.get(THREADS).copied().unwrap_or_default();
        let time = |gateway: &Gateway| Some((gateway.pid(), gateway.processor_time().ok()?.values().sum()));
        Ok(Self { at: Instant::now(), hosts, gateways: gateways.iter().filter_map(time).collect() })
    }

    /// What was spent since, in cores.
    pub(super) fn cores(&self, gateways: &[Gateway]) -> Result<String> {
        self.cores_over(self.at.elapsed(), gateways)
    }

    /// The same, over a time that was measured.
    pub(super) fn cores_over(&self, time: Duration, gateways: &[Gateway]) -> Result<String> {
        let now = Self::begin(gateways)?;
        let cores = |spent: Duration| spent.as_secs_f64() / time.as_secs_f64();
        let then = |process| self.gateways.get(process).copied().unwrap_or_default();
        let gateways = now.gateways.iter().map(|(process, time)| time.saturating_sub(then(process)));
        let all = std::thread::available_parallelism()?;
        Ok(format!(
            "CPU: hosts {:.2}, gateways that run {:.2} of {all} cores",
            cores(now.hosts.saturating_sub(self.hosts)),
            cores(gateways.sum())
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: &[u64]) -> Vec<Duration> {
        ms.iter().copied().map(Duration::from_millis).collect()
    }

    #[test]
    fn a_burst_is_of_any_100_ms_and_not_of_a_grid() {
        assert_eq!(burst(&at(&[0, 95, 105, 190, 194, 300])), 4);
        assert_eq!(burst(&at(&[0, 100, 200])), 1);
        assert_eq!(burst(&[]), 0);
    }

    #[test]
    fn the_mean_is_of_the_time_that_hosts_took() {
        let even: Vec<u64> = (0..201).map(|n| 1_000 + 10 * n).collect();
        assert!((mean(&at(&even)) - 10.0).abs() < 0.2, "{}", mean(&at(&even)));
    }
}
