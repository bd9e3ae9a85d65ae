//! Several engines side by side know what one alone knows, and so do several gateways that share.

#![expect(clippy::unwrap_used, reason = "what a test stands on either works or fails it")]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::Path;

use ipnet::IpNet;
use spand_capture::{Next, PacketSource, open_file};
use spand_cells::{Cell, GatewayId, Pseudonyms, Shares, Sharing, TapId};
use spand_core::config::{EngineConfig, Limits, Shard, Tunnels};
use spand_core::counters::{Counters, Ignored};
use spand_core::engine::Engine;
use spand_core::event::Event;
use spand_core::networks::view::NetworkView;
use spand_core::service::ServiceSize;
use spand_core::shard::{Partition, Takers};
use spand_core::types::SampleRate;
use spand_core::wire::{Decoder, Frame};
use spand_engine_tests::corpus;
use spand_engine_tests::trace::{TraceConfig, write_trace};
use spand_needs::needs_corpus;
use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};

/// A packet in memory.
struct Packet {
    at: Timestamp,
    link_type: u16,
    wire_len: u32,
    data: Vec<u8>,
}

impl Packet {
    fn frame(&self) -> Frame<'_> {
        Frame { link_type: self.link_type, wire_len: self.wire_len, input: 0, data: &self.data }
    }
}

/// What is known at the end.
#[derive(Debug, PartialEq)]
struct Known {
    networks: Vec<NetworkView>,
    services: Vec<ServiceSize>,
    connections: usize,
    counters: Counters,
}

impl Known {
    /// Networks outside. Towards one inside, a sender's own engine knows its peer by its answers alone where one engine for
    /// both rebuilds it, too.
    fn outside(&self) -> Vec<&NetworkView> {
        let inside: Vec<IpNet> = INSIDE.iter().map(|prefix| prefix.parse().unwrap()).collect();
        let outside = |view: &&NetworkView| !inside.iter().any(|prefix| prefix.contains(&view.network.prefix()));
        self.networks.iter().filter(outside).collect()
    }
}

/// Inside, for the corpus.
const INSIDE: [&str; 5] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fe80::/10"];

/// Who is given a frame.
#[derive(Clone, Copy)]
enum Given {
    /// Every engine.
    All,
    /// Those that the partition names.
    Named,
}

fn read(path: &Path) -> Option<Vec<Packet>> {
    let mut source = open_file(path).ok()?;
    let mut packets = Vec::new();
    while let Ok(Next::Packet(packet)) = source.next_packet() {
        packets.push(Packet {
            at: packet.timestamp,
            link_type: packet.link_type.0,
            wire_len: packet.wire_len,
            data: packet.data.to_vec(),
        });
    }
    Some(packets)
}

fn trace() -> Vec<Packet> {
    trace_of(60, 0.01)
}

fn trace_of(networks: u32, loss: f64) -> Vec<Packet> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pcap");
    let config = TraceConfig { packets: 150_000, connections: 1_000, loss, networks, snap_len: 96, seed: 7 };
    write_trace(std::fs::File::create(&path).map(std::io::BufWriter::new).unwrap(), &config).unwrap();
    read(&path).unwrap()
}

/// The trace with few servers, so that each has transfers enough for its size to be known.
fn few_servers() -> Vec<Packet> {
    let mut packets = trace();
    for packet in &mut packets {
        for address in [26, 30] {
            if packet.data[address] == 10 {
                packet.data[address + 1..address + 3].fill(0);
            }
        }
    }
    packets
}

fn config(internal: &[&str]) -> EngineConfig {
    let internal = internal.iter().map(|prefix| prefix.parse::<IpNet>().unwrap()).collect();
    EngineConfig { internal, limits: Limits::for_replay(), tunnels: Tunnels::ALL, ..EngineConfig::default() }
}

/// Runs `count` engines over the packets and puts together what they know.
fn known(packets: &[Packet], config: &EngineConfig, count: u32, given: Given) -> Known {
    let count = NonZeroU32::new(count).unwrap();
    let partition = Partition::new(config, count);
    let engine = |index| Engine::new(EngineConfig { shard: Shard { index, count }, ..config.clone() });
    let mut engines: Vec<Engine> = (0..count.get()).map(engine).collect();
    for packet in packets {
        // As every driver does: what is due happens at its time, and not at the next packet of its engine.
        for index in 0..engines.len() {
            pass_time(&mut engines, index, packet.at);
        }
        let takers = partition.takers(&packet.frame());
        for index in 0..count.get() {
            let named = match takers {
                Takers::One(one) => index == one,
                Takers::Two(home, other) => index == home || index == other,
                Takers::All => true,
            };
            if named || matches!(given, Given::All) {
                engines[index as usize].handle_frame(packet.at, &packet.frame());
                pass_transfers(&mut engines, index as usize);
            }
        }
    }
    let end = packets.last().map_or(Timestamp(0), |packet| packet.at);
    for index in 0..engines.len() {
        engines[index].finish(end);
        pass_transfers(&mut engines, index);
    }
    let mut networks: Vec<_> = engines.iter().flat_map(|engine| engine.networks().views(end)).collect();
    networks.sort_by_key(|view| view.network);
    let mut counters = Counters::default();
    for engine in &engines {
        counters.add(engine.counters());
    }
    let connections = engines.iter().map(Engine::connections).sum();
    Known { networks, services: engines[0].services(), connections, counters }
}

/// What passes to and from each network outside, by a bare parse: packets and bytes of payload of both directions.
fn passed(packets: &[Packet], config: &EngineConfig) -> BTreeMap<Network, [u64; 4]> {
    let inside = |address: &IpAddr| config.internal.iter().any(|prefix| prefix.contains(address));
    let mut decoder = Decoder::new(config.tunnels.clone());
    let mut passed = BTreeMap::<_, [u64; 4]>::new();
    for packet in packets {
        let Ok(segment) = decoder.decode(packet.at, &packet.frame()) else { continue };
        let (from, to) = (segment.source.address, segment.destination.address);
        let (remote, first) = match (inside(&from), inside(&to)) {
            (true, false) => (to, 0),
            (false, true) => (from, 2),
            _ => continue,
        };
        let sums = passed.entry(Network::of(remote)).or_default();
        sums[first] += 1;
        sums[first + 1] += u64::from(segment.payload_len);
    }
    passed
}

/// Which of several gateways a packet passes.
#[derive(Clone, Copy)]
enum Passes {
    /// One, by its connection.
    One,
    /// All: their taps see the same, and are a mirror group.
    All,
}

/// What gateways know that share the packets among them.
fn gateways(packets: &[Packet], config: &EngineConfig, count: u16, passes: Passes) -> Vec<Vec<NetworkView>> {
    let mut engines: Vec<Engine> = (0..count)
        .map(|gateway| {
            let tap = TapId(match passes {
                Passes::One => gateway.into(),
                Passes::All => 0,
            });
            let sharing = Sharing { gateway: GatewayId(gateway), tap, pseudonyms: Pseudonyms::new([1; 16]) };
            Engine::new(config.clone()).sharing(Some(sharing))
        })
        .collect();
    let mut decoder = Decoder::new(config.tunnels.clone());
    for (n, packet) in packets.iter().enumerate() {
        let way = decoder.decode(packet.at, &packet.frame()).map_or(0, |segment| {
            let ends = [segment.source, segment.destination]
                .map(|end| u64::from(end.port) * 31 + u64::from(end.address.is_ipv6()));
            (ends[0] ^ ends[1]) / 7 % u64::from(count)
        });
        for (gateway, engine) in engines.iter_mut().enumerate() {
            pass_time(std::slice::from_mut(engine), 0, packet.at);
            if matches!(passes, Passes::All) || gateway as u64 == way {
                engine.handle_frame(packet.at, &packet.frame());
                while engine.poll_event().is_some() {}
            }
        }
        if n % 1_000 == 0 {
            let cells: Vec<_> = engines.iter_mut().map(Engine::take_cells).collect();
            exchange(&mut engines, &cells, packet.at);
        }
    }
    let end = packets.last().map_or(Timestamp(0), |packet| packet.at);
    for engine in &mut engines {
        engine.finish(end);
        while engine.poll_event().is_some() {}
    }
    let mut later = end;
    // What says nothing of a share leaves where there is an estimate, which may be one of all gateways together.
    for _ in 0..2 {
        let all = engines.iter().map(|engine| {
            let of = |network| engine.own_cells(network, 0, later).into_iter().map(move |cell| (network, cell));
            engine.own_networks().into_iter().flat_map(of).collect::<Vec<_>>()
        });
        let all: Vec<_> = all.collect();
        exchange(&mut engines, &all, later);
        later = later.after(Micros::from_secs(4));
        for engine in &mut engines {
            pass_time(std::slice::from_mut(engine), 0, later);
        }
    }
    engines.iter().map(|engine| engine.networks().views(later)).collect()
}

fn exchange(engines: &mut [Engine], cells: &[Vec<(Network, Cell)>], now: Timestamp) {
    for (to, engine) in engines.iter_mut().enumerate() {
        for (network, cell) in cells.iter().enumerate().filter(|(from, _)| *from != to).flat_map(|(_, cells)| cells) {
            // Of a capture with pauses some are aged.
            let _aged = engine.take_cell(*network, cell.clone(), now);
        }
        while engine.poll_event().is_some() {}
    }
}

/// Holds what each of several gateways knows against what one knows that saw everything. Returns the networks of which both
/// have an estimate, those of which one has, and how far a share is off at most.
fn compare(several: &[Vec<NetworkView>], one: &[NetworkView], exact: bool, name: &str) -> (usize, usize, f64) {
    let (mut estimates, mut one_sided, mut off) = (0, 0, 0.0_f64);
    let estimated = |known: &[NetworkView]| -> BTreeMap<Network, NetworkView> {
        let estimated = known.iter().filter(|view| view.estimate.is_some());
        estimated.map(|view| (view.network, view.clone())).collect()
    };
    let expected = estimated(one);
    for (gateway, known) in several.iter().enumerate() {
        let shares = |known: &[NetworkView]| {
            let share = |view: &NetworkView| Some((view.network, view.estimate.as_ref()?.share.bytes().to_bits()));
            known.iter().filter_map(share).collect::<Vec<_>>()
        };
        assert_eq!(shares(known), shares(&several[0]), "{name}: gateways 0 and {gateway}, to the last bit");
        let found = estimated(known);
        // Where connections share a place, there may seem to be too few for an estimate.
        one_sided += found.keys().filter(|network| !expected.contains_key(network)).count();
        one_sided += expected.keys().filter(|network| !found.contains_key(network)).count();
        for (found, expected) in found.iter().filter_map(|(network, view)| Some((view, expected.get(network)?))) {
            let counts = |view: &NetworkView| {
                (view.network, view.samples, view.lower_bounds, view.losses, view.limits, view.rtt_min)
            };
            assert_eq!(counts(found), counts(expected), "{name}: gateway {gateway}");
            if let (Some(found), Some(expected)) = (&found.estimate, &expected.estimate) {
                estimates += 1;
                if !exact && (found.is_lower_bound || expected.is_lower_bound) {
                    // The largest may be what one had no place for.
                    continue;
                }
                off = off.max((found.share.bytes() / expected.share.bytes() - 1.0).abs());
            }
        }
    }
    (estimates, one_sided, off)
}

fn pass_time(engines: &mut [Engine], index: usize, now: Timestamp) {
    let mut latest = None;
    while let Some(due) = engines[index].poll_timeout().filter(|&due| due <= now && Some(due) > latest) {
        engines[index].handle_timeout(due);
        pass_transfers(engines, index);
        latest = Some(due);
    }
}

fn pass_transfers(engines: &mut [Engine], index: usize) {
    while let Some(event) = engines[index].poll_event() {
        if let Event::TransferEnded(ended) = event {
            assert_ne!(index, 0, "the first keeps its own");
            engines[0].take_transfer(ended);
        }
    }
}

#[test]
fn several_engines_know_what_one_knows_of_a_generated_trace() {
    let packets = trace();
    let config = config(&["10.0.0.0/8"]);
    let one = known(&packets, &config, 1, Given::All);
    assert!(one.networks.len() >= 50 && one.counters.window_samples + one.counters.lower_bounds > 500, "{one:?}");
    let passed = passed(&packets, &config);
    for view in &one.networks {
        let (out, back) = (view.traffic.total.outbound, view.traffic.total.inbound);
        assert_eq!([out.packets, out.bytes, back.packets, back.bytes], passed[&view.network], "{}", view.network);
    }
    let lost: u64 = one.networks.iter().map(|view| view.traffic.total.outbound.retransmitted_packets).sum();
    let sent: u64 = one.networks.iter().map(|view| view.traffic.total.outbound.packets).sum();
    assert!((sent / 200..sent / 50).contains(&lost), "{lost} of {sent}, of which about one in a hundred was lost");
    for count in [2, 3, 8] {
        for given in [Given::All, Given::Named] {
            let several = known(&packets, &config, count, given);
            assert!(several == one, "{count}: {:?}\n{:?}", several.counters, one.counters);
        }
    }
}

#[test]
fn gateways_among_which_a_trace_is_divided_know_what_one_knows_that_sees_all() {
    let config = config(&["10.0.0.0/8"]);
    // With this many networks every connection has a place of its own in its bucket. With few, a hundred share 16, in one bucket: what
    // the one that sees everything has lost is not what the others have.
    for (networks, loss, most_off, fewest) in [(1_000, 0.003, 0.0, 8), (10, 0.003, 0.2, 10)] {
        let packets = trace_of(networks, loss);
        let one = gateways(&packets, &config, 1, Passes::One).remove(0);
        for count in [2, 3, 4] {
            let (estimates, one_sided, off) =
                compare(&gateways(&packets, &config, count, Passes::One), &one, most_off == 0.0, "generated");
            println!(
                "{networks} networks, {count} gateways: {estimates} estimates and {one_sided} of one side, at most {off:e} off"
            );
            assert!(estimates >= fewest && off <= most_off, "{networks} networks: {estimates} estimates, {off} off");
            assert!(one_sided * 3 <= estimates && (most_off > 0.0 || one_sided == 0), "{one_sided} of one side");
        }
        let mirrored = gateways(&packets, &config, 2, Passes::All);
        let (_, one_sided, off) = compare(&mirrored, &one, most_off == 0.0, "mirror group");
        assert!(one_sided == 0 && off <= 0.0, "to the last bit");
    }
}

#[test]
fn the_first_of_several_engines_knows_the_services_of_all() {
    let packets = few_servers();
    let config = config(&["10.0.0.0/8"]);
    let one = known(&packets, &config, 1, Given::All);
    assert!(one.services.len() > 100, "{:?}", one.services);
    let several = known(&packets, &config, 3, Given::Named);
    assert_eq!(several.services, one.services);
    // One server's connections say what congestion control it runs to the engine that has them: with the same packets
    // three engines are sure of it later than one, and some samples differ.
    assert_eq!(several.counters.window_samples, one.counters.window_samples);
}

#[test]
fn several_engines_know_the_networks_that_one_knows_of_the_corpus() {
    let Some(corpus) = needs_corpus(".") else { return };
    let set = corpus.join("captures-real");
    let (mut compared, mut networks, mut exact) = (0, 0, 0);
    for row in corpus::table(&set.join("reference/ref_capture.tsv")).unwrap() {
        let Some(mut packets) = read(&set.join("captures").join(&row["file"])) else { continue };
        // An engine's clock is its own frames': times that run backwards are clamped to them.
        packets.sort_by_key(|packet| packet.at);
        let config = config(&INSIDE);
        let one = known(&packets, &config, 1, Given::All);
        networks += one.outside().len();
        let passed = passed(&packets, &config);
        // A network that is silent for longer than the window begins at zero.
        let span = packets.last().unwrap().at.since(packets[0].at);
        let whole = one.counters.ignored(Ignored::DuplicateCopy) == 0 && span < Micros::from_secs(290);
        for view in one.outside() {
            let (out, back) = (view.traffic.total.outbound, view.traffic.total.inbound);
            let found = [out.packets, out.bytes, back.packets, back.bytes];
            let most = passed.get(&view.network).copied().unwrap_or_default();
            // Copies that a mirror port made do not count, nor what comes after the end.
            assert!(found.iter().zip(&most).all(|(found, most)| found <= most), "{}: {found:?} {most:?}", row["file"]);
            if whole {
                assert_eq!([found[1], found[3]], [most[1], most[3]], "{} {}", row["file"], view.network);
                exact += 1;
            }
        }
        for given in [Given::All, Given::Named] {
            let several = known(&packets, &config, 3, given);
            assert_eq!(several.outside(), one.outside(), "{}", row["file"]);
            assert_eq!(several.counters.frames, one.counters.frames, "{}", row["file"]);
            assert_eq!(several.counters.segments, one.counters.segments, "{}", row["file"]);
            assert_eq!(several.counters.connections, one.counters.connections, "{}", row["file"]);
        }
        compared += 1;
    }
    assert!(compared >= 240 && networks > 200, "{compared} captures, {networks} networks");
    assert!(exact > 100, "{exact} of {networks} networks were held against a parse, byte for byte");
}

#[test]
fn what_is_followed_under_overload_is_known_as_if_nothing_else_had_been_there() {
    let packets = trace();
    let config = config(&["10.0.0.0/8"]);
    let part = SampleRate::of_256(100);
    let [mut thinned, mut spared] = [(); 2].map(|()| Engine::new(config.clone()));
    thinned.keep(part);
    let mut left = 0;
    for packet in &packets {
        for engine in [&mut thinned, &mut spared] {
            pass_time(std::slice::from_mut(engine), 0, packet.at);
        }
        thinned.handle_frame(packet.at, &packet.frame());
        let shed = thinned.counters().ignored(Ignored::Shed);
        if shed == left {
            spared.handle_frame(packet.at, &packet.frame());
        }
        left = shed;
    }
    assert!((60_000..120_000).contains(&left), "{left} of 150,000 left alone");
    let end = packets.last().unwrap().at;
    let [thinned_networks, spared_networks] = [&thinned, &spared].map(|engine| {
        let mut networks = engine.networks().views(end);
        for view in &mut networks {
            // What is weighted by the part that is followed.
            (view.followed, view.parallel, view.parallel_at_samples, view.parallel_here) = (SampleRate::ALL, 0, 0, 0);
        }
        networks
    });
    assert!(thinned_networks == spared_networks);
    assert_eq!(thinned.counters().window_samples, spared.counters().window_samples);
}
