//! The lab measured against itself: is the path what was asked for, does the mirror show both directions, and does the
//! kernel's account agree with the packets?
//!
//! Needs root. Without it the test says so, and counts itself as skipped on standard error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use spand_core::wire::segment::Segment;
use spand_needs::{Need, lacks, needs};
use spand_proto::units::BytesPerSecond;
use spand_tests::lab::path::{PathConfig, Queue};
use spand_tests::lab::tap::Tap;
use spand_tests::lab::topology::{MIRROR_DEVICE, NetworkPlan, Topology};
use spand_tests::lab::traffic::{Client, Plan, Server, Step, Transfer};
use spand_tests::lab::truth::rules::{self, KernelSample, Reason};
use spand_tests::lab::truth::{FlowId, Poller, Record, Row, SegmentTruth, Source, Trace};
use spand_tests::lab::wire::{self, Sender};

/// 10 Mbit/s in IP bytes.
const RATE: BytesPerSecond = BytesPerSecond(1_250_000);
const DELAY: Duration = Duration::from_millis(20);
/// Less than the bandwidth-delay product, so that a bulk transfer loses.
const QUEUE_PACKETS: u32 = 20;
const STREAM: Duration = Duration::from_secs(4);

struct Run {
    lab: Topology,
    bulk: Vec<Transfer>,
    segments: Vec<Segment>,
    senders: BTreeMap<FlowId, Sender>,
    rows: Vec<Row>,
    traced: bool,
}

/// One bulk stream to an IPv4 and one to an IPv6 network, side by side, each on a path of its own.
fn run() -> Result<Run> {
    let path = PathConfig::bottleneck(RATE, DELAY, Queue::Packets(QUEUE_PACKETS));
    let network = |prefix: &str| anyhow::Ok(NetworkPlan { prefix: prefix.parse()?, clients: 1, path });
    let plans = [network("198.51.100.0/24")?, network("2001:db8:1::/48")?];
    let lab = Topology::build(&plans)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("capture.pcap");
    let record = Record::default();
    let poller = Arc::new(Poller::start(record.clone())?);
    let trace = match Trace::start(record.clone(), lab.port) {
        Ok(trace) => Some(trace),
        Err(error) => {
            lacks(Need::Trace, format_args!("{error:#}"));
            None
        }
    };
    let per_segment = SegmentTruth::start(record.clone(), lab.port)?;
    let tap = Tap::start(&lab.gateway, MIRROR_DEVICE, &file)?;
    let server = Server::start(&lab.server, lab.port, "cubic", &poller)?;

    let mut workers = Vec::new();
    for network in &lab.networks {
        let target = lab.server_address(network.plan.prefix);
        let from = *network.addresses.first().context("a network without a client")?;
        let plan = Plan::new("cubic", vec![Step::Stream(STREAM)]);
        workers.push(network.namespace.spawn("client", move || Client::connect(from, target)?.ask(&plan))?);
    }
    let mut bulk = Vec::new();
    for worker in workers {
        bulk.push(worker.join().map_err(|_| anyhow!("a client panicked"))??);
    }
    // Until the last acknowledgements have come and the server has seen the connections close.
    thread::sleep(DELAY * 2 + Duration::from_millis(300));
    drop(server);
    let traced = trace.is_some();
    if let Some(trace) = trace {
        assert_eq!(trace.finish()?, 0, "events lost by the trace");
    }
    assert_eq!(per_segment.finish()?, 0, "segments without room in the truth");
    drop(poller);
    assert_eq!(tap.finish()?.dropped, 0, "packets lost by the tap");
    assert_eq!(record.dropped(), 0, "rows lost by the record");

    let segments = wire::read(&file)?;
    let senders = wire::senders(&segments, lab.port);
    Ok(Run { lab, bulk, segments, senders, rows: record.rows(), traced })
}

#[test]
fn the_lab_is_what_it_claims_to_be() -> Result<()> {
    if !needs(Need::Root) {
        return Ok(());
    }
    let run = run()?;
    assert_eq!(run.senders.len(), 2, "one connection to each network");
    path_is_as_set(&run);
    mirror_shows_both_directions(&run);
    kernel_agrees_with_packets(&run);
    if run.traced {
        trace_agrees_with_packets(&run);
    }
    every_segment_is_in_the_truth(&run);
    rules_find_the_losses(&run);
    Ok(())
}

/// A row for everything that came in and for everything the sender handed down (several segments at a time: the device
/// cuts them), with its sequence numbers and at its time, up to the last: the server closes first, so the end of the stream
/// is acknowledged outside `ESTABLISHED`.
fn every_segment_is_in_the_truth(run: &Run) {
    for flow in run.senders.keys() {
        let rows = |source| run.rows.iter().filter(move |row| row.source == source && row.flow() == *flow);
        let from_client = |s: &&Segment| s.source.port == flow.remote.port() && s.source.address == flow.remote.ip();
        let received = run.segments.iter().filter(from_client).count();
        let back = rows(Source::SegmentIn).count();
        // The handshake and what comes after the socket is closed have no row.
        assert!(back <= received && back + 4 >= received, "{back} rows of {received} segments in");
        let mut delays_us = Vec::new();
        for row in rows(Source::SegmentOut).filter(|row| row.notsent_bytes > Some(1)) {
            let sent = |s: &&Segment| s.destination.port == flow.remote.port() && Some(s.seq) == row.snd_nxt;
            let segment = run.segments.iter().filter(sent).find(|s| s.payload_len > 0 && s.at.0 >= row.time_ns);
            let segment = segment.unwrap_or_else(|| panic!("nobody captured what follows {:?}", row.snd_nxt));
            delays_us.push((segment.at.0 - row.time_ns) / 1_000);
        }
        delays_us.sort_unstable();
        assert!(delays_us.len() > 200, "only {} rows of new data", delays_us.len());
        let median_us = delays_us[delays_us.len() / 2];
        assert!(median_us < 1_000, "the tap is {median_us} us behind");
        let last = rows(Source::SegmentIn).next_back().expect("a row");
        assert_eq!(last.notsent_bytes, Some(0), "the last row of {flow:?} is not from the end");
        let probes = run.rows.iter().filter(|row| row.source == Source::Probe && row.flow() == *flow);
        let last_probe = probes.max_by_key(|row| row.time_ns).map_or(0, |row| row.time_ns);
        assert!(last.time_ns > last_probe, "nothing was seen outside ESTABLISHED");
    }
}

/// A floor is exact, since nothing may be faster than the path; a ceiling is generous, since the machine may be busy.
fn path_is_as_set(run: &Run) {
    let round_trip = DELAY * 2;
    for transfer in &run.bulk {
        let ratio = transfer.handshake.as_secs_f64() / round_trip.as_secs_f64();
        assert!((1.0..1.5).contains(&ratio), "handshake is {ratio:.3} of the set {round_trip:?}");
        // 1448 or 1428 of 1500 bytes are payload; a stream of 4 s with losses fills at least two thirds of the path.
        let ratio = transfer.bytes as f64 / transfer.completion.as_secs_f64() / RATE.0 as f64;
        assert!((0.65..1448.0 / 1500.0 * 1.01).contains(&ratio), "payload rate is {ratio:.3} of the set rate");
    }
    for counters in run.lab.emulator.counters() {
        assert!(counters.down.tail_drops.load(Relaxed) > 0, "a queue below the path's product must overflow");
        for link in [&counters.down, &counters.up] {
            assert_eq!(link.emulator_drops.load(Relaxed), 0, "packets the emulator had no room for");
            assert_eq!(link.random_drops.load(Relaxed), 0, "random losses nobody asked for");
        }
    }
}

fn mirror_shows_both_directions(run: &Run) {
    for (network, counters) in run.lab.networks.iter().zip(run.lab.emulator.counters()) {
        // The IPv6 path also carries multicast reports, which are no TCP: there the packets are a lower bound.
        let exact = network.plan.prefix.addr().is_ipv4();
        let inside = |address| network.plan.prefix.contains(&address);
        let down = run.segments.iter().filter(|s| inside(s.destination.address)).count() as u64;
        let up = run.segments.iter().filter(|s| inside(s.source.address)).count() as u64;
        let carried_down = counters.down.delivered.load(Relaxed) + counters.down.tail_drops.load(Relaxed);
        let carried_up = counters.up.delivered.load(Relaxed);
        for (name, seen, carried) in [("down", down, carried_down), ("up", up, carried_up)] {
            assert!(seen > 1_000, "{name}: only {seen} packets at the mirror");
            let more = carried - seen;
            assert!(more == 0 || !exact && more < 20, "{name}: {seen} at the mirror, {carried} on the path");
        }
    }
}

fn kernel_agrees_with_packets(run: &Run) {
    for (flow, sender) in &run.senders {
        let last = run.rows.iter().rfind(|r| r.source == Source::Info && r.flow() == *flow).expect("truth for it");
        // The server sends its FIN last, which the kernel counts as one more byte.
        assert_eq!(last.bytes_acked.map(|bytes| bytes - 1), Some(sender.bytes), "bytes of {flow:?}");
        assert_eq!(last.data_segs_out.map(u64::from), Some(sender.data_packets), "data packets of {flow:?}");
        assert_eq!(
            last.total_retrans.map(u64::from),
            Some(sender.retransmitted_packets),
            "retransmissions of {flow:?}"
        );
        assert!(sender.retransmitted_packets > 0, "the path must have lost something");
        assert_eq!(sender.first_flight, 10, "Linux begins with ten segments (RFC 6928)");
    }
}

/// Every `snd_nxt` the kernel traced ends a packet that was captured, and clocks agree: the ACK that made the kernel
/// look was captured just before.
fn trace_agrees_with_packets(run: &Run) {
    for flow in run.senders.keys() {
        let mut ends = std::collections::BTreeSet::new();
        let mut acks: BTreeMap<u32, u64> = BTreeMap::new();
        for segment in &run.segments {
            if (segment.destination.address, segment.destination.port) == (flow.remote.ip(), flow.remote.port()) {
                ends.insert(segment.seq.wrapping_add(segment.seq_len()));
            } else if let Some(ack) = segment.ack.filter(|_| segment.source.port == flow.remote.port()) {
                acks.entry(ack).or_insert(segment.at.0);
            }
        }
        let probes: Vec<_> = run.rows.iter().filter(|row| row.source == Source::Probe && row.flow() == *flow).collect();
        assert!(probes.len() > 500, "only {} rows of the trace", probes.len());
        let unknown = probes.iter().filter(|row| !row.snd_nxt.is_some_and(|end| ends.contains(&end))).count();
        assert_eq!(unknown, 0, "sequence numbers the kernel sent and nobody captured");
        let mut delays_us: Vec<i64> = probes
            .iter()
            .filter_map(|row| Some(row.time_ns.cast_signed() - acks.get(&row.snd_una?)?.cast_signed()))
            .map(|ns| ns / 1_000)
            .collect();
        delays_us.sort_unstable();
        // A row shows the acknowledgement before the one that arrives, so about one gap between ACKs lies between.
        let median = delays_us[delays_us.len() / 2];
        assert!((0..20_000).contains(&median), "trace and capture are {median} us apart");
    }
}

fn rules_find_the_losses(run: &Run) {
    let samples = rules::samples(&run.rows);
    if run.traced {
        // Windows polled each millisecond are as good as those traced per ACK.
        let polled: Vec<_> = run.rows.iter().copied().filter(|row| row.source == Source::Info).collect();
        let polled = rules::samples(&polled);
        // A busy machine polls late once.
        let missed = samples.len().abs_diff(polled.len());
        assert!(missed <= 1, "{} samples of the poll alone, {} of everything", polled.len(), samples.len());
        for polled in &polled {
            let is_it =
                |traced: &KernelSample| traced.flow == polled.flow && (polled.segments - traced.segments).abs() <= 1.0;
            assert!(samples.iter().any(is_it), "polled {polled:?}, traced {samples:?}");
        }
    }
    for flow in run.senders.keys() {
        let losses: Vec<_> = samples.iter().filter(|s| s.flow == *flow && s.reason == Reason::Loss).collect();
        assert!(!losses.is_empty(), "no loss in congestion avoidance in {STREAM:?}");
        // What the path carries: its bandwidth-delay product and its queue.
        let room = RATE.0 as f64 * DELAY.as_secs_f64() * 2.0 / 1_500.0 + f64::from(QUEUE_PACKETS);
        for (n, loss) in losses.iter().enumerate() {
            let ratio = loss.segments / room;
            // The first may come right after slow start, which doubles the window before it hears of what was lost.
            let most = if n == 0 { 2.0 } else { 1.5 };
            assert!((0.7..most).contains(&ratio), "a window of {} at a loss, {room:.0} have room", loss.segments);
        }
    }
}
