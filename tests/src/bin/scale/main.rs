//! An organisation's hosts and networks against the real publisher: what is told, what that costs, and what a resync takes.
//!
//! ```text
//! make scale ARGS="--to-hosts talking --hosts 1000 --networks 1000000"
//! ```
//!
//! The publisher is the gateway's own and tells subscriptions in this process, which make a message of each update and encode
//! it; `--grpc N` of them are clients over loopback instead. What comes from the engine is made up: networks with an estimate,
//! all refreshed within `publish.retell_s`, some of which move, and starts of hosts towards networks by a power law. Ten minutes
//! of starts come before what is measured, as fast as hosts read them, by a clock that passes with the starts.
//!
//! CPU is the process's own: what others do on the machine lengthens the seconds and not the microseconds.

mod hosts;
mod world;

use std::io::{IsTerminal, Write, stderr};
use std::num::NonZeroUsize;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use nix::time::{ClockId, clock_gettime};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use spand_gateway::publisher::{Batch, Published, PublisherConfig, ToHosts};
use spand_proto::units::Micros;
use spand_tests::process::resident_bytes;
use tokio::runtime::{Builder, Runtime};

use self::hosts::{Counts, Hosts};
use self::world::{SimClock, World};

#[derive(Debug, Parser)]
#[command(about = "Tells many hosts of many networks, and says what that costs")]
struct Arguments {
    /// Of which networks a host is told
    #[arg(long, value_enum, default_value_t = Told::Talking)]
    to_hosts: Told,
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
    /// Estimates a second that move by more than is told, any as likely as any other
    #[arg(long, default_value_t = 3_000)]
    moves: u32,
    /// Networks with which one host talks (`publish.talked_networks`)
    #[arg(long, default_value_t = 4_096)]
    talked_networks: usize,
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
enum Told {
    All,
    Talking,
}

/// CPU time of all threads, and of the one that asks.
const PROCESS: ClockId = ClockId::CLOCK_PROCESS_CPUTIME_ID;
const THREAD: ClockId = ClockId::CLOCK_THREAD_CPUTIME_ID;
/// Time of starts that come before what is measured: that for which a talk counts.
const BEFORE: Duration = Duration::from_secs(600);
/// Networks given to the publisher at a time.
const FILL: u32 = 1_000;
/// Time between two looks at what is due.
const STEP: Duration = Duration::from_millis(10);
/// Starts that may wait for hosts while they come as fast as they can.
const WAITING: u64 = 20_000;

/// One run.
struct Scale {
    arguments: Arguments,
    clock: SimClock,
    published: Published,
    world: World,
    random: SmallRng,
    refreshed: u64,
    starts: Cost,
    changes: Cost,
}

/// CPU time of one kind of work of the engine's thread.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    count: u64,
    cpu: Duration,
}

impl Cost {
    fn of<T>(&mut self, count: usize, work: impl FnOnce() -> T) -> T {
        let begun = cpu(THREAD);
        let done = work();
        self.cpu += cpu_since(THREAD, begun);
        self.count += count as u64;
        done
    }

    fn each_us(self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.count as f64
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let clock = SimClock::new();
    let config = PublisherConfig {
        to_hosts: match arguments.to_hosts {
            Told::All => ToHosts::All,
            Told::Talking => ToHosts::Talking,
        },
        talked_networks: NonZeroUsize::new(arguments.talked_networks)
            .context("a host talks with one network at least")?,
        // Ten minutes pass before the first network is refreshed.
        max_age: Micros::from_secs(3_600),
        subscribers: NonZeroUsize::new(arguments.hosts as usize).context("a host")?,
        ..PublisherConfig::default()
    };
    let published = Published::new(config, clock.clone());
    let random = SmallRng::seed_from_u64(arguments.seed);
    let world = World::new(arguments.networks, arguments.exponent, arguments.own);
    let (starts, changes) = (Cost::default(), Cost::default());
    Scale { arguments, clock, published, world, random, refreshed: 0, starts, changes }.run()
}

impl Scale {
    fn run(mut self) -> Result<()> {
        let Arguments { hosts: count, networks, grpc, cold, .. } = self.arguments;
        println!("{:?}", self.arguments);
        let empty = resident_bytes("self")?;
        self.fill();
        let filled = resident_bytes("self")?;
        println!(
            "{networks} networks published: {:.0} octets each; {:.2} us of CPU each",
            (filled - empty) as f64 / f64::from(networks),
            self.changes.each_us()
        );

        let runtime = runtime()?;
        runtime.spawn(self.published.clone().tell());
        let mut hosts = Hosts::subscribe(&runtime, &self.published, count, grpc)?;
        if !cold {
            self.wait_for_snapshots(&hosts, 0);
            if self.published.config().to_hosts == ToHosts::Talking {
                self.starts_before(&hosts);
            }
            hosts.settle();
            let lists = resident_bytes("self")?;
            println!(
                "{} pairs of host and network, {:.0} MiB resident, {:.0} octets a pair",
                self.published.told_pairs(),
                mib(lists),
                lists.saturating_sub(filled) as f64 / self.published.told_pairs().max(1) as f64
            );
        }
        self.measure(&hosts)?;
        if !cold {
            self.resync(&mut hosts);
        }
        self.published.close();
        runtime.shutdown_timeout(Duration::from_secs(5));
        Ok(())
    }

    fn fill(&mut self) {
        for first in (0..self.arguments.networks).step_by(FILL as usize) {
            let networks = first..(first + FILL).min(self.arguments.networks);
            let events = self.world.estimates(networks, false, self.clock.now());
            self.changes.of(events.len(), || self.published.apply(Batch { events, ..Batch::new() }));
            progress(&format!("publishing networks: {first}"));
        }
    }

    /// Starts of the time for which a talk counts, as fast as hosts read them.
    fn starts_before(&mut self, hosts: &Hosts) {
        let begun = Instant::now();
        let count = u64::from(self.arguments.starts) * BEFORE.as_secs();
        for number in 0..count {
            self.start();
            if number % 256 == 0 {
                self.clock.pass(BEFORE.mul_f64(256.0 / count as f64));
                while self.published.measures().starts_pushed.get() > hosts.counts().starts + WAITING {
                    thread::sleep(Duration::from_millis(1));
                }
                progress(&format!("starts before: {number} of {count}"));
            }
        }
        println!(
            "{count} starts in {:.0} s; {:.2} us of CPU each",
            begun.elapsed().as_secs_f64(),
            self.starts.each_us()
        );
    }

    fn start(&mut self) {
        let start = self.world.start(&mut self.random, self.arguments.hosts, self.clock.now());
        self.starts.of(1, || self.published.push_start(start));
    }

    /// What an engine hands over in the time measured, at its moments.
    fn drive(&mut self) {
        let Arguments { starts, moves, networks, seconds, .. } = self.arguments;
        let retell_s = f64::from(u32::try_from(self.published.config().retell.0 / 1_000_000).unwrap_or(u32::MAX));
        let refreshes = f64::from(networks) / retell_s;
        let begun = Instant::now();
        let mut done = [0u64; 3];
        while begun.elapsed() < Duration::from_secs(seconds.into()) {
            thread::sleep(STEP);
            let passed = begun.elapsed().as_secs_f64();
            let due = [f64::from(starts), refreshes, f64::from(moves)].map(|rate| whole(rate * passed));
            for _ in done[0]..due[0] {
                self.start();
            }
            let mut events = Vec::new();
            for _ in done[1]..due[1] {
                let network = u32::try_from(self.refreshed % u64::from(networks)).unwrap_or(0);
                events.extend(self.world.estimates([network], false, self.clock.now()));
                self.refreshed += 1;
            }
            for _ in done[2]..due[2] {
                let network = self.random.random_range(0..networks);
                events.extend(self.world.estimates([network], true, self.clock.now()));
            }
            self.changes.of(events.len(), || self.published.apply(Batch { events, ..Batch::new() }));
            done = due;
            progress(&format!("measuring: {passed:.0} of {seconds} s"));
        }
    }

    fn measure(&mut self, hosts: &Hosts) -> Result<()> {
        (self.starts, self.changes) = (Cost::default(), Cost::default());
        let measures = self.published.measures().clone();
        let account = || (measures.talks_lapsed.get(), measures.talks_displaced.get(), self.published.told_pairs());
        hosts.forget_delays();
        let (before, talks) = (hosts.counts(), account());
        let (cpu_before, own_before) = (cpu(PROCESS), cpu(THREAD));
        let begun = Instant::now();
        let clock = self.clock.clone();
        clock.run();
        let (lapsed, displaced, pairs) = talks;
        self.drive();
        clock.stop();
        let seconds = begun.elapsed().as_secs_f64();
        let telling = cpu_since(PROCESS, cpu_before).saturating_sub(cpu_since(THREAD, own_before));
        let told = hosts.counts().since(&before);
        let rate = |count: u64| count as f64 / seconds;
        println!("in {seconds:.1} s, a second:");
        println!(
            "  messages {:.0} ({:.0} estimates, {:.0} starts, {:.0} withdrawals, {:.0} renewals), octets {:.0}",
            rate(told.messages()),
            rate(told.estimates),
            rate(told.starts),
            rate(told.withdrawals),
            rate(told.renewals),
            rate(told.octets)
        );
        println!(
            "  telling {:.2} cores, {:.2} us of CPU a message, {:.0} octets a message",
            telling.as_secs_f64() / seconds,
            telling.as_secs_f64() * 1e6 / told.messages().max(1) as f64,
            told.octets as f64 / told.messages().max(1) as f64
        );
        println!(
            "  engine's thread: {:.0} starts of {:.2} us, {:.0} changed estimates of {:.2} us",
            rate(self.starts.count),
            self.starts.each_us(),
            rate(self.changes.count),
            self.changes.each_us()
        );
        let measures = self.published.measures();
        let gone = (measures.talks_lapsed.get() - lapsed) + (measures.talks_displaced.get() - displaced);
        let new = (self.published.told_pairs() + usize::try_from(gone)?).saturating_sub(pairs);
        if self.published.config().to_hosts == ToHosts::Talking {
            println!(
                "  networks lapsed {:.0}, displaced {:.0}; starts towards a network that was held {:.1} %",
                rate(measures.talks_lapsed.get() - lapsed),
                rate(measures.talks_displaced.get() - displaced),
                100.0 * (1.0 - new as f64 / self.starts.count.max(1) as f64)
            );
        }
        let [p50, p99] = [0.5, 0.99].map(|share| hosts.delay_ms(share));
        println!("  start to message: p50 {p50:.2} ms, p99 {p99:.2} ms");
        println!(
            "  queue of starts full {}, slow readers resynchronised {}, told anew for want of room {}",
            measures.starts_overflowed.get(),
            measures.resyncs_slow_reader.get(),
            measures.marks_overflowed.get()
        );
        println!("  {:.0} MiB resident, {} pairs", mib(resident_bytes("self")?), self.published.told_pairs());
        Ok(())
    }

    /// All hosts come back at once.
    fn resync(&self, hosts: &mut Hosts) {
        let (before, begun) = (hosts.counts(), Instant::now());
        let cpu_before = cpu(PROCESS);
        hosts.come_back();
        self.wait_for_snapshots(hosts, before.snapshots);
        let told = hosts.counts().since(&before);
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "all hosts back: {} estimates in {seconds:.1} s, {:.0} a second, {:.2} us of CPU each",
            told.estimates,
            told.estimates as f64 / seconds,
            cpu_since(PROCESS, cpu_before).as_secs_f64() * 1e6 / told.estimates.max(1) as f64
        );
    }

    /// Waits until each host has a snapshot, from when there had been so many.
    fn wait_for_snapshots(&self, hosts: &Hosts, before: u64) {
        let begun = Instant::now();
        loop {
            let Counts { snapshots, estimates, .. } = hosts.counts();
            if snapshots >= before + u64::from(self.arguments.hosts) {
                println!("every host has a snapshot after {:.1} s", begun.elapsed().as_secs_f64());
                return;
            }
            progress(&format!("snapshots: {snapshots} hosts have theirs, {estimates} estimates told"));
            thread::sleep(STEP);
        }
    }
}

fn runtime() -> Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().context("a runtime")
}

fn cpu(clock: ClockId) -> Duration {
    clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}

fn cpu_since(clock: ClockId, earlier: Duration) -> Duration {
    cpu(clock).saturating_sub(earlier)
}

fn mib(octets: u64) -> f64 {
    octets as f64 / f64::from(1 << 20)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
fn whole(count: f64) -> u64 {
    count as u64
}

/// Says on a terminal how far it is.
fn progress(what: &str) {
    thread_local!(static SAID: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) });
    let due = SAID.get().is_none_or(|said| said.elapsed() > Duration::from_millis(200));
    if due && stderr().is_terminal() {
        SAID.set(Some(Instant::now()));
        // Nobody is harmed where the terminal is gone.
        drop(write!(stderr(), "\r\x1b[K{what}"));
    }
}
