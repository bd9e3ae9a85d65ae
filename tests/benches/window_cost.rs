//! What it costs to keep networks: a sample, a round-trip time and an evaluation, for networks of one remote address and of
//! 256, and as a ratio to the smallest of them.
//!
//!     cargo bench -p spand-tests --bench window_cost

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use nix::time::{ClockId, clock_gettime};
use spand_core::config::WindowConfig;
use spand_core::networks::NetworkTable;
use spand_core::types::{ConnectionId, LimitCounts, Phase, RttSum, SampleReason, WindowSample};
use spand_proto::estimate::RuleKind;
use spand_proto::network::Network;
use spand_proto::units::{Bytes, Micros, Timestamp, Window};
use spand_tests::ending::{arguments, exit_code};

#[derive(Debug, Parser)]
struct Arguments {
    /// Networks of one remote address.
    #[arg(long, default_value_t = 10_000)]
    networks: u32,
    /// Networks of 256 remote addresses, each with a full window of samples from all of them.
    #[arg(long, default_value_t = 500)]
    busy: u32,
    /// The rule.
    #[arg(long, default_value_t = RuleKind::default())]
    rule: RuleKind,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Buckets of the window.
const BUCKETS: u64 = 30;
/// Samples per bucket of a busy network.
const SAMPLES: u64 = 32;
/// Evaluations of each network.
const EVALUATIONS: u32 = 20;
/// In the middle of a bucket.
const START: Timestamp = Timestamp::from_micros(1_700_000_005_000_000);

fn main() -> ExitCode {
    exit_code(work())
}

fn work() -> anyhow::Result<()> {
    let arguments: Arguments = arguments();
    let quiet = measure(arguments.rule, arguments.networks, 1, 2)?;
    let busy = measure(arguments.rule, arguments.busy, 256, SAMPLES)?;
    let base = quiet[2].1;
    for (kind, costs) in [("1 address", &quiet), ("256 addresses", &busy)] {
        for (name, nanoseconds) in costs {
            println!("{name:<36} {kind:<14} {nanoseconds:>9.0} ns  {:>7.2} x", nanoseconds / base);
        }
    }
    Ok(())
}

/// Nanoseconds per sample, per round-trip time and per evaluation, with `networks` networks.
fn measure(rule: RuleKind, networks: u32, addresses: u64, samples: u64) -> anyhow::Result<[(&'static str, f64); 3]> {
    let room = NonZeroUsize::new(1_000_000).unwrap_or(NonZeroUsize::MIN);
    let mut table = NetworkTable::new(WindowConfig::default(), room, rule, 7);
    let (mut added, mut timed) = (Duration::ZERO, Duration::ZERO);
    let mut connection = 0;
    for bucket in 0..BUCKETS {
        let at = START.after(Micros::from_secs(10 * bucket));
        let begun = clock()?;
        for number in 0..networks {
            for _ in 0..samples {
                connection += 1;
                table.add(&sample(number, at, connection, addresses));
                while table.poll_event().is_some() {}
            }
        }
        let between = clock()?;
        for number in 0..networks {
            for n in 0..samples {
                let rtt = Micros(40_000 + (n * 977) % 20_000);
                let rtts = RttSum::of(rtt);
                table.add_rounds(network(number), at, address(number, n % addresses), rtts, LimitCounts::default());
                while table.poll_event().is_some() {}
            }
        }
        let ended = clock()?;
        added += between.saturating_sub(begun);
        timed += ended.saturating_sub(between);
    }
    let now = START.after(Micros::from_secs(10 * (BUCKETS - 1)));
    let begun = clock()?;
    let mut found = 0;
    for _ in 0..EVALUATIONS {
        found += (0..networks).filter(|number| table.estimate(network(*number), now).is_some()).count();
    }
    let evaluated = clock()?.saturating_sub(begun);
    anyhow::ensure!(found == (EVALUATIONS * networks) as usize, "every network has an estimate");
    let calls = f64::from(networks) * BUCKETS as f64 * samples as f64;
    let per = |time: Duration, calls: f64| time.as_secs_f64() * 1e9 / calls;
    Ok([
        ("a sample", per(added, calls)),
        ("a round-trip time", per(timed, calls)),
        ("an evaluation", per(evaluated, f64::from(EVALUATIONS * networks))),
    ])
}

fn address(number: u32, host: u64) -> IpAddr {
    let [_, a, b, c] = number.to_be_bytes();
    // Fewer than 256 hosts.
    IpAddr::from([100 + a, b, c, u8::try_from(host).unwrap_or_default()])
}

fn network(number: u32) -> Network {
    Network::of(address(number, 0))
}

fn sample(number: u32, at: Timestamp, connection: u64, addresses: u64) -> WindowSample {
    // Neighbours in time are not neighbours in address.
    let remote = address(number, (connection * 97) % addresses);
    WindowSample {
        at,
        network: network(number),
        remote,
        connection: ConnectionId(connection),
        window: Window::from_bytes(14_480.0 * (1.0 + (connection % 7) as f64 / 10.0)).unwrap_or_default(),
        mss: Bytes(if connection.is_multiple_of(3) { 1_448 } else { 1_460 }),
        reason: SampleReason::End,
        sawtooth: None,
        phase: Phase::CongestionAvoidance,
        transfer: Bytes(100_000),
        advised: false,
        rtt_min: None,
        rtt: None,
    }
}

/// Processor time, so that what else runs on the machine counts little.
fn clock() -> anyhow::Result<Duration> {
    Ok(Duration::from(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?))
}
