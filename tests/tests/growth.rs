//! Slow start by the rules of `[start]` on real connections: every window that the kernel says follows from the one before by the
//! contract's function, acknowledgement by acknowledgement, and the first loss ends Burst TCP for good. And the shapes whose connections
//! measure a threshold of their own.

#![expect(clippy::unwrap_used, reason = "what a test stands on either works or fails it")]

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Result, ensure};
use parking_lot::Mutex;
use spand_agent::Clock;
use spand_agent::apply::bpf::BpfApplier;
use spand_agent::apply::{Applier, Decided, Desired, DesiredStarts, Inputs, Skipped, StartReason};
use spand_agent::config::{ApplyMethod, Config};
use spand_agent::policy::Policy;
use spand_proto::growth::{GrownWindow, Growth};
use spand_proto::start::{Mode, NO_THRESHOLD, Shape};
use spand_proto::units::{BytesPerSecond, Micros, Segments};
use spand_tests::lab::cgroup::Cgroup;
use spand_tests::lab::path::{PathConfig, Queue};
use spand_tests::lab::topology::{NetworkPlan, Topology};
use spand_tests::lab::traffic::{Client, Conduct, Plan, Server, Step};
use spand_tests::lab::truth::{CongestionState, Record, Row, SegmentTruth, Source};

const NETWORK: &str = "198.51.100.0/24";
const SEGMENT_BYTES: u64 = 1_448;
const DELAY: Duration = Duration::from_millis(20);
/// What the advice says: a start of two segments, and slow start up to here.
const FIRST: u32 = 2;
const THRESHOLD: u32 = 120;

fn dbc(dmax: u32) -> Growth {
    Growth::Dbc { dmax: NonZeroU32::new(dmax).unwrap() }
}

fn burst(f: u32) -> Growth {
    Growth::Burst { f: NonZeroU32::new(f).unwrap() }
}

/// The tests of this process share the names of cgroup and congestion controls.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// How a connection starts, and goes on.
#[derive(Clone, Copy, Debug)]
struct Choice {
    growth: Growth,
    shape: Shape,
}

impl Choice {
    const fn growth(growth: Growth) -> Self {
        Self { growth, shape: Shape::Paced }
    }
}

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("SKIPPED: this test needs root");
        assert!(std::env::var_os("SPAND_REQUIRE_ROOT").is_none(), "skipped, and SPAND_REQUIRE_ROOT is set");
    }
    root
}

#[test]
fn windows_of_the_kernel_follow_the_contract_and_the_first_loss_ends_burst_tcp() {
    if !is_root() {
        return;
    }
    let fast = PathConfig::bottleneck(BytesPerSecond(5_000_000), DELAY, Queue::Packets(400));
    let transfer = vec![Step::Send(700 * SEGMENT_BYTES)];
    for (base, growth) in
        [("reno", Growth::Standard), ("reno", dbc(2)), ("cubic", dbc(4)), ("reno", burst(4)), ("cubic", burst(8))]
    {
        let rows = run(base, Choice::growth(growth), &fast, transfer.clone()).unwrap();
        let followed = follow(&rows, growth);
        println!("{base}, {growth:?}: {followed} acknowledgements");
        assert!(followed > 15, "{base}, {growth:?}: only {followed} acknowledgements in slow start");
    }

    // A queue that overflows long before Burst TCP's last window.
    let narrow = PathConfig::bottleneck(BytesPerSecond(250_000), DELAY, Queue::Packets(4));
    let steps =
        vec![Step::Send(80 * SEGMENT_BYTES), Step::Pause(Duration::from_secs(2)), Step::Send(12 * SEGMENT_BYTES)];
    let rows = run("reno", Choice::growth(burst(4)), &narrow, steps).unwrap();
    let lost = rows.iter().position(|row| row.ca_state == Some(CongestionState::Recovery)).expect("a loss");
    let (before, after) = rows.split_at(lost);
    assert!(follow(before, burst(4)) >= 3, "Burst TCP until then");
    // After the idle time the connection starts on advice again, with the threshold far above.
    let again = after.iter().position(|row| row.ssthresh == Some(THRESHOLD)).expect("a second start");
    let again = &after[again..];
    assert_eq!(again[0].cwnd, Some(FIRST));
    assert!(follow(again, Growth::Standard) >= 3, "the kernel's own rule from the loss on");
}

/// The host's own window.
const INITIAL: u32 = 10;

#[test]
fn a_connection_measures_its_threshold_and_sends_half_of_it() {
    if !is_root() {
        return;
    }
    // 86 segments in a round trip of 100 ms, and a queue that nothing overflows.
    let path = PathConfig::bottleneck(BytesPerSecond(1_250_000), Duration::from_millis(50), Queue::Packets(1_000));
    let pipe = 86;
    for (base, shape) in [("reno", Shape::OwnThreshold), ("cubic", Shape::OwnThreshold), ("reno", Shape::OwnPaced)] {
        let choice = Choice { growth: Growth::Standard, shape };
        let rows = run(base, choice, &path, vec![Step::Send(600 * SEGMENT_BYTES)]).unwrap();
        let sent = rows.iter().position(|row| row.cwnd == Some(INITIAL)).expect("a start with the host's window");
        let measured = rows.iter().position(|row| row.ssthresh != Some(NO_THRESHOLD.0));
        let measured = measured.expect("a threshold before the end");
        let (before, after) = (&rows[measured - 1], &rows[measured]);
        let (threshold, window) = (after.ssthresh.unwrap(), after.cwnd.unwrap());
        println!("{base}, {shape}: {threshold} segments by row {measured}, window {:?} to {window}", before.cwnd);
        assert!(measured > sent, "not before the first acknowledgement");
        assert!(rows[..=measured].iter().all(|row| row.ca_state == Some(CongestionState::Open)), "no loss sets it");
        assert!((pipe / 4..=pipe * 4).contains(&threshold), "{base}: {threshold} of {pipe} segments");
        assert!(before.cwnd < Some(threshold / 2), "{base}: HyStart was first, at {:?}", before.cwnd);
        // What the acknowledgement itself adds comes on top.
        let acked = after.delivered.unwrap() - before.delivered.unwrap();
        let least = if shape == Shape::OwnPaced { threshold / 2 } else { before.cwnd.unwrap() };
        assert!((least..=least + acked).contains(&window), "{base}, {shape}: {window} after {:?}", before.cwnd);
        let thresholds = rows[measured..].iter().map(|row| row.ssthresh.unwrap());
        assert!(thresholds.is_sorted_by(|one, next| one >= next), "{base}: a threshold rose");
    }
}

/// The rows of one connection's segments in, started on advice: with [`FIRST`] segments where the shape is paced.
fn run(base: &str, choice: Choice, path: &PathConfig, steps: Vec<Step>) -> Result<Vec<Row>> {
    let _alone = ONE_AT_A_TIME.lock();
    let lab = Topology::build(&[NetworkPlan { prefix: NETWORK.parse()?, clients: 1, path: *path }])?;
    lab.server.default_congestion_control(base)?;
    let cgroup = Cgroup::make("growth")?;
    let record = Record::default();
    let truth = SegmentTruth::start(record.clone(), lab.port)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let applier = runtime.block_on(advised(&cgroup, choice));
    let server = cgroup.enter(|| Server::start_with(&lab.server, lab.port, &Conduct::default()))?;
    let (from, target): (IpAddr, _) = (lab.networks[0].addresses[0], lab.server_address(NETWORK.parse()?));
    let plan = Plan::new(Plan::AS_THE_HOST, steps);
    lab.networks[0].namespace.enter(|| Client::connect(from, target)?.ask(&plan))?;
    std::thread::sleep(DELAY * 4);
    ensure!(applier.counts().get("started") == Some(&1), "not started: {:?}", applier.counts());
    drop(server);
    ensure!(truth.finish()? == 0, "segments without room in the truth");
    Ok(record.rows().into_iter().filter(|row| row.source == Source::SegmentIn).collect())
}

const fn mode(choice: Choice) -> Mode {
    if choice.shape.is_compared_only() { Mode::Paper } else { Mode::Careful }
}

async fn advised(cgroup: &Cgroup, choice: Choice) -> BpfApplier {
    let mut config = Config { apply: ApplyMethod::Bpf, mode: mode(choice), ..Config::default() };
    "growth".clone_into(&mut config.bpf.name);
    config.bpf.control_fraction = 0.0;
    cgroup.folder().clone_into(&mut config.bpf.cgroup);
    let mut policy: Policy = config.policy();
    policy.growths.prefixes.insert(NETWORK.parse().unwrap(), choice.growth);
    let clock = Clock::start();
    let mut applier = BpfApplier::start(&config, &policy, clock).unwrap();
    let now = clock.now();
    // Three quarters of a share of three segments.
    let half_bytes = 2 * 3 * SEGMENT_BYTES;
    let inputs = Inputs {
        share_half_bytes: half_bytes,
        pipe_half_bytes: half_bytes,
        threshold_bytes: u64::from(THRESHOLD) * SEGMENT_BYTES,
        rtt: Some(Micros(40_000)),
        proven: true,
        backed: true,
        lossless: false,
        cap: None,
        lease: None,
        shape: choice.shape,
        opening_half_bytes: 0,
        losses: None,
        overflow_bytes: 0,
    };
    let reason = StartReason { mode: mode(choice), share: Segments(3), clipped_by: None };
    let expires = now.after(Micros::from_secs(600));
    let wanted = Desired { window: Segments(FIRST), reason, expires, announced: None, inputs };
    let desired = DesiredStarts::from([(NETWORK.parse().unwrap(), wanted)]);
    applier.reconcile(&Decided { desired: &desired, skipped: &Skipped::new(), touched: None }, now).await;
    applier
}

/// How many acknowledgements of slow start moved the window just as `growth` says; fails at the first that did not. A segment that came
/// while the socket was in use is processed with the next: then each way to divide what they acknowledged is possible.
fn follow(rows: &[Row], growth: Growth) -> usize {
    let begin = rows.iter().position(|row| row.cwnd == Some(FIRST)).expect("a start on advice");
    let mut possible = vec![GrownWindow::of(Segments(FIRST))];
    let (mut followed, mut waiting) = (0, 0);
    for pair in rows[begin..].windows(2) {
        let [row, next] = pair else { break };
        let (cwnd, ssthresh) = (row.cwnd.unwrap(), row.ssthresh.unwrap());
        // The kernel's HyStart may end slow start.
        if cwnd >= ssthresh || next.ssthresh != row.ssthresh || next.ca_state != Some(CongestionState::Open) {
            break;
        }
        waiting += 1;
        let acked = next.delivered.unwrap() - row.delivered.unwrap();
        if acked == 0 {
            continue;
        }
        let before = possible.clone();
        possible = divided(&before, acked, waiting, &|window, acked| {
            let kernels = GrownWindow::of(Segments((window.whole + acked).min(ssthresh)));
            growth.grow(window, Segments(ssthresh), Segments(acked)).unwrap_or(kernels)
        });
        if row.cwnd_limited != Some(true) {
            possible.extend(before.iter().copied());
        }
        possible.retain(|window| window.whole == next.cwnd.unwrap());
        assert!(
            !possible.is_empty(),
            "{growth:?}: {acked} acknowledged by {waiting} at {cwnd} of {ssthresh}, {before:?}: {:?}",
            next.cwnd
        );
        followed += waiting;
        waiting = 0;
    }
    followed
}

/// The windows after `acked` segments in up to `parts` acknowledgements.
fn divided(
    from: &[GrownWindow],
    acked: u32,
    parts: usize,
    grow: &impl Fn(GrownWindow, u32) -> GrownWindow,
) -> Vec<GrownWindow> {
    let mut all: Vec<GrownWindow> = from.iter().map(|window| grow(*window, acked)).collect();
    if parts > 1 {
        for first in 1..acked {
            let after: Vec<GrownWindow> = from.iter().map(|window| grow(*window, first)).collect();
            all.extend(divided(&after, acked - first, parts - 1, grow));
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}
