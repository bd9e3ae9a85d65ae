//! A store that is opened while the gateway runs already.

use super::super::sled_store::MAX_SET_ASIDE;
use super::experiment::{change, host, hosts};
use super::*;

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
