//! The history of the whole in the store.

use spand_proto::units::Timestamp;

use super::*;
use crate::totals::{Counts, Differences, Gauges, Point, Step};

pub(super) fn point(minute: u64) -> Point {
    let mut differences = Differences::default();
    differences[2] = Some([-12.5, -20.0, -5.0]);
    Point {
        at: Timestamp(minute * 60_000_000_000),
        observed: Micros::from_secs(59),
        counts: Counts { packets: u64::MAX - minute, losses: 7, ..Counts::default() },
        gauges: Gauges { agents: minute, ..Gauges::default() },
        differences,
    }
}

fn totals(minutes: impl IntoIterator<Item = u64>) -> TotalsChange {
    minutes.into_iter().map(|minute| ((Step::Minute, point(minute).at), Some(point(minute)))).collect()
}

#[test]
fn steps_come_back_as_they_were_and_those_that_went_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir);
    let mut store = open(&path).store;
    let mut steps = totals(0..1_440);
    steps.insert((Step::Hour, point(60).at), Some(point(60)));
    store.save_totals(&steps).unwrap();
    let gone = [((Step::Minute, point(0).at), None), ((Step::Minute, point(60).at), None)];
    store.save_totals(&gone.into()).unwrap();
    store.flush().unwrap();
    drop(store);
    let contents = open(&path).contents;
    let found: TotalsChange = contents.totals.iter().map(|(step, point)| ((*step, point.at), Some(*point))).collect();
    steps.retain(|key, _| !gone.contains(&(*key, None)));
    assert_eq!((found, contents.records.len()), (steps, 20));
}

#[test]
fn steps_that_could_not_be_written_wait_for_the_next_write() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir);
    let mut store = open(&path).store;
    store.close();
    // The database cannot be opened again while another has it.
    let other = database(&path);
    let writer = StoreWriter::start(store, std::time::Duration::from_millis(1)).unwrap();
    writer.submit_totals(totals([1, 2]));
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while writer.measures().failures.get() == 0 && std::time::Instant::now() < until {
        std::thread::yield_now();
    }
    assert!(writer.measures().failures.get() > 0);
    writer.submit_totals([((Step::Minute, point(2).at), None)].into());
    drop(other);
    writer.stop().unwrap();
    assert_eq!(open(&path).contents.totals, [(Step::Minute, point(1))]);
}
