//! Wide networks to which only short transfers went so far, and then long ones: what the first show is a lower bound, and what the second
//! show is the share.
//!
//! Needs root. Without it the test says so, and counts itself as skipped on standard error.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io};

use anyhow::{Context, Result, anyhow, ensure};
use ipnet::IpNet;
use spand_core::config::{EngineConfig, Limits};
use spand_core::networks::view::NetworkView;
use spand_gateway::replay::{Moment, Moments, Options, Sink, State, replay};
use spand_needs::{Need, needs};
use spand_proto::units::Timestamp;

use spand_tests::accuracy::compare::by_address;
use spand_tests::lab::path::{PathConfig, Queue, parse_rate};
use spand_tests::lab::tap::Tap;
use spand_tests::lab::topology::{MIRROR_DEVICE, NetworkPlan, Topology};
use spand_tests::lab::traffic::{Client, Plan, Server, Step};
use spand_tests::lab::truth::rules::{self, Reason};
use spand_tests::lab::truth::{Poller, Record, Row};

/// Prefix, bottleneck, delay each way in milliseconds, queue in packets: the emulator carries about 160 Mbit/s in all.
const NETWORKS: [(&str, &str, u64, u32); 3] = [
    ("198.51.100.0/24", "20mbit", 20, 60),
    ("203.0.113.0/24", "50mbit", 20, 120),
    ("198.18.0.0/24", "80mbit", 10, 100),
];
const SHORT_BYTES: [u64; 2] = [30_000, 100_000];
const SHORT: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_millis(100);
/// Long enough for some thirty losses on the widest path: their mean has to be near the kernel's.
const BULK: Duration = Duration::from_secs(50);
/// How far the share may be from the mean over addresses of the windows at losses.
const OFF_MOST: f64 = 0.15;

#[test]
fn short_transfers_give_lower_bounds_and_long_ones_beside_them_the_share() -> Result<()> {
    if !needs(Need::Root) {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("mirror.pcap");
    let (rows, changed) = record(&capture)?;
    let (before, after) = states(&capture, changed)?;
    let losses: Vec<_> = rules::samples(&rows).into_iter().filter(|sample| sample.reason == Reason::Loss).collect();
    for (prefix, rate, delay_ms, _) in NETWORKS {
        let network: IpNet = prefix.parse()?;
        let view = |state: &[NetworkView]| {
            state.iter().find(|view| view.network.prefix() == network).and_then(|view| view.estimate.clone())
        };
        let here = losses.iter().filter(|sample| network.contains(&sample.flow.remote.ip()));
        let windows = here.clone().map(|sample| (sample.flow, sample.segments));
        let truth = by_address(windows).with_context(|| format!("{prefix}: no loss"))?;
        let bound = view(&before);
        let share = view(&after).with_context(|| format!("{prefix} has no estimate in the end"))?;
        let segments = share.share.segments_f64(share.mss);
        let first = bound.as_ref().map(|bound| (bound.share.segments_f64(bound.mss), bound.is_lower_bound));
        println!(
            "{prefix}: {first:?} from short ones; {segments:.1} with long ones, {truth:.1} at {} losses",
            here.count()
        );
        ensure!(bound.is_none_or(|bound| bound.is_lower_bound), "{prefix}: short transfers give a share");
        ensure!(!share.is_lower_bound, "{prefix}: long transfers give a lower bound alone");
        ensure!((segments / truth - 1.0).abs() <= OFF_MOST, "{prefix}: {segments:.1} for {truth:.1}");
        // Of payload, with the round trip that the tap saw.
        let holds = parse_rate(rate)?.0 as f64 * 2.0 * delay_ms as f64 / 1e3;
        let bdp = share.bdp.with_context(|| format!("{prefix}: nothing was delivered"))?.bytes();
        println!("{prefix}: the empty path holds {bdp:.0} of {holds:.0} bytes");
        ensure!((0.8..=1.1).contains(&(bdp / holds)), "{prefix}: the empty path holds {bdp:.0} for {holds:.0} bytes");
    }
    Ok(())
}

/// The kernel's account of the traffic that the mirror port shows in `capture`, and when the long transfers began.
fn record(capture: &Path) -> Result<(Vec<Row>, Timestamp)> {
    let plan = |(prefix, rate, delay_ms, queue): (&str, &str, u64, u32)| {
        let path = PathConfig::bottleneck(parse_rate(rate)?, Duration::from_millis(delay_ms), Queue::Packets(queue));
        anyhow::Ok(NetworkPlan { prefix: prefix.parse()?, clients: 4, path })
    };
    let lab = Topology::build(&NETWORKS.into_iter().map(plan).collect::<Result<Vec<_>>>()?)?;
    let record = Record::default();
    let poller = Arc::new(Poller::start(record.clone())?);
    let server = Server::start(&lab.server, lab.port, "cubic", &poller)?;
    let tap = Tap::start(&lab.gateway, MIRROR_DEVICE, capture)?;
    let begin = Instant::now();
    let mut workers = Vec::new();
    let mut changed = Timestamp(0);
    for (phase, end) in [SHORT, SHORT + BULK].into_iter().enumerate() {
        for network in &lab.networks {
            let to = lab.server_address(network.plan.prefix);
            let address = |n: usize| network.addresses.get(n).copied().context("three clients");
            if phase == 0 {
                let from = address(0)?;
                workers.push(network.namespace.spawn("short", move || {
                    for bytes in SHORT_BYTES.into_iter().cycle() {
                        if begin.elapsed() >= SHORT + BULK {
                            break;
                        }
                        Client::connect(from, to)?.ask(&Plan::transfer(Plan::AS_THE_HOST, bytes))?;
                        thread::sleep(PAUSE);
                    }
                    Ok(())
                })?);
                continue;
            }
            for from in [address(1)?, address(2)?, address(3)?] {
                workers.push(network.namespace.spawn("long", move || {
                    let plan = Plan::new(Plan::AS_THE_HOST, vec![Step::Stream(BULK)]);
                    Client::connect(from, to)?.ask(&plan).map(drop)
                })?);
            }
        }
        if phase == 0 {
            thread::sleep(end.saturating_sub(begin.elapsed()));
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
            changed = Timestamp(u64::try_from(now.as_nanos())?);
        }
    }
    for worker in workers {
        worker.join().map_err(|_| anyhow!("a client panicked"))??;
    }
    drop(server);
    drop(poller);
    let counts = tap.finish()?;
    ensure!(
        counts.dropped + record.dropped() == 0,
        "the tap lost {}, the account {}",
        counts.dropped,
        record.dropped()
    );
    ensure!(fs::metadata(capture)?.len() > 0, "nothing was recorded");
    Ok((record.rows(), changed))
}

/// What the engine knows of all networks at `changed`, and in the end.
fn states(capture: &Path, changed: Timestamp) -> Result<(Vec<NetworkView>, Vec<NetworkView>)> {
    #[derive(Default)]
    struct First(Option<Vec<NetworkView>>);
    impl Sink for First {
        fn state(&mut self, state: &State) -> io::Result<()> {
            self.0.get_or_insert_with(|| state.networks.clone());
            Ok(())
        }

        fn progress(&mut self, _: spand_capture::Progress) {}
    }
    let engine = EngineConfig { limits: Limits::for_replay(), ..EngineConfig::default() };
    let options = Options { files: vec![capture.to_owned()], engine, moments: Moments::At(vec![Moment::At(changed)]) };
    let mut first = First::default();
    let report = replay(options, &mut first)?;
    Ok((first.0.context("no state at the change")?, report.end.networks))
}
