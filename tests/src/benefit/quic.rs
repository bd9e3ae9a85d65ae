//! The same question for QUIC: the example server of `docs/explain/applications.md`, with advice and without, beside TCP on paths of the same
//! kind. The gateway learns from TCP.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use super::learn::learn;
use super::path::Way;
use super::result::{Learning, Run};
use super::scenario::{Arm, Question, Scenario, Senders, Site, Work};
use super::stage::{Programs, Stage};
use super::work::{Progress, pause};
use crate::campaign::statistics::geometric_mean;
use crate::campaign::{page, together};
use crate::lab::namespace::Namespace;
use crate::lab::path::Carrier;
use crate::lab::traffic::{Client, Plan};
use crate::product::{ApplyMethod, Mode, StartVariant, interrupt};

/// Sizes of one flow at a time.
const BYTES: [u64; 5] = [30_000, 100_000, 300_000, 1_000_000, 10_000_000];
/// The longest on the narrow paths.
const NARROW_MOST: u64 = 1_000_000;
/// Bytes of transfers that start together.
const TOGETHER_BYTES: u64 = 30_000;
/// Time over which their starts are drawn, as in the scenarios of TCP, and the rest after them.
const TOGETHER_S: f64 = 10.0;
const TOGETHER_REST: Duration = Duration::from_secs(3);
const PORT: u16 = 4_433;
const SERVER_PATIENCE: Duration = Duration::from_secs(10);

/// Sets of paths, by name.
pub const FAMILIES: [&str; 4] = ["alone", "grid-20", "grid-100", "together"];

/// One timed transfer.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Timed {
    /// The set of paths.
    pub family: String,
    /// The path.
    pub case: String,
    /// `quic` or `tcp`.
    pub transport: String,
    /// Whether its sender asks the agent.
    pub advised: bool,
    /// Payload.
    pub bytes: u64,
    /// From the request to the last byte, at the client.
    pub seconds: f64,
    /// Packets that the sender took for lost; QUIC only.
    pub lost: Option<u64>,
    /// The round.
    pub round: u32,
    /// The seed.
    pub seed: u64,
}

fn paths(family: &str) -> Vec<(String, Way, u8)> {
    // Packets of QUIC do not fit the reference paths' links of 1,052 bytes.
    let reference = |kbit, one_way_ms| Way { mss: 1_448, ..Way::reference(kbit, one_way_ms) };
    let grid = |mbit: u32| {
        [20, 50, 100, 200].map(|rtt_ms| (format!("{mbit} Mbit/s, {rtt_ms} ms"), Way::deep(mbit, rtt_ms), 1)).to_vec()
    };
    match family {
        "alone" => {
            [("1.6 Mbit/s, 104 ms", 1_600, 52), ("1.6 Mbit/s, 404 ms", 1_600, 202), ("45 Mbit/s, 404 ms", 45_000, 202)]
                .map(|(case, kbit, one_way_ms)| (case.to_owned(), reference(kbit, one_way_ms), 1))
                .to_vec()
        }
        "grid-20" => grid(20),
        "grid-100" => grid(100),
        _ => [6, 30].map(|senders| (format!("{senders} senders"), reference(1_600, 52), senders)).to_vec(),
    }
}

/// For each path one site with advice, and one like it without.
fn scenario(family: &'static str) -> Scenario {
    let mut sites = Vec::new();
    for (lane, (case, path, clients)) in (0..).zip(paths(family)) {
        for arm in [Arm::Product, Arm::Cubic] {
            let (case, senders) = (case.clone(), Senders::All(arm));
            sites.push(Site { case, senders, clients, path, lane, learners: clients.div_ceil(2), beside: None });
        }
    }
    Scenario {
        family,
        part: "",
        question: Question::Grid,
        congestion_control: Arm::Cubic.congestion_control(),
        sites,
        learn_bytes: (30_000, if family.starts_with("grid") { 10_000_000 } else { 2_000_000 }),
        learn: 20,
        work: Work::Sizes { bytes: &BYTES, rounds: 1 },
    }
}

/// What a client of the example prints.
#[derive(Deserialize)]
struct Fetched {
    port: u16,
    transfer_s: f64,
}

/// What its server prints of a connection.
#[derive(Deserialize)]
struct Served {
    remote: SocketAddr,
    lost_packets: u64,
}

/// The example's server.
struct Server {
    child: Child,
    certificate: PathBuf,
    lost: Arc<Mutex<BTreeMap<SocketAddr, u64>>>,
}

impl Server {
    fn start(
        program: &Path,
        host: &Namespace,
        address: SocketAddr,
        certificate: PathBuf,
        agent: Option<&Path>,
    ) -> Result<Self> {
        let mut child = host
            .command(program)
            .args(["serve", &address.to_string()])
            .arg(&certificate)
            .args(agent)
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let lost = Arc::new(Mutex::new(BTreeMap::new()));
        let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let counted = Arc::clone(&lost);
        thread::spawn(move || {
            for served in lines.map_while(Result::ok).filter_map(|line| serde_json::from_str::<Served>(&line).ok()) {
                counted.lock().insert(served.remote, served.lost_packets);
            }
        });
        let begin = Instant::now();
        while !certificate.exists() {
            ensure!(begin.elapsed() < SERVER_PATIENCE, "the QUIC server does not listen at {address}");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { child, certificate, lost })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs a set of paths; `quic` is the example's program. `say` hears how far it is.
pub fn run(
    family: &'static str,
    (seed, rounds): (u64, u32),
    programs: &Programs,
    quic: &Path,
    say: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Timed>> {
    let scenario = scenario(family);
    let run = Run {
        paths: Carrier::Emulator,
        scenario: scenario.name(),
        way: ApplyMethod::Bpf,
        mode: Mode::Careful,
        stated: true,
        learning: Learning::Plain,
        start: StartVariant::Plain,
        seed,
    };
    let folder = tempfile::Builder::new().prefix("spand-quic-").tempdir().context("cannot make a folder")?;
    let socket = folder.path().join("applications.sock");
    let more = format!("[applications]\nsocket = \"{}\"\n{}", socket.display(), programs.agent_more);
    let programs = Programs { agent_more: more, ..programs.clone() };
    let mut stage = Stage::build(&scenario, &run, &programs)?;
    say("learning");
    learn(&stage, &scenario, seed, &Progress::default())?;
    stage.start_agent(&scenario, (&run, run.start), &programs)?;
    let sites: Vec<(usize, u64)> =
        (0..).zip(&scenario.sites).filter(|(_, site)| site.is_product()).map(|(n, site)| (n, site.path.mss)).collect();
    for line in stage.wait_for_advice(&sites)? {
        say(&line);
    }
    let mut servers = BTreeMap::new();
    for (arm, host) in &stage.hosts {
        let agent = (*arm == Arm::Product).then_some(socket.as_path());
        let certificate = folder.path().join(format!("{}.der", arm.name()));
        let address = SocketAddr::new(host.address, PORT);
        servers.insert(*arm, Server::start(quic, &host.namespace, address, certificate, agent)?);
    }
    let bench = Bench { stage: &stage, scenario: &scenario, servers: &servers, quic, seed };
    // The first connection to each network makes the server ask the agent for it.
    for index in 0..scenario.sites.len() {
        bench.fetch(index, 0, 1_000)?;
    }
    say("timed");
    let timed = if family == "together" { bench.together(rounds)? } else { bench.alone(rounds)? };
    stage.product.check()?;
    drop(servers);
    for line in stage.product.stop(&stage.lab) {
        say(&line);
    }
    Ok(timed)
}

struct Bench<'a> {
    stage: &'a Stage,
    scenario: &'a Scenario,
    servers: &'a BTreeMap<Arm, Server>,
    quic: &'a Path,
    seed: u64,
}

impl Bench<'_> {
    fn place(&self, index: usize, client: u8) -> Result<(&Site, &Namespace, IpAddr)> {
        let site = self.scenario.sites.get(index).context("a site")?;
        let network = self.stage.lab.networks.get(index).context("a network for each site")?;
        let from = network.addresses.get(usize::from(client)).context("an address for each client")?;
        Ok((site, &network.namespace, *from))
    }

    /// One transfer over QUIC: its client's address and the time.
    fn fetch(&self, index: usize, client: u8, bytes: u64) -> Result<(SocketAddr, f64)> {
        let (site, namespace, from) = self.place(index, client)?;
        let arm = site.senders.to(client);
        let server = self.servers.get(&arm).context("a server for each arm")?;
        let host = self.stage.hosts.get(&arm).context("a host for each arm")?;
        let output = namespace
            .command(self.quic)
            .args(["fetch", &SocketAddr::new(host.address, PORT).to_string()])
            .arg(&server.certificate)
            .args([bytes.to_string(), from.to_string()])
            .output()
            .context("cannot run the QUIC client")?;
        ensure!(output.status.success(), "the QUIC client: {}", String::from_utf8_lossy(&output.stderr).trim());
        let fetched: Fetched = serde_json::from_slice(&output.stdout).context("the QUIC client printed no JSON")?;
        Ok((SocketAddr::new(from, fetched.port), fetched.transfer_s))
    }

    /// One transfer over TCP.
    fn ask(&self, index: usize, client: u8, bytes: u64) -> Result<f64> {
        let (site, namespace, from) = self.place(index, client)?;
        let server = self.stage.server(site.senders.to(client))?;
        namespace.enter(|| {
            let mut connected = Client::connect(from, server)?;
            let begin = Instant::now();
            connected.ask(&Plan::transfer(Plan::AS_THE_HOST, bytes))?;
            Ok(begin.elapsed().as_secs_f64())
        })
    }

    fn one(&self, index: usize, client: u8, transport: &str, bytes: u64, round: u32) -> Result<Timed> {
        let (site, ..) = self.place(index, client)?;
        let (seconds, lost) = if transport == "quic" {
            let (remote, seconds) = self.fetch(index, client, bytes)?;
            // The server prints it once the client has closed.
            thread::sleep(site.path.rtt() + Duration::from_millis(50));
            let server = self.servers.get(&site.senders.to(client)).context("a server for each arm")?;
            let lost = server.lost.lock().remove(&remote);
            (seconds, lost)
        } else {
            (self.ask(index, client, bytes)?, None)
        };
        Ok(Timed {
            family: self.scenario.family.to_owned(),
            case: site.case.clone(),
            transport: transport.to_owned(),
            advised: site.is_product(),
            bytes,
            seconds,
            lost,
            round,
            seed: self.seed,
        })
    }

    /// One flow at a time on each path; paths side by side.
    fn alone(&self, rounds: u32) -> Result<Vec<Timed>> {
        let lanes = self.scenario.sites.iter().map(|site| site.lane).max().unwrap_or(0);
        together::all((0..=lanes).map(|lane| move || self.lane(lane, rounds))).map(|timed| timed.concat())
    }

    fn lane(&self, lane: u8, rounds: u32) -> Result<Vec<Timed>> {
        let mut done = Vec::new();
        let mut dice = StdRng::seed_from_u64(self.seed ^ u64::from(lane) << 32);
        for round in 0..rounds {
            let mut order = Vec::new();
            for (index, site) in (0..).zip(&self.scenario.sites).filter(|(_, site)| site.lane == lane) {
                let most = if site.path.kbit < 10_000 { NARROW_MOST } else { u64::MAX };
                for bytes in BYTES.into_iter().filter(|bytes| *bytes <= most) {
                    order.extend(["quic", "tcp"].map(|transport| (index, bytes, transport)));
                }
            }
            order.shuffle(&mut dice);
            for (index, bytes, transport) in order {
                ensure!(!interrupt::came(), "interrupted");
                done.push(self.one(index, 0, transport, bytes, round)?);
                pause(self.place(index, 0)?.0);
            }
        }
        Ok(done)
    }

    /// All clients of all paths, each at a moment of its own, one transport after the other.
    fn together(&self, rounds: u32) -> Result<Vec<Timed>> {
        let mut dice = StdRng::seed_from_u64(self.seed);
        let mut done = Vec::new();
        for round in 0..rounds {
            let most = self.scenario.sites.iter().map(|site| site.clients).max().unwrap_or(0);
            let delays: Vec<f64> = (0..most).map(|_| dice.random::<f64>() * TOGETHER_S).collect();
            for transport in ["quic", "tcp"] {
                ensure!(!interrupt::came(), "interrupted");
                let clients = (0..).zip(&self.scenario.sites).flat_map(|(index, site)| {
                    (0..site.clients).zip(&delays).map(move |(client, delay)| {
                        move || {
                            thread::sleep(Duration::from_secs_f64(*delay));
                            self.one(index, client, transport, TOGETHER_BYTES, round)
                        }
                    })
                });
                done.extend(together::all(clients)?);
                thread::sleep(TOGETHER_REST);
            }
        }
        Ok(done)
    }
}

/// The results as a table of Markdown: by path and size the times of both transports, plain and advised, their ratio, and losses.
pub fn table(all: &[Timed]) -> String {
    let mut groups: BTreeMap<(&str, &str, u64), Vec<&Timed>> = BTreeMap::new();
    for timed in all {
        groups.entry((&timed.family, &timed.case, timed.bytes)).or_default().push(timed);
    }
    let mean = |of: &[&Timed], transport: &str, advised: bool| {
        let times = of.iter().filter(|timed| timed.transport == transport && timed.advised == advised);
        geometric_mean(&times.map(|timed| timed.seconds * 1e3).collect::<Vec<_>>())
    };
    let lost = |of: &[&Timed], advised: bool| {
        let counts: Vec<u64> =
            of.iter().filter(|timed| timed.advised == advised).filter_map(|timed| timed.lost).collect();
        counts.iter().sum::<u64>() as f64 / counts.len().max(1) as f64
    };
    let mut lines = Vec::new();
    let mut ratios: BTreeMap<(String, &str), Vec<f64>> = BTreeMap::new();
    for ((family, case, bytes), of) in &groups {
        let times = ["quic", "tcp"].map(|transport| (mean(of, transport, false), mean(of, transport, true)));
        let [Some((quic, quic_advised)), Some((tcp, tcp_advised))] = times.map(|(plain, advised)| plain.zip(advised))
        else {
            continue;
        };
        let own = [quic_advised / quic, tcp_advised / tcp];
        for (transport, ratio) in ["quic", "tcp"].into_iter().zip(own) {
            for group in [(*family).to_owned(), "all".to_owned(), format!("{} KB", bytes / 1_000)] {
                ratios.entry((group, transport)).or_default().push(ratio);
            }
        }
        lines.push(format!(
            "{family} | {case} | {} KB | {quic:.0} | {quic_advised:.0} | {:.3} | {:.1} → {:.1} | {tcp:.0} | {tcp_advised:.0} | {:.3}",
            bytes / 1_000,
            own[0],
            lost(of, false),
            lost(of, true),
            own[1]
        ));
    }
    let mut over = Vec::new();
    for ((group, _), of) in ratios.iter().filter(|((_, transport), _)| *transport == "quic") {
        let tcp = ratios.get(&(group.clone(), "tcp")).and_then(|ratios| geometric_mean(ratios));
        if let (Some(quic), Some(tcp)) = (geometric_mean(of), tcp) {
            over.push(format!("{group} | {quic:.3} | {tcp:.3} | {}", of.len()));
        }
    }
    format!(
        "{}\n{}",
        page::table("set | path | size | QUIC ms | advised | ratio | lost packets | TCP ms | advised | ratio", lines),
        page::table("over | QUIC advised over its default | TCP advised over CUBIC | cases", over)
    )
}
