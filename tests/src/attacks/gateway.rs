//! The gateway's process: its listeners as a configuration makes them, and a thread that announces starts as an engine does.

use std::io::{Read, Write};
use std::thread;
use std::time::Instant;

use anyhow::Result;
use nix::time::{ClockId, clock_gettime};
use spand_core::event::{Event, StartImminent, Trigger};
use spand_gateway::publisher::{Batch, Published};
use spand_proto::made_up;
use spand_proto::network::Network;
use spand_proto::units::Window;

use super::{HOSTS, NAMES, NETWORKS, START_EVERY, Target};
use crate::access::Setup;

/// Runs until the process that started it is gone.
pub(super) fn run() -> Result<()> {
    // As many threads as the product has.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let stage = runtime.block_on(async { Setup::new()?.start().await })?;
    for (host, name) in HOSTS.iter().zip(NAMES) {
        stage.authority.make(&[host])?.write(stage.path(), name)?;
    }
    fill(&stage.published);
    let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    let now_ns = stage.published.now().0;
    let monotonic_ns = u64::try_from(monotonic.tv_sec() * 1_000_000_000 + monotonic.tv_nsec())?;
    let (grpc, http, folder) = (stage.grpc, stage.http, stage.path().to_owned());
    let target = Target { grpc, http, folder, clock_ns: now_ns - monotonic_ns };
    println!("{}", serde_json::to_string(&target)?);
    std::io::stdout().flush()?;
    let published = stage.published.clone();
    thread::Builder::new().name("engine".to_owned()).spawn(move || announce(&published))?;
    // Ends with the process that holds the other end.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    stage.stop();
    Ok(())
}

fn fill(published: &Published) {
    let now = published.now();
    let network = |n: u16| {
        let [high, low] = n.to_be_bytes();
        Network::of([100, high, low, 1].into())
    };
    let estimate = |n: u16| {
        let share = Window::from_bytes(20_000.0 + f64::from(n)).unwrap_or_default();
        Event::estimate(made_up::estimate(network(n), share, now))
    };
    published.apply(Batch { events: (0..NETWORKS).map(estimate).collect(), ..Batch::new() });
}

fn announce(published: &Published) {
    let host = HOSTS[0].parse().expect("an address");
    let began = Instant::now();
    for n in 1.. {
        let [_, _, high, low] = u32::to_be_bytes(n % u32::from(NETWORKS));
        let remote = [100, high, low, 7].into();
        let network = Network::of(remote);
        published.push_start(StartImminent {
            at: published.now(),
            host,
            remote,
            network,
            trigger: Trigger::PassiveOpen,
        });
        thread::sleep((began + START_EVERY * n).saturating_duration_since(Instant::now()));
    }
}
