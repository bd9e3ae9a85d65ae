//! What the store gives back at a start.

use super::*;

#[test]
fn aged_records_leave_the_store_and_fresh_ones_are_not_written_again() {
    let Bench { captures, kept, worker, .. } = bench();
    captures.queues[0].close();
    worker.run();
    assert_eq!(*kept.0.lock(), [], "what was restored has not changed");

    let engine = Engine::new(EngineConfig::default());
    let limit = NonZeroUsize::new(10).unwrap();
    let mut table = NetworkTable::new(WindowConfig::default(), limit, RuleKind::default(), 0);
    table.add(&sample(1));
    let records = table.changed_records(10).into_iter().map(|(network, record)| (network, record.unwrap()));
    let next_day = START.after(Micros::from_secs(86_400));
    let aged = refill(&mut [engine], &whole(), records.collect(), WindowConfig::default().bucket, next_day);
    assert_eq!(aged, [(Network::of(REMOTE), Refused::Aged)]);
}

#[test]
fn what_there_is_no_room_for_is_counted_as_that() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.store.directory = dir.path().join("estimates");
    let clock = MonotonicClock::from_wall_clock();
    let published = Published::new(config.publisher(), clock);
    let limit = NonZeroUsize::new(10).unwrap();
    let mut table = NetworkTable::new(WindowConfig::default(), limit, RuleKind::default(), 0);
    for n in 0..3 {
        let remote = IpAddr::V4(Ipv4Addr::new(192, 0, n, 9));
        table.add(&WindowSample { network: Network::of(remote), remote, at: published.now(), ..sample(n.into()) });
    }
    let mut store = SledStore::open(&config.store.directory).unwrap().store;
    store.save(&table.changed_records(10)).and_then(|()| store.flush()).unwrap();
    drop(store);

    let limits = Limits { networks: NonZeroUsize::new(2).unwrap(), ..Limits::default() };
    let engine = Engine::new(EngineConfig { limits, ..EngineConfig::default() });
    let restored = restore(&config, vec![engine], &whole(), &published).unwrap();
    assert_eq!(restored.engines[0].network_count(), 2);
    assert!(restored.experiment.is_none());
    let writer = restored.store.and_then(Arc::into_inner).unwrap();
    let counts = |reason: &Refused| writer.measures().refused.get_or_create(&reason.labels()).get();
    let counts: Vec<_> =
        Refused::VARIANTS.iter().map(|reason| (*reason, counts(reason))).filter(|(_, n)| *n > 0).collect();
    assert_eq!(counts, [(Refused::NoRoom, 1)]);
    writer.stop().unwrap();
}

#[test]
fn networks_not_restored_are_counted_by_reason() {
    let limit = NonZeroUsize::new(10).unwrap();
    let mut table = NetworkTable::new(WindowConfig::default(), limit, RuleKind::default(), 0);
    table.add(&sample(1));
    let record = table.changed_records(10).pop().and_then(|(_, record)| record).unwrap();
    let bucket = WindowConfig::default().bucket;
    let refused = |record: &NetworkRecord, bucket, now| {
        let records = vec![(Network::of(REMOTE), record.clone())];
        let window = WindowConfig { bucket, ..WindowConfig::default() };
        let engine = Engine::new(EngineConfig { window, ..EngineConfig::default() });
        refill(&mut [engine], &whole(), records, bucket, now).pop().map(|(_, why)| why)
    };
    assert_eq!(refused(&record, bucket, START), None);
    assert_eq!(refused(&record, bucket, START.after(Micros::from_secs(86_400))), Some(Refused::Aged));
    assert_eq!(refused(&record, Micros(bucket.0 * 2), START), Some(Refused::OtherBuckets));
    assert_eq!(refused(&record, bucket, Timestamp(START.0 - 86_400_000_000_000)), Some(Refused::Future));
}
