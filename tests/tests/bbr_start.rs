//! Connections on BBR that start whole on a path of the lab: what their acknowledgements show of the share, and what comes of it.

#![expect(clippy::unwrap_used, reason = "what a test stands on either works or fails it")]

use std::time::Duration;

use parking_lot::Mutex;
use spand_agent::config::Bbr;
use spand_proto::units::BytesPerSecond;
use spand_tests::advised::{Advice, Stage, ask};
use spand_tests::lab::is_root;
use spand_tests::lab::path::{PathConfig, Queue};
use spand_tests::lab::topology::NetworkPlan;
use spand_tests::lab::traffic::Plan;

const MSS: u64 = 1_448;
/// 20 Mbit/s.
const RATE: BytesPerSecond = BytesPerSecond(2_500_000);
const DELAY: Duration = Duration::from_millis(25);
/// What fills that path for one round trip.
const SHARE: u32 = 86;

/// Tests of one process use the same names of cgroup and congestion controls, so they run one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What the programs counted, and how long the transfers took.
#[derive(Debug)]
struct Outcome {
    seeded: u64,
    too_high: u64,
    too_low: u64,
    handed_over: u64,
    times: Vec<Duration>,
}

/// Transfers one after another, each on a connection of its own. Windows are at most 100 segments (`policy.cap_segments`).
fn run(bbr: Bbr, share: u32, bytes: u64, transfers: u32) -> Outcome {
    run_on(&PathConfig::bottleneck(RATE, DELAY, Queue::Packets(100)), bbr, share, bytes, transfers)
}

fn run_on(path: &PathConfig, bbr: Bbr, share: u32, bytes: u64, transfers: u32) -> Outcome {
    let _alone = ONE_AT_A_TIME.lock();
    let plan = NetworkPlan { prefix: "198.18.0.0/24".parse().unwrap(), clients: 1, path: *path };
    let advice = Advice::start(share, 0, MSS, 2 * DELAY);
    let stage = Stage::build_with("bbr", bbr, &[(plan, Some(advice))]).unwrap();
    let times = (0..transfers)
        .map(|_| ask(&stage.lab, 0, 0, &Plan::transfer(Plan::AS_THE_HOST, bytes)).unwrap().completion)
        .collect();
    let [seeded, too_high, too_low, handed_over] =
        ["bbr_seeded", "bbr_too_high", "bbr_too_low", "bbr_handed_over"].map(|name| stage.count(name));
    stage.finish().unwrap();
    let outcome = Outcome { seeded, too_high, too_low, handed_over, times };
    println!("{bbr:?}, share {share}, {bytes} bytes: {outcome:?}");
    outcome
}

#[test]
fn acknowledgements_confirm_a_share_that_is_right_and_correct_one_that_is_not() {
    if !is_root().unwrap() {
        return;
    }
    // Nine round trips and some: too few for the hand-over.
    let (transfers, bytes) = (4, 1_000_000);
    let of = |share| run(Bbr::Full, share, bytes, transfers);
    let right = of(SHARE);
    assert_eq!((right.seeded, right.handed_over), (transfers.into(), 0));
    assert_eq!(run(Bbr::Full, SHARE, 4 * bytes, 1).handed_over, 1);
    let low = of(SHARE / 4);
    assert!(low.too_low > 0 && low.too_high == 0, "{low:?}");
    let high = of(4 * SHARE);
    assert!(high.too_high > 0 && high.too_low == 0, "{high:?}");
    // Most, for the sake of a busy machine.
    assert!(right.too_high + right.too_low < transfers.into(), "{right:?}");
    let window = run(Bbr::Window, SHARE, bytes, transfers);
    assert_eq!((window.seeded, window.handed_over), (0, 0));
    // Neither is slower for it: the path is full from the first flight on.
    let shortest = |outcome: &Outcome| outcome.times.iter().min().copied().unwrap();
    assert!(shortest(&right) < shortest(&window) * 11 / 10, "{right:?}, {window:?}");
}

#[test]
fn acknowledgements_in_bunches_are_no_narrow_path() {
    if !is_root().unwrap() {
        return;
    }
    let mut path = PathConfig::bottleneck(RATE, DELAY, Queue::Packets(100));
    let bunched = Duration::from_millis(10);
    (path.down.impairments.bunched, path.up.impairments.bunched) = (bunched, bunched);
    let transfers = 8;
    let right = run_on(&path, Bbr::Full, SHARE, 1_000_000, transfers);
    assert_eq!((right.seeded, right.too_high), (transfers.into(), 0), "{right:?}");
    let high = run_on(&path, Bbr::Full, 4 * SHARE, 1_000_000, transfers);
    assert!(high.too_high > u64::from(transfers) / 2, "{high:?}");
}
