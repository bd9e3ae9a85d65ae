//! The transfers that are timed.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use spand_proto::units::BytesPerSecond;

use super::crowd;
use super::scenario::{Arm, Event, Scenario, Site, Work};
use super::stage::Stage;
use crate::campaign::together;
use crate::lab::namespace::Namespace;
use crate::lab::traffic::{Client, Plan};
use crate::lab::truth::FlowId;
use crate::product::interrupt;

/// Pause after a transfer, besides a round trip: the last acknowledgements and the end of the connection pass.
const PAUSE: Duration = Duration::from_millis(100);

/// A transfer that a client asked for and got.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// Index of its site.
    pub(super) site: usize,
    /// Client of the site.
    pub(super) client: u8,
    /// Round, the warm ones counted.
    pub(super) round: u32,
    /// Bytes.
    pub(super) bytes: u64,
    /// The connection, as its sender names it.
    pub(super) flow: FlowId,
    /// Bytes that the connection had carried before.
    pub(super) offset: u64,
}

/// Everything that was asked for.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Complete transfers.
    pub(super) asked: Vec<Asked>,
    /// Transfers that broke.
    pub(super) failed: u64,
}

/// How far it is: transfers done of those planned.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) done: AtomicU32,
    pub(super) planned: AtomicU32,
}

impl Progress {
    pub(super) fn plan(&self, more: usize) -> Result<()> {
        self.planned.fetch_add(u32::try_from(more)?, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn one(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs what is timed.
pub(super) fn timed(stage: &Stage, scenario: &Scenario, seed: u64, progress: &Progress) -> Result<Done> {
    match scenario.work {
        Work::Sizes { bytes, rounds } => {
            let all = scenario.sites.len() * bytes.len() * rounds as usize;
            progress.planned.store(u32::try_from(all)?, Ordering::Relaxed);
            let done = Mutex::new(Done::default());
            in_lanes(scenario, |sites| sizes(stage, scenario, &sites, (bytes, rounds), seed, (&done, progress)))?;
            Ok(done.into_inner())
        }
        Work::Rounds { .. } => rounds(stage, scenario, seed, progress),
        Work::Crowd { .. } => crowd::timed(stage, scenario, seed, progress),
        Work::After { .. } => after(stage, scenario, seed, progress),
        Work::Flights { .. } => bail!("first flights are looked at elsewhere"),
    }
}

/// Does `work` with the sites of each lane, lanes side by side.
pub(super) fn in_lanes(scenario: &Scenario, work: impl Fn(Vec<usize>) -> Result<()> + Sync) -> Result<()> {
    let mut lanes: Vec<u8> = scenario.sites.iter().map(|site| site.lane).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let of = |lane: &u8| (0..).zip(&scenario.sites).filter(|(_, site)| site.lane == *lane).map(|(n, _)| n).collect();
    let work = &work;
    let lane = |lane| {
        let sites = of(lane);
        move || work(sites)
    };
    together::all(lanes.iter().map(lane)).map(drop)
}

fn sizes(
    stage: &Stage,
    scenario: &Scenario,
    sites: &[usize],
    (bytes, rounds): (&[u64], u32),
    seed: u64,
    (done, progress): (&Mutex<Done>, &Progress),
) -> Result<()> {
    let mut dice = StdRng::seed_from_u64(seed ^ 0x51_2e5 ^ (sites.first().copied().unwrap_or(0) as u64) << 32);
    for round in 0..rounds {
        let mut order: Vec<(usize, u64)> =
            sites.iter().flat_map(|site| bytes.iter().map(move |bytes| (*site, *bytes))).collect();
        order.shuffle(&mut dice);
        for (index, bytes) in order {
            let site = scenario.sites.get(index).context("a site of this scenario")?;
            time_one(stage, (index, site), (bytes, round), (done, progress));
        }
    }
    Ok(())
}

/// Times one transfer to the first client of a site, and waits until it is over for everyone.
fn time_one(
    stage: &Stage,
    (index, site): (usize, &Site),
    (bytes, round): (u64, u32),
    (done, progress): (&Mutex<Done>, &Progress),
) {
    let flow = transfer(stage, index, site, 0, bytes);
    progress.one();
    let mut done = done.lock();
    match flow {
        Ok(flow) => done.asked.push(Asked { site: index, client: 0, round, bytes, flow, offset: 0 }),
        Err(_) => done.failed += 1,
    }
    drop(done);
    pause(site);
}

/// Applies the event to all paths, and then times one transfer at a time on each.
fn after(stage: &Stage, scenario: &Scenario, seed: u64, progress: &Progress) -> Result<Done> {
    let Work::After { event, bytes, seconds } = scenario.work else { bail!("no event") };
    let done = Mutex::new(Done::default());
    let one = |(index, site)| {
        let done = &done;
        move || -> Result<()> {
            happen(stage, (index, site), event)?;
            let begin = Instant::now();
            // All arms get the same sizes in the same order.
            let mut dice = StdRng::seed_from_u64(seed ^ 0xaf7e4);
            let mut order = Vec::new();
            while begin.elapsed() < Duration::from_secs(seconds.into()) {
                if order.is_empty() {
                    order = bytes.to_vec();
                    order.shuffle(&mut dice);
                }
                let bytes = order.pop().context("a transfer has a size")?;
                let round = u32::try_from(begin.elapsed().as_secs() / 60)?;
                progress.plan(1)?;
                time_one(stage, (index, site), (bytes, round), (done, progress));
            }
            Ok(())
        }
    };
    together::all((0..).zip(&scenario.sites).map(one))?;
    Ok(done.into_inner())
}

fn happen(stage: &Stage, (index, site): (usize, &Site), event: Event) -> Result<()> {
    match event {
        Event::Rate(kbit) => stage.lab.set_rate(index, BytesPerSecond(kbit * 125)),
        Event::Burst(bytes) => {
            let ask = |client| move || transfer(stage, index, site, client, bytes);
            together::all((0..site.clients).map(ask)).map(drop)
        }
    }
}

/// One transfer on a connection of its own.
pub(super) fn transfer(stage: &Stage, index: usize, site: &Site, client: u8, bytes: u64) -> Result<FlowId> {
    if interrupt::came() {
        bail!("interrupted");
    }
    let network = stage.lab.networks.get(index).context("a network for each site")?;
    let from = *network.addresses.get(usize::from(client)).context("an address for each client")?;
    let server = stage.server(site.senders.to(client))?;
    let mut connected = network.namespace.enter(|| Client::connect(from, server))?;
    let got = connected.ask(&Plan::transfer(Plan::AS_THE_HOST, bytes))?;
    Ok(FlowId { local: server, remote: got.local })
}

/// Until a transfer is over for everyone.
pub(super) fn pause(site: &Site) {
    thread::sleep(site.path.rtt() + PAUSE);
}

/// A client that asks once a round.
struct Asker {
    site: usize,
    client: u8,
    from: IpAddr,
    server: SocketAddr,
    persistent: bool,
    bytes: u64,
    begin: Instant,
    /// When each round's start is due.
    starts: Vec<Duration>,
}

fn rounds(stage: &Stage, scenario: &Scenario, seed: u64, progress: &Progress) -> Result<Done> {
    let Work::Rounds { bytes, rounds, warm, within_ms, every_ms } = scenario.work else { bail!("no rounds") };
    let clients: u32 = scenario.sites.iter().map(|site| u32::from(site.clients)).sum();
    progress.planned.store(clients * (rounds + warm), Ordering::Relaxed);
    // Time for all threads to stand before the first start.
    let begin = Instant::now() + Duration::from_secs(1);
    let mut askers = Vec::new();
    for (index, (site, network)) in scenario.sites.iter().zip(&stage.lab.networks).enumerate() {
        for (client, from) in (0..).zip(&network.addresses) {
            // By client and case, not by who sends: all arms get the same starts.
            let of_case = u64::from(site.clients) << 40;
            let mut dice = StdRng::seed_from_u64(seed ^ of_case ^ u64::from(client) << 32);
            let due = |round: u32| {
                let jitter = Duration::from_secs_f64(dice.random::<f64>() * within_ms as f64 / 1e3);
                Duration::from_millis(every_ms) * round + jitter
            };
            let arm: Arm = site.senders.to(client);
            let asker = Asker {
                site: index,
                client,
                from: *from,
                server: stage.server(arm)?,
                persistent: arm.is_persistent(),
                bytes,
                begin,
                starts: (0..rounds + warm).map(due).collect(),
            };
            askers.push((network.namespace.clone(), asker));
        }
    }
    let done = Mutex::new(Done::default());
    let work = |(namespace, asker): (Namespace, Asker)| {
        let done = &done;
        move || {
            namespace.join_thread()?;
            asker.run(done, progress);
            Ok(())
        }
    };
    together::all(askers.into_iter().map(work))?;
    Ok(done.into_inner())
}

impl Asker {
    fn run(&self, done: &Mutex<Done>, progress: &Progress) {
        let mut open: Option<(Client, u64)> = None;
        for (round, start) in (0..).zip(&self.starts) {
            thread::sleep((self.begin + *start).saturating_duration_since(Instant::now()));
            if interrupt::came() {
                return;
            }
            let asked = self.ask(&mut open, round);
            progress.one();
            let mut done = done.lock();
            if let Ok(asked) = asked {
                done.asked.push(asked);
            } else {
                open = None;
                done.failed += 1;
            }
        }
    }

    fn ask(&self, open: &mut Option<(Client, u64)>, round: u32) -> Result<Asked> {
        let (mut client, offset) = match open.take() {
            Some(kept) => kept,
            None => (Client::connect(self.from, self.server)?, 0),
        };
        let got = client.ask(&Plan::transfer(Plan::AS_THE_HOST, self.bytes))?;
        let flow = FlowId { local: self.server, remote: got.local };
        if self.persistent {
            *open = Some((client, offset + self.bytes));
        }
        Ok(Asked { site: self.site, client: self.client, round, bytes: self.bytes, flow, offset })
    }
}
