//! The engine's thread between a queue and the publisher, without interfaces.

mod reported;

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use parking_lot::Mutex;
use spand_core::config::{Limits, WindowConfig};
use spand_core::event::Event;
use spand_core::networks::{NetworkTable, Withdrawal};
use spand_core::types::{ConnectionId, SampleReason, WindowSample};
use spand_core::window::record::NetworkRecord;
use spand_core::wire::Frame;
use spand_proto::estimate::RuleKind;
use spand_proto::network::Network;
use spand_proto::push::{UpdateEvent, WithdrawalReason};
use spand_proto::units::{Timestamp, Window};
use strum::VariantArray;

use super::order::Distributor;
use super::queue::FrameBatch;
use super::restoring::refill;
use super::*;
use crate::names::InForce;
use crate::patience::{PATIENCE, eventually};
use crate::publisher::{PacketClock, PublisherConfig};
use crate::store::{Change, EstimateStore, Refused, SledStore, StoreError, StoreWriter};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const REMOTE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
const START: Timestamp = Timestamp(1_700_000_000_000_000_000);

/// A clock that stands until it is set.
#[derive(Clone)]
struct SetClock(Arc<AtomicU64>);

impl PacketClock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// A store that keeps what it is given.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Change>>>);

impl EstimateStore for Kept {
    fn save(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.0.lock().extend_from_slice(changes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

struct Bench {
    clock: SetClock,
    published: Published,
    captures: Arc<Captures>,
    kept: Kept,
    worker: EngineThread,
}

/// One engine for everything.
fn whole() -> Partition {
    Partition::new(&EngineConfig::default(), NonZeroU32::MIN)
}

/// An engine that knows an estimate for the network of `REMOTE`.
fn bench() -> Bench {
    let clock = SetClock(Arc::new(AtomicU64::new(START.0)));
    let published = Published::new(PublisherConfig::default(), clock.clone());
    let internal = vec!["10.0.0.0/8".parse().unwrap()];
    let config = EngineConfig { internal, ..EngineConfig::default() };
    let mut engine = Engine::new(config.clone());
    let limit = NonZeroUsize::new(10).unwrap();
    let mut table = NetworkTable::new(WindowConfig::default(), limit, RuleKind::default(), 0);
    for connection in 0..3 {
        table.add(&sample(connection));
    }
    let records = table.changed_records(10).into_iter().map(|(network, record)| (network, record.unwrap()));
    assert_eq!(
        refill(std::slice::from_mut(&mut engine), &whole(), records.collect(), WindowConfig::default().bucket, START),
        []
    );
    published.replace(engine.networks().views(START), |_| true, None);
    let queues = vec![FrameQueue::new(NonZeroUsize::new(1_000).unwrap())];
    let clock_of_capture = MonotonicClock::from_wall_clock();
    let (grouping, second) = (Grouping::new(Groups::of(&config, whole())), Duration::from_secs(1));
    let captures = Captures::new(queues, grouping, clock_of_capture, second, &[], NonZeroUsize::MIN);
    let captures = Arc::new(captures);
    let kept = Kept::default();
    let store = StoreWriter::start(kept.clone(), Duration::from_millis(10)).unwrap();
    let workers = EngineThread::each(vec![engine], &published, &captures, Some(&Arc::new(store)), Vec::new());
    let worker = workers.into_iter().next().unwrap();
    Bench { clock, published, captures, kept, worker }
}

fn sample(connection: u64) -> WindowSample {
    WindowSample {
        at: START,
        network: Network::of(REMOTE),
        remote: REMOTE,
        connection: ConnectionId(connection),
        window: Window::from_bytes(30_000.0).unwrap(),
        mss: Bytes(1_448),
        reason: SampleReason::Loss,
        reduced_before: false,
        transfer: Bytes(100_000),
        advised: false,
        rtt_min: None,
        rtt: None,
    }
}

/// A SYN of `HOST` to `REMOTE`, raw IPv4.
fn syn() -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 192, 0, 2, 9];
    packet.extend([0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xfa, 0xf0, 0, 0, 0, 0]);
    packet
}

#[test]
fn a_syn_goes_to_its_host() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let Bench { published, captures, worker, .. } = bench();
    let mut subscription = published.subscribe(&[HOST]).unwrap();
    let mut batch = FrameBatch::default();
    let data = syn();
    batch.push(START, &Frame { link_type: 101, wire_len: 40, input: 0, data: &data });
    assert_eq!(captures.queues[0].put(&mut batch), 0);
    captures.queues[0].close();
    worker.run();
    let first = runtime.block_on(subscription.next()).unwrap();
    let UpdateEvent::ImminentStart(start) = first.event else { panic!("a start comes before all else: {first:?}") };
    assert_eq!((start.host.address, start.remote.address), (HOST, REMOTE));
}

#[test]
fn a_batch_is_due_when_it_is_handed_over_and_not_when_the_one_before_was() {
    let mut worker = bench().worker;
    assert!(worker.due().is_none(), "nothing was collected");
    worker.batch.events.push(Event::Withdrawn { network: Network::of(REMOTE), reason: Withdrawal::Evicted });
    let now = Instant::now();
    assert!(worker.due().unwrap().polled >= now);
    assert!(worker.due().is_none());
}

#[test]
fn several_engines_announce_the_starts_of_all_networks_and_save_their_own() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let count = NonZeroU32::new(3).unwrap();
    let config = EngineConfig { internal: vec!["10.0.0.0/8".parse().unwrap()], ..EngineConfig::default() };
    let partition = Partition::new(&config, count);
    let engine = |index| Engine::new(EngineConfig { shard: Shard { index, count }, ..config.clone() });
    let mut engines: Vec<_> = (0..count.get()).map(engine).collect();
    let remotes: Vec<_> = (0..30).map(|n| IpAddr::V4(Ipv4Addr::new(192, 0, n, 9))).collect();
    let mut table = NetworkTable::new(WindowConfig::default(), NonZeroUsize::new(100).unwrap(), RuleKind::default(), 0);
    for (remote, connection) in remotes.iter().flat_map(|remote| (0..3).map(move |connection| (*remote, connection))) {
        table.add(&WindowSample { network: Network::of(remote), remote, ..sample(connection) });
    }
    let records = table.changed_records(100).into_iter().map(|(network, record)| (network, record.unwrap()));
    assert_eq!(refill(&mut engines, &partition, records.collect(), WindowConfig::default().bucket, START), []);
    assert!(engines.iter().all(|engine| !engine.networks().views(START).is_empty()), "each has some");

    let published = Published::new(PublisherConfig::default(), SetClock(Arc::new(AtomicU64::new(START.0))));
    published.replace(engines.iter().flat_map(|engine| engine.networks().views(START)).collect(), |_| true, None);
    let mut subscription = published.subscribe(&[HOST]).unwrap();
    let queues = engines.iter().map(|_| FrameQueue::new(NonZeroUsize::new(1_000).unwrap())).collect();
    let (clock, second) = (MonotonicClock::from_wall_clock(), Duration::from_secs(1));
    let grouping = Grouping::new(Groups::of(&config, partition));
    let captures = Arc::new(Captures::new(queues, grouping, clock, second, &[], NonZeroUsize::MIN));
    let groups = captures.grouping.in_force();
    let mut distributor = Distributor::new(0, captures.queues.len());
    for (n, remote) in remotes.iter().enumerate() {
        let mut data = syn();
        let IpAddr::V4(address) = remote else { panic!("{remote}") };
        data[16..20].copy_from_slice(&address.octets());
        // In Ethernet the addresses are seen at once; of what is not, every engine takes a copy.
        let data = if n % 2 == 0 { [vec![0; 12], vec![0x08, 0x00], data].concat() } else { data };
        let link_type = if n % 2 == 0 { 1 } else { 101 };
        let frame = Frame { link_type, wire_len: u32::try_from(data.len()).unwrap(), input: 0, data: &data };
        distributor.push(&groups.partition, START, &frame);
    }
    assert_eq!(distributor.flush(&captures.queues, |at| at), 0);
    for queue in &captures.queues {
        queue.close();
    }
    let kept = Kept::default();
    let store = StoreWriter::start(kept.clone(), Duration::from_millis(10)).unwrap();
    let mut workers = EngineThread::each(engines, &published, &captures, Some(&Arc::new(store)), Vec::new());
    workers.iter_mut().for_each(EngineThread::publish_state);
    assert_eq!(published.engine().networks, remotes.len(), "each counts its own");
    let running: Vec<_> = workers.into_iter().map(|worker| thread::spawn(move || worker.run())).collect();
    for thread in running {
        thread.join().unwrap();
    }
    let all = async {
        let mut pushed = Vec::new();
        while pushed.len() < remotes.len() {
            if let UpdateEvent::ImminentStart(start) = subscription.next().await.unwrap().event {
                pushed.push(start.remote.address);
            }
        }
        pushed
    };
    let pushed = runtime.block_on(async { tokio::time::timeout(PATIENCE, all).await });
    let mut pushed = pushed.expect("each start is pushed");
    pushed.sort_unstable();
    assert_eq!(pushed, remotes);
    assert_eq!(*kept.0.lock(), [], "nothing was measured");
}

#[test]
fn an_engine_that_does_not_keep_up_follows_fewer_connections_and_says_so() {
    let Bench { published, mut worker, .. } = bench();
    let data = syn();
    let mut batch = FrameBatch::default();
    (0..600).for_each(|_| batch.push(START, &Frame { link_type: 101, wire_len: 40, input: 0, data: &data }));
    let (waiting, begun) = ([batch], Instant::now());
    for look in 0..4 {
        worker.shed(&waiting, 1_000, begun + Duration::from_millis(100 * look));
    }
    worker.publish_state();
    assert!((published.engine().shed - 0.25).abs() < f64::EPSILON, "{}", published.engine().shed);
}

#[test]
fn networks_that_change_all_at_once_have_their_turns() {
    let Bench { published, mut worker, .. } = bench();
    let mut table = NetworkTable::new(WindowConfig::default(), NonZeroUsize::MIN, RuleKind::default(), 0);
    table.add(&sample(1));
    let record = table.changed_records(1).pop().and_then(|(_, record)| record).unwrap();
    worker.engine = Engine::new(EngineConfig::default());
    for n in 0..1_000_u32 {
        let address = IpAddr::from(Ipv4Addr::from_bits(0xc633_0000 + (n << 8)));
        worker.engine.restore(Network::of(address), record.clone(), START);
    }
    let mut published_after = || {
        worker.publish_state();
        published.network_count()
    };
    published_after();
    assert_eq!(published.engine().networks, 1_000, "all in the table, published or not");
    let second = published_after();
    assert!((2..400).contains(&second), "{second}: a part, that packets wait less");
    let most = (0..100).map(|_| published_after()).max();
    assert_eq!(most, Some(1_001), "and everyone in the end");
}

#[test]
fn time_passes_without_packets() {
    let Bench { clock, published, captures, worker, kept } = bench();
    assert_eq!(published.estimate_count(), 1);
    let running = thread::spawn(move || worker.run());
    clock.0.fetch_add(3_600_000_000_000, Ordering::SeqCst);
    eventually("an hour of silence withdraws the estimate and forgets the network", || published.network_count() == 0);
    captures.queues[0].close();
    running.join().unwrap();
    assert_eq!(*kept.0.lock(), [(Network::of(REMOTE), None)], "and the store forgets it");
}

// What the store gives back at a start.

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
    assert_eq!(restored.engines[0].networks().len(), 2);
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

// The list of prefixes at a start, and what SIGHUP brings into force.

#[test]
fn every_engine_gets_the_list_of_prefixes_that_divides_the_networks() {
    let dir = tempfile::tempdir().unwrap();
    let [list, next] = ["routes.txt", "next.txt"].map(|name| dir.path().join(name));
    nix::unistd::mkfifo(&list, nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(&next, "203.0.113.0/24\n").unwrap();
    let mut config = Config::default();
    config.traffic.prefix_list = Some(list.clone());
    config.engine.threads = NonZeroU32::new(3).unwrap();
    // A second read of the list returns another one.
    let writer = thread::spawn(move || {
        let mut pipe = fs::OpenOptions::new().write(true).open(&list).unwrap();
        fs::rename(next, list).unwrap();
        io::Write::write_all(&mut pipe, b"198.51.100.0/24\n").unwrap();
    });
    let (first, engines) = parts(&config).unwrap();
    writer.join().unwrap();
    let engines: Vec<_> = engines.collect();
    assert_eq!((format!("{:?}", engines[0]), first.prefixes.len()), (format!("{first:?}"), 1));
    assert_eq!(engines.iter().map(|engine| engine.shard.index).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(engines.iter().all(|engine| engine.prefixes == first.prefixes && engine.hash_seed == first.hash_seed));
}

#[test]
fn sighup_withdraws_the_networks_that_are_gone_and_a_file_at_fault_leaves_everything() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let Bench { published, captures, kept, mut worker, .. } = bench();
    runtime.spawn(published.clone().run());
    // What the bench published is sent before the first subscription.
    runtime.block_on(tokio::time::sleep(Duration::from_millis(100)));
    let folder = tempfile::tempdir().unwrap();
    let (file, list) = (folder.path().join("gateway.toml"), folder.path().join("routes.txt"));
    let text = "[capture]\ninterfaces = [\"lo\"]\n[traffic]\ninternal = [\"10.0.0.0/8\"]\n";
    fs::write(&file, text).unwrap();
    let mut reload = Reload::new(&Config::load(&file).unwrap(), &file, 0, &captures, &published, InForce::default());
    let network = Network::of(REMOTE);
    let mut subscription = published.subscribe(&[HOST]).unwrap();
    let mut next = || runtime.block_on(subscription.next()).unwrap().event;
    while !matches!(next(), UpdateEvent::SnapshotEnd { networks: 1 }) {}
    let mut pass = || {
        worker.regroup();
        worker.publish_state();
        (worker.engine.networks().view(network, START).is_some(), worker.engine.follows(HOST))
    };
    let measures = published.measures();

    // With the network that it drops, and one line that is none.
    fs::write(&list, "192.0.0.0/16\n192.0.2.0/40\n").unwrap();
    let listed = format!("{text}prefix_list = \"routes.txt\"\n[limits]\nconnections = 1000\n");
    fs::write(&file, &listed).unwrap();
    let fault = reload.take().unwrap_err().to_string();
    assert!(fault.contains("routes.txt, line 2"), "{fault}");
    reload.reload();
    assert_eq!((pass(), measures.config_last_reload_successful.get()), ((true, true), 0));
    fs::write(&file, "[traffic]\ninternal = [\"10.0.0.0/40\"]\n").unwrap();
    assert!(reload.take().unwrap_err().to_string().contains("gateway.toml, line 2: traffic.internal"));
    fs::write(&file, &listed).unwrap();

    fs::write(&list, "192.0.0.0/16\n").unwrap();
    let reloaded = reload.take().unwrap();
    assert_eq!(
        (reloaded.in_force, reloaded.needs_restart),
        (vec!["traffic.prefix_list".to_owned()], vec!["limits.connections".to_owned()])
    );
    assert_eq!(pass(), (false, true));
    let withdrawal = UpdateEvent::Withdrawal { network, reason: WithdrawalReason::Administrator };
    assert_eq!(next(), withdrawal, "before anything else");
    assert!(published.network(network).is_none());

    // The list alone, under the same name; then who is inside.
    fs::write(&list, "192.0.2.0/24\n").unwrap();
    assert_eq!(reload.take().unwrap().in_force, ["traffic.prefix_list"]);
    fs::write(&file, listed.replace("10.0.0.0/8", "172.16.0.0/12")).unwrap();
    reload.reload();
    assert_eq!((pass(), measures.config_last_reload_successful.get()), ((false, false), 1));
    let own = captures.grouping.in_force().own_listeners.clone();
    assert!(own.contains(&"127.0.0.1:7480".parse().unwrap()), "they are looked at again: {own:?}");
    let owner = captures.grouping.in_force().partition.owner(network);
    assert_eq!(owner, whole().owner(network), "a network is its owner's, whatever the prefixes");
    captures.queues[0].close();
    worker.run();
    assert!(kept.0.lock().iter().any(|(gone, record)| *gone == network && record.is_none()), "the store drops it");
}
