//! What the writer makes of a store that is slow, full or refuses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::super::sled_store::MAX_SET_ASIDE;
use super::super::waiting::Waiting;
use super::experiment::{change, host, hosts};
use super::*;

#[test]
fn the_writer_saves_the_newest_and_says_how_far_behind_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("estimates");
    // An interval that never passes: only the end writes.
    let writer = StoreWriter::start(open(&path).store, Duration::from_secs(3_600)).unwrap();
    assert_eq!(writer.measures().lag(), Duration::ZERO);
    writer.submit((0..5).map(|n| (network(n), Some(record(1)))));
    writer.submit([(network(3), None), (network(4), Some(record(2)))]);
    assert_eq!(writer.measures().waiting(), 5);
    assert!(writer.measures().lag() > Duration::ZERO);
    let measures = writer.measures().clone();
    writer.stop().unwrap();
    assert_eq!((measures.waiting(), measures.lag(), measures.saved.get()), (0, Duration::ZERO, 5));
    let records = open(&path).records;
    assert_eq!(records.len(), 4);
    assert!(records.contains(&(network(4), record(2))));
}

/// A store whose disk is full until it has failed `failures` times.
struct Full {
    failures: u32,
    saved: Arc<parking_lot::Mutex<Vec<Change>>>,
}

impl EstimateStore for Full {
    fn save(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        if self.failures > 0 {
            self.failures -= 1;
            return Err(StoreError::Database { action: "save", why: "no space left".to_owned() });
        }
        self.saved.lock().extend_from_slice(changes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn what_could_not_be_saved_is_saved_later() {
    let saved = Arc::default();
    let store = Full { failures: 2, saved: Arc::clone(&saved) };
    let writer = StoreWriter::start(store, Duration::from_millis(1)).unwrap();
    writer.submit([(network(1), Some(record(1)))]);
    while writer.measures().failures.get() < 2 {
        std::thread::yield_now();
    }
    writer.submit([(network(2), None)]);
    writer.stop().unwrap();
    assert_eq!(saved.lock().len(), 2);
}

/// A store that reports how much it gets, and refuses writes on request.
struct Refusing {
    started: mpsc::Sender<usize>,
    go: mpsc::Receiver<()>,
}

impl EstimateStore for Refusing {
    fn save(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        // No receiver or sender any more: then at once.
        _ = self.started.send(changes.len());
        _ = self.go.recv();
        Err(StoreError::Database { action: "save", why: "no space left".to_owned() })
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn what_waits_has_a_limit_where_what_could_not_be_saved_comes_back_to_it() {
    let ((started, starts), (release, go)) = (mpsc::channel(), mpsc::channel());
    let writer =
        StoreWriter::start_within(Refusing { started, go }, Duration::from_millis(1), Waiting::room_for(2)).unwrap();
    // Gone before the writer where this fails: it ends with a last write.
    let release = release;
    writer.submit([(network(1), None), (network(2), None)]);
    assert_eq!(starts.recv().unwrap(), 2);
    writer.submit([(network(2), None), (network(3), None)]);
    release.send(()).unwrap();
    assert_eq!(starts.recv().unwrap(), 2, "the newest two");
    assert_eq!(writer.measures().dropped.get(), 1);
    drop(release);
    assert!(writer.stop().is_err());
}

/// A store that fails in passing, then for good.
struct Failing(u32);

impl EstimateStore for Failing {
    fn save(&mut self, _: &[Change]) -> Result<(), StoreError> {
        self.0 += 1;
        let (action, why) = ("save", "torn".to_owned());
        Err(if self.0 == 1 { StoreError::Database { action, why } } else { StoreError::Broken { action, why } })
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn a_store_that_failed_for_good_is_distinguished_from_one_that_is_retried() {
    let writer = StoreWriter::start(Failing(0), Duration::from_millis(1)).unwrap();
    let measures = writer.measures().clone();
    writer.submit([(network(1), None)]);
    let mut broken_in_passing = false;
    while measures.failures.get() < 2 {
        let was_broken = measures.is_broken();
        broken_in_passing |= was_broken && measures.failures.get() < 2;
        std::thread::yield_now();
    }
    assert!(!broken_in_passing && measures.is_broken());
    writer.submit([(network(2), None)]);
    assert_eq!((measures.waiting(), measures.dropped.get()), (0, 2));
}

/// A store that refuses for as long as it is asked to, and keeps what of the experiment it was given in the end.
struct Hesitant {
    refuses: Arc<AtomicBool>,
    saved: Arc<parking_lot::Mutex<Vec<ExperimentChange>>>,
}

impl EstimateStore for Hesitant {
    fn save(&mut self, _: &[Change]) -> Result<(), StoreError> {
        Ok(())
    }

    fn save_experiment(&mut self, change: &ExperimentChange) -> Result<bool, StoreError> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(StoreError::Database { action: "save the experiment", why: "no space left".to_owned() });
        }
        self.saved.lock().push(change.clone());
        Ok(change.all_hosts)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn an_experiment_that_could_not_be_saved_is_saved_later_with_what_changed_since() {
    let (saved, refuses) = (Arc::default(), Arc::new(AtomicBool::new(true)));
    let store = Hesitant { refuses: Arc::clone(&refuses), saved: Arc::clone(&saved) };
    let writer = StoreWriter::start(store, Duration::from_millis(1)).unwrap();
    let measures = writer.measures().clone();
    let [first, second, third] = hosts();
    let both = [(first.clone(), Some(host(1))), (second.clone(), Some(host(1)))];
    writer.submit_experiment(change(10, both));
    assert!(writer.experiment_waits() || !saved.lock().is_empty());
    while measures.failures.get() < 1 {
        std::thread::yield_now();
    }
    // It goes on to refuse: a success in between would clear the error.
    while writer.last_error().is_none() {
        std::thread::yield_now();
    }
    assert!(matches!(writer.last_error(), Some(StoreError::Database { .. })), "/readyz shows it");
    refuses.store(false, Ordering::Relaxed);
    writer.submit_experiment(change(20, [(first.clone(), Some(host(2))), (third.clone(), None)]));
    while writer.experiment_waits() {
        std::thread::yield_now();
    }
    assert!(writer.lacks_hosts() && measures.lag().is_zero() && measures.dropped.get() == 0);
    let all = [(first.clone(), Some(host(2))), (second.clone(), Some(host(1)))];
    writer.submit_experiment(ExperimentChange { all_hosts: true, ..change(20, all) });
    while writer.experiment_waits() {
        std::thread::yield_now();
    }
    assert!(!writer.lacks_hosts());
    writer.stop().unwrap();
    let saved = saved.lock();
    assert_eq!(measures.experiments.get(), saved.len() as u64);
    // What of the first change had not been written goes with the second.
    let mut hosts = BTreeMap::new();
    for change in saved.iter().take(saved.len() - 1) {
        hosts.extend(change.hosts.clone());
    }
    assert_eq!(hosts, BTreeMap::from([(first, Some(host(2))), (second, Some(host(1))), (third, None)]));
    assert_eq!(saved.last().unwrap().experiment.beyond, 20);
}

#[test]
fn the_end_writes_what_waits_of_the_experiment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("estimates");
    let writer = StoreWriter::start(open(&path).store, Duration::from_secs(3_600)).unwrap();
    writer.submit_experiment(change(10, []));
    assert!(writer.experiment_waits() && writer.measures().lag() > Duration::ZERO);
    writer.submit_experiment(change(11, hosts().map(|client| (client, Some(host(1))))));
    let measures = writer.measures().clone();
    writer.stop().unwrap();
    assert_eq!((measures.experiments.get(), measures.saved.get(), measures.lag()), (1, 0, Duration::ZERO));
    let found = open(&path).experiment.unwrap().unwrap();
    assert_eq!((found.experiment.beyond, found.hosts.len()), (11, 3));
}

// A store that is opened while the gateway runs already.

#[test]
fn a_store_opened_late_keeps_what_it_held_and_takes_what_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("estimates");
    let [old, new, _] = hosts();
    let mut first = open(&path).store;
    first.save(&[(network(2), Some(record(2)))]).unwrap();
    first.save_experiment(&change(10, [(old, Some(host(1)))])).unwrap();
    first.flush().unwrap();

    let mut late = LateStore::new(path.clone());
    let error = late.save(&[]).unwrap_err();
    assert!(matches!(error, StoreError::Database { action: "open", .. }), "{error}");
    drop(first);
    late.save(&[(network(4), Some(record(4)))]).unwrap();
    late.save_experiment(&change(20, [(new.clone(), Some(host(2)))])).unwrap();
    late.flush().unwrap();
    drop(late);
    let opened = open(&path);
    assert_eq!(opened.records, [(network(2), record(2)), (network(4), record(4))]);
    let saved = opened.experiment.unwrap().unwrap();
    assert_eq!(saved.hosts, [(new, host(2))], "nothing of the experiment before");
}

#[test]
fn new_stores_that_fail_as_well_end_the_attempts() {
    let dir = tempfile::tempdir().unwrap();
    let mut late = LateStore::new(dir.path().join("estimates"));
    late.renewed = MAX_SET_ASIDE;
    let error = late.flush().unwrap_err();
    assert!(matches!(error, StoreError::Broken { .. }), "{error}");
    assert!(names(&dir).is_empty(), "it was not tried again");
}
