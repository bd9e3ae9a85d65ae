//! The experiment in the store: bit for bit, damaged, of another version, and cut off by a crash.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use spand_proto::comparison::{Comparison, LAYOUT};
use spand_proto::report::{Arm, ConnectionReport, Transport};
use spand_proto::units::{Bytes, Segments, Timestamp};

use super::super::{experiment, opening};
use super::*;
use crate::publisher::Client;

const SINCE: Timestamp = Timestamp(1_800_000_000_123_456_789);

fn transfer(n: u64) -> ConnectionReport {
    ConnectionReport {
        host: ([10, 0, 0, 1], 443).into(),
        remote: ([192, 0, 2, 1], 50_000).into(),
        ended_ago: Micros(0),
        // Times whose means are no round numbers.
        duration: (!n.is_multiple_of(31)).then_some(Micros(100_003 + n * n * 7)),
        end_window: Some(Bytes(28_960 + n)),
        mss: Some(Bytes(1_448)),
        srtt: None,
        rtt_min: None,
        acknowledged: Bytes(1_000 + n * n * 97),
        retransmitted: Segments(u32::from(n.is_multiple_of(5))),
        first_flight_loss: None,
        first_flight: None,
        limited_by: None,
        arm: Some(if n.is_multiple_of(3) { Arm::Control } else { Arm::Advised }),
        advised: None,
        refusal: None,
        paused: n.is_multiple_of(29),
        transport: Transport::Tcp,
        loss_window: None,
        congestion_events: 0,
        ended_in_slow_start: None,
        careful_resume: None,
    }
}

/// An experiment of N reported transfers.
fn experiment_of(transfers: u64) -> Experiment {
    let mut comparison = Comparison::default();
    for n in 0..transfers {
        comparison.take(&transfer(n));
    }
    Experiment { since: SINCE, comparison, beyond: transfers }
}

pub(super) fn host(batch: u64) -> ReportingHost {
    let agents = vec![
        NewestBatch { name: 7, started: Timestamp(u64::MAX), batch },
        NewestBatch { name: 8, started: SINCE, batch: 1 },
    ];
    let mut compared = <[[u32; 2]; 7]>::default();
    compared[3] = [u32::MAX, 2];
    ReportingHost { heard: SINCE, agents, compared }
}

fn certificate(name: &str) -> Client {
    Client::Certificate(name.to_owned())
}

pub(super) fn hosts() -> [Client; 3] {
    [
        certificate("web-1 web-1.example.org"),
        Client::Address([192, 0, 2, 7].into()),
        Client::Address(Ipv6Addr::LOCALHOST.into()),
    ]
}

pub(super) fn change(
    transfers: u64,
    hosts: impl IntoIterator<Item = (Client, Option<ReportingHost>)>,
) -> ExperimentChange {
    ExperimentChange { experiment: experiment_of(transfers), hosts: hosts.into_iter().collect(), all_hosts: false }
}

/// A store with twenty networks and an experiment of 2,000 transfers by three hosts, closed.
fn with_experiment(dir: &tempfile::TempDir) -> PathBuf {
    let path = written(dir);
    let mut store = open(&path).store;
    assert_eq!(store.save_experiment(&change(2_000, hosts().map(|client| (client, Some(host(3)))))), Ok(true));
    store.flush().unwrap();
    path
}

fn saved(opened: &Opened) -> &SavedExperiment {
    opened.experiment.as_ref().unwrap().as_ref().expect("an experiment")
}

/// All of a comparison: its sums to the last bit.
fn bits(experiment: &Experiment) -> Vec<u8> {
    experiment::entry_of(experiment).unwrap()
}

/// Changes entries as another program or a disk would.
fn tamper(path: &Path, work: impl FnOnce(&sled::Tree)) {
    let database = opening::open_released(&sled::Config::new().path(path.join("sled"))).unwrap();
    work(&database.open_tree("experiment").unwrap());
    database.flush().unwrap();
}

#[test]
fn an_experiment_comes_back_to_the_last_bit_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = with_experiment(&dir);
    let mut opened = open(&path);
    let SavedExperiment { experiment, hosts: found, unreadable } = saved(&opened).clone();
    assert_eq!((experiment.since, experiment.beyond, unreadable), (SINCE, 2_000, 0));
    assert_eq!(bits(&experiment), bits(&experiment_of(2_000)));
    let (mut again, mut before) = (experiment, experiment_of(2_000));
    assert_eq!(again.comparison.classes(), before.comparison.classes());
    let counts = |comparison: &Comparison| (comparison.transfers(), comparison.unmeasured(), comparison.paused());
    assert_eq!(counts(&again.comparison), counts(&before.comparison));
    let shown: Vec<_> = again.comparison.classes();
    assert!(
        shown.iter().any(|class| class.advised.completion_median_ms.is_some()),
        "a median is among what is compared"
    );
    assert!(shown.iter().any(|class| class.difference.completion_ms.is_some()), "and a difference");
    for experiment in [&mut again, &mut before] {
        for n in 2_000..2_100 {
            experiment.comparison.take(&transfer(n));
        }
    }
    assert_eq!(bits(&again), bits(&before));
    assert_eq!(found.into_iter().collect::<BTreeMap<_, _>>(), hosts().map(|client| (client, host(3))).into());

    // One host reports, one is forgotten.
    let [first, second, third] = hosts();
    opened.store.save_experiment(&change(2_001, [(first.clone(), Some(host(4))), (second, None)])).unwrap();
    opened.store.flush().unwrap();
    drop(opened);
    let opened = open(&path);
    assert_eq!(opened.records.len(), 20);
    let expected = BTreeMap::from([(first, host(4)), (third, host(3))]);
    assert_eq!(saved(&opened).hosts.iter().cloned().collect::<BTreeMap<_, _>>(), expected);
}

#[test]
fn a_store_without_an_experiment_says_nothing_of_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir);
    assert!(matches!(open(&path).experiment, Ok(None)));
    let mut opened = open(&path);
    opened.store.remove_experiment().unwrap();
    drop(opened);
    assert!(matches!(open(&path).experiment, Ok(None)));
}

#[test]
fn a_damaged_comparison_is_a_cold_start_of_it_alone() {
    let len = bits(&experiment_of(2_000)).len();
    for at in [0, 1, 9, 20, len / 2, len - 1] {
        let dir = tempfile::tempdir().unwrap();
        let path = with_experiment(&dir);
        tamper(&path, |tree| {
            let mut value = tree.get([0]).unwrap().unwrap().to_vec();
            value[at] ^= 0x10;
            tree.insert([0], value).unwrap();
        });
        let mut opened = open(&path);
        assert_eq!(opened.experiment.as_ref().err(), Some(&NotContinued::Damaged), "{at}");
        assert_eq!((opened.records.len(), opened.set_aside.as_ref(), opened.unreadable), (20, None, 0));
        // What was left of the old one is no part of the next.
        let [first, ..] = hosts();
        opened.store.save_experiment(&change(1, [(first.clone(), Some(host(9)))])).unwrap();
        opened.store.flush().unwrap();
        drop(opened);
        let opened = open(&path);
        assert_eq!((saved(&opened).hosts.as_slice(), saved(&opened).unreadable), (&[(first, host(9))][..], 0));
        assert_eq!((saved(&opened).experiment.beyond, opened.records.len()), (1, 20));
    }
}

#[test]
fn an_experiment_of_another_version_or_of_other_sizes_is_not_continued_and_the_line_says_why() {
    let sealed = |mut entry: Vec<u8>| {
        entry.truncate(entry.len() - codec::CHECKSUM_LEN);
        let checksum = codec::checksum(&[0], &entry);
        [entry.as_slice(), &checksum].concat()
    };
    let mut newer = bits(&experiment_of(50));
    newer[0] += 1;
    let other_sizes = codec::sealed(&[0], &(LAYOUT ^ 1, experiment_of(50))).unwrap();
    // With a checksum that is right, as a fault of ours would write it.
    let mut longer = bits(&experiment_of(50));
    longer.insert(longer.len() - 4, 0);
    for (entry, why, words) in [
        (sealed(newer), NotContinued::Format(codec::FORMAT + 1), "has format 7"),
        (other_sizes, NotContinued::OtherSizes, "other size classes"),
        (sealed(longer), NotContinued::Damaged, "is damaged"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = with_experiment(&dir);
        tamper(&path, |tree| drop(tree.insert([0], entry).unwrap()));
        let opened = open(&path);
        assert_eq!((opened.experiment.as_ref().err(), opened.records.len()), (Some(&why), 20));
        assert!(why.to_string().contains(words) && !why.to_string().contains('\n'), "{why}");
    }
}

#[test]
fn a_damaged_host_is_left_out_and_the_experiment_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = with_experiment(&dir);
    let [first, second, third] = hosts();
    tamper(&path, |tree| {
        // Under another host's key, cut short, and under no host's.
        let [first, second] = [&first, &second].map(|client| experiment::key(client).unwrap());
        let value = tree.get(&first).unwrap().unwrap();
        tree.insert(second, value.clone()).unwrap();
        tree.insert(first, &value[..value.len() - 1]).unwrap();
        tree.insert([9, 9], value).unwrap();
    });
    let opened = open(&path);
    assert_eq!((saved(&opened).hosts.as_slice(), saved(&opened).unreadable), (&[(third, host(3))][..], 3));
    assert_eq!(bits(&saved(&opened).experiment), bits(&experiment_of(2_000)));
}

/// Killed after the hosts and before the comparison that counts their transfers: what the disk holds then is copied, since the
/// database that panicked keeps its lock.
#[test]
fn a_crash_between_hosts_and_comparison_loses_a_batch_and_counts_none_twice() {
    let dir = tempfile::tempdir().unwrap();
    let path = with_experiment(&dir);
    let mut store = open(&path).store;
    let [first, ..] = hosts();
    let next = change(2_100, [(first.clone(), Some(host(4)))]);
    let image = dir.path().join("image");
    crash(&mut store, &next, (&path, &image));
    let opened = open(&image);
    let SavedExperiment { experiment, hosts, .. } = saved(&opened);
    assert_eq!(bits(experiment), bits(&experiment_of(2_000)), "the batch is lost");
    assert!(hosts.contains(&(first, host(4))), "and known: it is not counted when it comes again");

    // The same at the first save of all: there is no comparison, so hosts alone are nothing.
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir);
    let mut store = open(&path).store;
    let image = dir.path().join("image");
    crash(&mut store, &next, (&path, &image));
    let mut opened = open(&image);
    assert!(matches!(opened.experiment, Ok(None)));
    opened.store.save_experiment(&change(5, [])).unwrap();
    opened.store.flush().unwrap();
    drop(opened);
    assert!(saved(&open(&image)).hosts.is_empty());
}

/// Saves a change and dies between its hosts and its comparison, with what the disk holds then in `image`.
fn crash(store: &mut SledStore, change: &ExperimentChange, (path, image): (&Path, &Path)) {
    let died = store.run("save the experiment", |database| {
        experiment::write(database, change, || {
            copy(path, image);
            panic!("killed")
        })
    });
    assert!(matches!(died, Err(StoreError::Broken { .. })), "{died:?}");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn a_store_that_was_emptied_while_it_ran_asks_for_all_hosts() {
    let dir = tempfile::tempdir().unwrap();
    let path = with_experiment(&dir);
    let mut store = open(&path).store;
    store.close();
    fs::remove_dir_all(path.join("sled")).unwrap();
    let [first, second, third] = hosts();
    assert_eq!(store.save_experiment(&change(2_001, [(first.clone(), Some(host(4)))])), Ok(false));
    let all = [(first, Some(host(4))), (second, Some(host(3))), (third, Some(host(3)))];
    let all = ExperimentChange { all_hosts: true, ..change(2_002, all) };
    assert_eq!(store.save_experiment(&all), Ok(true));
    store.flush().unwrap();
    drop(store);
    assert_eq!(saved(&open(&path)).hosts.len(), 3);
}

#[test]
fn many_hosts_are_saved_and_no_key_is_two_hosts() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir);
    let mut store = open(&path).store;
    let mut name = String::new();
    for n in 0..250 {
        write!(name, "{n:04}").unwrap();
    }
    let clients = (0..500u16).map(|n| certificate(&format!("{name}{n}"))).chain(hosts());
    let many: BTreeMap<_, _> = clients.map(|client| (client, Some(host(1)))).collect();
    let holder = (Client::Host(1), Some(host(1)));
    store.save_experiment(&change(1, many.clone().into_iter().chain([holder]))).unwrap();
    store.flush().unwrap();
    drop(store);
    let found: BTreeMap<_, _> =
        saved(&open(&path)).hosts.iter().cloned().map(|(client, host)| (client, Some(host))).collect();
    assert_eq!(found, many);
    for client in many.keys() {
        assert_eq!(experiment::client(&experiment::key(client).unwrap()).as_ref(), Some(client));
    }
}

proptest! {
    #[test]
    fn nonsense_is_no_experiment_and_no_host(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let seal = |key: &[u8], entry: &[u8]| [entry, &codec::checksum(key, entry)].concat();
        prop_assert_eq!(experiment::comparison_of(&bytes).err(), Some(NotContinued::Damaged));
        let entry = [&[codec::FORMAT], bytes.as_slice()].concat();
        if let Ok(host) = codec::opened::<ReportingHost>(&[4, 1, 1, 1, 1], &seal(&[4, 1, 1, 1, 1], &entry)) {
            prop_assert!(host.agents.len() <= bytes.len());
        }
        prop_assert!(experiment::comparison_of(&seal(&[0], &entry)).is_err());
        if let Some(client) = experiment::client(&bytes) {
            prop_assert_eq!(experiment::key(&client), Some(bytes));
        }
    }
}
