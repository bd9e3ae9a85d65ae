//! What the agent's kernel programs cost: CPU time per connection and per acknowledgement, by the kernel's own run
//! statistics of programs, against a congestion control with the same hooks and nothing of its own in them.
//!
//! Real connections over the loopback device of a namespace. Needs root. Both kinds run in turns, several times.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::{fs, thread};

use anyhow::{Context, Result, ensure};
use clap::Args;
use libbpf_rs::{MapCore, MapType, ObjectBuilder, Program};
use nix::sys::socket::{setsockopt, sockopt};
use spand_agent::Clock;
use spand_agent::apply::bpf::BpfApplier;
use spand_agent::apply::{Applier, Decided, Desired, DesiredStarts, Inputs, Skipped, StartReason};
use spand_agent::config::{ApplyMethod, Config, GrowthRule};
use spand_proto::start::{Mode, Shape};
use spand_proto::units::{Micros, Segments};
use spand_tests::lab::namespace::{Cgroup, Namespace};

static PASS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pass.bpf.o"));

/// Switches the kernel's run statistics of programs on.
const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";

const PORT: u16 = 8_000;
const SEGMENT_BYTES: usize = 1_448;

/// What the agent's kernel programs cost
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Connections in each turn
    #[arg(long, default_value_t = 500)]
    connections: u32,
    /// Segments that each sends
    #[arg(long, default_value_t = 200)]
    segments: usize,
    /// Turns of both kinds
    #[arg(long, default_value_t = 10)]
    turns: u32,
    /// Every segment tells window and round trip in a TCP option
    #[arg(long)]
    window_option: bool,
    /// Say what each program took
    #[arg(long)]
    programs: bool,
}

/// Run time and runs of each program, by name.
type Runs = BTreeMap<String, (u64, u64)>;

/// A way to start and to grow.
struct Arm {
    name: &'static str,
    shape: Shape,
    growth: GrowthRule,
    /// Segments up to which slow start goes.
    threshold: u64,
}

impl Arm {
    const fn new(name: &'static str, shape: Shape, growth: GrowthRule, threshold: u64) -> Self {
        Self { name, shape, growth, threshold }
    }
}

/// Beyond what a connection sends, where all of it shall be slow start.
const NEVER: u64 = 100_000;

/// The defaults, and what `[start]` may add: all acknowledgements of these go through it.
const ARMS: [Arm; 4] = [
    Arm::new("paced, standard growth", Shape::Paced, GrowthRule::Standard, 0),
    Arm::new("the same, all of it slow start", Shape::Paced, GrowthRule::Standard, NEVER),
    Arm::new("growth dbc", Shape::Paced, GrowthRule::Dbc, NEVER),
    Arm::new("own_threshold (measures)", Shape::OwnThreshold, GrowthRule::Standard, 0),
];

/// Cost of one turn.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Nanoseconds per acknowledgement: what acknowledged segments call.
    per_ack_ns: f64,
    /// Nanoseconds per connection: everything else.
    per_connection_ns: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let before = fs::read_to_string(STATISTICS).context("this kernel keeps no run statistics of programs")?;
    fs::write(STATISTICS, "1").context("cannot turn on run statistics: run as root")?;
    let outcome = measure(arguments);
    fs::write(STATISTICS, before.trim()).context("cannot turn run statistics off again")?;
    outcome
}

fn measure(arguments: &Arguments) -> Result<()> {
    let host = Namespace::create("host")?;
    // One end of a connection is the host's: only its sockets are in the cgroup that the programs see. The peer is in another
    // network. Routes name CUBIC for the base, since a namespace's default may be another.
    let servers = Cgroup::make("cost")?;
    host.ip(&[
        "link set lo mtu 1500",
        "route replace local 127.0.0.1 dev lo table local src 127.1.0.1",
        "route replace local 127.0.0.0/8 dev lo table local src 127.0.0.1 congctl cubic",
    ])?;
    let mut pass = Vec::new();
    let mut ours = ARMS.map(|_| Vec::new());
    for turn in 1..=arguments.turns {
        pass.push(host.enter(|| pass_through(arguments, &servers))?);
        for (arm, costs) in ARMS.iter().zip(&mut ours) {
            costs.push(host.enter(|| with_agent(arguments, &servers, arm))?);
        }
        eprintln!("turn {turn} of {}", arguments.turns);
    }
    println!("{:<36} {:>20} {:>20}", "median of the turns, ns", "per acknowledgement", "per connection");
    let per_ack = |costs: &[Cost]| median(costs, |cost| cost.per_ack_ns);
    let per_connection = |costs: &[Cost]| median(costs, |cost| cost.per_connection_ns);
    let (ack, connection) = (per_ack(&pass), per_connection(&pass));
    println!("{:<36} {ack:>20.0} {connection:>20.0}", "pass-through");
    for (arm, costs) in ARMS.iter().zip(&ours) {
        let (ack, connection) = (per_ack(costs) - ack, per_connection(costs) - connection);
        println!("{:<36} {ack:>+20.0} {connection:>+20.0}", arm.name);
    }
    println!(
        "{} connections of {} segments in each of {} turns",
        arguments.connections, arguments.segments, arguments.turns
    );
    Ok(())
}

fn median(costs: &[Cost], pick: fn(&Cost) -> f64) -> f64 {
    let mut sorted: Vec<f64> = costs.iter().map(pick).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn pass_through(arguments: &Arguments, servers: &Cgroup) -> Result<Cost> {
    let before = newest();
    let mut object = ObjectBuilder::default().name("pass")?.open_memory(PASS)?.load()?;
    let map = object.maps_mut().find(|map| map.map_type() == MapType::StructOps);
    let link = map.context("the pass-through lacks its congestion control")?.attach_struct_ops()?;
    let ids = loaded_since(before)?;
    let cost = once(arguments, servers, Some("pass_cubic"), &ids);
    drop(link);
    cost
}

fn with_agent(arguments: &Arguments, servers: &Cgroup, arm: &Arm) -> Result<Cost> {
    let mut config = Config { apply: ApplyMethod::Bpf, mode: Mode::Paper, ..Config::default() };
    "cost".clone_into(&mut config.bpf.name);
    config.bpf.control_fraction = 0.0;
    config.bpf.window_option = arguments.window_option;
    config.start.growth = arm.growth;
    servers.folder().clone_into(&mut config.bpf.cgroup);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let before = newest();
        let clock = Clock::start();
        let mut applier =
            BpfApplier::start(&config, &config.policy(), clock).map_err(|error| anyhow::anyhow!("{error}"))?;
        let now = clock.now();
        let inputs = Inputs {
            share_half_bytes: 2 * 40 * SEGMENT_BYTES as u64,
            pipe_half_bytes: 2 * 40 * SEGMENT_BYTES as u64,
            bdp_bytes: 0,
            threshold_bytes: arm.threshold * SEGMENT_BYTES as u64,
            rtt: Some(Micros(1_000)),
            proven: false,
            backed: true,
            lossless: false,
            cap: None,
            lease: Some(Segments(1 << 20)),
            shape: arm.shape,
            opening_half_bytes: 0,
            losses: None,
            overflow_bytes: 0,
        };
        let reason = StartReason { mode: Mode::Paper, share: Segments(40), clipped_by: None };
        let wanted = Desired {
            window: Segments(40),
            reason,
            expires: now.after(Micros::from_secs(600)),
            announced: None,
            inputs,
        };
        let desired = DesiredStarts::from([("127.1.0.0/24".parse()?, wanted)]);
        applier.reconcile(&Decided { desired: &desired, skipped: &Skipped::new(), touched: None }, now).await;
        let ids = loaded_since(before)?;
        let cost = once(arguments, servers, None, &ids);
        let started = applier.counts().get("started").copied().unwrap_or(0);
        ensure!(
            started == u64::from(arguments.connections),
            "{started} of {} connections were started",
            arguments.connections
        );
        cost
    })
}

/// The newest program in the kernel; numbers only grow.
fn newest() -> u32 {
    libbpf_rs::query::ProgInfoIter::default().map(|info| info.id).max().unwrap_or(0)
}

/// Programs loaded since, by name.
fn loaded_since(before: u32) -> Result<BTreeMap<String, u32>> {
    let found: BTreeMap<String, u32> = libbpf_rs::query::ProgInfoIter::default()
        .filter(|info| info.id > before)
        .map(|info| (info.name.to_string_lossy().into_owned(), info.id))
        .collect();
    ensure!(!found.is_empty(), "no program was loaded");
    Ok(found)
}

fn runs(ids: &BTreeMap<String, u32>) -> Result<Runs> {
    let read = |id: u32| -> Result<(u64, u64)> {
        let program = Program::fd_from_id(id)?;
        let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd()))?;
        let number = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        Ok((number("run_time_ns:").context("no run time")?, number("run_cnt:").context("no count of runs")?))
    };
    ids.iter().map(|(name, id)| Ok((name.clone(), read(*id)?))).collect()
}

/// Sends over the given number of connections, one after the other. Accepted sockets belong to the listener's cgroup.
fn once(arguments: &Arguments, servers: &Cgroup, control: Option<&str>, ids: &BTreeMap<String, u32>) -> Result<Cost> {
    let address = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, PORT));
    let listener = servers.enter(|| Ok(TcpListener::bind(address)?))?;
    let before = runs(ids)?;
    thread::scope(|scope| -> Result<()> {
        let reader = scope.spawn(|| -> Result<()> {
            let mut buffer = vec![0; 1 << 16];
            for _ in 0..arguments.connections {
                let mut stream = TcpStream::connect(address)?;
                while stream.read(&mut buffer)? > 0 {}
            }
            Ok(())
        });
        let data = vec![7; arguments.segments * SEGMENT_BYTES];
        for _ in 0..arguments.connections {
            let mut stream = listener.accept()?.0;
            if let Some(control) = control {
                setsockopt(&stream, sockopt::TcpCongestion, &OsString::from(control))?;
            }
            stream.write_all(&data)?;
        }
        reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?
    })?;
    let after = runs(ids)?;
    let (mut per_ack, mut per_connection, mut acks) = (0, 0, 0);
    for (name, (time, count)) in &after {
        let (time_before, count_before) = before.get(name).copied().unwrap_or_default();
        let (time, count) = (time - time_before, count - count_before);
        // The kernel keeps fifteen letters of a name.
        if name.contains("_avoi") || name.contains("_acke") {
            per_ack += time;
        } else {
            per_connection += time;
        }
        if name.contains("_acke") {
            acks += count;
        }
        if arguments.programs && count > 0 {
            eprintln!("  {name}: {count} runs of {} ns", time / count);
        }
    }
    ensure!(acks > 0, "no program was called for an acknowledgement");
    Ok(Cost {
        per_ack_ns: per_ack as f64 / acks as f64,
        per_connection_ns: per_connection as f64 / f64::from(arguments.connections),
    })
}
