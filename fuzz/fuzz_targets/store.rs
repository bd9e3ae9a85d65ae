//! The store on disk against a map, through restarts and damage: it tells the truth or nothing, and goes on.

#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use spand_core::window::bucket::Bucket;
use spand_core::window::record::NetworkRecord;
use spand_gateway::store::{EstimateStore, Opened, SledStore};
use spand_proto::network::Network;
use spand_proto::units::Micros;

#[derive(Arbitrary, Debug)]
enum Step {
    Save(Vec<(u8, Option<u8>)>),
    Flush,
    Reopen,
    Flip { file: u8, at: u16, mask: u8 },
    Truncate { file: u8, to: u32 },
    Overwrite { file: u8, at: u16, with: Vec<u8> },
    Remove { file: u8 },
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
                let changes: Vec<_> = changes.into_iter().map(|(n, byte)| (network(n), byte.map(record))).collect();
                store.save(&changes).expect("a sound store takes changes");
                for (network, record) in changes {
                    match record {
                        Some(record) => drop(twin.insert(network, record)),
                        None => drop(twin.remove(&network)),
                    }
                }
            }
            Step::Flush => store.flush().expect("a sound store flushes"),
            Step::Reopen => {
                drop(store);
                let opened = open(&path);
                assert_eq!((opened.unreadable, opened.set_aside), (0, None));
                assert_eq!(opened.records.into_iter().collect::<BTreeMap<_, _>>(), twin);
                store = opened.store;
            }
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
                twin = opened.records.into_iter().collect();
                store = opened.store;
            }
        }
    }
});

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
