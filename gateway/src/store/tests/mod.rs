//! The store against a map, and against everything a disk can do to it.

mod entries;
mod totals;
mod writer;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use nix::errno::Errno;
use proptest::prelude::*;
use spand_core::window::bucket::Bucket;
use spand_proto::units::Micros;

use super::sled_store::{FORMAT, Key, encoded, is_disk, is_environment, open_released};
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
    let contents = opened.contents;
    assert!(contents.records.is_sorted_by_key(|(network, _)| *network));
    assert_eq!((contents.records.len(), contents.deleted), (20, None));
}

#[test]
fn a_store_in_use_is_an_error_and_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir);
    let first = open(&path);
    let error = SledStore::open(&path).unwrap_err();
    assert!(matches!(error, OpenError::InUse(_)), "{error}");
    drop(first);
    assert_eq!(open(&path).contents.records.len(), 20);
    assert_eq!(names(&dir), ["estimates"]);
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

/// The database of a closed store.
fn database(path: &Path) -> sled::Db {
    open_released(&sled::Config::new().path(path.join("sled"))).unwrap()
}

#[test]
fn a_store_that_cannot_be_read_is_deleted_with_one_sentence() {
    let [mark, other] = [Key::Mark, Key::Network(network(1))].map(|key| encoded(&key).unwrap());
    let format = |format: u8| encoded(&(format, 7u64)).unwrap();
    for (why, key, value) in [
        ("another version of the gateway wrote it", &mark, None),
        ("it has format 8, and this gateway reads format 7", &mark, Some(format(8))),
        ("it has format 6", &mark, Some(format(6))),
        ("it has a malformed entry", &vec![4, 203, 0, 113, 0, 24], Some(Vec::new())),
        ("it has a malformed entry", &other, Some(vec![1])),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = written(&dir);
        match value {
            Some(value) => drop(database(&path).insert(key, value).unwrap()),
            None => drop(database(&path).remove(key).unwrap()),
        }
        let mut opened = open(&path);
        let sentence = opened.contents.deleted.unwrap();
        let directory = path.display().to_string();
        assert!(sentence.contains(why) && sentence.contains(&directory) && !sentence.contains('\n'), "{sentence}");
        assert!(opened.contents.records.is_empty());
        opened.store.save(&[(network(1), Some(record(1)))]).unwrap();
        drop(opened.store);
        let again = open(&path).contents;
        assert_eq!((again.records, again.deleted), (vec![(network(1), record(1))], None));
        assert_eq!(names(&dir), ["estimates"], "nothing is set aside");
    }
}

/// What waits is saved once there is room, without another start.
#[test]
fn a_store_that_was_closed_is_opened_by_the_next_write() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir);
    let holder = open(&path);
    let mut late = SledStore::closed(path.clone());
    let error = late.save(&[(network(1), None)]).unwrap_err();
    assert!(matches!(error, StoreError::Database { action: "open", .. }), "{error}");
    drop(holder);
    late.save(&[(network(1), None), (network(40), Some(record(40)))]).unwrap();
    late.close();
    fs::write(path.join("sled/db"), "torn").unwrap();
    late.save(&[(network(50), Some(record(50)))]).unwrap();
    drop(late);
    let contents = open(&path).contents;
    assert_eq!((contents.records, contents.deleted), (vec![(network(50), record(50))], None));
}

#[test]
fn a_store_that_does_not_keep_what_is_written_to_it_is_deleted() {
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
        forgetful += usize::from(opened.contents.deleted.is_some_and(|why| why.contains("does not keep")));
        opened.store.save(&[(network(1), Some(record(1)))]).unwrap();
        drop(opened.store);
        assert_eq!(open(&path).contents.records, [(network(1), record(1))], "damaged at {at}");
    }
    assert!(forgetful > 0, "this database finds all damage by itself");
}

#[test]
fn a_snapshot_that_a_crash_left_half_written_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir);
    fs::write(path.join("sled/snap.00000000000F0000.generating"), [1; 40]).unwrap();
    let contents = open(&path).contents;
    assert_eq!((contents.records.len(), contents.deleted), (20, None));
}

#[test]
fn an_error_of_the_system_is_no_damage() {
    for (errno, of_disk) in [
        (Errno::ENOSPC, true),
        (Errno::EDQUOT, true),
        (Errno::EROFS, true),
        (Errno::EIO, true),
        (Errno::EACCES, false),
        (Errno::EMFILE, false),
        (Errno::ENFILE, false),
        (Errno::EAGAIN, false),
        (Errno::ENOMEM, false),
    ] {
        let error = io::Error::from(errno);
        // sled hands on copies, which have lost the number.
        let copy = io::Error::new(error.kind(), error.to_string());
        assert!(is_environment(&error) && is_environment(&copy), "{errno}");
        assert_eq!((is_disk(&error), is_disk(&copy)), (of_disk, of_disk), "{errno}");
    }
    for errno in [Errno::EINVAL, Errno::ENOENT, Errno::ENOTDIR, Errno::EISDIR] {
        assert!(!is_environment(&errno.into()), "{errno}");
    }
    for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::InvalidData] {
        assert!(!is_environment(&kind.into()), "{kind}");
    }
    assert!(!is_environment(&io::Error::other("encountered torn segment")));
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
        let Opened { mut store, contents: Contents { records, deleted, .. } } = open(&path);
        for (network, found) in &records {
            let n = u8::try_from(found.buckets[0].losses).unwrap();
            prop_assert_eq!((network, found), (&self::network(n), &record(n)));
        }
        prop_assert!(deleted.is_none() || records.is_empty());
        store.save(&[(network(99), Some(record(9)))]).unwrap();
        store.flush().unwrap();
        drop(store);
        let again = open(&path).contents;
        prop_assert!(again.records.iter().any(|(network, _)| *network == self::network(99)));
        prop_assert_eq!(again.deleted, None);
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
            prop_assert_eq!(&opened.contents.records.into_iter().collect::<BTreeMap<_, _>>(), &twin);
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
