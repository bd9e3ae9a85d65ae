//! Starts with right and wrong shares on a path of the lab: their acknowledgements correct the wrong ones.

#![expect(clippy::unwrap_used, reason = "what a test stands on either works or fails it")]

use std::time::Duration;

use parking_lot::Mutex;
use spand_agent::config::Bbr;
use spand_needs::{Need, needs};
use spand_proto::units::BytesPerSecond;
use spand_tests::advised::{Advice, Stage, ask};
use spand_tests::lab::path::{PathConfig, Queue};
use spand_tests::lab::topology::NetworkPlan;
use spand_tests::lab::traffic::Plan;

const MSS: u64 = 1_448;
const DELAY: Duration = Duration::from_millis(25);
/// What fills 20 Mbit/s for one round trip, what fills half of the queue besides, and all of it: the share of BBR, of CUBIC and Reno on
/// average, and at their losses.
const PIPE: u32 = 86;
const WITH_QUEUE: u32 = 136;
const AT_LOSSES: u32 = 186;
/// Transfers of a run, and their bytes.
const TRANSFERS: u32 = 4;
const BYTES: u64 = 1_000_000;

/// Tests of one process use the same names of cgroup and congestion controls, so they run one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A host, and the path to its clients.
#[derive(Clone, Copy)]
struct Host {
    base: &'static str,
    bbr: Bbr,
    check: bool,
    mbit: u64,
    /// Of deliveries, both ways.
    bunched: Duration,
}

const ON_BBR: Host = Host { base: "bbr", bbr: Bbr::Full, check: true, mbit: 20, bunched: Duration::ZERO };
const ON_CUBIC: Host = Host { base: "cubic", ..ON_BBR };
const BUNCHED: Duration = Duration::from_millis(10);

/// What the programs counted, and how long the transfers took.
#[derive(Debug)]
struct Outcome {
    seeded: u64,
    too_high: u64,
    too_low: u64,
    handed_over: u64,
    times: Vec<Duration>,
}

impl Outcome {
    fn shortest(&self) -> Duration {
        self.times.iter().min().copied().unwrap()
    }

    /// Whether the machine paused: one transfer took a quarter longer than another over the same path.
    fn is_disturbed(&self) -> bool {
        self.times.iter().any(|time| *time > self.shortest() * 5 / 4)
    }
}

impl Host {
    /// Transfers one after another, each on a connection of its own. Windows are at most 100 segments (`policy.cap_segments`).
    fn run(self, share: u32, bytes: u64, transfers: u32) -> Outcome {
        let _alone = ONE_AT_A_TIME.lock();
        let mut path = PathConfig::bottleneck(BytesPerSecond(self.mbit * 125_000), DELAY, Queue::Packets(100));
        (path.down.impairments.bunched, path.up.impairments.bunched) = (self.bunched, self.bunched);
        let plan = NetworkPlan { prefix: "198.18.0.0/24".parse().unwrap(), clients: 1, path };
        let mut advice = Advice::start(share, 0, MSS, 2 * DELAY);
        advice.inputs.bdp_bytes = u64::from(PIPE) * MSS;
        let stage = Stage::build_with(self.base, (self.bbr, self.check), &[(plan, Some(advice))]).unwrap();
        let times = (0..transfers)
            .map(|_| ask(&stage.lab, 0, 0, &Plan::transfer(Plan::AS_THE_HOST, bytes)).unwrap().completion)
            .collect();
        let [too_high, too_low] =
            if self.base == "bbr" { ["bbr_too_high", "bbr_too_low"] } else { ["share_too_high", "share_too_low"] }
                .map(|name| stage.count(name));
        let [seeded, handed_over] = ["bbr_seeded", "bbr_handed_over"].map(|name| stage.count(name));
        stage.finish().unwrap();
        let outcome = Outcome { seeded, too_high, too_low, handed_over, times };
        println!("{} {:?}, share {share}, {bytes} bytes: {outcome:?}", self.base, self.bbr);
        outcome
    }

    fn of(self, share: u32) -> Outcome {
        self.run(share, BYTES, TRANSFERS)
    }

    /// The last of at most three runs, the first that no pause of the machine disturbed: to a sender, a pause of 200 ms
    /// is a path that became narrow.
    fn of_undisturbed(self, share: u32) -> Outcome {
        (0..2).map(|_| self.of(share)).find(|outcome| !outcome.is_disturbed()).unwrap_or_else(|| self.of(share))
    }
}

#[test]
fn acknowledgements_confirm_an_estimate_of_bbr_that_is_right_and_correct_one_that_is_not() {
    if !needs(Need::Root) {
        return;
    }
    // Nine round trips and some: too few for the hand-over.
    let right = ON_BBR.of(PIPE);
    assert_eq!((right.seeded, right.handed_over), (TRANSFERS.into(), 0));
    assert_eq!(ON_BBR.run(PIPE, 4 * BYTES, 1).handed_over, 1);
    let low = ON_BBR.of(PIPE / 4);
    assert!(low.too_low > 0 && low.too_high == 0, "{low:?}");
    let high = ON_BBR.of(4 * PIPE);
    assert!(high.too_high > 0 && high.too_low == 0, "{high:?}");
    // Most, for the sake of a busy machine.
    assert!(right.too_high + right.too_low < TRANSFERS.into(), "{right:?}");
    let window = Host { bbr: Bbr::Window, ..ON_BBR }.of(PIPE);
    assert_eq!((window.seeded, window.handed_over), (0, 0));
    // Neither is slower for it: the path is full from the first flight on.
    assert!(right.shortest() < window.shortest() * 11 / 10, "{right:?}, {window:?}");
}

#[test]
fn acknowledgements_in_bunches_are_no_narrow_path() {
    if !needs(Need::Root) {
        return;
    }
    let bbr = Host { bunched: BUNCHED, ..ON_BBR };
    let right = bbr.of_undisturbed(PIPE);
    assert_eq!((right.seeded, right.too_high), (TRANSFERS.into(), 0), "{right:?}");
    let high = bbr.of(4 * PIPE);
    assert!(high.too_high > u64::from(TRANSFERS) / 2, "{high:?}");
    let cubic = Host { bunched: BUNCHED, ..ON_CUBIC }.of_undisturbed(AT_LOSSES);
    assert_eq!((cubic.too_high, cubic.too_low), (0, 0), "{cubic:?}");
    // Bunches show no rate: round trips that do not grow raise the threshold.
    let low = Host { bunched: BUNCHED, ..ON_CUBIC }.of(PIPE / 4);
    assert!(low.too_low > u64::from(TRANSFERS) / 2 && low.too_high == 0, "{low:?}");
}

#[test]
fn acknowledgements_correct_a_share_that_is_wrong_on_cubic_and_reno() {
    if !needs(Need::Root) {
        return;
    }
    for base in ["cubic", "reno"] {
        let host = Host { base, ..ON_CUBIC };
        let right = host.of(WITH_QUEUE);
        assert!(right.too_high + right.too_low < u64::from(TRANSFERS) / 2, "{right:?}");
        let low = host.of(PIPE / 4);
        assert!(low.too_low > u64::from(TRANSFERS) / 2 && low.too_high == 0, "{low:?}");
        let unchecked = Host { check: false, ..host }.of(PIPE / 4);
        assert_eq!((unchecked.too_high, unchecked.too_low), (0, 0));
        assert!(low.shortest() < unchecked.shortest() * 9 / 10, "{low:?}, {unchecked:?}");
        // The path is a quarter of what it was.
        let high = Host { mbit: 5, ..host }.of(PIPE);
        assert!(high.too_high > u64::from(TRANSFERS) / 2 && high.too_low == 0, "{high:?}");
    }
}
