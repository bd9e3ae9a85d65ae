//! The store against SIGKILL: a child process changes 10,000 networks and is killed at random moments, during its start,
//! its writes and its pauses. The store must open every time, and hold what a twin holds but for what the writer's own
//! lag admitted when it last could. With them one step of the history of the whole is handed over each time. With `SPAND_KILLS` that is held against the clock: never more than two seconds.
//!
//! ```text
//! SPAND_KILLS=100 SPAND_SEED=7 cargo test --release -p spand-tests --test store_kill
//! ```
//!
//! Not a test of a power failure: what the kernel has taken stays.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use spand_core::window::record::NetworkRecord;
use spand_gateway::store::{SledStore, StoreWriter};
use spand_gateway::totals::{Counts, Differences, Gauges, Point, Step};
use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};
use spand_tests::networks::{changes, network};

/// Networks that change.
const NETWORKS: u32 = 10_000;
/// Changes of one tick, and the time between two: 10,000 changes a second.
const CHANGES_PER_TICK: u32 = 1_000;
const TICK: Duration = Duration::from_millis(100);
/// The gateway's own interval of writes.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// What a crash may lose.
const MAY_LOSE: Duration = Duration::from_secs(2);
/// Longest life of a child.
const LONGEST_LIFE: Duration = Duration::from_secs(5);

const CHILD: &str = "SPAND_STORE_KILL_CHILD";

type State = BTreeMap<Network, NetworkRecord>;

fn main() {
    if let Ok(orders) = std::env::var(CHILD) {
        return child(&orders);
    }
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().expect(name));
    // A machine busy with other tests may well be slower than the two seconds; a run of its own must not be.
    let against_the_clock = std::env::var_os("SPAND_KILLS").is_some();
    let kills = number("SPAND_KILLS", 8);
    let seed = number("SPAND_SEED", rand::random::<u32>().into());
    println!("store_kill: {kills} kills, seed {seed} (SPAND_KILLS, SPAND_SEED)");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("estimates");
    let mut random = StdRng::seed_from_u64(seed);
    let mut round = Round { path, seed, against_the_clock, tick: 0, held: State::new() };
    let (mut changed, mut early, mut largest_lag) = (0, 0, Duration::ZERO);
    for kill in 1..=kills {
        // One child in five dies within its start.
        let most = if random.random_bool(0.2) { Duration::from_millis(100) } else { LONGEST_LIFE };
        let life = most.mul_f64(random.random());
        let ticks = round.live_and_die(life);
        changed += ticks.len();
        early += usize::from(ticks.is_empty());
        largest_lag = ticks.iter().map(|tick| tick.lag).fold(largest_lag, Duration::max);
        round.check(&ticks, kill, life);
    }
    // A run in which nothing was ever written or every child died at once would prove nothing.
    assert!(changed as u64 > kills && early < changed, "{changed} ticks in {kills} lives");
    println!("store_kill: opened {kills} times after {changed} ticks; {early} children died before their first tick");
    println!("store_kill: largest lag {:.2} s", largest_lag.as_secs_f64());
}

/// One hand-over of changes.
struct Tick {
    /// When, by the child's clock.
    at: Duration,
    /// How far the store was behind then, as its writer says.
    lag: Duration,
    /// Time from its arrival here to the kill.
    before_kill: Duration,
}

/// What the next child begins with.
struct Round {
    path: PathBuf,
    seed: u64,
    against_the_clock: bool,
    /// Ticks so far.
    tick: u64,
    /// What the store held when it was last opened.
    held: State,
}

impl Round {
    /// Starts a child and kills it after `life`. Gives its ticks.
    fn live_and_die(&self, life: Duration) -> Vec<Tick> {
        let orders = format!("{} {} {}", self.seed, self.tick, self.path.display());
        let exe = std::env::current_exe().expect("this program");
        let born = Instant::now();
        let mut child =
            Command::new(exe).env(CHILD, orders).stdout(Stdio::piped()).spawn().expect("a child of this program");
        let output = child.stdout.take().expect("its output");
        let (sender, ticks) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let mut times = line.split(' ').map(|number| Duration::from_nanos(number.parse().expect("a time")));
                let (at, lag) = (times.next().expect("when"), times.next().expect("a lag"));
                sender.send((at, lag, Instant::now())).expect("the parent listens");
            }
        });
        std::thread::sleep(life.saturating_sub(born.elapsed()));
        let killed = Instant::now();
        child.kill().expect("the child is there to be killed");
        child.wait().expect("its end");
        reader.join().expect("its output");
        let tick = |(at, lag, arrived)| Tick { at, lag, before_kill: killed.saturating_duration_since(arrived) };
        ticks.into_iter().map(tick).collect()
    }

    /// Opens the store; every network must be as it was at some moment since the last tick that cannot be lost.
    fn check(&mut self, ticks: &[Tick], kill: u64, life: Duration) {
        let contents = SledStore::open(&self.path).expect("the store opens").contents;
        assert_eq!(contents.deleted, None, "kill {kill} after {life:?}");
        let found: State = contents.records.into_iter().collect();
        // One tick more than was reported: the child may have died between handing over and telling.
        let on_disk = ticks.last().map_or(Duration::ZERO, |last| last.at.saturating_sub(last.lag));
        let is_firm = |tick: &Tick| tick.at < on_disk || self.against_the_clock && tick.before_kill > MAY_LOSE;
        let firm = ticks.iter().filter(|tick| is_firm(tick)).count();
        let steps: BTreeMap<_, _> = contents.totals.into_iter().map(|(_, point)| (point.at, point)).collect();
        for tick in self.tick..self.tick + firm as u64 {
            let expected = step(tick);
            assert_eq!(steps.get(&expected.at), Some(&expected), "kill {kill} after {life:?}");
        }
        let mut twin = std::mem::take(&mut self.held);
        let mut later: BTreeMap<Network, Vec<Option<NetworkRecord>>> = BTreeMap::new();
        for place in 0..=ticks.len() {
            for (network, record) in changes(self.seed, self.tick + place as u64, NETWORKS, CHANGES_PER_TICK) {
                if place < firm {
                    apply(&mut twin, network, record);
                } else {
                    later.entry(network).or_default().push(record);
                }
            }
        }
        for network in (0..NETWORKS).map(network) {
            let found = found.get(&network);
            let may_be = later.get(&network).into_iter().flatten().map(Option::as_ref);
            assert!(
                found == twin.get(&network) || may_be.into_iter().any(|record| record == found),
                "kill {kill} after {life:?}, {} ticks, {firm} of them firm: {network} is of {:?}, its twin of {:?}",
                ticks.len(),
                found.and_then(|record| record.newest),
                twin.get(&network).and_then(|record| record.newest)
            );
        }
        self.tick += ticks.len() as u64 + 1;
        self.held = found;
    }
}

/// Lives as the gateway does: opens, takes what is there, and hands over what changed until killed.
fn child(orders: &str) {
    let mut orders = orders.splitn(3, ' ');
    let mut next = || orders.next().expect("seed, tick and path");
    let seed: u64 = next().parse().expect("a seed");
    let first_tick: u64 = next().parse().expect("a tick");
    let opened = SledStore::open(Path::new(next())).expect("the store opens");
    let writer = StoreWriter::start(opened.store, SAVE_INTERVAL).expect("a thread");
    let mut output = std::io::stdout().lock();
    let started = Instant::now();
    for tick in 0.. {
        // Before the networks, whose lag then holds for it too.
        let point = step(first_tick + u64::from(tick));
        writer.submit_totals([((Step::Minute, point.at), Some(point))].into());
        writer.submit(changes(seed, first_tick + u64::from(tick), NETWORKS, CHANGES_PER_TICK));
        // The time before the lag: what was handed over before the difference is on the disk. Not rounded: a hand-over and its
        // time are less than a microsecond apart.
        let (at, lag) = (started.elapsed().as_nanos(), writer.measures().lag().as_nanos());
        writeln!(output, "{at} {lag}").and_then(|()| output.flush()).expect("the parent listens");
        std::thread::sleep((TICK * (tick + 1)).saturating_sub(started.elapsed()));
    }
}

/// The step of the history that a tick hands over.
fn step(tick: u64) -> Point {
    Point {
        at: Timestamp(tick * 60_000_000_000),
        observed: Micros::from_secs(60),
        counts: Counts { packets: tick, ..Counts::default() },
        gauges: Gauges::default(),
        differences: Differences::default(),
    }
}

fn apply(state: &mut State, network: Network, record: Option<NetworkRecord>) {
    match record {
        Some(record) => drop(state.insert(network, record)),
        None => drop(state.remove(&network)),
    }
}
