use std::num::NonZeroUsize;

use spand_proto::units::{Micros, Timestamp};

use super::*;
use crate::config::FlowReports;
use crate::flow::connection::{Connection, Role};
use crate::types::{ConnectionId, SampleRate};
use crate::wire::segment::Endpoint;

fn endpoint(port: u16) -> Endpoint {
    Endpoint { address: "192.0.2.1".parse().unwrap(), port }
}

fn tuple(port: u16) -> Tuple {
    Tuple::of(endpoint(port), endpoint(443)).0
}

fn connection(id: u64) -> Connection {
    Connection::new(ConnectionId(id), [Role::default(); 2], true, FlowReports::None, (SampleRate::ALL, Timestamp(0)))
}

fn at(ms: u64) -> Timestamp {
    Timestamp(ms * 1_000_000)
}

fn table(connections: usize) -> FlowTable {
    let limits = Limits { connections: NonZeroUsize::new(connections).unwrap(), ..Limits::default() };
    FlowTable::new(&limits, 7)
}

fn fill(table: &mut FlowTable, count: u16) -> Vec<Key> {
    (0..count).map(|n| table.insert(tuple(n), connection(u64::from(n)), at(u64::from(n))).unwrap()).collect()
}

#[test]
fn what_is_put_in_is_found_until_it_is_taken_out() {
    let mut table = table(2_000);
    let keys = fill(&mut table, 1_500);
    assert_eq!(table.find(&tuple(700)), Some(keys[700]));
    assert!(table.remove(keys[700]).is_some());
    assert_eq!(table.find(&tuple(700)), None);
    assert_eq!(table.find(&tuple(701)), Some(keys[701]), "its neighbours stay");
    assert!(table.remove(keys[700]).is_none());
    assert_eq!(table.len(), 1_499);
}

#[test]
fn the_one_idle_longest_is_known_after_any_order_of_packets() {
    let mut table = table(10);
    let keys = fill(&mut table, 4);
    assert_eq!(table.least_wanted(), Some(keys[0]));
    table.take(keys[0], at(5_000), |_| ((), Idleness::Established)).unwrap();
    table.take(keys[2], at(6_000), |_| ((), Idleness::Other)).unwrap();
    assert_eq!(table.least_wanted(), Some(keys[1]));
    for key in [keys[1], keys[3], keys[2]] {
        assert!(table.remove(key).is_some());
    }
    assert_eq!(table.least_wanted(), Some(keys[0]));
}

#[test]
fn a_flood_of_openings_displaces_itself_and_the_established_leave_it_room() {
    let mut table = table(32);
    let keys = fill(&mut table, 32);
    for (n, key) in keys.iter().enumerate().take(29) {
        table.take(*key, at(1_000 + n as u64), |_| ((), Idleness::Established)).unwrap();
    }
    // Three opening ones, more than the reserved two: the oldest of them goes, however long others were silent.
    assert_eq!(table.least_wanted(), Some(keys[29]));
    table.take(keys[29], at(2_000), |_| ((), Idleness::Established)).unwrap();
    assert_eq!(table.least_wanted(), Some(keys[0]), "two are the reserved part: the established give way");
}

#[test]
fn silence_ends_the_unfinished_before_the_established() {
    let mut table = table(10);
    let keys = fill(&mut table, 2);
    table.take(keys[0], at(2_000), |_| ((), Idleness::Established)).unwrap();
    assert_eq!(table.next_due(), Some(at(1).after(Micros::from_secs(120))));
    assert_eq!(table.expired(at(120_000)), None);
    assert_eq!(table.expired(at(120_001)), Some(keys[1]));
    table.remove(keys[1]);
    assert_eq!(table.expired(at(3_601_999)), None);
    assert_eq!(table.expired(at(3_602_000)), Some(keys[0]));
}

#[test]
fn a_timer_is_due_once_and_not_early() {
    let mut table = table(10);
    let keys = fill(&mut table, 3);
    assert_eq!(table.due(at(100)), None);
    table.arm(keys[1], at(1_000));
    table.arm(keys[1], at(200));
    table.arm(keys[0], at(1_000));
    assert!(table.next_due().unwrap() > at(1_000));
    assert_eq!(table.due(at(999)), None);
    let due = [table.due(at(1_050)), table.due(at(1_050))];
    assert_eq!(due, [Some(keys[0]), Some(keys[1])], "last in, first out");
    assert_eq!(table.due(at(9_000)), None);
}

#[test]
fn a_far_deadline_is_looked_at_early_and_a_removed_one_never() {
    let mut table = table(10);
    let keys = fill(&mut table, 3);
    assert_eq!(table.due(at(0)), None);
    for key in &keys {
        table.arm(*key, at(60_000));
    }
    table.remove(keys[1]);
    let mut due = Vec::new();
    while let Some(key) = table.due(at(100_000)) {
        table.arm(key, at(200_000));
        due.push(key);
    }
    due.sort_by_key(|key| key.0);
    assert_eq!(due, [keys[0], keys[2]], "once each, though armed again at once");
}

#[test]
fn a_timer_set_before_the_clock_first_moved_is_due_in_time() {
    let mut table = table(10);
    let keys = fill(&mut table, 1);
    table.arm(keys[0], at(10));
    assert!(table.next_due().is_some_and(|due| due <= at(40)));
    assert_eq!(table.due(at(100)), Some(keys[0]));
}
