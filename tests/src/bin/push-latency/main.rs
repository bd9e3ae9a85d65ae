//! How long a start takes from the SYN on the wire to the agent: the whole gateway as a process, fed by a mirror port.
//!
//! A veth pair is the mirror port. One thread writes SYNs of inside hosts to it at a steady rate; the gateway captures them
//! by the backend asked for, knows an estimate for each destination network (from its store), and pushes to the subscribed host. Each
//! subscriber notes when its message is there. Send time and receive time are read from one monotonic clock.

mod gateway;
mod mirror;
mod subscriber;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use spand_tests::lab::link::{End, veth};
use spand_tests::lab::namespace::Namespace;

use gateway::Gateway;

#[derive(Debug, Parser)]
#[command(about = "Measures the way of a start from the SYN on the wire to the agent (needs root)")]
struct Arguments {
    /// The gateway's program
    #[arg(long, default_value = "target/release/spand-gateway")]
    gateway: PathBuf,
    /// What reads the mirror port: `capture.backend` of the gateway's configuration
    #[arg(long, default_value = "auto")]
    backend: String,
    /// Subscribed hosts
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=250))]
    subscribers: u16,
    /// Networks with an estimate
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    networks: u32,
    /// SYNs a second
    #[arg(long, default_value_t = 1_000)]
    rate: u32,
    /// Seconds
    #[arg(long, default_value_t = 20)]
    seconds: u32,
}

/// The mirror port, and the interface at its other end that the gateway reads.
const PORT: &str = "span0";
const TAP: &str = "span1";

/// Both ends of a push: when each SYN was sent and when its message came, nanoseconds since the start; 0 is not yet.
#[derive(Debug)]
struct Ledger {
    started: Instant,
    sent: Vec<AtomicU64>,
    received: Vec<AtomicU64>,
}

impl Ledger {
    fn new(count: usize) -> Self {
        let moments = || (0..count).map(|_| AtomicU64::new(0)).collect();
        Self { started: Instant::now(), sent: moments(), received: moments() }
    }

    fn note(&self, moments: &[AtomicU64], number: usize) {
        let now = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
        if let Some(moment) = moments.get(number) {
            // The first message counts.
            _ = moment.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Delays of what arrived, sorted, and how many never did.
    fn delays(&self) -> (Vec<Duration>, usize) {
        let pairs = self.sent.iter().zip(&self.received);
        let pairs = pairs.map(|(sent, received)| (sent.load(Ordering::Relaxed), received.load(Ordering::Relaxed)));
        let (mut delays, mut missing) = (Vec::new(), 0);
        for (sent, received) in pairs.filter(|&(sent, _)| sent > 0) {
            if received == 0 {
                missing += 1;
            } else {
                delays.push(Duration::from_nanos(received.saturating_sub(sent)));
            }
        }
        delays.sort_unstable();
        (delays, missing)
    }
}

/// The inside host of subscriber `index`.
fn host(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, u8::try_from(index % 250).unwrap_or(0) + 1)
}

/// The destination of SYN `number`: networks in turn, and in each another address, so that the address tells the number.
fn remote(number: usize, networks: usize) -> Ipv4Addr {
    let (network, turn) = (number % networks, number / networks);
    let [_, _, high, low] = u32::try_from(network).unwrap_or(0).to_be_bytes();
    Ipv4Addr::new(11, high, low, u8::try_from(turn + 1).unwrap_or(u8::MAX))
}

/// The number of the SYN that went to `remote`.
fn number_of(remote: Ipv4Addr, networks: usize) -> usize {
    let [_, high, low, turn] = remote.octets();
    usize::from(turn.saturating_sub(1)) * networks + (usize::from(high) << 8) + usize::from(low)
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let networks = arguments.networks as usize;
    let count = arguments.rate as usize * arguments.seconds as usize;
    ensure!(count <= networks * 254, "at most {} SYNs go to {networks} networks: give fewer seconds", networks * 254);

    let namespace = Namespace::create("push")?;
    let end = |device, station| End { namespace: &namespace, device, station };
    veth(end(PORT, 1), end(TAP, 2))?;
    let gateway = Gateway::start(&namespace, &arguments.gateway, (TAP, &arguments.backend), networks)?;
    let ledger = Arc::new(Ledger::new(count));
    let subscribers = subscriber::start(&namespace, arguments.subscribers.into(), networks, &ledger)?;
    println!("{} subscribers hold {networks} estimates each; sending", arguments.subscribers);

    let sending = Arc::clone(&ledger);
    let (hosts, rate) = (usize::from(arguments.subscribers), arguments.rate);
    let sender = namespace.spawn("mirror", move || mirror::send(PORT, hosts, networks, rate, &sending))?;
    sender.join().map_err(|_| anyhow::anyhow!("the sender panicked"))??;
    std::thread::sleep(Duration::from_secs(1));
    subscribers.stop();
    let metrics = gateway.stop()?;
    report(&ledger, &metrics)
}

fn report(ledger: &Ledger, metrics: &str) -> Result<()> {
    let (delays, missing) = ledger.delays();
    ensure!(!delays.is_empty(), "not one start arrived");
    println!("starts   {} arrived, {missing} did not", delays.len());
    for (name, per_mille) in [("p50", 500), ("p90", 900), ("p99", 990), ("p99.9", 999), ("max", 1_000)] {
        let index = (delays.len() * per_mille / 1_000).min(delays.len() - 1);
        let delay = delays.get(index).copied().unwrap_or_default();
        println!("{name:8} {:.3} ms", delay.as_secs_f64() * 1e3);
    }
    for line in metrics.lines().filter(|line| line.contains("dropped") && !line.starts_with('#')) {
        println!("{line}");
    }
    Ok(())
}
