//! What the store gets of the networks, and what is restored from it.

use super::*;
use crate::window::bucket::{LimitCounts, RemoteRtt, RttSum};

#[test]
fn the_store_gets_changed_networks_in_turn() {
    let mut table = table(10);
    let names = |portion: Vec<(Network, Option<NetworkRecord>)>| -> Vec<(Network, bool)> {
        portion.into_iter().map(|(network, record)| (network, record.is_some())).collect()
    };
    (1..=3).for_each(|n| table.add_rounds(network(n), START, HOST, RttSum::of(Micros(1)), LimitCounts::default()));
    assert_eq!(names(table.changed_records(2)), [(network(1), true), (network(2), true)]);
    table.add_rounds(network(1), seconds(1), HOST, RttSum::of(Micros(1)), LimitCounts::default());
    assert_eq!(names(table.changed_records(9)), [(network(3), true), (network(1), true)]);
    assert_eq!(table.changed_records(9), []);
    assert!(table.expire(seconds(305), 10));
    assert_eq!(names(table.changed_records(9)), [(network(2), false), (network(3), false), (network(1), false)]);
}

#[test]
fn a_record_of_nonsense_is_cut_to_what_makes_sense() {
    let mut table = announced_table();
    let (_, record) = table.changed_records(1).remove(0);
    let record = record.unwrap();
    let number_too_high = |record: &mut NetworkRecord| {
        let source = record.contributions[0].source.as_mut().unwrap();
        source.connection = ConnectionId(u64::MAX - 1);
    };
    let restored = |change: fn(&mut NetworkRecord)| {
        let (mut other, mut record) = (super::table(10), record.clone());
        change(&mut record);
        let numbered_from = other.restore(network(1), record, START);
        (numbered_from, other.view(network(1), START).map(|view| view.samples))
    };
    assert_eq!(restored(|_| ()), (Some(ConnectionId(4)), Some(3)));
    assert_eq!(restored(|record| record.bucket = Micros(1)), (None, None));
    assert_eq!(restored(|record| record.buckets[0].index += 1), (None, None), "from the future");
    assert_eq!(restored(|record| record.buckets.clear()), (None, None));
    assert_eq!(restored(|record| record.contributions[0].sum_bytes = f64::NAN), (Some(ConnectionId(4)), Some(2)));
    assert_eq!(
        restored(|record| record.contributions[0].sum_bytes = 0.0),
        (Some(ConnectionId(4)), Some(2)),
        "no bytes"
    );
    assert_eq!(
        restored(|record| record.contributions[0].loss_samples = 1),
        (Some(ConnectionId(4)), Some(2)),
        "no bytes"
    );
    assert_eq!(restored(|record| record.contributions[0].squares = -1.0), (Some(ConnectionId(4)), Some(2)));
    assert_eq!(restored(|record| record.contributions[0].sum_bytes = 1e300), (Some(ConnectionId(4)), Some(2)));
    assert_eq!(
        restored(|record| record.contributions[0].mss.0 = 0),
        (Some(ConnectionId(4)), Some(2)),
        "no segment size"
    );
    assert_eq!(restored(number_too_high), (Some(ConnectionId(4)), Some(2)));
    assert_eq!(restored(|record| record.contributions[2].bucket = 0), (Some(ConnectionId(3)), Some(2)));
    // As a release before kept them, in the order in which they came.
    let (mut other, mut arrived) = (super::table(10), record.clone());
    arrived.contributions.reverse();
    assert!(other.restore(network(1), arrived, START).is_some());
    assert_eq!(other.changed_records(1).remove(0).1.as_ref(), Some(&record));
    let rtts = |change: fn(&mut NetworkRecord)| {
        let (mut other, mut record) = (super::table(10), record.clone());
        let part = RemoteRtt { bucket: record.buckets[0].index, remote: HOST, count: 2, sum: Micros(20) };
        record.rtts = vec![part, part];
        record.buckets[0].rtt = RttSum { count: 4, sum: Micros(40), min: None };
        change(&mut record);
        assert!(other.restore(network(1), record, START).is_some());
        other.changed_records(1).remove(0).1.map(|record| record.rtts.len())
    };
    assert_eq!(rtts(|_| ()), Some(2));
    assert_eq!(rtts(|record| record.rtts[1].count = 3), Some(1), "more than there were");
    assert_eq!(rtts(|record| record.rtts[1].sum = Micros(21)), Some(1));
    assert_eq!(rtts(|record| record.rtts[1].bucket -= 1), Some(1), "no such bucket");
    assert_eq!(rtts(|record| record.rtts = vec![RemoteRtt { count: 0, ..record.rtts[0] }; 99]), Some(0));
    assert_eq!(restored(|record| record.contributions = vec![record.contributions[0].clone(); 99]).1, Some(17));
}
