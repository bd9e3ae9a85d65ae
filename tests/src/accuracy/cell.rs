//! Runs one cell: builds its path, starts its senders, records the tap and the kernel's account.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use ipnet::IpNet;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use spand_proto::units::BytesPerSecond;

use super::factors::{Cell, Numbers, RTT_GROWS};
use super::result::Health;
use crate::lab::link::Offloads;
use crate::lab::namespace::Namespace;
use crate::lab::path::{
    Burst, Cross, DelayChange, Episodes, Hop, Impairments, MtuDrop, PathConfig, Queue, RateChange, Reorder,
};
use crate::lab::tap::Tap;
use crate::lab::topology::{Access, MIRROR_DEVICE, NetworkPlan, Topology};
use crate::lab::traffic::{Client, Conduct, Plan, Server, Step, WRITE_BYTES};
use crate::lab::truth::{Poller, Record, Row, SegmentTruth, Trace, entered, has_states};

/// `TCP_INFO` gives the kernel's accounts and a socket's end; windows come from every segment.
const POLL: Duration = Duration::from_millis(10);
/// Buffers that bind nobody, several times the largest path. A receiver's begins large, since it follows the sender's window
/// late; a sender's grows with its window, and what it held more would only be data still to send when the run is over.
const RECEIVE_BUFFERS: &str = "4096 4194304 134217728";
const SEND_BUFFERS: &str = "4096 65536 134217728";

/// Connections of one client with the web's traffic at a time, answers of one, and the bytes of an answer.
const WEB_CONNECTIONS: usize = 2;
const WEB_ANSWERS: usize = 8;
const WEB_BYTES: (f64, f64) = (15_000.0, 1_000_000.0);

/// Under Nagle's algorithm: about half a segment.
const SMALL_WRITE_BYTES: u32 = 700;
/// The least that IPv6 allows, for both families.
const MTU_AFTER_DROP: u32 = 1_280;
/// No path here is as fast, so that this ceiling binds nobody: bytes per second.
const PACE_MOST: u64 = 10_000_000_000;

/// What a run left behind.
#[derive(Debug)]
pub struct Recording {
    /// The kernel's account, by time.
    pub rows: Vec<Row>,
    /// Whether the lab behaved as configured.
    pub health: Health,
    /// Network of the clients.
    pub network: IpNet,
}

/// Runs `cell`, the tap's packets into `capture`.
pub fn run(cell: &Cell, capture: &Path) -> Result<Recording> {
    let numbers = cell.numbers();
    let seconds = numbers.seconds.context("the levels of this cell do not go together")?;
    let path = path(cell, &numbers);
    let network: IpNet = if cell.is("family", "v6") { "2001:db8:1::/48" } else { "198.51.100.0/24" }.parse()?;
    let offloads = if cell.is("offloads", "on") { Offloads::On } else { Offloads::Off };
    let tap_distance = Duration::from_millis(cell.level("tap").trim_end_matches("ms").parse()?);
    let plan = NetworkPlan { prefix: network, clients: numbers.flows, path };
    let lab = Topology::build_with(&[plan], Access { tap_distance, offloads })?;
    let site = lab.networks.first().context("the lab has no network")?;
    configure(cell, &lab.server, &site.namespace)?;

    let record = Record::default();
    let poller = Arc::new(Poller::start_every(POLL, record.clone())?);
    let states = if has_states()? { Some(Trace::start_states(record.clone(), lab.port)?) } else { None };
    let segments = SegmentTruth::start(record.clone(), lab.port)?;
    let tap = Tap::start(&lab.gateway, MIRROR_DEVICE, capture)?;
    let conduct = Conduct {
        congestion_control: Some(cell.level("cc").to_owned()),
        poller: Some(Arc::clone(&poller)),
        pace_most: cell.is("pacing", "paced").then_some(PACE_MOST),
        nagle: cell.is("writes", "nagle"),
        ..Conduct::default()
    };
    let server = Server::start_with(&lab.server, lab.port, &conduct)?;
    // Browsers open several connections.
    let each = if cell.is("work", "mixed") || cell.is("work", "web") { WEB_CONNECTIONS } else { 1 };
    let workers = (0..)
        .zip(site.addresses.iter().flat_map(|address| std::iter::repeat_n(address, each)))
        .map(|(n, address)| {
            let work = Work::of(cell, &numbers, seconds, n);
            let (address, target) = (*address, lab.server_address(network));
            site.namespace.spawn("client", move || Ok(work.run(address, target)))
        })
        .collect::<Result<Vec<_>>>()?;
    let mut failed = 0;
    let mut transfers = 0;
    for worker in workers {
        let (done, broken) = worker.join().map_err(|_| anyhow!("a client panicked"))??;
        transfers += done;
        failed += broken;
    }
    // The last acknowledgements and FINs are on their way.
    thread::sleep(numbers.full_rtt() + Duration::from_millis(500));

    drop(server);
    // It holds the poller as well.
    drop(conduct);
    let traced = states.is_some();
    let trace_lost = states.map_or(Ok(0), Trace::finish)?;
    let segments_lost = segments.finish()?;
    drop(poller);
    let tap = tap.finish()?;
    let mut health = Health {
        transfers,
        failed,
        captured: tap.packets,
        tap_dropped: tap.dropped,
        truth_lost: trace_lost + segments_lost + record.dropped(),
        ..Health::default()
    };
    health.add_paths(&lab.emulator);
    if !traced {
        for entered in entered(&record.rows()) {
            record.add(entered);
        }
    }
    Ok(Recording { rows: record.rows(), health, network })
}

fn configure(cell: &Cell, server: &Namespace, clients: &Namespace) -> Result<()> {
    let flag = |on: bool| if on { "1" } else { "0" };
    for namespace in [server, clients] {
        namespace.sysctl("ipv4/tcp_ecn", flag(cell.is("marks", "ce")))?;
        namespace.sysctl("ipv4/tcp_wmem", SEND_BUFFERS)?;
        namespace.sysctl("ipv4/tcp_rmem", RECEIVE_BUFFERS)?;
    }
    server.sysctl("ipv4/tcp_slow_start_after_idle", flag(!cell.is("idle", "kept")))?;
    clients.sysctl("ipv4/tcp_sack", flag(cell.is("sack", "sack")))?;
    clients.sysctl("ipv4/tcp_timestamps", flag(cell.is("timestamps", "ts")))?;
    if cell.is("acks", "quick") {
        let everywhere = if cell.is("family", "v6") { "::/0" } else { "0.0.0.0/0" };
        clients.ip(&[&format!("route replace {everywhere} dev wan0 quickack 1")])?;
    }
    Ok(())
}

fn path(cell: &Cell, numbers: &Numbers) -> PathConfig {
    let half = numbers.rtt / 2;
    let mut path = PathConfig::bottleneck(numbers.rate, half, Queue::Packets(numbers.queue));
    path.seed = cell.seed;
    if cell.is("change", "rtt") {
        // On the way to the clients, so that a queue stands before it as without the change.
        let delay = half + numbers.rtt.mul_f64(RTT_GROWS - 1.0);
        path.down.hop.delay_change = Some(DelayChange { after: numbers.change_after, delay });
    }
    if cell.is("marks", "ce") {
        path.down.hop.mark_above = Some((numbers.queue / 3).max(2));
    }
    if cell.is("change", "rate") {
        // A third of the run each: to three fifths, and back.
        let third = Duration::from_secs_f64(numbers.seconds.unwrap_or_default() / 3.0);
        let change = |after, rate| Some(RateChange { after, rate: BytesPerSecond(rate) });
        path.down.hop.changes = [change(third, numbers.rate.0 * 3 / 5), change(third * 2, numbers.rate.0)];
    }
    match cell.level("sharing") {
        // A tenth of the bottleneck on average, by sources that are on a third of the time.
        "pareto" => {
            path.down.hop.cross = Some(Cross::paper(40, BytesPerSecond((numbers.rate.0 * 3 / 400).max(100))));
        }
        // The narrow one comes second, so that a queue stands at the first only for moments.
        "two-hops" => {
            let later = |change: DelayChange| DelayChange { delay: change.delay.saturating_sub(half / 2), ..change };
            let delay_change = path.down.hop.delay_change.map(later);
            let narrow = Hop { delay: half / 2, delay_change, ..path.down.hop };
            let wide = BytesPerSecond(numbers.rate.0 * 5 / 4);
            path.down.hop = Hop::new(Some(wide), Queue::Packets(numbers.queue), half / 2);
            path.down = path.down.then([narrow]);
        }
        _ => {}
    }
    path.down.impairments = impairments(cell, numbers);
    path
}

fn impairments(cell: &Cell, numbers: &Numbers) -> Impairments {
    let reorder = |chance, part: u32| Some(Reorder { chance, by: (numbers.rtt / part).max(Duration::from_millis(1)) });
    // Longer than the timeout that stands behind a full queue (RFC 6298: at least 200 ms more than the round trip in Linux).
    let lasting = numbers.full_rtt().mul_f64(1.5) + Duration::from_millis(300);
    let every = (lasting * 10).max(Duration::from_secs(5));
    let episodes = Some(Episodes { first: every / 2, every, lasting });
    // Under Nagle's algorithm each small write ends with PSH, and each of their segments would be a tail.
    let few_tails = matches!(cell.level("work"), "30kb" | "200kb" | "reqresp") && !cell.is("writes", "nagle");
    Impairments {
        loss: match cell.level("loss") {
            "0.1%" => 0.001,
            "1%" => 0.01,
            _ => 0.0,
        },
        burst: cell.is("loss", "bursts").then_some(Burst { begin: 0.001, end: 0.25, loss: 1.0 }),
        single: None,
        tail_loss: match cell.level("disturbance") {
            "tails" if few_tails => 0.3,
            "tails" => 0.02,
            _ => 0.0,
        },
        outage: episodes.filter(|_| cell.is("disturbance", "outage")),
        stall: episodes.filter(|_| cell.is("disturbance", "stall")),
        bunched: Duration::from_millis(if cell.is("jitter", "8ms-bunches") { 8 } else { 0 }),
        jitter: if cell.is("jitter", "2ms") { Duration::from_millis(2).min(numbers.rtt / 10) } else { Duration::ZERO },
        reorder: match cell.level("reordering") {
            "slight" => reorder(0.002, 20),
            "heavy" => reorder(0.01, 4),
            _ => None,
        },
        duplicate: if cell.is("copies", "0.5%") { 0.005 } else { 0.0 },
        mtu_drop: cell.is("change", "mtu").then_some(MtuDrop { after: numbers.change_after, bytes: MTU_AFTER_DROP }),
        ..Impairments::default()
    }
}

/// What one client does.
#[derive(Debug)]
struct Work {
    begin: Duration,
    connections: Vec<(Plan, Duration)>,
    /// No further connection after this long.
    most: Duration,
    receive_buffer: Option<usize>,
}

impl Work {
    fn of(cell: &Cell, numbers: &Numbers, seconds: f64, client: u64) -> Self {
        let mut dice = StdRng::seed_from_u64(cell.seed.wrapping_add(client.wrapping_mul(0x9e37_79b9)));
        let mss = segment_bytes(cell);
        // Flows that begin together would all meet the same fate.
        let begin = Duration::from_secs_f64(dice.random::<f64>() * numbers.rtt.as_secs_f64() * 3.0);
        let whole = |bytes: f64| {
            let mss = f64::from(mss);
            if cell.is("writes", "mss") { (bytes / mss).round().max(1.0) * mss } else { bytes }
        };
        let stream = vec![Step::Stream(Duration::from_secs_f64(seconds))];
        let (steps, again) = match cell.level("work") {
            "30kb" => (vec![Step::Send(whole_bytes(whole(30_000.0)))], true),
            "200kb" => (vec![Step::Send(whole_bytes(whole(200_000.0)))], true),
            "reqresp" => (messages(&mut dice, numbers, seconds, whole), false),
            "steady" => (steady(numbers, seconds, whole), false),
            _ => (stream, false),
        };
        let mut plan = Plan::new(cell.level("cc"), steps);
        match cell.level("writes") {
            "mss" => plan.write_bytes = WRITE_BYTES / mss * mss,
            "nagle" => plan.write_bytes = SMALL_WRITE_BYTES,
            _ => {}
        }
        let pause = |dice: &mut StdRng| Duration::from_millis(dice.random_range(0..300));
        let connections = match cell.transfers() {
            Some(sizes) => {
                let plan = |bytes| Plan { steps: vec![Step::Send(bytes)], ..plan.clone() };
                sizes.into_iter().map(|bytes| (plan(bytes), pause(&mut dice))).collect()
            }
            None if cell.is("work", "web") || (cell.is("work", "mixed") && client > 0) => {
                (0..100).map(|_| (Plan { steps: web(&mut dice), ..plan.clone() }, pause(&mut dice))).collect()
            }
            None => (0..if again { 400 } else { 1 }).map(|_| (plan.clone(), pause(&mut dice))).collect(),
        };
        // A third of what the flow's share of path and queue would let it have.
        let receiver = numbers.capacity() / f64::from(numbers.flows) / 3.0 * f64::from(mss);
        let receive_buffer =
            cell.is("work", "receiver").then(|| usize::try_from(whole_bytes(receiver)).unwrap_or(65_536));
        Self { begin, connections, most: Duration::from_secs_f64(seconds), receive_buffer }
    }

    /// Transfers that were complete, and those that were not.
    fn run(self, from: IpAddr, target: SocketAddr) -> (u64, u64) {
        thread::sleep(self.begin);
        let begin = std::time::Instant::now();
        let (mut done, mut failed) = (0, 0);
        for (plan, pause) in &self.connections {
            if done + failed > 0 && begin.elapsed() >= self.most {
                break;
            }
            match Client::connect_with(from, target, self.receive_buffer).and_then(|mut client| client.ask(plan)) {
                Ok(_) => done += 1,
                // A path that loses everything for a while may break one.
                Err(_) => failed += 1,
            }
            thread::sleep(*pause);
        }
        (done, failed)
    }
}

/// What a keep-alive connection is asked for.
fn web(dice: &mut StdRng) -> Vec<Step> {
    let (least, most) = WEB_BYTES;
    let mut answer = || {
        let bytes = least * (most / least).powf(dice.random::<f64>());
        [Step::Send(whole_bytes(bytes)), Step::Pause(Duration::from_millis(dice.random_range(50..800)))]
    };
    (0..WEB_ANSWERS).flat_map(|_| answer()).collect()
}

/// Messages from 3 KB to half a megabyte, as much as the path carries in the time, with pauses shorter and longer than a timeout.
fn messages(dice: &mut StdRng, numbers: &Numbers, seconds: f64, whole: impl Fn(f64) -> f64) -> Vec<Step> {
    let share = numbers.rate.0 as f64 / f64::from(numbers.flows);
    let largest = (share * seconds / 6.0).clamp(6_000.0, 500_000.0);
    let mut steps = Vec::new();
    let mut time = 0.0;
    while time < seconds && steps.len() < 250 {
        let bytes = whole(3_000.0 * (largest / 3_000.0).powf(dice.random::<f64>()));
        let pause = dice.random_range(0.02..1.2) + numbers.rtt.as_secs_f64();
        steps.extend([Step::Send(whole_bytes(bytes)), Step::Pause(Duration::from_secs_f64(pause))]);
        time += bytes / share + pause;
    }
    steps
}

/// A constant 40 % of the path in pieces of 100 ms; of more where a request has too few steps for that, which longer round trips need.
fn steady(numbers: &Numbers, seconds: f64, whole: impl Fn(f64) -> f64) -> Vec<Step> {
    const PIECES_MOST: u32 = 125;
    let period = Duration::from_secs_f64(seconds / f64::from(PIECES_MOST)).max(Duration::from_millis(100));
    let piece = whole(numbers.rate.0 as f64 / f64::from(numbers.flows) * 0.4 * period.as_secs_f64());
    let pieces = (0..PIECES_MOST).take_while(|n| f64::from(*n) * period.as_secs_f64() < seconds);
    pieces.flat_map(|_| [Step::Send(whole_bytes(piece)), Step::Pause(period)]).collect()
}

/// Payload of a full segment: 1500 bytes less headers and options.
fn segment_bytes(cell: &Cell) -> u32 {
    let headers = if cell.is("family", "v6") { 60 } else { 40 };
    let options = if cell.is("timestamps", "ts") { 12 } else { 0 };
    1_500 - headers - options
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes of transfers are small and positive"
)]
fn whole_bytes(bytes: f64) -> u64 {
    bytes.max(1.0) as u64
}
