//! The store on disk against a map, of networks and of the experiment, through restarts and damage, and its writer on a store
//! that fails: it tells the truth or nothing, and goes on.

#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use spand_core::window::bucket::Bucket;
use spand_core::window::record::NetworkRecord;
use spand_gateway::publisher::Client;
use spand_gateway::store::fuzzing::{experiment_entry, experiment_host, experiment_key, experiments, reporting_hosts};
use spand_gateway::store::{
    Change, EstimateStore, Experiment, ExperimentChange, NewestBatch, OpenError, Opened, ReportingHost, SledStore,
    StoreError, StoreWriter,
};
use spand_proto::comparison::Comparison;
use spand_proto::network::Network;
use spand_proto::report::{Arm, ConnectionReport, Transport};
use spand_proto::units::{Bytes, Micros, Segments, Timestamp};

#[derive(Arbitrary, Debug)]
enum Step {
    Save(Changes),
    Flush,
    Reopen,
    /// A second gateway comes.
    Again,
    /// The writer gets the store, and changes one after the other; then all of it ends.
    Write(Vec<Changes>),
    /// The same with another store, that fails.
    Fail {
        answers: Vec<Answer>,
        changes: Vec<Changes>,
    },
    /// What is beside the database.
    Version(Version),
    Flip {
        file: u8,
        at: u16,
        mask: u8,
    },
    Truncate {
        file: u8,
        to: u32,
    },
    Overwrite {
        file: u8,
        at: u16,
        with: Vec<u8>,
    },
    Remove {
        file: u8,
    },
    /// Hosts report to the experiment, or are forgotten.
    Report(Reports),
    /// The experiment starts again from zero.
    Reset,
    /// An entry of the experiment is anything, sealed or not.
    Entry {
        key: Vec<u8>,
        entry: Vec<u8>,
    },
}

/// Hosts and their newest batches, and how long the one transfer of each took in milliseconds.
type Reports = Vec<(u8, Option<u16>, u16)>;

/// What the store holds of the experiment: the entry of its comparison, and its hosts.
#[derive(Clone, Debug, Default, PartialEq)]
struct Compared {
    entry: Option<Vec<u8>>,
    hosts: BTreeMap<Client, ReportingHost>,
}

type Changes = Vec<(u8, Option<u8>)>;

/// What a store says to a write.
#[derive(Arbitrary, Clone, Copy, Debug, Eq, PartialEq)]
enum Answer {
    Yes,
    No,
    Never,
}

#[derive(Arbitrary, Debug)]
enum Version {
    Says(i8),
    Text(Vec<u8>),
    Missing,
    /// A crash came before it was whole.
    Half,
    /// Nothing but something else is there.
    Foreign,
    /// A file is there instead of the folder.
    File,
    /// The database crashed while it wrote a snapshot.
    HalfSnapshot,
}

/// A database is opened and closed by threads and files; more steps only make a case slow.
const MOST_STEPS: usize = 12;

fuzz_target!(|steps: Vec<Step>| {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let dir = tempfile::tempdir_in(parent).expect("a folder");
    let path = dir.path().join("estimates");
    let mut twin = BTreeMap::new();
    let mut compared = Compared::default();
    let mut experiment = begun();
    let mut store = open(&path).store;
    for step in steps.into_iter().take(MOST_STEPS) {
        match step {
            Step::Save(changes) => {
                let changes = changes_of(changes);
                store.save(&changes).expect("a sound store takes changes");
                enter(&mut twin, changes);
            }
            Step::Flush => store.flush().expect("a sound store flushes"),
            Step::Reopen => {
                drop(store);
                store = whole(&path, &twin, &compared);
            }
            Step::Again => {
                let error = SledStore::open(&path).map(drop).expect_err("one gateway has it");
                assert!(matches!(error, OpenError::InUse(_)), "{error}");
            }
            Step::Write(rounds) => {
                let writer = StoreWriter::start(store, Duration::from_secs(3_600)).expect("a thread");
                for changes in rounds {
                    let changes = changes_of(changes);
                    writer.submit(changes.iter().cloned());
                    enter(&mut twin, changes);
                }
                // The same once more: with what was saved it is one experiment.
                let change = change_of(Vec::new(), &mut experiment, &mut compared);
                writer.submit_experiment(change);
                writer.stop().expect("a sound store takes changes");
                store = whole(&path, &twin, &compared);
            }
            Step::Fail { answers, changes } => fail(answers, changes),
            Step::Version(version) => {
                drop(store);
                let opened = beside(&path, &version, &mut twin, &mut compared);
                experiment = opened.experiment.ok().flatten().map_or_else(begun, |saved| saved.experiment);
                store = opened.store;
            }
            Step::Report(reports) => {
                let change = change_of(reports, &mut experiment, &mut compared);
                assert_eq!(store.save_experiment(&change), Ok(true), "a sound store has all hosts");
            }
            Step::Reset => {
                store.remove_experiment().expect("a sound store takes changes");
                (compared, experiment) = (Compared::default(), begun());
            }
            Step::Entry { key, entry } => decode(&key, &entry),
            harm => {
                drop(store);
                strike(&path.join("sled"), &harm);
                let opened = open(&path);
                // Older records may come back where newer ones are damaged; none is of another network.
                for (network, record) in &opened.records {
                    assert_eq!(record.buckets.len(), 20);
                    assert!(record.buckets.iter().all(|bucket| bucket.index == 170_000_000), "{network}");
                }
                assert!(opened.set_aside.is_none() || opened.records.is_empty());
                // What comes back of the experiment was written so; where none does, the next one begins without its hosts.
                compared = compared_in(&opened);
                experiment = opened.experiment.ok().flatten().map_or_else(begun, |saved| saved.experiment);
                twin = opened.records.into_iter().collect();
                store = opened.store;
            }
        }
    }
});

fn changes_of(changes: Changes) -> Vec<Change> {
    changes.into_iter().map(|(n, byte)| (network(n), byte.map(record))).collect()
}

fn enter(twin: &mut BTreeMap<Network, NetworkRecord>, changes: impl IntoIterator<Item = Change>) {
    for (network, record) in changes {
        match record {
            Some(record) => drop(twin.insert(network, record)),
            None => drop(twin.remove(&network)),
        }
    }
}

fn begun() -> Experiment {
    Experiment { since: Timestamp(1_700_000_000_000_000_000), comparison: Comparison::default(), beyond: 0 }
}

fn host(n: u8) -> Client {
    match n % 3 {
        0 => Client::Certificate(format!("web-{n}")),
        1 => Client::Address([10, 0, 0, n].into()),
        _ => Client::Address([0x2001, 0xdb8, n.into(), 0, 0, 0, 0, 0].into()),
    }
}

/// What such reports change of the experiment, entered in what the store is to hold.
fn change_of(reports: Reports, experiment: &mut Experiment, compared: &mut Compared) -> ExperimentChange {
    let mut hosts = BTreeMap::new();
    for (n, batch, ms) in reports.into_iter().take(64) {
        let saved = batch.map(|batch| {
            experiment.comparison.take(&transfer(n, ms));
            let agents = vec![NewestBatch { name: n.into(), started: Timestamp(1), batch: batch.into() }];
            ReportingHost { heard: Timestamp(ms.into()), agents, compared: [[ms.into(); 2]; 7] }
        });
        match saved.clone() {
            Some(saved) => drop(compared.hosts.insert(host(n), saved)),
            None => drop(compared.hosts.remove(&host(n))),
        }
        hosts.insert(host(n), saved);
    }
    compared.entry = experiment_entry(experiment);
    ExperimentChange { experiment: experiment.clone(), hosts, all_hosts: false }
}

fn transfer(n: u8, ms: u16) -> ConnectionReport {
    ConnectionReport {
        host: ([10, 0, 0, n], 443).into(),
        remote: ([192, 0, 2, 1], 50_000).into(),
        ended_ago: Micros(0),
        duration: Some(Micros::from_millis(ms.into())),
        end_window: Some(Bytes(u64::from(ms) * 31)),
        mss: Some(Bytes(1_448)),
        srtt: None,
        rtt_min: None,
        acknowledged: Bytes(u64::from(ms) << (n % 20)),
        retransmitted: Segments(u32::from(n)),
        first_flight_loss: None,
        first_flight: None,
        limited_by: None,
        arm: Some(if ms % 2 == 0 { Arm::Advised } else { Arm::Control }),
        advised: None,
        refusal: None,
        paused: n == 99,
        transport: Transport::Tcp,
        loss_window: None,
        congestion_events: 0,
        ended_in_slow_start: None,
        careful_resume: None,
    }
}

/// What a store that was opened holds of the experiment.
fn compared_in(opened: &Opened) -> Compared {
    let Ok(Some(saved)) = &opened.experiment else { return Compared::default() };
    Compared { entry: experiment_entry(&saved.experiment), hosts: saved.hosts.iter().cloned().collect() }
}

/// What is read of any bytes is, written and read again, the same.
fn decode(key: &[u8], entry: &[u8]) {
    if let Some(host) = experiment_host(key) {
        assert_eq!(experiment_key(&host).as_deref(), Some(key));
    }
    for experiment in experiments(entry).into_iter().flatten() {
        experiment.comparison.classes();
        let written = experiment_entry(&experiment).expect("what was read");
        let [again, _] = experiments(&written);
        // Bytes and not figures: some are not equal to themselves.
        assert_eq!(experiment_entry(&again.expect("what we write")), Some(written));
    }
    for host in reporting_hosts(key, entry).into_iter().flatten() {
        assert!(host.agents.len() <= entry.len());
    }
}

/// Opens a store that nothing has happened to.
fn whole(path: &Path, twin: &BTreeMap<Network, NetworkRecord>, compared: &Compared) -> SledStore {
    let opened = open(path);
    assert_eq!((opened.unreadable, opened.set_aside.as_ref()), (0, None));
    assert_eq!(compared_in(&opened), *compared);
    assert_eq!(opened.records.into_iter().collect::<BTreeMap<_, _>>(), *twin);
    opened.store
}

/// A store in memory that answers as the input says, and in the end takes everything.
struct Failing {
    answers: Vec<Answer>,
    held: Arc<Mutex<BTreeMap<Network, NetworkRecord>>>,
}

impl EstimateStore for Failing {
    fn save(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let (action, why) = ("save", "by the input".to_owned());
        match self.answers.pop() {
            Some(Answer::No) => return Err(StoreError::Database { action, why }),
            Some(Answer::Never) => {
                self.answers.push(Answer::Never);
                return Err(StoreError::Broken { action, why });
            }
            Some(Answer::Yes) | None => enter(&mut self.held.lock().expect("one thread"), changes.iter().cloned()),
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A writer tries again what a store refused, and lets go of what a broken one never takes.
fn fail(mut answers: Vec<Answer>, rounds: Vec<Changes>) {
    answers.truncate(8);
    let breaks = answers.contains(&Answer::Never);
    let held = Arc::default();
    let writer = StoreWriter::start(Failing { answers, held: Arc::clone(&held) }, Duration::from_micros(50));
    let writer = writer.expect("a thread");
    let mut twin = BTreeMap::new();
    for changes in rounds.into_iter().take(8) {
        let changes = changes_of(changes);
        writer.submit(changes.iter().cloned());
        enter(&mut twin, changes);
        std::thread::sleep(Duration::from_micros(60));
    }
    let measures = writer.measures().clone();
    match writer.stop() {
        // What never was refused for good is there.
        Ok(()) => {
            assert!(*held.lock().expect("one thread") == twin && measures.waiting() == 0 && measures.lag().is_zero())
        }
        Err(StoreError::Database { .. }) => assert!(measures.waiting() > 0 && measures.failures.get() > 0),
        Err(StoreError::Broken { .. }) => assert!(breaks && measures.waiting() == 0 && measures.dropped.get() > 0),
    }
}

/// Changes what is beside the database, and opens the store.
fn beside(
    path: &Path,
    version: &Version,
    twin: &mut BTreeMap<Network, NetworkRecord>,
    compared: &mut Compared,
) -> Opened {
    let file = path.join("VERSION");
    let write = |text: &[u8]| fs::write(&file, text).expect("room on the disk");
    let mut foreign = false;
    match version {
        Version::Says(number) => write(format!("spand store {number}\n").as_bytes()),
        Version::Text(text) => write(text),
        Version::Missing => fs::remove_file(&file).expect("it is there"),
        Version::Half => {
            fs::remove_dir_all(path).expect("it is ours");
            fs::create_dir(path).expect("room on the disk");
            fs::write(path.join("VERSION.new"), "spand sto").expect("room on the disk");
            twin.clear();
            *compared = Compared::default();
        }
        Version::Foreign | Version::File => {
            fs::remove_dir_all(path).expect("it is ours");
            twin.clear();
            *compared = Compared::default();
            foreign = true;
            if matches!(version, Version::File) {
                fs::write(path, "of someone else").expect("room on the disk");
            } else {
                fs::create_dir(path).expect("room on the disk");
                fs::write(path.join("thesis.txt"), "of someone else").expect("room on the disk");
            }
        }
        Version::HalfSnapshot => {
            fs::write(path.join("sled/snap.00000000000F0000.generating"), [1; 40]).expect("room on the disk");
        }
    }
    if foreign {
        let error = SledStore::open(path).map(drop).expect_err("it is of someone else");
        assert!(matches!(error, OpenError::NotAStore(_)), "{error}");
        let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        removed.expect("it was left alone");
    }
    let opened = open(path);
    match &opened.set_aside {
        // A newer or nameless store is kept whole for a gateway that can read it.
        Some(aside) => {
            assert!(opened.records.is_empty() && aside.to.join("sled").is_dir());
            assert!(!aside.to_string().contains('\n'), "{aside}");
            twin.clear();
            *compared = Compared::default();
        }
        None => assert_eq!(opened.records.iter().cloned().collect::<BTreeMap<_, _>>(), *twin),
    }
    assert_eq!(compared_in(&opened), *compared);
    opened
}

fn open(path: &Path) -> Opened {
    SledStore::open(path).expect("whatever is on the disk, a store opens")
}

fn strike(database: &Path, harm: &Step) {
    let entries = fs::read_dir(database).expect("the database's folder");
    let mut files: Vec<_> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()).collect();
    files.sort();
    let pick = |n: u8| files.get(usize::from(n) % files.len().max(1));
    let change = |n: u8, change: &dyn Fn(&mut Vec<u8>)| {
        let Some(file) = pick(n) else { return };
        let mut bytes = fs::read(file).expect("a file of the database");
        change(&mut bytes);
        fs::write(file, bytes).expect("room on the disk");
    };
    match harm {
        Step::Flip { file, at, mask } => change(*file, &|bytes| {
            let len = bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(usize::from(*at) % len) {
                *byte ^= mask;
            }
        }),
        Step::Truncate { file, to } => change(*file, &|bytes| bytes.truncate(*to as usize % bytes.len().max(1))),
        Step::Overwrite { file, at, with } => change(*file, &|bytes| {
            let len = bytes.len().max(1);
            for (byte, with) in bytes.iter_mut().skip(usize::from(*at) % len).zip(with) {
                *byte = *with;
            }
        }),
        Step::Remove { file } => {
            if let Some(file) = pick(*file) {
                fs::remove_file(file).expect("a file of the database");
            }
        }
        _ => {}
    }
}

fn network(n: u8) -> Network {
    if n % 2 == 0 {
        Network::of([203, 0, n, 1].into())
    } else {
        Network::of([0x2001, 0xdb8, n.into(), 0, 0, 0, 0, 1].into())
    }
}

/// A small record that tells `n`.
fn record(n: u8) -> NetworkRecord {
    let bucket = Bucket { index: 170_000_000, losses: n.into(), ..Bucket::default() };
    NetworkRecord {
        bucket: Micros::from_secs(10),
        buckets: vec![bucket; 20],
        contributions: Vec::new(),
        rtts: Vec::new(),
        newest_sample: None,
        newest: None,
        raised: None,
    }
}
