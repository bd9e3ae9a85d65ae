//! The engine's thread between a queue and the publisher, without interfaces.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use parking_lot::Mutex;
use spand_core::config::{EngineConfig, WindowConfig};
use spand_core::flow::sample::{ConnectionId, Phase, SampleReason, WindowSample};
use spand_core::window::table::NetworkTable;
use spand_core::wire::Frame;
use spand_proto::estimate::RuleKind;
use spand_proto::push::UpdateEvent;
use spand_proto::units::Window;

use super::queue::FrameBatch;
use super::*;
use crate::publisher::{PacketClock, PublisherConfig};
use crate::store::{EstimateStore, StoreError};

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

/// An engine that knows an estimate for the network of `REMOTE`.
fn bench() -> Bench {
    let clock = SetClock(Arc::new(AtomicU64::new(START.0)));
    let published = Published::new(PublisherConfig::default(), clock.clone());
    let internal = vec!["10.0.0.0/8".parse().unwrap()];
    let mut engine = Engine::new(EngineConfig { internal, ..EngineConfig::default() });
    let limit = NonZeroUsize::new(10).unwrap();
    let mut table = NetworkTable::new(WindowConfig::default(), limit, RuleKind::default(), 0);
    for connection in 0..3 {
        table.add(&sample(connection));
    }
    let records = table.changed_records(10).into_iter().map(|(network, record)| (network, record.unwrap()));
    assert_eq!(refill(&mut engine, records.collect(), START), []);
    published.replace(engine.networks(START), Vec::new());
    let queue = FrameQueue::new(NonZeroUsize::new(1_000).unwrap());
    let captures = Captures::new(queue, MonotonicClock::from_wall_clock(), Duration::from_secs(1), &[]);
    let captures = Arc::new(captures);
    let kept = Kept::default();
    let store = StoreWriter::start(kept.clone(), Duration::from_millis(10)).unwrap();
    let worker = EngineThread::new(engine, published.clone(), Arc::clone(&captures), Some(store));
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
        sawtooth: None,
        phase: Phase::CongestionAvoidance,
        transfer: Bytes(100_000),
        advised: false,
        rtt_min: None,
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
    assert_eq!(captures.queue.put(&mut batch), 0);
    captures.queue.close();
    worker.run();
    let first = runtime.block_on(subscription.next()).unwrap();
    let UpdateEvent::ImminentStart(start) = first.event else { panic!("a start comes before all else: {first:?}") };
    assert_eq!((start.host.address, start.remote.address), (HOST, REMOTE));
}

#[test]
fn aged_records_leave_the_store_and_fresh_ones_are_not_written_again() {
    let Bench { captures, kept, worker, .. } = bench();
    captures.queue.close();
    worker.run();
    assert_eq!(*kept.0.lock(), [], "what was restored has not changed");

    let mut engine = Engine::new(EngineConfig::default());
    let limit = NonZeroUsize::new(10).unwrap();
    let mut table = NetworkTable::new(WindowConfig::default(), limit, RuleKind::default(), 0);
    table.add(&sample(1));
    let records = table.changed_records(10).into_iter().map(|(network, record)| (network, record.unwrap()));
    let next_day = START.after(Micros::from_secs(86_400));
    assert_eq!(refill(&mut engine, records.collect(), next_day), [(Network::of(REMOTE), None)]);
}

#[test]
fn time_passes_without_packets() {
    let Bench { clock, published, captures, worker, kept } = bench();
    assert_eq!(published.estimate_count(), 1);
    let running = thread::spawn(move || worker.run());
    clock.0.fetch_add(3_600_000_000_000, Ordering::SeqCst);
    let patience = Instant::now() + Duration::from_secs(30);
    while published.network_count() > 0 && Instant::now() < patience {
        thread::sleep(Duration::from_millis(5));
    }
    captures.queue.close();
    running.join().unwrap();
    assert_eq!(published.network_count(), 0, "an hour of silence withdraws the estimate and forgets the network");
    assert_eq!(*kept.0.lock(), [(Network::of(REMOTE), None)], "and the store forgets it");
}
