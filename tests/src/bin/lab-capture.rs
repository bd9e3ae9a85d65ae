//! Records real transfers over an emulated path: a capture at the sender's mirror port, and the kernel's own account.
//!
//! Writes `capture.pcap` (headers, nanosecond stamps), `truth.csv` (module `truth`) and `plan.txt` into a directory.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use spand_proto::units::BytesPerSecond;
use spand_tests::ending::{arguments, exit_code};
use spand_tests::lab::path::{PathConfig, Queue, parse_delay, parse_rate};
use spand_tests::lab::tap::Tap;
use spand_tests::lab::topology::{ClientNetwork, MIRROR_DEVICE, NetworkPlan, Topology};
use spand_tests::lab::traffic::{Client, Plan, Server, Step, Transfer};
use spand_tests::lab::truth::{Poller, Record, SegmentTruth, Trace};

#[derive(Debug, Parser)]
#[command(
    about = "Records real transfers over an emulated path, with the kernel's own windows beside them (needs root)"
)]
struct Arguments {
    /// Congestion control of the sender: reno, cubic, bbr
    #[arg(long = "cc", default_value = "cubic")]
    congestion_control: String,
    /// Bottleneck from the sender to the clients, in IP bytes
    #[arg(long, default_value = "20mbit", value_parser = parse_rate)]
    rate: BytesPerSecond,
    /// Delay each way: the round trip is twice this
    #[arg(long, default_value = "50ms", value_parser = parse_delay)]
    delay: Duration,
    /// Packets that fit before the bottleneck, the one in service counted
    #[arg(long, default_value_t = 60)]
    queue: u32,
    /// Chance of a random loss, 0 to 1
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// What the application does
    #[arg(long, value_enum, default_value_t = Mode::Bulk)]
    mode: Mode,
    /// Seconds of a bulk or app run
    #[arg(long, default_value_t = 25)]
    seconds: u16,
    /// Transfers of a transfers run, one connection each
    #[arg(long, default_value_t = 5)]
    count: u16,
    /// Bytes of each
    #[arg(long, default_value_t = 200_000)]
    bytes: u64,
    /// Clients that do this side by side, each from an address of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    flows: u8,
    /// Bytes of the clients' receive buffers: small ones make the receiver the limit
    #[arg(long)]
    receive_buffer: Option<usize>,
    /// Clients do not offer selective acknowledgements
    #[arg(long)]
    no_sack: bool,
    /// Clients do not offer timestamps
    #[arg(long)]
    no_timestamps: bool,
    /// Use an IPv6 /48 instead of an IPv4 /24
    #[arg(long)]
    ipv6: bool,
    /// Seed of random losses and of the application's messages
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for the results, made where it is missing
    #[arg(long)]
    out: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// One connection that always has data
    Bulk,
    /// Connections one after the other, each with one answer
    Transfers,
    /// Messages of 3 KB to 1 MB with pauses, then a constant 40 % of the bottleneck
    App,
}

fn main() -> ExitCode {
    exit_code(work())
}

fn work() -> Result<()> {
    let arguments: Arguments = arguments();
    ensure!((0.0..=1.0).contains(&arguments.loss), "a loss of {} is outside 0 to 1", arguments.loss);
    std::fs::create_dir_all(&arguments.out).with_context(|| format!("cannot make {}", arguments.out.display()))?;
    let mut path = PathConfig::bottleneck(arguments.rate, arguments.delay, Queue::Packets(arguments.queue));
    path.down.impairments.loss = arguments.loss;
    path.seed = arguments.seed;
    let prefix = if arguments.ipv6 { "2001:db8:1::/48" } else { "198.51.100.0/24" }.parse()?;
    let network = NetworkPlan { prefix, clients: arguments.flows, path };
    let lab = Topology::build(&[network])?;
    let site = lab.networks.first().context("the lab has no network")?;
    for (off, key) in [(arguments.no_sack, "ipv4/tcp_sack"), (arguments.no_timestamps, "ipv4/tcp_timestamps")] {
        if off {
            site.namespace.sysctl(key, "0")?;
        }
    }

    let record = Record::default();
    let poller = Arc::new(Poller::start(record.clone())?);
    let trace = Trace::start(record.clone(), lab.port).inspect_err(|error| eprintln!("no tracepoints: {error:#}")).ok();
    let per_segment = SegmentTruth::start(record.clone(), lab.port)
        .inspect_err(|error| eprintln!("no truth per segment, only TCP_INFO each millisecond: {error:#}"))
        .ok();
    let tap = Tap::start(&lab.gateway, MIRROR_DEVICE, &arguments.out.join("capture.pcap"))?;
    let server = Server::start(&lab.server, lab.port, &arguments.congestion_control, &poller)?;

    let plans = plans(&arguments);
    std::fs::write(arguments.out.join("plan.txt"), plan_text(&arguments, &plans))?;
    let target = lab.server_address(prefix);
    let begin = Instant::now();
    let transfers = run(site, target, &plans, arguments.receive_buffer)?;
    // The last acknowledgements and FINs are on their way.
    thread::sleep(path.base_rtt() + Duration::from_millis(300));

    drop(server);
    let trace_lost = trace.map(Trace::finish).transpose()?;
    let segments_lost = per_segment.map(SegmentTruth::finish).transpose()?;
    drop(poller);
    let tap = tap.finish()?;
    let rows = record.write_csv(&arguments.out.join("truth.csv"))?;
    for transfer in transfers {
        println!(
            "{} got {} bytes in {:.3} s (handshake {:.1} ms)",
            transfer.local,
            transfer.bytes,
            transfer.completion.as_secs_f64(),
            transfer.handshake.as_secs_f64() * 1e3
        );
    }
    report_path(&lab);
    println!("{} packets captured ({} dropped by the kernel)", tap.packets, tap.dropped);
    println!("{rows} rows of truth ({} without room)", record.dropped());
    println!("events the trace lost: {}", trace_lost.map_or("no trace".to_owned(), |lost| lost.to_string()));
    println!("segments without room: {}", segments_lost.map_or("no account".to_owned(), |lost| lost.to_string()));
    println!("{:.1} s; results in {}", begin.elapsed().as_secs_f64(), arguments.out.display());
    Ok(())
}

fn run(
    site: &ClientNetwork,
    target: SocketAddr,
    plans: &[Plan],
    receive_buffer: Option<usize>,
) -> Result<Vec<Transfer>> {
    let workers = site
        .addresses
        .iter()
        .map(|address| {
            let (address, plans) = (*address, plans.to_vec());
            site.namespace.spawn("client", move || {
                let ask = |plan| Client::connect_with(address, target, receive_buffer)?.ask(plan);
                plans.iter().map(ask).collect::<Result<Vec<_>>>()
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let mut all = Vec::new();
    for worker in workers {
        all.extend(worker.join().map_err(|_| anyhow::anyhow!("a client's thread panicked"))??);
    }
    Ok(all)
}

fn plans(arguments: &Arguments) -> Vec<Plan> {
    let run = Duration::from_secs(arguments.seconds.into());
    match arguments.mode {
        Mode::Bulk => {
            vec![Plan::new(&arguments.congestion_control, vec![Step::Stream(run)])]
        }
        Mode::Transfers => {
            vec![Plan::transfer(&arguments.congestion_control, arguments.bytes); arguments.count.into()]
        }
        Mode::App => vec![app(arguments, run)],
    }
}

/// Half of the time messages with pauses, half a steady 40 % of the bottleneck in pieces of 100 ms.
fn app(arguments: &Arguments, run: Duration) -> Plan {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    let mut dice = SmallRng::seed_from_u64(arguments.seed);
    let mut steps = Vec::new();
    let mut time = Duration::ZERO;
    let rate = arguments.rate.0 as f64;
    while time < run / 2 && steps.len() < 100 {
        // Evenly spread on a logarithmic scale from 3 KB to 1 MB.
        let bytes = 3_000.0 * (1_000.0_f64 / 3.0).powf(dice.random::<f64>());
        let pause = Duration::from_millis(dice.random_range(20..1_200));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 3,000 and 1,000,000")]
        steps.push(Step::Send(bytes as u64));
        steps.push(Step::Pause(pause));
        time += pause + Duration::from_secs_f64(bytes / rate);
    }
    let period = Duration::from_millis(100);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is far below 2^63")]
    let piece = (rate * 0.4 * period.as_secs_f64()) as u64;
    while steps.len() < 254 && time < run {
        steps.extend([Step::Send(piece), Step::Pause(period)]);
        time += period;
    }
    Plan::new(&arguments.congestion_control, steps)
}

fn plan_text(arguments: &Arguments, plans: &[Plan]) -> String {
    let lines: Vec<String> = plans.iter().map(Plan::to_string).collect();
    format!("{arguments:?}\n{}\n", lines.join("\n"))
}

fn report_path(lab: &Topology) {
    use std::sync::atomic::Ordering::Relaxed;
    for counters in lab.emulator.counters() {
        for (name, link) in [("down", &counters.down), ("up", &counters.up)] {
            let delivered = link.delivered.load(Relaxed);
            println!(
                "path {name}: {delivered} packets, {} dropped at the queue, {} at random, {} by the emulator; late by \
                 {:.0} us on average, {:.1} ms at most, {} over 1 ms",
                link.tail_drops.load(Relaxed),
                link.random_drops.load(Relaxed),
                link.emulator_drops.load(Relaxed),
                link.late_sum_ns.load(Relaxed) as f64 / 1e3 / delivered.max(1) as f64,
                link.late_max_ns.load(Relaxed) as f64 / 1e6,
                link.late_1ms.load(Relaxed),
            );
        }
    }
    if !lab.emulator.is_real_time() {
        println!("the emulator ran without SCHED_FIFO: expect packets up to milliseconds late");
    }
}
