//! Slow start by the rules of `[start]` on real connections: every window that the kernel says follows from the one before by the
//! contract's function, acknowledgement by acknowledgement, and the first loss ends Burst TCP for good. And the shapes whose connections
//! measure a threshold of their own.

#![expect(clippy::unwrap_used, reason = "what a test stands on either works or fails it")]

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Result, ensure};
use parking_lot::Mutex;
use spand_needs::{Need, needs};
use spand_proto::growth::Growth;
use spand_proto::start::{NO_THRESHOLD, Shape};
use spand_proto::units::BytesPerSecond;
use spand_tests::advised::{Advice, Stage, ask, follow};
use spand_tests::lab::path::{PathConfig, Queue};
use spand_tests::lab::topology::NetworkPlan;
use spand_tests::lab::traffic::{Plan, Step};
use spand_tests::lab::truth::{CongestionState, Row, Source};

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

/// Tests of one process use the same names of cgroup and congestion controls, so they run one at a time.
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

#[test]
fn windows_of_the_kernel_follow_the_contract_and_the_first_loss_ends_burst_tcp() {
    if !needs(Need::Root) {
        return;
    }
    let fast = PathConfig::bottleneck(BytesPerSecond(5_000_000), DELAY, Queue::Packets(400));
    let transfer = vec![Step::Send(700 * SEGMENT_BYTES)];
    for (base, growth) in
        [("reno", Growth::Standard), ("reno", dbc(2)), ("cubic", dbc(4)), ("reno", burst(4)), ("cubic", burst(8))]
    {
        let rows = run(base, Choice::growth(growth), &fast, transfer.clone()).unwrap();
        let count = followed(&rows, growth);
        println!("{base}, {growth:?}: {count} acknowledgements");
        assert!(count > 15, "{base}, {growth:?}: only {count} acknowledgements in slow start");
    }

    // A queue that overflows long before Burst TCP's last window.
    let narrow = PathConfig::bottleneck(BytesPerSecond(250_000), DELAY, Queue::Packets(4));
    let steps =
        vec![Step::Send(80 * SEGMENT_BYTES), Step::Pause(Duration::from_secs(2)), Step::Send(12 * SEGMENT_BYTES)];
    let rows = run("reno", Choice::growth(burst(4)), &narrow, steps).unwrap();
    let lost = rows.iter().position(|row| row.ca_state == Some(CongestionState::Recovery)).expect("a loss");
    let (before, after) = rows.split_at(lost);
    assert!(followed(before, burst(4)) >= 3, "Burst TCP until then");
    // After the idle time the connection starts on advice again, with the threshold far above.
    let again = after.iter().position(|row| row.ssthresh == Some(THRESHOLD)).expect("a second start");
    let again = &after[again..];
    assert_eq!(again[0].cwnd, Some(FIRST));
    assert!(followed(again, Growth::Standard) >= 3, "the kernel's own rule from the loss on");
}

/// The host's own window.
const INITIAL: u32 = 10;

#[test]
fn a_connection_measures_its_threshold_and_sends_half_of_it() {
    if !needs(Need::Root) {
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
    let rtt = path.base_rtt();
    let advice = match choice.shape {
        Shape::Paced => Advice::start(FIRST, THRESHOLD, SEGMENT_BYTES, rtt),
        shape => Advice::shape(shape, rtt),
    };
    let plan = NetworkPlan { prefix: NETWORK.parse()?, clients: 1, path: *path };
    let stage = Stage::build(base, &[(plan, Some(advice.growing(choice.growth)))])?;
    ask(&stage.lab, 0, 0, &Plan::new(Plan::AS_THE_HOST, steps))?;
    std::thread::sleep(rtt * 2);
    ensure!(stage.started() == 1, "{} connections started on advice", stage.started());
    Ok(stage.finish()?.into_iter().filter(|row| row.source == Source::SegmentIn).collect())
}

/// How many acknowledgements of slow start moved the window just as `growth` says; fails at the first that did not.
fn followed(rows: &[Row], growth: Growth) -> usize {
    let followed = follow(rows, FIRST, growth);
    assert_eq!(followed.difference, None);
    followed.acknowledgements
}
