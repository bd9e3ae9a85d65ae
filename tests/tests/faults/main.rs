//! Faults of the machine that the tests of single parts do not make; `docs/operate/faults.md` lists all of them.

use std::path::Path;
use std::process::{Command, Output};
use std::{env, fs, thread};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use spand_core::window::bucket::Bucket;
use spand_core::window::record::NetworkRecord;
use spand_gateway::store::{Change, Contents, EstimateStore, OpenError, SledStore};
use spand_needs::{Need, needs};
use spand_proto::network::Network;
use spand_proto::units::Micros;

// A sound store that is opened while the machine has no file or no thread left: an error, and no damage.

/// The variable that names the store to the process that opens it.
const STORE: &str = "SPAND_TEST_STORE";
const FILES: &str = "SPAND_TEST_FILES";

#[test]
fn a_store_is_not_deleted_where_files_or_threads_are_scarce() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("estimates");
    let mut store = SledStore::open(&path).expect("a new store").store;
    store.save(&changes(1)).and_then(|()| store.flush()).expect("a small store");
    drop(store);

    let no_thread = open_elsewhere(&path, None);
    let stdout = String::from_utf8_lossy(&no_thread.stdout);
    assert!(no_thread.status.success() && stdout.contains("no thread could be started"), "{stdout}");
    let mut refused = 0;
    for files in 0..8 {
        let opened = open_elsewhere(&path, Some(files));
        let stdout = String::from_utf8_lossy(&opened.stdout);
        assert!(opened.status.success(), "{files} files: {stdout}");
        refused += usize::from(stdout.contains("opening it failed: Too many open files"));
    }
    assert!(refused > 0, "the database itself never wanted for files");
    whole(SledStore::open(&path).expect("a sound store").contents);
}

/// Limits are a process's: one of its own opens the store.
fn open_elsewhere(store: &Path, files: Option<u64>) -> Output {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.args(["opens_under_a_limit", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(STORE, store).envs(files.map(|files| (FILES, files.to_string())));
    command.output().expect("this program again")
}

#[test]
#[ignore = "the test above runs it"]
fn opens_under_a_limit() {
    let Some(store) = env::var_os(STORE) else { return };
    let files = env::var(FILES).ok().and_then(|files| files.parse::<u64>().ok());
    let (resource, limit) = match files {
        Some(files) => {
            let open = fs::read_dir("/proc/self/fd").expect("the open files").count() as u64 - 1;
            (Resource::RLIMIT_NOFILE, open + files)
        }
        // Room for small things, and none for a thread's stack.
        None => (Resource::RLIMIT_AS, address_space() + (1 << 20)),
    };
    let (_, most) = getrlimit(resource).expect("a limit");
    setrlimit(resource, limit, most).expect("a lower limit");
    let opened = SledStore::open(Path::new(&store));
    setrlimit(resource, most, most).expect("the limit as it was");
    match opened {
        Ok(opened) => whole(opened.contents),
        Err(error) => {
            println!("{error}");
            assert!(matches!(error, OpenError::Io { .. }), "{error}");
        }
    }
}

/// What this process has mapped, in bytes.
fn address_space() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").expect("the size of this process");
    pages.split(' ').next().and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4_096
}

// The store on a disk that is full. Needs root: the disk is a small file system in memory, in a mount namespace of the test.

#[test]
fn a_full_disk_is_an_error_that_passes_and_the_store_goes_on_once_there_is_room() {
    if !needs(Need::Root) {
        return;
    }
    // The namespace is the thread's; what it starts is in it too.
    thread::spawn(fill_and_free).join().expect("the test itself");
}

fn fill_and_free() {
    let dir = tempfile::tempdir().expect("a folder");
    unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .expect("private mounts");
    let sized = |flags, size: &str| mount(Some("disk"), dir.path(), Some("tmpfs"), flags, Some(size)).expect("a disk");
    sized(MsFlags::empty(), "size=8m");
    let path = dir.path().join("estimates");
    let mut store = SledStore::open(&path).expect("a new store").store;
    store.save(&changes(0)).and_then(|()| store.flush()).expect("room for the first");

    fs::write(dir.path().join("logs"), vec![0; 64 << 20]).expect_err("the disk is full");
    let refused = (1..200).find_map(|round| store.save(&changes(round)).and_then(|()| store.flush()).err());
    let sentence = refused.expect("a full disk refuses").to_string();
    assert!(sentence.starts_with("the database "), "{sentence}");
    println!("{sentence}");
    drop(store);

    // As the next start of the gateway finds it, first with the disk still full, then with room.
    match SledStore::open(&path) {
        Ok(opened) => sound(&opened.contents.records),
        Err(error) => println!("while it is full: {error}"),
    }
    fs::remove_file(dir.path().join("logs")).expect("the file is there");
    sized(MsFlags::MS_REMOUNT, "size=256m");
    let mut opened = SledStore::open(&path).expect("a store, whatever was lost");
    println!("{} records are there; {:?}", opened.contents.records.len(), opened.contents.deleted);
    sound(&opened.contents.records);
    opened.store.save(&changes(7)).and_then(|()| opened.store.flush()).expect("room again");
    drop(opened);
    let again = SledStore::open(&path).expect("a sound store").contents;
    assert!(again.records.iter().all(|(_, record)| record.buckets[0].losses == 7), "the newest of each");
    whole(again);
    nix::mount::umount2(Path::new(dir.path()), nix::mount::MntFlags::MNT_DETACH).expect("the disk goes");
}

const NETWORKS: u8 = 200;

/// A record of each network that tells `round`.
fn changes(round: u32) -> Vec<Change> {
    let bucket = Bucket { index: 170_000_000, losses: round, ..Bucket::default() };
    let record = NetworkRecord {
        bucket: Micros::from_secs(10),
        buckets: vec![bucket; 30],
        contributions: Vec::new(),
        rtts: Vec::new(),
        newest_sample: None,
        newest: None,
        raised: None,
    };
    (0..NETWORKS).map(|n| (Network::of([203, 0, n, 1].into()), Some(record.clone()))).collect()
}

/// It was read, and every network is there.
fn whole(contents: Contents) {
    assert_eq!((contents.records.len(), contents.deleted), (NETWORKS.into(), None));
}

/// Every record is one that was saved, whole.
fn sound(records: &[(Network, NetworkRecord)]) {
    for (network, record) in records {
        assert!(
            record.buckets.len() == 30 && record.buckets.iter().all(|bucket| *bucket == record.buckets[0]),
            "{network}"
        );
    }
}
