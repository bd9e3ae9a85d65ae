//! What the writer makes of a store that is slow, full or refuses.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::super::waiting::Waiting;
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
    let records = open(&path).contents.records;
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
        StoreWriter::start_within(Refusing { started, go }, Duration::from_millis(1), Waiting::room_for(2), None)
            .unwrap();
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
