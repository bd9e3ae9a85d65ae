//! What cells cost: an own one on its way out, and a foreign one in a whole gateway at the highest rate that is asked of it.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ChildStdin;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use spand_cells::{GatewayId, Pseudonyms, Shares, Sharing, TapId};
use spand_core::config::EngineConfig;
use spand_core::engine::Engine;
use spand_proto::units::{Micros, Timestamp};
use spand_share::format::BatchWriter;

use super::{Programs, Row, Size};
use crate::cluster::gateway::{Gateway, Metrics, Setup, grpc, port};
use crate::cluster::made::network;
use crate::ending::{progress, wait};
use crate::lab::namespace::Namespace;
use crate::memory::{resident_bytes, thread_time};
use crate::networks::seen;
use crate::starts::subscriber::{self, Target};
use crate::starts::{Ledger, at_per_mille};

/// Networks that starts go to.
const ASKED: usize = 5_000;
/// SYNs a second.
const SYNS: u32 = 500;
/// Subscribed hosts.
const HOSTS: usize = 20;
/// What a window begins with does not count: the load settles.
const SETTLES: Duration = Duration::from_secs(2);

/// How large it is.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Networks that other gateways see, each in every bucket.
    networks: u32,
    /// Cells a second.
    rate: u64,
    /// How long the rate is held.
    held: Duration,
    /// Windows with load, and as many without.
    windows: u32,
    /// How long a window is.
    window: Duration,
}

impl Plan {
    const fn of(size: Size) -> Self {
        let second = Duration::from_secs;
        match size {
            Size::Full => Self { networks: 750_000, rate: 75_000, held: second(60), windows: 6, window: second(12) },
            Size::Quick => Self { networks: 20_000, rate: 2_000, held: second(10), windows: 2, window: second(4) },
        }
    }
}

/// Runs it.
///
/// # Errors
/// Where a gateway fails.
pub fn run(programs: &Programs, size: Size) -> Result<Vec<Row>> {
    let mut rows = vec![own_cells(size)?];
    rows.extend(foreign_cells(programs, size)?);
    Ok(rows)
}

/// What an own cell of a closed bucket costs in the engine and in the hub, beside an engine that does not share.
fn own_cells(size: Size) -> Result<Row> {
    const NETWORKS: u32 = 5_000;
    const ROUNDS: u32 = 20;
    let bucket = EngineConfig::default().window.bucket;
    let own = (GatewayId(1), TapId::of_gateway(GatewayId(1)));
    let sharing = Sharing { gateway: own.0, tap: own.1, pseudonyms: Pseudonyms::new([7; 16]) };
    let remotes: Vec<_> = (0..NETWORKS).map(|number| network(number).prefix().addr()).collect();
    let (mut costs, mut cells) = (Vec::new(), 0);
    for sharing in [None, Some(sharing)] {
        let mut spent = Duration::ZERO;
        for round in 0..ROUNDS {
            progress(&format!("own cells: bucket {round} of {ROUNDS}"));
            let at = Timestamp((170_000_000 + u64::from(round)) * bucket.0 * 1_000).after(Micros::from_secs(1));
            let mut engine = Engine::new(EngineConfig::default()).sharing(sharing);
            for (network, record) in seen(&remotes, at)? {
                engine.restore(network, record.context("a record")?, at);
            }
            engine.handle_timeout(at);
            while engine.poll_event().is_some() {}
            drop(engine.take_cells());
            let begun = thread_time()?;
            cells += close_bucket(&mut engine, at, bucket, own);
            spent += thread_time()?.saturating_sub(begun);
        }
        costs.push(spent);
    }
    let expected = (ROUNDS * NETWORKS) as usize;
    ensure!(cells >= expected, "{cells} cells of {expected} buckets left the engine");
    let [without, with] = costs.as_slice() else { return Err(anyhow!("two costs")) };
    let each = with.saturating_sub(*without).as_secs_f64() * 1e6 / cells as f64;
    let figure = format!(
        "{each:.2} us ({cells} cells; {:.2} us a network and bucket without sharing)",
        without.as_secs_f64() * 1e6 / expected as f64
    );
    Ok(Row::timed(size, "CPU of an own cell, engine and encoding", "<= 5 us", figure, each <= 5.0))
}

/// Lets a bucket pass, and makes messages of the cells as the hub does; how many they were.
fn close_bucket(engine: &mut Engine, at: Timestamp, bucket: Micros, (gateway, tap): (GatewayId, TapId)) -> usize {
    const TURN: Micros = Micros::from_millis(100);
    let (mut next, over, mut count) = (at, at.after(bucket), 0);
    while next < over {
        next = next.after(TURN).min(over);
        engine.handle_timeout(next);
        while engine.poll_event().is_some() {}
        let mut batch = BatchWriter::new(gateway, tap, bucket);
        for (network, cell) in engine.take_cells() {
            count += 1;
            if !batch.add(network, &cell) {
                let full = std::mem::replace(&mut batch, BatchWriter::new(gateway, tap, bucket));
                drop(full.finish());
                batch.add(network, &cell);
            }
        }
        drop(batch.finish());
    }
    count
}

/// Counters and clocks of a gateway at one moment.
struct Moment {
    at: Instant,
    metrics: Metrics,
    times: BTreeMap<String, Duration>,
    resident: u64,
}

impl Moment {
    fn of(gateway: &Gateway) -> Result<Self> {
        Ok(Self {
            at: Instant::now(),
            metrics: gateway.metrics()?,
            times: gateway.processor_time()?,
            resident: resident_bytes(&gateway.pid().to_string())?,
        })
    }

    /// How far a counter got since.
    fn since(&self, earlier: &Self, name: &str) -> f64 {
        self.metrics.sum(name) - earlier.metrics.sum(name)
    }

    /// Processor time since, by thread, without that of the load itself.
    fn spent_since(&self, earlier: &Self) -> BTreeMap<&str, Duration> {
        let spent =
            |name: &String, time: &Duration| time.saturating_sub(earlier.times.get(name).copied().unwrap_or_default());
        self.times
            .iter()
            .filter(|(name, _)| *name != "made")
            .map(|(name, time)| (name.as_str(), spent(name, time)))
            .collect()
    }
}

fn foreign_cells(programs: &Programs, size: Size) -> Result<Vec<Row>> {
    let plan = Plan::of(size);
    let namespace = Namespace::create("cells")?;
    let setup = Setup {
        number: 1,
        program: &programs.own,
        arguments: vec!["load".to_owned(), "--networks".to_owned(), plan.networks.to_string()],
        // Nobody listens there: the load stands in for servers.
        servers: vec!["nats://127.0.0.1:4222".to_owned()],
        share: String::new(),
        backend: "auto",
        more: "[publish]\nto_hosts = \"in_use\"\n[limits]\nnetwork_memory_mib = 16384\n[log]\nfilter = \"warn\"\n"
            .to_owned(),
    };
    let mut gateway = Gateway::start(&namespace, &setup, |_| Ok(()))?;
    let mut load = gateway.stdin().context("the load has no standard input")?;

    ask(&mut load, plan.rate)?;
    // Each network once in a bucket: from then on every network is known.
    wait("foreign cells: every network for the first time", Duration::from_secs(11));
    let before = Moment::of(&gateway)?;
    wait("foreign cells: held", plan.held);
    let after = Moment::of(&gateway)?;
    let mut rows = held_rows(size, plan, &before, &after);

    let seconds = plan.window.as_secs() * u64::from(2 * plan.windows) + 2;
    let ledger = Arc::new(Ledger::new(usize::try_from(seconds)? * SYNS as usize));
    let target = Target { grpc: grpc(1), networks: ASKED, at_once: 0 };
    let subscribers = subscriber::start(&namespace, HOSTS, target, &ledger)?;
    let sending = Arc::clone(&ledger);
    let sender = namespace.spawn("mirror", move || subscriber::send(&port(1), HOSTS, ASKED, SYNS, &sending))?;
    let (mut quiet, mut loaded) = (Vec::new(), Vec::new());
    for number in 0..2 * plan.windows {
        let with_load = number % 2 == 1;
        ask(&mut load, if with_load { plan.rate } else { 0 })?;
        let begun = Instant::now();
        wait(&format!("starts: window {} of {}", number + 1, 2 * plan.windows), plan.window);
        if with_load { &mut loaded } else { &mut quiet }.push((begun + SETTLES, Instant::now()));
    }
    ask(&mut load, 0)?;
    sender.join().map_err(|_| anyhow!("the sender panicked"))??;
    thread::sleep(Duration::from_secs(1));
    subscribers.stop();
    let metrics = gateway.metrics()?;
    let counted = ["dropped", "overflow", "evicted", "resync", "shed", "lost", "ignored", "starts_no"];
    let nonzero =
        metrics.lines().filter(|(line, value)| *value > 0.0 && counted.iter().any(|word| line.contains(word)));
    let nonzero: Vec<String> = nonzero.map(|(line, value)| format!("{line} {value}")).collect();
    rows.extend(start_rows(size, &ledger, &quiet, &loaded)?);
    rows.push(Row::stated("what the gateway counted as left out", nonzero.join(", ")));
    drop(load);
    gateway.stop()?;
    Ok(rows)
}

fn held_rows(size: Size, plan: Plan, before: &Moment, after: &Moment) -> Vec<Row> {
    let seconds = after.at.duration_since(before.at).as_secs_f64();
    let received = after.since(before, "spand_share_cells_received_total");
    let lost =
        after.since(before, "spand_share_cells_dropped_total") + after.since(before, "spand_share_cells_refused_total");
    let taken = after.since(before, "spand_share_cells_taken_total");
    let spent = after.spent_since(before);
    let all: Duration = spent.values().sum();
    let each = all.as_secs_f64() * 1e6 / received.max(1.0);
    let parts: Vec<String> = spent
        .iter()
        .map(|(name, time)| (name, time.as_secs_f64() * 1e6 / received.max(1.0)))
        .filter(|(_, each)| *each >= 0.05)
        .map(|(name, each)| format!("{name} {each:.2}"))
        .collect();
    let mib = |bytes: u64| bytes >> 20;
    let rate = received / seconds;
    let is_held = rate >= 0.98 * plan.rate as f64;
    let queue = format!(
        "{rate:.0} cells/s for {seconds:.0} s, {taken:.0} of {received:.0} taken, {lost:.0} dropped or refused; \
         resident {} MiB, then {} MiB with {:.0} networks",
        mib(before.resident),
        mib(after.resident),
        after.metrics.sum("spand_engine_networks")
    );
    let cost = format!("{each:.2} us of the whole gateway ({})", parts.join(", "));
    vec![
        Row::judged(
            format!("{} foreign cells/s for {} s by `memory`", plan.rate, plan.held.as_secs()),
            "no queue grows",
            queue,
            lost < 0.5 && (is_held || size == Size::Quick),
        ),
        Row::timed(size, "CPU of a foreign cell", "<= 5 us", cost, each <= 5.0),
    ]
}

fn start_rows(
    size: Size,
    ledger: &Ledger,
    quiet: &[(Instant, Instant)],
    loaded: &[(Instant, Instant)],
) -> Result<Vec<Row>> {
    let within =
        |windows: &[(Instant, Instant)], at: Instant| windows.iter().any(|(from, to)| (*from..*to).contains(&at));
    let (without, lost_without) = ledger.delays(|at| within(quiet, at));
    let (with, lost_with) = ledger.delays(|at| within(loaded, at));
    ensure!(!without.is_empty() && !with.is_empty(), "no start arrived: {} and {}", without.len(), with.len());
    let ms = |delays: &[Duration], per_mille| at_per_mille(delays, per_mille).as_secs_f64() * 1e3;
    let ratio = |per_mille| ms(&with, per_mille) / ms(&without, per_mille);
    let figure = |per_mille| {
        format!(
            "{:.3} ms without, {:.3} ms with: {:.2} times",
            ms(&without, per_mille),
            ms(&with, per_mille),
            ratio(per_mille)
        )
    };
    let count =
        format!("{} without load, {lost_without} lost; {} with load, {lost_with} lost", without.len(), with.len());
    Ok(vec![
        Row::judged("starts meanwhile: that arrived", "all", count, lost_with + lost_without == 0),
        Row::timed(size, "starts meanwhile: median", "within 10 %", figure(500), ratio(500) <= 1.1),
        Row::timed(size, "starts meanwhile: p99", "<= 2 times", figure(990), ratio(990) <= 2.0),
    ])
}

fn ask(load: &mut ChildStdin, rate: u64) -> Result<()> {
    writeln!(load, "{rate}").context("the load has ended")
}
