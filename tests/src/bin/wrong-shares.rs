//! What a start costs where the share is wrong (`make benefit WHAT=wrong-shares`): real transfers on paths of the lab, advised with a tenth of the
//! right share to four times it, beside the same host without advice.
//!
//! One line a path, share and size, as a table on standard output.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use ipnet::IpNet;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use spand_agent::config::Bbr;
use spand_tests::advised::{Advice, Stage, ask};
use spand_tests::benefit::path::{Rough, Way};
use spand_tests::ending::{arguments, exit_code, progress};
use spand_tests::lab::topology::NetworkPlan;
use spand_tests::lab::traffic::Plan;
use spand_tests::product::interrupt;

const SIZES: [u64; 3] = [30_000, 100_000, 1_000_000];
/// Shares over the right one that are tried by default.
const FACTORS: [f64; 6] = [0.1, 0.25, 0.5, 1.0, 2.0, 4.0];

/// The host, and what its advised connections get.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Host {
    /// CUBIC, starts corrected by their acknowledgements
    Cubic,
    /// CUBIC, starts as they are
    CubicUnchecked,
    /// Reno, corrected
    Reno,
    /// Reno as they are
    RenoUnchecked,
    /// BBR with the share as its estimate
    Bbr,
    /// BBR with a window alone
    BbrWindow,
}

impl Host {
    const fn base(self) -> &'static str {
        match self {
            Self::Cubic | Self::CubicUnchecked => "cubic",
            Self::Reno | Self::RenoUnchecked => "reno",
            Self::Bbr | Self::BbrWindow => "bbr",
        }
    }

    const fn starts(self) -> (Bbr, bool) {
        let bbr = if matches!(self, Self::Bbr) { Bbr::Full } else { Bbr::Window };
        (bbr, !matches!(self, Self::CubicUnchecked | Self::RenoUnchecked))
    }

    /// The right share of a path in segments: what fills it, and for a host that fills its queue the mean between a loss and the next.
    fn share(self, way: &Way) -> f64 {
        let pipe = way.kbit as f64 / 8.0 * way.rtt().as_secs_f64() * 1e3 / way.mtu() as f64;
        let queue = f64::from(way.queue_packets);
        match self.base() {
            "bbr" => pipe,
            "reno" => 0.75 * (pipe + queue),
            _ => 0.85 * (pipe + queue),
        }
    }
}

#[derive(Parser)]
#[command(about = "Times real transfers that start on shares that are wrong (needs root)")]
struct Arguments {
    /// Hosts
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Host::Cubic, Host::CubicUnchecked, Host::Bbr, Host::BbrWindow])]
    hosts: Vec<Host>,
    /// Only paths whose name has this in it
    #[arg(long, default_value = "")]
    paths: String,
    /// Shares over the right one
    #[arg(long, value_delimiter = ',', default_values_t = FACTORS)]
    shares: Vec<f64>,
    /// Transfers of each size and share
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seed of the paths and of the order
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn paths() -> Vec<(&'static str, Way)> {
    let usual = Way::new(20_000, 25, 100);
    let rough = |rough| Way { rough: Some(rough), ..usual };
    vec![
        ("20 Mbit/s, 50 ms", usual),
        ("100 Mbit/s, 100 ms", Way::deep(100, 100)),
        ("10 Mbit/s, 200 ms", Way::deep(10, 200)),
        ("1.6 Mbit/s, 104 ms", Way::new(1_600, 52, 10)),
        ("20 Mbit/s, 50 ms, jitter of 20 %", rough(Rough::Jitter(20))),
        ("20 Mbit/s, 50 ms, bunches of 10 ms", rough(Rough::Bunched(10))),
        ("20 Mbit/s, 50 ms, policer of 60 packets", rough(Rough::Policed(60))),
        ("20 Mbit/s, 50 ms, 1 % random loss", rough(Rough::Lossy(10))),
    ]
}

/// Times of one share and size in milliseconds, and what was sent again.
#[derive(Debug, Default)]
struct Cell {
    times_ms: Vec<f64>,
    again: u32,
}

impl Cell {
    fn mean_ms(&self) -> f64 {
        self.times_ms.iter().sum::<f64>() / self.times_ms.len().max(1) as f64
    }

    fn words(&self, plain: Option<&Self>) -> String {
        let change = plain.map(|plain| format!(" ({:+.0} %)", (self.mean_ms() / plain.mean_ms() - 1.0) * 100.0));
        let again = f64::from(self.again) / self.times_ms.len().max(1) as f64;
        format!("{:.0}{}, {again:.1}", self.mean_ms(), change.unwrap_or_default())
    }
}

fn main() -> ExitCode {
    exit_code(run(&arguments()))
}

fn run(arguments: &Arguments) -> Result<()> {
    interrupt::install()?;
    for &host in &arguments.hosts {
        println!("\n`{host:?}`: mean time in ms (change against the host without advice), packets sent again\n");
        println!(
            "| path | share | 30 KB | 100 KB | 1 MB | corrected down, up |\n| --- | --- | --- | --- | --- | --- |"
        );
        for (name, way) in paths().into_iter().filter(|(name, _)| name.contains(&arguments.paths)) {
            time(host, name, &way, arguments)?;
        }
    }
    Ok(())
}

/// One path: without advice and with each share, in turns.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
fn time(host: Host, name: &str, way: &Way, arguments: &Arguments) -> Result<()> {
    let right = host.share(way);
    let pipe = Host::Bbr.share(way);
    let shares: Vec<Option<f64>> = [None].into_iter().chain(arguments.shares.iter().copied().map(Some)).collect();
    let mut networks = Vec::new();
    for (n, factor) in (0_u8..).zip(&shares) {
        let prefix = IpNet::new(IpAddr::V4(Ipv4Addr::new(198, 18, n, 0)), 24)?;
        let plan = NetworkPlan { prefix, clients: 1, path: way.config(arguments.seed) };
        let advice = factor.map(|factor| {
            let mut advice = Advice::start((factor * right).round().max(1.0) as u32, 0, way.mss, way.rtt());
            // A crowd makes a share too low and leaves this as it is. A path that was wider makes both too high.
            advice.inputs.bdp_bytes = (pipe * factor.max(1.0)) as u64 * way.mss;
            advice
        });
        networks.push((plan, advice));
    }
    let stage = Stage::build_with(host.base(), host.starts(), &networks)?;
    let mut cells: BTreeMap<(usize, u64), Cell> = BTreeMap::new();
    let mut corrected = vec![[0; 2]; shares.len()];
    let mut asked: BTreeMap<SocketAddr, (usize, u64)> = BTreeMap::new();
    let mut dice = StdRng::seed_from_u64(arguments.seed);
    for round in 0..arguments.rounds {
        let mut order: Vec<(usize, u64)> =
            (0..shares.len()).flat_map(|share| SIZES.map(|bytes| (share, bytes))).collect();
        order.shuffle(&mut dice);
        for (share, bytes) in order {
            progress(&format!("{host:?}, {name}: round {} of {}", round + 1, arguments.rounds));
            if interrupt::came() {
                anyhow::bail!("interrupted");
            }
            let before = corrections(&stage, host);
            let transfer = ask(&stage.lab, share, 0, &Plan::transfer(Plan::AS_THE_HOST, bytes))?;
            cells.entry((share, bytes)).or_default().times_ms.push(transfer.completion.as_secs_f64() * 1e3);
            asked.insert(transfer.local, (share, bytes));
            // What is still sent again after the last byte came, and what waits in queues.
            std::thread::sleep(Duration::from_millis(100) + 2 * way.rtt());
            let after = corrections(&stage, host);
            let of_share = corrected.get_mut(share).context("each share has its place")?;
            for (sum, (after, before)) in of_share.iter_mut().zip(after.into_iter().zip(before)) {
                *sum += after - before;
            }
        }
    }
    let mut again: BTreeMap<SocketAddr, u32> = BTreeMap::new();
    for row in stage.finish()? {
        let most = again.entry(row.remote).or_default();
        *most = (*most).max(row.total_retrans.unwrap_or(0));
    }
    for (client, cell) in &asked {
        cells.entry(*cell).or_default().again += again.get(client).copied().unwrap_or_default();
    }
    for (n, (factor, [down, up])) in shares.iter().zip(corrected).enumerate() {
        let share = factor.map_or("none".to_owned(), |factor| format!("{factor} x {right:.0}"));
        let words = SIZES.map(|bytes| {
            let plain = cells.get(&(0, bytes)).filter(|_| n > 0);
            cells.get(&(n, bytes)).map_or("-".to_owned(), |cell| cell.words(plain))
        });
        println!("| {name} | {share} | {} | {down}, {up} |", words.join(" | "));
    }
    Ok(())
}

/// How many starts were corrected down and up so far.
fn corrections(stage: &Stage, host: Host) -> [u64; 2] {
    let of_bbr = ["bbr_too_high", "bbr_too_low"];
    (if host.base() == "bbr" { of_bbr } else { ["share_too_high", "share_too_low"] }).map(|name| stage.count(name))
}
