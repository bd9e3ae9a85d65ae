//! Events and limits.

use super::*;
use crate::types::{Delivered, LimitCounts, RttSum};
use crate::window::bucket::RemoteRtt;
use crate::window::record::{CONTRIBUTIONS_PER_BUCKET, REMOTES_PER_BUCKET};

#[test]
fn an_estimate_appears_moves_and_is_refreshed() {
    let mut table = announced_table();
    table.add(&end(1, seconds(1), 13.0, 4));
    assert_eq!(shares(&events(&mut table)), [], "7.5 % is no move");
    table.add(&end(1, seconds(2), 13.0, 5));
    assert_eq!(shares(&events(&mut table)), [Ok(11.2)]);
    table.add(&end(1, seconds(3), 11.2, 6));
    assert_eq!(shares(&events(&mut table)), []);
    assert!(table.poll_timeout().is_some_and(|due| due <= seconds(22)));
    assert!(table.expire(seconds(21), 10));
    assert_eq!(shares(&events(&mut table)), []);
    assert!(table.expire(seconds(22), 10));
    let refreshed = events(&mut table);
    assert!(matches!(&refreshed[..], [NetworkEvent::Estimate(estimate)] if estimate.refreshed == seconds(3)));
    assert!(table.expire(seconds(250), 10), "nothing new, nothing announced");
    assert_eq!(events(&mut table), []);
}

#[test]
fn the_network_refreshed_longest_ago_goes_where_samples_take_too_much() {
    let limit = NonZeroUsize::new(10_000).unwrap();
    let mut table = table(1_000).within(limit);
    for n in 0..200 {
        table.add(&end(n, seconds(n.into()), 10.0, 1));
        assert!(table.memory().used_bytes <= limit.get());
    }
    assert!(table.len() > 10, "{}", table.len());
    assert_eq!(table.evicted(), 200 - table.len() as u64);
    assert!(table.view(network(199), seconds(250)).is_some() && table.view(network(0), seconds(250)).is_none());
    assert!(table.expire(seconds(10_000), usize::MAX));
    assert_eq!((table.len(), table.memory().used_bytes), (0, 0));
}

#[test]
fn samples_that_come_together_are_announced_together() {
    let mut table = announced_table();
    let ms = |n| START.after(Micros::from_millis(n));
    (4..10).for_each(|connection| table.add(&end(1, ms(connection), 40.0, connection)));
    assert_eq!(shares(&events(&mut table)), [], "evaluated less than 100 ms ago");
    assert_eq!(table.estimate(network(1), ms(9)).map(|estimate| estimate.samples), Some(9), "a query gets all");
    assert!(table.poll_timeout().is_some_and(|due| due == ms(100)));
    assert!(table.expire(ms(100), 10));
    assert_eq!(shares(&events(&mut table)), [Ok(30.0)]);
    table.add(&end(1, ms(200), 90.0, 10));
    assert_eq!(shares(&events(&mut table)), [Ok(36.0)], "at once where the last one is 100 ms ago");
}

#[test]
fn a_fuller_window_is_looked_at_less_often() {
    let mut table = announced_table();
    for bucket in 1..=10 {
        (0..16).for_each(|n| table.add(&end(1, seconds(bucket * 10), 10.0, bucket * 16 + n)));
    }
    assert!(table.expire(seconds(101), 10));
    events(&mut table);
    let ms = |n| seconds(101).after(Micros::from_millis(n));
    let jump = |at| end(1, at, 4_000.0, 1_000);
    table.add(&jump(ms(320)));
    assert_eq!(shares(&events(&mut table)), [], "163 contributions: 326 ms");
    table.add(&jump(ms(330)));
    assert_eq!(shares(&events(&mut table)).len(), 1);
}

#[test]
fn networks_handed_over_are_announced_and_not_evaluated_again() {
    let mut table = announced_table();
    table.changed_records(0);
    let ms = |n| START.after(Micros::from_millis(n));
    table.add(&end(1, ms(50), 40.0, 4));
    assert_eq!(shares(&events(&mut table)), [], "it waits for its look at 100 ms");
    assert_eq!(table.changed_networks(10, ms(60)).len(), 1);
    let handed_over = events(&mut table);
    let [NetworkEvent::Network(view)] = handed_over.as_slice() else { panic!("one event of each: {handed_over:?}") };
    assert_eq!(shares(&[NetworkEvent::Estimate(Box::new(view.estimate.clone().unwrap()))]), [Ok(17.5)]);
    assert!(table.expire(ms(100), 10));
    assert_eq!(table.poll_timeout(), Some(ms(160)), "a look later than the last evaluation");
}

#[test]
fn a_slow_drift_is_a_move_in_spite_of_refreshes() {
    let mut table = table(10);
    (1..=3).for_each(|connection| table.add(&end(1, START, 100.0, connection)));
    assert_eq!(shares(&events(&mut table)), [Ok(100.0)]);
    // Each sample moves the average to what is announced, or would be.
    let mut announced = |at, segments| {
        table.add(&end(1, seconds(at), segments, 3 + at));
        shares(&events(&mut table))
    };
    assert_eq!(announced(20, 116.0), [Ok(104.0)], "a refresh");
    assert_eq!(announced(40, 124.0), [Ok(108.0)], "a refresh");
    assert_eq!(announced(50, 126.0), [Ok(111.0)], "a move of 11 % in all, 3 % from the refresh");
    assert_eq!(announced(52, 118.0), [], "112, and 111 was announced");
    let mut table = self::table(10);
    (1..=3).for_each(|connection| table.add(&end(1, START, 100.0, connection)));
    table.add(&end(1, seconds(20), 136.0, 4));
    assert_eq!(shares(&events(&mut table)), [Ok(100.0), Ok(109.0)], "and a refresh");
    table.add(&end(1, seconds(21), 54.0, 5));
    assert_eq!(shares(&events(&mut table)), [Ok(98.0)], "a move from the refresh, 2 % from where it began");
}

#[test]
fn a_changed_round_trip_time_is_announced_within_a_second() {
    let mut table = announced_table();
    table.add_rounds(network(1), seconds(1), HOST, RttSum::of(Micros(50_000)), LimitCounts::default());
    assert!(table.expire(seconds(2), 10));
    assert_eq!(events(&mut table).len(), 1, "the first one is a move");
    table.add_rounds(network(1), seconds(3), HOST, RttSum::of(Micros(58_000)), LimitCounts::default());
    assert!(table.expire(seconds(4), 10));
    assert_eq!(events(&mut table), [], "54 ms are 8 % more");
    table.add_rounds(network(1), seconds(5), HOST, RttSum::of(Micros(60_000)), LimitCounts::default());
    assert!(table.expire(seconds(6), 10));
    let rtt = events(&mut table).into_iter().map(|event| match event {
        NetworkEvent::Estimate(estimate) => estimate.rtt_mean,
        other => panic!("{other:?}"),
    });
    assert_eq!(rtt.collect::<Vec<_>>(), [Some(Micros(56_000))]);
}

#[test]
fn what_the_empty_path_holds_is_in_the_estimate_and_announced_as_far_as_it_decides_a_start() {
    let mut table = announced_table();
    table.add_rounds(network(1), seconds(1), HOST, RttSum::of(Micros(50_000)), LimitCounts::default());
    assert!(table.expire(seconds(2), 10));
    assert_eq!(events(&mut table).len(), 1, "the first round trip");
    let mut announced = |second: u64, bytes: u64| {
        table.add_delivered(network(1), seconds(second), Delivered { since: seconds(second - 1), bytes });
        table.add_rounds(network(1), seconds(second), HOST, RttSum::of(Micros(50_000)), LimitCounts::default());
        assert!(table.expire(seconds(second + 1), 10));
        let bdps = events(&mut table).into_iter().map(|event| match event {
            NetworkEvent::Estimate(estimate) => estimate.bdp.map(Window::half_bytes),
            other => panic!("{other:?}"),
        });
        bdps.collect::<Vec<_>>()
    };
    // Segments of 1,000 bytes: 200, 400 and 1,600 a second are 10, 20 and 80 in a round trip of 50 ms.
    assert_eq!(announced(3, 200_000), [Some(20_000)]);
    assert_eq!(announced(5, 400_000), [Some(40_000)]);
    assert_eq!(announced(7, 1_600_000), [Some(160_000)], "25 decide a start");
    assert_eq!(announced(9, 3_200_000), [], "and more change nothing");
}

#[test]
fn a_round_trip_time_after_a_look_is_looked_at_within_a_second() {
    let mut table = announced_table();
    table.add_rounds(network(1), seconds(1), HOST, RttSum::of(Micros(50_000)), LimitCounts::default());
    assert_eq!(events(&mut table).len(), 1, "the first one is a move");
    table.add_rounds(
        network(1),
        Timestamp::from_micros(1_700_000_006_100_000),
        HOST,
        RttSum::of(Micros(80_000)),
        LimitCounts::default(),
    );
    assert_eq!(events(&mut table), [], "looked at a moment ago");
    assert!(table.expire(seconds(2), 10));
    assert_eq!(events(&mut table).len(), 1, "moved by 30 %");
}

#[test]
fn no_address_has_more_than_half_of_the_mean_round_trip_time() {
    let host = |n: u8| IpAddr::from([198, 51, 1, n]);
    let mean = |rtts: &[(u8, u64, u32)]| {
        let mut table = announced_table();
        for (n, ms, times) in rtts {
            for _ in 0..*times {
                table.add_rounds(
                    network(1),
                    seconds(1),
                    host(*n),
                    RttSum::of(Micros::from_millis(*ms)),
                    LimitCounts::default(),
                );
            }
        }
        let view = table.view(network(1), seconds(1)).unwrap();
        assert_eq!(view.estimate.unwrap().rtt_mean, view.rtt_mean);
        (view.rtt_min.map(|min| min.0 / 1_000), view.rtt_mean.map(|mean| mean.0))
    };
    assert_eq!(mean(&[(1, 10, 1_000), (2, 100, 1), (3, 200, 1)]), (Some(10), Some(80_000)));
    assert_eq!(mean(&[(1, 10, 1_000)]), (Some(10), Some(10_000)), "alone");
    assert_eq!(mean(&[(1, 10, 2), (2, 100, 2)]), (Some(10), Some(55_000)), "half is not more than half");
    let many: Vec<_> = (2..100).map(|n| (n, 100, 1)).chain([(1, 10, 500)]).collect();
    let (_, crowded) = mean(&many);
    assert!(crowded.is_some_and(|mean| (54_000..56_000).contains(&mean)), "last of 100 in one bucket: {crowded:?}");
}

#[test]
fn addresses_that_lose_their_place_in_a_bucket_are_counted() {
    let mut table = table(10);
    for n in 0..20 {
        table.add_rounds(network(1), START, [198, 51, 1, n].into(), RttSum::of(Micros(1_000)), LimitCounts::default());
        table.add_rounds(network(1), START, HOST, RttSum::of(Micros(1_000)), LimitCounts::default());
    }
    assert_eq!(table.rtts_shared(), 5, "HOST and 15 of 20 have a place");
    let (_, record) = table.changed_records(1).remove(0);
    let record = record.unwrap();
    assert_eq!((record.rtts.len(), record.buckets[0].rtt.count), (REMOTES_PER_BUCKET, 40));
    assert_eq!(record.rtts.iter().map(|part| part.count).max(), Some(20), "who has most stays");
}

#[test]
fn silence_expires_an_estimate_and_then_the_network() {
    let mut table = announced_table();
    table.add_loss(network(1), seconds(100), sender(1, 1), Micros(1));
    // START lies in the middle of its bucket, which leaves the window 295 s later.
    assert!(table.expire(seconds(294), 10));
    assert!(table.estimate(network(1), seconds(294)).is_some());
    assert!(table.estimate(network(1), seconds(295)).is_none(), "on read, before anybody expired it");
    assert!(table.expire(seconds(295), 10));
    assert_eq!(shares(&events(&mut table)), [Err(Withdrawal::Expired)]);
    assert_eq!((table.len(), table.views(seconds(295)).len()), (1, 1), "the loss is still there");
    assert!(table.expire(seconds(395), 10));
    assert_eq!((table.len(), table.poll_timeout(), events(&mut table)), (0, None, vec![]));
}

#[test]
fn an_estimate_goes_with_the_samples_it_needs() {
    let mut table = table(10);
    table.add(&end(1, START, 10.0, 1));
    table.add(&end(1, seconds(60), 10.0, 2));
    table.add(&end(1, seconds(60), 10.0, 3));
    assert!(table.expire(seconds(295), 10));
    assert_eq!(shares(&events(&mut table)), [Ok(10.0), Err(Withdrawal::TooFew)]);
}

#[test]
fn an_estimate_never_outlives_its_age_limit() {
    let config = WindowConfig { max_age: Micros::from_secs(100), ..WindowConfig::default() };
    let mut table = NetworkTable::new(config, NonZeroUsize::new(10).unwrap(), RuleKind::Spand, 7);
    for connection in 1..=3 {
        table.add(&end(1, START, 10.0, connection));
    }
    assert!(table.expire(seconds(100), 10));
    assert_eq!(shares(&events(&mut table)), [Ok(10.0)]);
    assert!(table.expire(seconds(101), 10));
    assert_eq!(shares(&events(&mut table)), [Err(Withdrawal::Expired)]);
}

#[test]
fn a_full_table_drops_the_network_refreshed_longest_ago() {
    let mut table = table(2);
    for (n, at) in [(1, 0), (2, 10)] {
        (1..=3).for_each(|connection| table.add(&end(n, seconds(at), 10.0, connection)));
    }
    table.add_rounds(network(1), seconds(20), HOST, RttSum::of(Micros(1)), LimitCounts::default());
    events(&mut table);
    table.add_rounds(network(3), seconds(30), HOST, RttSum::of(Micros(1)), LimitCounts::default());
    assert_eq!(shares(&events(&mut table)), [Err(Withdrawal::Evicted)]);
    let left: Vec<_> = table.views(seconds(30)).into_iter().map(|view| view.network).collect();
    assert_eq!((left, table.evicted(), table.len()), (vec![network(1), network(3)], 1, 2));
}

#[test]
fn due_networks_are_looked_at_in_portions() {
    let mut table = table(100);
    (0..100).for_each(|n| table.add_rounds(network(n), START, HOST, RttSum::of(Micros(1)), LimitCounts::default()));
    assert!(!table.expire(seconds(400), 30));
    assert_eq!((table.len(), table.views(seconds(400)).len()), (70, 0));
    assert!(!table.expire(seconds(400), 69));
    assert!(table.expire(seconds(400), 30));
    assert!(table.is_empty());
    for n in 0..10 {
        (0..16).for_each(|connection| table.add(&end(n, START, 10.0, connection)));
        (0..16).for_each(|connection| table.add(&end(n, seconds(10), 10.0, connection)));
    }
    assert!(!table.expire(seconds(400), 10));
    assert_eq!(table.len(), 5, "32 contributions are as much work as a network without any");
}

#[test]
fn connections_beyond_a_bucket_s_room_share_a_place_and_are_counted() {
    let room = u64::try_from(CONTRIBUTIONS_PER_BUCKET).unwrap();
    let mut table = table(10);
    (0..room).for_each(|connection| table.add(&end(1, START, 10.0, connection)));
    assert_eq!(table.shared(), 0);
    // One more of a known host, three of unknown ones.
    for (connection, segments) in [(201, 27.0), (50, 27.0), (51, 27.0), (52, 27.0)] {
        table.add(&end(1, START, segments, connection));
    }
    let view = table.view(network(1), START).unwrap();
    assert_eq!((table.shared(), view.samples, view.connections), (4, 20, 16));
    assert!((view.estimate.unwrap().share.bytes() - 13_400.0).abs() < 1e-6, "sums stay exact");
    let (_, record) = table.changed_records(1).remove(0);
    assert_eq!(record.unwrap().contributions.len(), CONTRIBUTIONS_PER_BUCKET + 1);
}

#[test]
fn the_room_of_a_busy_time_is_given_back() {
    let config = WindowConfig::default();
    let mut record = NetworkRecord::new(config.bucket);
    let mut add = |s: u64, connections: u64| {
        for connection in 0..connections {
            let sample = end(1, seconds(s), 10.0, connection);
            record.add(&sample, sample.window, &config);
        }
        record.contributions.capacity()
    };
    let busy = (0..300).step_by(10).map(|s| add(s, 16)).max();
    assert!(busy >= Some(480), "{busy:?}");
    let quiet = (300..900).step_by(10).map(|s| add(s, 1)).last();
    assert!(quiet <= Some(48), "thirty contributions take the room of {quiet:?}");
}

#[test]
fn the_end_of_time_is_not_waited_for() {
    let mut table = table(10);
    for connection in 1..=3 {
        table.add(&end(1, Timestamp(u64::MAX - connection), 10.0, connection));
    }
    for now in [u64::MAX - 1, u64::MAX, u64::MAX] {
        assert!(table.expire(Timestamp(now), usize::MAX));
    }
    assert_eq!(shares(&events(&mut table)), [Ok(10.0)]);
}

#[test]
fn a_probe_is_admitted_once_per_round_trip_across_a_restart() {
    let new = || NetworkTable::new(WindowConfig::default(), NonZeroUsize::MIN, RuleKind::Probe, 7);
    let share = |table: &NetworkTable| table.estimate(network(1), START).unwrap().share.bytes() / 1_000.0;
    let advised = |connection| WindowSample { advised: true, ..end(1, START, 12.0, connection) };
    let mut before = new();
    before.add_rounds(network(1), START, HOST, RttSum::of(Micros(100_000)), LimitCounts::default());
    for (connection, segments) in [(1, 10.0), (2, 20.0), (3, 30.0)] {
        before.add(&sample(1, START, segments, connection, SampleReason::Loss));
    }
    before.add(&advised(4));
    assert!((share(&before) - 81.0 / 4.0).abs() < 1e-9, "12 counts as 21: {}", share(&before));
    let (_, record) = before.changed_records(1).remove(0);
    let mut after = new();
    assert_eq!(after.restore(network(1), record.unwrap(), START), Some(ConnectionId(5)));
    after.add(&advised(5));
    assert!((share(&after) - 93.0 / 5.0).abs() < 1e-9, "12 counts as 12: {}", share(&after));
}

// What the store gets of the networks, and what is restored from it.

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
