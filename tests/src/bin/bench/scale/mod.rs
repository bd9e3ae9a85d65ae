//! An organisation's hosts and networks against the real publisher: what is sent, what that costs, and what a resync takes.
//!
//! ```text
//! make scale ARGS="--to-hosts talking --hosts 1000 --networks 1000000"
//! ```
//!
//! The publisher is the gateway's own and tells subscriptions in this process, which make a message of each update and encode
//! it; `--grpc N` of them are clients over loopback instead. What comes from the engine is made up: networks with an estimate,
//! all refreshed within 100 s, some of which move, and starts of hosts towards networks by a power law. Ten minutes
//! of starts come before what is measured, as fast as hosts read them, by a clock that passes with the starts.
//!
//! CPU is the process's own: what others do on the machine lengthens the seconds and not the microseconds.

mod hosts;
mod run;
mod world;

use std::num::NonZeroUsize;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use spand_gateway::publisher::{Published, PublisherConfig, ToHosts};
use spand_proto::units::Micros;

use self::run::Scale;
use self::world::{SimClock, World};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The networks whose estimates a host receives
    #[arg(long, value_enum, default_value_t = Scope::Talking)]
    to_hosts: Scope,
    /// Subscribed hosts
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    hosts: u32,
    /// Networks with an estimate
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    networks: u32,
    /// Starts a second, all hosts together
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    starts: u32,
    /// Exponent of the power law by which starts choose networks
    #[arg(long, default_value_t = 1.0)]
    exponent: f64,
    /// Share of starts that follow the host's own ranking of networks, not that of all hosts
    #[arg(long, default_value_t = 0.5)]
    own: f64,
    /// Estimates a second that move by enough to be sent, any as likely as any other
    #[arg(long, default_value_t = 3_000)]
    moves: u32,
    /// Networks with which one host talks
    #[arg(long, default_value_t = 4_096)]
    destinations_per_host: usize,
    /// Seconds measured
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Hosts that listen over gRPC on loopback
    #[arg(long, default_value_t = 0)]
    grpc: u32,
    /// Measure while the first snapshots are under way, without starts before
    #[arg(long)]
    cold: bool,
    /// Seed of all that is drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scope {
    All,
    Talking,
}

pub(crate) fn run(arguments: Arguments) -> Result<()> {
    let clock = SimClock::new();
    let config = PublisherConfig {
        to_hosts: match arguments.to_hosts {
            Scope::All => ToHosts::All,
            Scope::Talking => ToHosts::InUse,
        },
        destinations_per_host: NonZeroUsize::new(arguments.destinations_per_host)
            .context("a host talks with one network at least")?,
        // Ten minutes pass before the first network is refreshed.
        max_age: Micros::from_secs(3_600),
        subscribers: NonZeroUsize::new(arguments.hosts as usize).context("a host")?,
        ..PublisherConfig::default()
    };
    let published = Published::new(config, clock.clone());
    let random = SmallRng::seed_from_u64(arguments.seed);
    let world = World::new(arguments.networks, arguments.exponent, arguments.own);
    Scale::new(arguments, clock, published, world, random).run()
}
