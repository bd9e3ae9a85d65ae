//! A sound store that is opened while the machine has no file or no thread left: an error, and no damage.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use spand_gateway::store::{EstimateStore, OpenError, SledStore};

use super::disk::{NETWORKS, changes};

/// The variable that names the store to the process that opens it.
const STORE: &str = "SPAND_TEST_STORE";
const FILES: &str = "SPAND_TEST_FILES";

#[test]
fn a_store_is_not_set_aside_where_files_or_threads_are_scarce() {
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
    let opened = SledStore::open(&path).expect("a sound store");
    assert_eq!((opened.records.len(), opened.set_aside), (NETWORKS.into(), None));
}

/// Limits are a process's: one of its own opens the store.
fn open_elsewhere(store: &Path, files: Option<u64>) -> Output {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.args(["scarce::opens_under_a_limit", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
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
        Ok(opened) => assert_eq!((opened.records.len(), opened.set_aside), (NETWORKS.into(), None)),
        Err(error) => {
            println!("{error}");
            assert!(matches!(error, OpenError::Io { .. } | OpenError::NoThread { .. }), "{error}");
        }
    }
}

/// What this process has mapped, in bytes.
fn address_space() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").expect("the size of this process");
    pages.split(' ').next().and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4_096
}
