//! Starts that rest on the senders under way, on real connections: window and threshold that the kernel has at the first segment are those
//! of the contract's start function.

#![expect(clippy::unwrap_used, reason = "what a test stands on either works or fails it")]

use std::time::Duration;

use parking_lot::Mutex;
use spand_agent::Clock;
use spand_agent::apply::Inputs;
use spand_needs::{Need, needs};
use spand_proto::estimate::{Confidence, Estimate, RuleKind};
use spand_proto::growth::Growth;
use spand_proto::network::Network;
use spand_proto::opening::{LossClock, Opening};
use spand_proto::start::{
    DEFAULT_INITIAL_WINDOW, Mode, NO_THRESHOLD, Shape, StartPolicy, StartRequest, TransferSize, start,
};
use spand_proto::units::{Bytes, BytesPerSecond, Micros, Timestamp, Window};
use spand_tests::advised::{Advice, Stage, ask, by_connection};
use spand_tests::lab::path::{PathConfig, Queue};
use spand_tests::lab::topology::NetworkPlan;
use spand_tests::lab::traffic::Plan;
use spand_tests::lab::truth::{Row, Source};

const MSS: u64 = 1_448;
const DELAY: Duration = Duration::from_millis(40);
/// So much longer than a test that the window by the times of losses stays the same but for a few hundredths; the contract counts no longer
/// one than 2^32 microseconds.
const RARE: Micros = Micros::from_secs(4_000);

/// The tests of this process share the names of cgroup and congestion controls.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn segments(count: f64) -> Window {
    Window::from_bytes(count * MSS as f64).unwrap()
}

/// What is known of a network: a share, half of the windows at losses, and perhaps an opening.
struct Case {
    shape: Shape,
    share: f64,
    at_losses: f64,
    opening: Option<f64>,
    losses: Option<LossClock>,
}

impl Case {
    fn estimate(&self, network: Network, now: Timestamp) -> Estimate {
        let opening = self.opening.map(|threshold| Opening {
            rule: if self.losses.is_some() { RuleKind::Miss } else { RuleKind::Liss },
            threshold: segments(threshold),
            losses: self.losses,
        });
        let rtt = Some(Micros(80_000));
        Estimate {
            network,
            share: segments(self.share),
            mss: Bytes(MSS),
            rtt_min: rtt,
            rtt_mean: rtt,
            samples: 9,
            connections: 9,
            loss_connections: 9,
            losses: 9,
            loss_window: Some(segments(2.0 * self.at_losses)),
            is_lower_bound: false,
            opening,
            buffer: None,
            bdp: None,
            refreshed: now,
            confidence: Confidence::new(1.0),
            rule: RuleKind::Robust,
            mark: None,
        }
    }

    /// As the stage has it.
    fn policy(&self, mode: Mode) -> StartPolicy {
        StartPolicy { fraction: None, floor: None, buffered: true, shape: self.shape, ..StartPolicy::of(mode) }
    }
}

/// The kernel's state at the first segment of a connection of each case, and what the contract says of it.
fn run(base: &str, mode: Mode, cases: &[Case]) -> Vec<(Row, Option<(u32, u32)>)> {
    let _alone = ONE_AT_A_TIME.lock();
    let path = PathConfig::bottleneck(BytesPerSecond(5_000_000), DELAY, Queue::Packets(400));
    let now = Clock::start().now();
    let (mut networks, mut estimates) = (Vec::new(), Vec::new());
    for (number, case) in (0_u8..).zip(cases) {
        let prefix = format!("198.18.{number}.0/24").parse().unwrap();
        let estimate = case.estimate(Network::new(prefix), now);
        let inputs = Inputs::new(&estimate, None, None, &case.policy(mode));
        networks.push((NetworkPlan { prefix, clients: 1, path }, Some(Advice { growth: Growth::Standard, inputs })));
        estimates.push(estimate);
    }
    let stage = Stage::build(base, &networks).unwrap();
    for number in 0..cases.len() {
        ask(&stage.lab, number, 0, &Plan::transfer(Plan::AS_THE_HOST, 100 * MSS)).unwrap();
    }
    let connections = by_connection(stage.finish().unwrap());
    assert_eq!(connections.len(), cases.len());
    let firsts = connections.into_values().map(|rows| {
        let is_first = |row: &&Row| row.source == Source::SegmentOut && row.data_segs_out > Some(0);
        *rows.iter().find(is_first).unwrap()
    });
    let expect = |((row, case), estimate): ((Row, &Case), &Estimate)| {
        let request = StartRequest {
            estimate: Some(estimate),
            now: Clock::start().now(),
            size: TransferSize::Unknown,
            mss: Bytes(row.mss.unwrap().into()),
            snd_wnd: Some(Bytes(row.snd_wnd.unwrap().into())),
            handshake_rtt: row.srtt_us.map(|rtt| Micros(rtt.into())),
            initial_window: DEFAULT_INITIAL_WINDOW,
            budget: None,
        };
        let start = start(&request, &case.policy(mode)).ok().map(|start| (start.cwnd.0, start.ssthresh.0));
        println!("{base}, {}: {:?}, {:?} by the contract", case.shape, (row.cwnd, row.ssthresh), start);
        (row, start)
    };
    // By address, as the networks.
    firsts.zip(cases).zip(&estimates).map(expect).collect()
}

fn case(shape: Shape, opening: Option<f64>) -> Case {
    Case { shape, share: 60.0, at_losses: 20.0, opening, losses: None }
}

#[test]
fn a_threshold_and_a_jump_start_as_the_contract_says() {
    if !needs(Need::Root) {
        return;
    }
    for base in ["reno", "cubic"] {
        let cases = [
            case(Shape::Threshold, Some(32.4)),
            // Half of the windows at losses is more.
            case(Shape::Threshold, Some(7.0)),
            case(Shape::Jump, Some(32.4)),
            // A smaller start than the host's, since losses say so.
            case(Shape::Jump, Some(4.0)),
            case(Shape::Jump, None),
        ];
        let starts = run(base, Mode::Careful, &cases);
        for (row, start) in &starts {
            let plain = (DEFAULT_INITIAL_WINDOW.0, NO_THRESHOLD.0);
            assert_eq!((row.cwnd.unwrap(), row.ssthresh.unwrap()), start.unwrap_or(plain), "{base}: {row:?}");
        }
        let starts: Vec<Option<(u32, u32)>> = starts.into_iter().map(|(_, start)| start).collect();
        assert_eq!(starts, [Some((10, 32)), Some((10, 20)), Some((32, 32)), Some((4, 20)), None], "{base}");
    }
}

#[test]
fn a_start_by_the_times_of_losses_is_the_contracts_and_the_hosts_own_where_one_is_overdue() {
    if !needs(Need::Root) {
        return;
    }
    let now = Clock::start().now();
    let measured = |last, oldest_interval| Case {
        losses: Some(LossClock { interval: RARE, oldest_interval, last }),
        ..case(Shape::Measured, Some(32.4))
    };
    let cases = [
        measured(now, Micros::from_secs(3)),
        // The threshold is larger than the window.
        measured(now, Micros::from_secs(2)),
        // Losses so rare that only the peer's window bounds the start.
        measured(now, Micros::from_secs(400)),
        measured(now.before(RARE).before(Micros(1)), Micros::from_secs(4)),
    ];
    let starts = run("reno", Mode::Paper, &cases);
    for (row, start) in &starts {
        let (cwnd, ssthresh) = start.unwrap();
        // The clock goes on between the kernel's question and this one.
        let near = |kernels: Option<u32>, contracts: u32| kernels.unwrap().abs_diff(contracts) <= 1 + contracts / 50;
        assert!(near(row.cwnd, cwnd) && near(row.ssthresh, ssthresh), "{start:?}: {row:?}");
    }
    let [three, two, rare, overdue] = [0, 1, 2, 3].map(|number| starts[number].1.unwrap());
    // A machine that is busy answers later than the path.
    assert!((11..=37).contains(&three.0) && three.1 == three.0.max(32), "{three:?}");
    assert!((11..=25).contains(&two.0) && two.1 == 32, "{two:?}");
    assert!((three.0..=100).contains(&rare.0) && rare.1 > 1_000, "{rare:?}");
    assert_eq!(overdue, (10, 32));
}
