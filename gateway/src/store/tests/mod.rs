//! The store against a map, and against everything a disk can do to it.

mod experiment;
mod totals;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use spand_core::window::bucket::Bucket;
use spand_proto::units::Micros;

use super::*;

fn network(n: u8) -> Network {
    if n.is_multiple_of(2) {
        Network::of([203, 0, n, 1].into())
    } else {
        Network::new(format!("2001:db8:{n}::/48").parse().unwrap())
    }
}

/// A small record that identifies `n`.
fn record(n: u8) -> NetworkRecord {
    let bucket = Bucket { index: 170_000_000, losses: n.into(), ..Bucket::default() };
    NetworkRecord { buckets: vec![bucket; 20], ..empty() }
}

fn empty() -> NetworkRecord {
    NetworkRecord {
        bucket: Micros::from_secs(10),
        buckets: Vec::new(),
        contributions: Vec::new(),
        rtts: Vec::new(),
        newest_sample: None,
        newest: None,
        raised: None,
    }
}

fn open(path: &Path) -> Opened {
    SledStore::open(path).unwrap()
}

/// A store of twenty networks at `DIR/estimates`, closed.
fn written(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("estimates");
    let mut store = open(&path).store;
    let changes: Vec<_> = (0..20).map(|n| (network(n), Some(record(n)))).collect();
    store.save(&changes).unwrap();
    store.flush().unwrap();
    path
}

fn names(dir: &tempfile::TempDir) -> Vec<String> {
    let entries = fs::read_dir(dir.path()).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_was_saved_is_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir);
    let opened = open(&path);
    assert_eq!(opened.records.len(), 20);
    assert!(opened.records.is_sorted_by_key(|(network, _)| *network));
    assert_eq!((opened.unreadable, opened.set_aside), (0, None));
}

#[test]
fn a_store_whose_version_is_not_on_the_disk_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let directory = directory::Directory::lock(&dir.path().join("estimates")).unwrap();
    let made = spand_needs::without_sync(|| directory.make());
    assert!(made.is_err(), "a power cut would take its version away, and the next start would set it aside");
}

#[test]
fn a_store_in_use_is_an_error_and_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir);
    let first = open(&path);
    let error = SledStore::open(&path).unwrap_err();
    assert!(matches!(error, OpenError::InUse(_)), "{error}");
    drop(first);
    assert_eq!(open(&path).records.len(), 20);
    assert_eq!(names(&dir), ["estimates", "estimates.lock"]);
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.txt"), "three years of work").unwrap();
    assert!(matches!(SledStore::open(dir.path()).unwrap_err(), OpenError::NotAStore(_)));
    let file = dir.path().join("thesis.txt");
    assert!(matches!(SledStore::open(&file).unwrap_err(), OpenError::NotAStore(_)));
    assert_eq!(fs::read(&file).unwrap(), b"three years of work");
}

#[test]
fn a_store_of_another_version_is_set_aside_whole() {
    for (version, kind) in [(7, "newer"), (2, "older"), (0, "older")] {
        let dir = tempfile::tempdir().unwrap();
        let path = written(&dir);
        let sound = fs::read(path.join("VERSION")).unwrap();
        fs::write(path.join("VERSION"), format!("spand store {version}\n")).unwrap();
        let opened = open(&path);
        assert!(opened.records.is_empty());
        let aside = opened.set_aside.unwrap();
        assert_eq!(aside.damage, Damage::Version(version));
        assert!(aside.to.to_string_lossy().contains(&format!("estimates.{kind}-")));
        let line = aside.to_string();
        assert!(line.contains(&format!("has version {version}, and this gateway reads version 3")), "{line}");
        assert!(line.contains("starts cold") && !line.contains('\n'), "{line}");
        // The gateway that wrote it finds it as it was.
        fs::write(aside.to.join("VERSION"), sound).unwrap();
        assert_eq!(open(&aside.to).records.len(), 20);
    }
}

#[test]
fn a_store_that_lost_its_version_is_set_aside() {
    for words in [None, Some("spand store -1\n"), Some("spand store"), Some("\u{fffd}")] {
        let dir = tempfile::tempdir().unwrap();
        let path = written(&dir);
        let version = path.join("VERSION");
        words.map_or_else(|| fs::remove_file(&version), |words| fs::write(&version, words)).unwrap();
        let opened = open(&path);
        assert_eq!(opened.set_aside.unwrap().damage, Damage::NoVersion);
        assert!(opened.records.is_empty());
    }
}

#[test]
fn of_what_is_set_aside_the_newest_three_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir);
    let beside = |suffix: &str| dir.path().join(format!("estimates.{suffix}"));
    for second in [5, 400, 77] {
        fs::create_dir_all(beside(&format!("damaged-{second}")).join("sled")).unwrap();
        fs::create_dir(beside(&format!("newer-{second}"))).unwrap();
    }
    // What is not a store set aside stays: another store's, a file, a name that is no second.
    fs::create_dir(dir.path().join("other.damaged-1")).unwrap();
    fs::create_dir(beside("damaged-for-a-look")).unwrap();
    fs::write(beside("damaged-2"), "a file").unwrap();
    std::os::unix::fs::symlink("/", beside("damaged-3")).unwrap();
    let mut expected = BTreeSet::from(["damaged-2", "damaged-3", "damaged-77", "damaged-400", "damaged-for-a-look"]);
    expected.extend(["newer-5", "newer-77", "newer-400", "lock"]);

    fs::remove_file(path.join("VERSION")).unwrap();
    let aside = open(&path).set_aside.unwrap().to;
    let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<_> = names.collect();
    let newest = aside.file_name().unwrap().to_str().unwrap().strip_prefix("estimates.").unwrap();
    expected.insert(newest);
    let found: BTreeSet<_> = names.iter().filter_map(|name| name.strip_prefix("estimates.")).collect();
    assert_eq!(found, expected);
    assert!(names.contains("other.damaged-1"));
}

#[test]
fn of_many_set_aside_within_a_second_the_newest_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir);
    for _ in 0..6 {
        fs::remove_file(path.join("VERSION")).unwrap();
        let aside = open(&path).set_aside.unwrap().to;
        assert!(aside.join("sled").is_dir(), "{}", aside.display());
    }
}

#[test]
fn a_half_made_store_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("estimates");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("VERSION.new"), "spand sto").unwrap();
    assert_eq!(open(&path).set_aside, None);
}

#[test]
fn a_store_that_does_not_keep_what_is_written_to_it_is_set_aside() {
    let mut forgetful = 0;
    for at in (0..60).step_by(6) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("estimates");
        drop(open(&path));
        // Some damage to the log's beginning is read over, and so is all that is written behind it.
        let log = path.join("sled/db");
        let mut bytes = fs::read(&log).unwrap();
        bytes[at..at + 6].iter_mut().for_each(|byte| *byte ^= 0xd5);
        fs::write(&log, bytes).unwrap();
        let mut opened = open(&path);
        forgetful += usize::from(opened.set_aside.is_some_and(|aside| aside.to_string().contains("does not keep")));
        opened.store.save(&[(network(1), Some(record(1)))]).unwrap();
        drop(opened.store);
        assert_eq!(open(&path).records, [(network(1), record(1))], "damaged at {at}");
    }
    assert!(forgetful > 0, "this database finds all damage by itself");
}

#[test]
fn a_snapshot_that_a_crash_left_half_written_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir);
    fs::write(path.join("sled/snap.00000000000F0000.generating"), [1; 40]).unwrap();
    let opened = open(&path);
    assert_eq!((opened.records.len(), opened.set_aside), (20, None));
}

/// What the disk did to one of the store's files.
#[derive(Clone, Debug)]
enum Harm {
    Truncate(usize),
    Flip(usize, u8),
    Garbage(usize, Vec<u8>),
    Remove,
}

impl Harm {
    fn strike(&self, file: &Path) {
        let mut bytes = fs::read(file).unwrap();
        let len = bytes.len().max(1);
        match self {
            Self::Truncate(to) => bytes.truncate(to % len),
            Self::Flip(at, mask) => bytes.get_mut(at % len).map_or((), |byte| *byte ^= mask),
            Self::Garbage(at, with) => {
                for (byte, with) in bytes.iter_mut().skip(at % len).zip(with) {
                    *byte = *with;
                }
            }
            Self::Remove => return fs::remove_file(file).unwrap(),
        }
        fs::write(file, bytes).unwrap();
    }
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        (0usize..2_000_000).prop_map(Harm::Truncate),
        // Most of the file is empty space; its beginning is where the records are.
        (0usize..20_000, 1u8..).prop_map(|(at, mask)| Harm::Flip(at, mask)),
        (0usize..20_000, prop::collection::vec(any::<u8>(), 1..4_000)).prop_map(|(at, with)| Harm::Garbage(at, with)),
        Just(Harm::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_damaged_store_opens_and_answers_the_truth_or_nothing(which in 0usize..4, harm in harm()) {
        let dir = tempfile::tempdir().unwrap();
        let path = written(&dir);
        let mut files: Vec<_> = fs::read_dir(path.join("sled")).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.is_file());
        files.sort();
        harm.strike(&files[which % files.len()]);
        let Opened { mut store, records, set_aside, .. } = open(&path);
        for (network, found) in &records {
            let n = u8::try_from(found.buckets[0].losses).unwrap();
            prop_assert_eq!((network, found), (&self::network(n), &record(n)));
        }
        prop_assert!(set_aside.is_none() || records.is_empty());
        store.save(&[(network(99), Some(record(9)))]).unwrap();
        store.flush().unwrap();
        drop(store);
        let again = open(&path);
        prop_assert!(again.records.iter().any(|(network, _)| *network == self::network(99)));
        prop_assert_eq!(again.set_aside, None);
    }

    #[test]
    fn a_store_is_a_map_that_outlives_its_process(
        rounds in prop::collection::vec(prop::collection::vec((0u8..30, prop::option::of(0u8..)), 1..40), 1..5)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("estimates");
        let mut twin = BTreeMap::new();
        for round in rounds {
            let mut opened = open(&path);
            prop_assert_eq!(&opened.records.into_iter().collect::<BTreeMap<_, _>>(), &twin);
            let changes: Vec<_> =
                round.into_iter().map(|(n, byte)| (network(n), byte.map(record))).collect();
            opened.store.save(&changes).unwrap();
            opened.store.flush().unwrap();
            for (network, record) in changes {
                match record {
                    Some(record) => drop(twin.insert(network, record)),
                    None => drop(twin.remove(&network)),
                }
            }
        }
    }
}
