//! How long a start takes from the SYN on the wire to the agent: the whole gateway as a process, fed by a mirror port.
//!
//! A veth pair is the mirror port. One thread writes SYNs of inside hosts to it at a steady rate; the gateway captures them
//! by the backend asked for, knows an estimate for each destination network (from its store), and pushes to the subscribed host. Each
//! subscriber notes when its message is there. Send time and receive time are read from one monotonic clock.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use spand_tests::cluster::gateway::{Gateway, Metrics, Setup, grpc, port};
use spand_tests::lab::namespace::Namespace;
use spand_tests::networks::fill_store;
use spand_tests::starts::subscriber::Target;
use spand_tests::starts::{Ledger, at_per_mille, remote, subscriber};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
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

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let networks = arguments.networks as usize;
    let count = arguments.rate as usize * arguments.seconds as usize;
    ensure!(count <= networks * 254, "at most {} SYNs go to {networks} networks: give fewer seconds", networks * 254);

    let namespace = Namespace::create("push")?;
    let setup = Setup {
        number: 1,
        program: &arguments.gateway,
        arguments: vec!["run".to_owned()],
        servers: Vec::new(),
        share: String::new(),
        backend: &arguments.backend,
        more: "[log]\nfilter = \"warn\"\n".to_owned(),
    };
    let mut gateway = Gateway::start(&namespace, &setup, |folder| {
        let remotes: Vec<_> = (0..networks).map(|number| IpAddr::V4(remote(number, networks))).collect();
        fill_store(&folder.join("store"), &remotes)
    })?;
    let ledger = Arc::new(Ledger::new(count));
    let target = Target { grpc: grpc(1), networks, at_once: networks };
    let subscribers = subscriber::start(&namespace, arguments.subscribers.into(), target, &ledger)?;
    println!("{} subscribers hold {networks} estimates each; sending", arguments.subscribers);

    let sending = Arc::clone(&ledger);
    let (hosts, rate) = (usize::from(arguments.subscribers), arguments.rate);
    let sender = namespace.spawn("mirror", move || subscriber::send(&port(1), hosts, networks, rate, &sending))?;
    sender.join().map_err(|_| anyhow::anyhow!("the sender panicked"))??;
    std::thread::sleep(Duration::from_secs(1));
    subscribers.stop();
    let metrics = gateway.metrics()?;
    gateway.stop()?;
    report(&ledger, &metrics)
}

fn report(ledger: &Ledger, metrics: &Metrics) -> Result<()> {
    let (delays, missing) = ledger.delays(|_| true);
    ensure!(!delays.is_empty(), "not one start arrived");
    println!("starts   {} arrived, {missing} did not", delays.len());
    for (name, per_mille) in [("p50", 500), ("p90", 900), ("p99", 990), ("p99.9", 999), ("max", 1_000)] {
        println!("{name:8} {:.3} ms", at_per_mille(&delays, per_mille).as_secs_f64() * 1e3);
    }
    for (line, value) in metrics.lines().filter(|(line, _)| line.contains("dropped")) {
        println!("{line} {value}");
    }
    Ok(())
}
