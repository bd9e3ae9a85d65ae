//! Records a scenario: packets of the mirror port, and the kernel's own samples.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use ipnet::IpNet;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use super::scenario::{Scenario, Work};
use crate::accuracy::result::Health;
use crate::campaign::kept;
use crate::lab::tap::Tap;
use crate::lab::topology::{Access, MIRROR_DEVICE, NetworkPlan, Topology};
use crate::lab::traffic::{Client, Plan, Server, Step};
use crate::lab::truth::rules::{self, Reason};
use crate::lab::truth::{Poller, Record, SegmentTruth, Trace};

/// Time between two looks at the kernel's accounts; windows come from every segment.
const POLL: Duration = Duration::from_millis(100);
/// Buffers that bind nobody; the sender's begins small, so that little is left to send when the time is over.
const RECEIVE_BUFFERS: &str = "4096 4194304 16777216";
const SEND_BUFFERS: &str = "4096 65536 16777216";

/// What a recording says of itself, beside its packets.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Recorded {
    /// Seed of its path and clients.
    pub seed: u64,
    /// Whether the lab behaved as configured.
    pub health: Health,
    /// When the first packet was sent, in nanoseconds since 1970.
    pub begin_ns: u64,
    /// The kernel's samples, by time.
    pub kernel: Vec<Kernel>,
}

/// A sample of the kernel's window.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Kernel {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// The receiver's end.
    pub remote: SocketAddr,
    /// The window in segments: at a loss one less than it was.
    pub segments: f64,
    /// A peak of the sawtooth: a loss in congestion avoidance.
    pub peak: bool,
    /// Something else than the window was the limit.
    pub bound: bool,
}

const RECORDED: &str = "recorded.json";

/// Where a scenario's recording lies.
#[derive(Clone, Debug)]
pub struct Place(PathBuf);

impl Place {
    /// Under `out`.
    pub fn new(out: &Path, scenario: &Scenario) -> Self {
        Self(out.join(&scenario.name))
    }

    /// The packets, headers only.
    pub fn capture(&self) -> PathBuf {
        self.0.join("capture.pcap.gz")
    }

    /// What was recorded; `None` where nothing was yet.
    pub fn recorded(&self) -> Option<Recorded> {
        kept::read(&self.0.join(RECORDED))
    }

    fn keep(&self, recorded: &Recorded, capture: &Path) -> Result<()> {
        std::fs::create_dir_all(&self.0).with_context(|| format!("cannot make {}", self.0.display()))?;
        kept::pack(capture, &self.capture())?;
        // Last: a recording without it does not count.
        kept::write(&self.0.join(RECORDED), recorded)
    }
}

/// The prefix of a site.
pub fn prefix(site: usize) -> IpNet {
    let nets = ["198.51.100.0/24", "203.0.113.0/24"];
    nets.get(site).and_then(|net| net.parse().ok()).unwrap_or_default()
}

/// Runs a scenario and keeps what it left behind.
pub fn run(scenario: &Scenario, seed: u64, place: &Place) -> Result<Health> {
    let folder = tempfile::tempdir().context("cannot make a folder for the capture")?;
    let capture = folder.path().join("capture.pcap");
    let plans: Vec<NetworkPlan> = scenario
        .sites
        .iter()
        .enumerate()
        .map(|(n, site)| NetworkPlan { prefix: prefix(n), clients: site.clients(), path: site.path(seed) })
        .collect();
    let lab = Topology::build_with(&plans, Access::default())?;
    configure(scenario, &lab)?;
    let record = Record::default();
    let poller = Arc::new(Poller::start_every(POLL, record.clone())?);
    let states = Trace::start_states(record.clone(), lab.port)?;
    let segments = SegmentTruth::start(record.clone(), lab.port)?;
    let tap = Tap::start(&lab.gateway, MIRROR_DEVICE, &capture)?;
    let server = Server::start(&lab.server, lab.port, scenario.cc, &poller)?;
    let mut workers = Vec::new();
    for (network, site) in lab.networks.iter().zip(&scenario.sites) {
        for (n, address) in (0..).zip(&network.addresses) {
            let Some(group) = site.group(n) else { continue };
            let worker = Worker {
                work: group.work,
                cc: scenario.cc,
                dice: StdRng::seed_from_u64(seed ^ (u64::from(n) << 8) ^ (workers.len() as u64) << 32),
                time: Duration::from_secs(scenario.seconds),
                from: *address,
                target: lab.server_address(network.plan.prefix),
            };
            workers.push(network.namespace.spawn("client", move || Ok(worker.run()))?);
        }
    }
    let (mut transfers, mut failed) = (0, 0);
    for worker in workers {
        let (done, broken) = worker.join().map_err(|_| anyhow!("a client panicked"))??;
        (transfers, failed) = (transfers + done, failed + broken);
    }
    thread::sleep(Duration::from_millis(800));
    drop(server);
    let lost = states.finish()? + segments.finish()?;
    drop(poller);
    let tap = tap.finish()?;
    let mut health = Health {
        transfers,
        failed,
        captured: tap.packets,
        tap_dropped: tap.dropped,
        truth_lost: lost + record.dropped(),
        ..Health::default()
    };
    health.add_paths(&lab.emulator);
    let rows = record.rows();
    let mut kernel: Vec<Kernel> = rules::samples(&rows)
        .into_iter()
        .map(|sample| Kernel {
            time_ns: sample.time_ns,
            remote: sample.flow.remote,
            segments: sample.segments,
            peak: sample.reason == Reason::Loss,
            bound: matches!(sample.reason, Reason::SlowStartEnd | Reason::LowerBound),
        })
        .collect();
    kernel.sort_by_key(|sample| sample.time_ns);
    let begin_ns = rows.first().map_or(0, |row| row.time_ns);
    place.keep(&Recorded { seed, health, begin_ns, kernel }, &capture)?;
    Ok(health)
}

fn configure(scenario: &Scenario, lab: &Topology) -> Result<()> {
    let hosts = lab.networks.iter().map(|network| &network.namespace).chain([&lab.server]);
    for namespace in hosts {
        namespace.sysctl("ipv4/tcp_wmem", SEND_BUFFERS)?;
        namespace.sysctl("ipv4/tcp_rmem", RECEIVE_BUFFERS)?;
    }
    let Some(start) = scenario.start else { return Ok(()) };
    for (network, site) in lab.networks.iter().zip(&scenario.sites) {
        for (n, address) in (0..).zip(&network.addresses) {
            if site.group(n).is_some_and(|group| group.advised) {
                lab.server.ip(&[&format!("route add {address}/32 via 192.0.2.1 initcwnd {start}")])?;
            }
        }
    }
    Ok(())
}

struct Worker {
    work: Work,
    cc: &'static str,
    dice: StdRng,
    time: Duration,
    from: IpAddr,
    target: SocketAddr,
}

impl Worker {
    /// Transfers that were complete, and those that were not.
    fn run(mut self) -> (u64, u64) {
        // Flows that begin together would meet the same fate.
        thread::sleep(Duration::from_millis(self.dice.random_range(0..1_500)));
        let begin = Instant::now();
        let (mut done, mut failed) = (0, 0);
        while begin.elapsed() < self.time {
            let left = self.time.saturating_sub(begin.elapsed());
            let plan = Plan::new(self.cc, self.steps(left));
            match Client::connect(self.from, self.target).and_then(|mut client| client.ask(&plan)) {
                Ok(_) => done += 1,
                Err(_) => failed += 1,
            }
            if let Work::Transfers(_, _, pause) = self.work {
                thread::sleep(Duration::from_millis(self.dice.random_range(0..pause)));
            }
        }
        (done, failed)
    }

    fn steps(&mut self, left: Duration) -> Vec<Step> {
        match self.work {
            Work::Bulk => vec![Step::Stream(left)],
            Work::Transfers(least, most, _) => vec![Step::Send(self.bytes(least, most))],
            Work::Messages(least, most, pause) => {
                let mut steps = Vec::new();
                // As many as one request may hold; the next connection goes on.
                for _ in 0..60 {
                    steps.push(Step::Send(self.bytes(least, most)));
                    steps.push(Step::Pause(Duration::from_millis(self.dice.random_range(20..pause))));
                }
                steps
            }
        }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes of transfers")]
    fn bytes(&mut self, least: u64, most: u64) -> u64 {
        let (least, most) = (least as f64, most as f64);
        (least * (most / least).powf(self.dice.random::<f64>())) as u64
    }
}
