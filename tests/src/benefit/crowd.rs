//! Transfers of mixed sizes that begin at random moments.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::scenario::{Arrivals, MIX, PARTS, Scenario, Site, Work, mixed};
use super::stage::Stage;
use super::work::{Asked, Done, Progress, transfer};
use crate::campaign::together;
use crate::product::interrupt;

/// A transfer that is to begin.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Arrival {
    at: Duration,
    client: u8,
    bytes: u64,
}

/// One site's crowd.
#[derive(Clone, Copy)]
struct Crowd<'a> {
    stage: &'a Stage,
    index: usize,
    site: &'a Site,
    begin: Instant,
    warm: Duration,
    counted: Duration,
    done: &'a Mutex<Done>,
    progress: &'a Progress,
}

/// Runs the crowds of all sites side by side until each transfer that began has ended.
pub(super) fn timed(stage: &Stage, scenario: &Scenario, seed: u64, progress: &Progress) -> Result<Done> {
    let Work::Crowd { arrivals, warm_s, seconds } = scenario.work else { bail!("no crowd") };
    let (warm, counted) = (Duration::from_secs(warm_s.into()), Duration::from_secs(seconds.into()));
    let done = Mutex::new(Done::default());
    // Time for all threads to stand before the first transfer.
    let begin = Instant::now() + Duration::from_secs(1);
    let crowd = |(index, site)| Crowd { stage, index, site, begin, warm, counted, done: &done, progress };
    let crowds = scenario.sites.iter().enumerate().map(crowd);
    match arrivals {
        // Drawn from the seed alone: all arms get the same transfers at the same moments.
        Arrivals::Open(percent) => together::all(crowds.map(|crowd| {
            let planned = open(crowd.site, percent, warm + counted, StdRng::seed_from_u64(seed ^ 0x000c_203d));
            move || crowd.meet(&planned)
        })),
        Arrivals::Closed(pause_ms) => together::all(crowds.flat_map(|crowd| {
            (0..crowd.site.clients).map(move |client| {
                let dice = StdRng::seed_from_u64(seed ^ 0x000c_203d ^ u64::from(client) << 32);
                move || crowd.ask_again(client, pause_ms, dice)
            })
        })),
    }?;
    Ok(done.into_inner())
}

/// Arrivals of a Poisson process over `span`, clients in turns.
fn open(site: &Site, percent: u32, span: Duration, mut dice: StdRng) -> Vec<Arrival> {
    let (parts, times) = MIX.into_iter().fold((0.0, 0), |(sum, count), (bytes, times)| {
        (sum + f64::from(times) * site.path.transmission_ms(bytes), count + times)
    });
    let mean_gap_ms = parts / f64::from(times) / (f64::from(percent) / 100.0);
    let (mut at, mut arrivals) = (Duration::ZERO, Vec::new());
    for client in (0..site.clients).cycle() {
        at += exponential(&mut dice, mean_gap_ms);
        let Some(bytes) = mixed(dice.random_range(0..times)).filter(|_| at < span) else { break };
        arrivals.push(Arrival { at, client, bytes });
    }
    arrivals
}

fn exponential(dice: &mut StdRng, mean_ms: f64) -> Duration {
    Duration::from_secs_f64(-(1.0 - dice.random::<f64>()).ln() * mean_ms / 1e3)
}

impl Crowd<'_> {
    /// Begins every transfer at its moment.
    fn meet(&self, arrivals: &[Arrival]) -> Result<()> {
        self.progress.plan(arrivals.len())?;
        thread::scope(|scope| {
            for arrival in arrivals {
                thread::sleep((self.begin + arrival.at).saturating_duration_since(Instant::now()));
                if interrupt::came() {
                    bail!("interrupted");
                }
                thread::Builder::new()
                    .name("client".to_owned())
                    .spawn_scoped(scope, move || self.ask(arrival.client, arrival.bytes))
                    .context("cannot start a client")?;
            }
            Ok(())
        })
    }

    /// A client that asks, waits for the answer, and asks again after a pause.
    fn ask_again(&self, client: u8, pause_ms: u32, mut dice: StdRng) -> Result<()> {
        loop {
            let next = Instant::now().max(self.begin) + exponential(&mut dice, pause_ms.into());
            if next >= self.begin + self.warm + self.counted {
                return Ok(());
            }
            thread::sleep(next.saturating_duration_since(Instant::now()));
            if interrupt::came() {
                bail!("interrupted");
            }
            self.progress.plan(1)?;
            self.ask(client, mixed(dice.random_range(0..10)).context("ten transfers have sizes")?);
        }
    }

    fn ask(&self, client: u8, bytes: u64) {
        let round = self.part(self.begin.elapsed());
        let flow = transfer(self.stage, self.index, self.site, client, bytes);
        self.progress.one();
        let mut done = self.done.lock();
        match flow {
            Ok(flow) => done.asked.push(Asked { site: self.index, client, round, bytes, flow, offset: 0 }),
            Err(_) => done.failed += 1,
        }
    }

    /// Which part of the time a transfer belongs to that begins `since` the beginning; 0 is before what counts.
    fn part(&self, since: Duration) -> u32 {
        let Some(counted) = since.checked_sub(self.warm) else { return 0 };
        let part = counted.as_nanos() * u128::from(PARTS) / self.counted.as_nanos().max(1);
        u32::try_from(part).unwrap_or(PARTS).min(PARTS - 1) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benefit::path::Way;
    use crate::benefit::scenario::{Arm, Senders};

    #[test]
    fn open_arrivals_fill_their_part_of_the_bottleneck_and_are_the_same_for_every_arm() {
        let path = Way::new(10_000, 25, 40);
        let site = |arm| Site {
            case: String::new(),
            senders: Senders::All(arm),
            clients: 20,
            path,
            lane: 0,
            learners: 1,
            beside: None,
        };
        let span = Duration::from_secs(3_000);
        let arrivals = |arm| open(&site(arm), 81, span, StdRng::seed_from_u64(7));
        let planned = arrivals(Arm::Product);
        let busy_ms: f64 = planned.iter().map(|arrival| path.transmission_ms(arrival.bytes)).sum();
        let part = busy_ms / 1e3 / span.as_secs_f64();
        assert!((part - 0.81).abs() < 0.03, "{part}");
        assert_eq!(planned, arrivals(Arm::Cubic));
        assert!(planned.iter().any(|arrival| arrival.client == 19) && planned.is_sorted_by_key(|arrival| arrival.at));
    }
}
