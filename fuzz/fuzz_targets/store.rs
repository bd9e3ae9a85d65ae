//! The store on disk against a map, through restarts and damage, and its writer on a store that fails: it tells the truth or nothing, and goes on.

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
use spand_gateway::store::{Change, Contents, EstimateStore, OpenError, Opened, SledStore, StoreError, StoreWriter};
use spand_proto::network::Network;
use spand_proto::units::Micros;

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
    Beside(Beside),
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
enum Beside {
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
                store = whole(&path, &twin);
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
                writer.stop().expect("a sound store takes changes");
                store = whole(&path, &twin);
            }
            Step::Fail { answers, changes } => fail(answers, changes),
            Step::Beside(what) => {
                drop(store);
                store = beside(&path, &what, &mut twin);
            }
            harm => {
                drop(store);
                strike(&path.join("sled"), &harm);
                let Opened { store: opened, contents } = open(&path);
                // Older records may come back where newer ones are damaged; none is of another network.
                for (network, record) in &contents.records {
                    assert_eq!(record.buckets.len(), 20);
                    assert!(record.buckets.iter().all(|bucket| bucket.index == 170_000_000), "{network}");
                }
                assert!(contents.deleted.is_none() || contents.records.is_empty());
                twin = contents.records.into_iter().collect();
                store = opened;
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

/// Opens a store that nothing has happened to.
fn whole(path: &Path, twin: &BTreeMap<Network, NetworkRecord>) -> SledStore {
    let Opened { store, contents: Contents { records, deleted, .. } } = open(path);
    assert_eq!(deleted, None);
    assert_eq!(records.into_iter().collect::<BTreeMap<_, _>>(), *twin);
    store
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
fn beside(path: &Path, what: &Beside, twin: &mut BTreeMap<Network, NetworkRecord>) -> SledStore {
    if matches!(what, Beside::HalfSnapshot) {
        fs::write(path.join("sled/snap.00000000000F0000.generating"), [1; 40]).expect("room on the disk");
        return whole(path, twin);
    }
    fs::remove_dir_all(path).expect("it is ours");
    twin.clear();
    if matches!(what, Beside::File) {
        fs::write(path, "of someone else").expect("room on the disk");
    } else {
        fs::create_dir(path).expect("room on the disk");
        fs::write(path.join("thesis.txt"), "of someone else").expect("room on the disk");
    }
    let error = SledStore::open(path).map(drop).expect_err("it is of someone else");
    assert!(matches!(error, OpenError::NotAStore(_)), "{error}");
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.expect("it was left alone");
    whole(path, twin)
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
