//! One run: what is published, driven and measured, in this order.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use rand::RngExt;
use rand::rngs::SmallRng;
use spand_gateway::publisher::{Batch, Published, ToHosts};
use spand_tests::ending::progress;
use spand_tests::memory::resident_bytes;
use tokio::runtime::{Builder, Runtime};

use super::Arguments;
use super::hosts::{Counts, Hosts};
use super::world::{SimClock, World};

/// Time of starts that come before what is measured: that for which a talk counts.
const BEFORE: Duration = Duration::from_secs(600);
/// Networks given to the publisher at a time.
const FILL: u32 = 1_000;
/// Time between two looks at what is due.
const STEP: Duration = Duration::from_millis(10);
/// Starts that may wait for hosts while they come as fast as they can.
const WAITING: u64 = 20_000;

/// One run.
pub(super) struct Scale {
    arguments: Arguments,
    clock: SimClock,
    published: Published,
    world: World,
    random: SmallRng,
    refreshed: u64,
    starts: Cost,
    changes: Cost,
}

impl Scale {
    pub(super) fn new(
        arguments: Arguments,
        clock: SimClock,
        published: Published,
        world: World,
        random: SmallRng,
    ) -> Self {
        let (starts, changes) = (Cost::default(), Cost::default());
        Self { arguments, clock, published, world, random, refreshed: 0, starts, changes }
    }

    /// Publishes, has hosts subscribe, and says what that costs.
    pub(super) fn run(mut self) -> Result<()> {
        let Arguments { hosts: count, networks, grpc, cold, .. } = self.arguments;
        println!("{}", std::env::args().collect::<Vec<_>>().join(" "));
        let empty = resident_bytes("self")?;
        self.fill();
        let filled = resident_bytes("self")?;
        println!(
            "{networks} networks published: {:.0} bytes each; {:.2} us of CPU each",
            (filled - empty) as f64 / f64::from(networks),
            self.changes.each_us()
        );

        let runtime = runtime()?;
        runtime.spawn(self.published.clone().run());
        let mut hosts = Hosts::subscribe(&runtime, &self.published, count, grpc)?;
        if !cold {
            self.wait_for_snapshots(&hosts, 0);
            if self.published.config().to_hosts == ToHosts::InUse {
                self.starts_before(&hosts);
            }
            hosts.settle();
            let lists = resident_bytes("self")?;
            println!(
                "{} pairs of host and network, {:.0} MiB resident, {:.0} bytes a pair",
                self.published.advertised_pairs(),
                mib(lists),
                lists.saturating_sub(filled) as f64 / self.published.advertised_pairs().max(1) as f64
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
        let retell_s = f64::from(u32::try_from(self.published.config().readvertise.0 / 1_000_000).unwrap_or(u32::MAX));
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
        let account = || {
            (
                measures.destinations_expired.get(),
                measures.destinations_evicted.get(),
                self.published.advertised_pairs(),
            )
        };
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
        let sent = hosts.counts().since(&before);
        let rate = |count: u64| count as f64 / seconds;
        println!("in {seconds:.1} s, a second:");
        println!(
            "  messages {:.0} ({:.0} estimates, {:.0} starts, {:.0} withdrawals, {:.0} renewals), bytes {:.0}",
            rate(sent.messages()),
            rate(sent.estimates),
            rate(sent.starts),
            rate(sent.withdrawals),
            rate(sent.renewals),
            rate(sent.bytes)
        );
        println!(
            "  telling {:.2} cores, {:.2} us of CPU a message, {:.0} bytes a message",
            telling.as_secs_f64() / seconds,
            telling.as_secs_f64() * 1e6 / sent.messages().max(1) as f64,
            sent.bytes as f64 / sent.messages().max(1) as f64
        );
        println!(
            "  engine's thread: {:.0} starts of {:.2} us, {:.0} changed estimates of {:.2} us",
            rate(self.starts.count),
            self.starts.each_us(),
            rate(self.changes.count),
            self.changes.each_us()
        );
        let measures = self.published.measures();
        let gone = (measures.destinations_expired.get() - lapsed) + (measures.destinations_evicted.get() - displaced);
        let new = (self.published.advertised_pairs() + usize::try_from(gone)?).saturating_sub(pairs);
        if self.published.config().to_hosts == ToHosts::InUse {
            println!(
                "  networks lapsed {:.0}, displaced {:.0}; starts towards a network that was held {:.1} %",
                rate(measures.destinations_expired.get() - lapsed),
                rate(measures.destinations_evicted.get() - displaced),
                100.0 * (1.0 - new as f64 / self.starts.count.max(1) as f64)
            );
        }
        let [p50, p99] = [0.5, 0.99].map(|share| hosts.delay_ms(share));
        println!("  start to message: p50 {p50:.2} ms, p99 {p99:.2} ms");
        println!(
            "  queue of starts full {}, slow readers resynchronised {}, sent again for want of room {}",
            measures.starts_overflowed.get(),
            measures.resyncs_slow_reader.get(),
            measures.dirty_overflows.get()
        );
        println!("  {:.0} MiB resident, {} pairs", mib(resident_bytes("self")?), self.published.advertised_pairs());
        Ok(())
    }

    /// All hosts come back at once.
    fn resync(&self, hosts: &mut Hosts) {
        let (before, begun) = (hosts.counts(), Instant::now());
        let cpu_before = cpu(PROCESS);
        hosts.come_back();
        self.wait_for_snapshots(hosts, before.snapshots);
        let sent = hosts.counts().since(&before);
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "all hosts back: {} estimates in {seconds:.1} s, {:.0} a second, {:.2} us of CPU each",
            sent.estimates,
            sent.estimates as f64 / seconds,
            cpu_since(PROCESS, cpu_before).as_secs_f64() * 1e6 / sent.estimates.max(1) as f64
        );
    }

    /// Waits until each host has a further snapshot; `before`: those received until now.
    fn wait_for_snapshots(&self, hosts: &Hosts, before: u64) {
        let begun = Instant::now();
        loop {
            let Counts { snapshots, estimates, .. } = hosts.counts();
            if snapshots >= before + u64::from(self.arguments.hosts) {
                println!("every host has a snapshot after {:.1} s", begun.elapsed().as_secs_f64());
                return;
            }
            progress(&format!("snapshots: {snapshots} hosts have theirs, {estimates} estimates sent"));
            thread::sleep(STEP);
        }
    }
}

fn runtime() -> Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().context("a runtime")
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
fn whole(count: f64) -> u64 {
    count as u64
}

// What work costs in CPU time.

/// CPU time of all threads, and of the one that asks.
pub(super) const PROCESS: ClockId = ClockId::CLOCK_PROCESS_CPUTIME_ID;
pub(super) const THREAD: ClockId = ClockId::CLOCK_THREAD_CPUTIME_ID;

/// CPU time of one kind of work of the engine's thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) count: u64,
    cpu: Duration,
}

impl Cost {
    /// Does it, and counts it.
    pub(super) fn of<T>(&mut self, count: usize, work: impl FnOnce() -> T) -> T {
        let begun = cpu(THREAD);
        let done = work();
        self.cpu += cpu_since(THREAD, begun);
        self.count += count as u64;
        done
    }

    pub(super) fn each_us(self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.count as f64
    }
}

pub(super) fn cpu(clock: ClockId) -> Duration {
    clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}

pub(super) fn cpu_since(clock: ClockId, earlier: Duration) -> Duration {
    cpu(clock).saturating_sub(earlier)
}
