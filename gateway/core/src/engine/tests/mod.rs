//! The engine on segments made by hand.

mod blind;
mod memory;
mod opening;
mod outcomes;
mod regroup;
mod share;
mod thinning;
mod traffic;

use std::num::NonZeroUsize;

use arrayvec::ArrayVec;
use spand_proto::units::{Bytes, Micros, Window};

use super::*;
use crate::config::{FlowReports, Limits, WindowConfig};
use crate::event::Established;
use crate::flow::report::{DirectionDetails, DirectionReport, TransferSummary};
use crate::types::{ConnectionId, SampleReason, Trigger};
use crate::wire::segment::{Ecn, Flags, Options, SackBlock, Segment, Timestamps, WindowOption};

const CLIENT: &str = "198.51.100.7";
const SERVER: &str = "192.0.2.1";

fn endpoint(address: &str, port: u16) -> Endpoint {
    Endpoint { address: address.parse().unwrap(), port }
}

fn ms(n: u64) -> Timestamp {
    Timestamp(1_000_000_000_000 + n * 1_000_000)
}

/// A segment of the server's or towards it.
fn segment(at: Timestamp, from_server: bool, flags: u8, seq: u32, ack: u32, payload_len: u32) -> Segment {
    let (server, client) = (endpoint(SERVER, 80), endpoint(CLIENT, 40_000));
    let (source, destination) = if from_server { (server, client) } else { (client, server) };
    Segment {
        at,
        source,
        destination,
        seq,
        ack: (flags & Flags::ACK != 0).then_some(ack),
        flags: Flags(flags),
        window: 65_535,
        payload_len,
        ip_id: None,
        ecn: Ecn::NotEct,
        options: Options { mss: (flags & Flags::SYN != 0).then_some(1_460), ..Options::default() },
    }
}

fn with_reports(config: EngineConfig) -> Engine {
    Engine::new(EngineConfig { flow_reports: FlowReports::Full, ..config })
}

fn feed(engine: &mut Engine, segments: &[Segment]) {
    for segment in segments {
        engine.handle_timeout(segment.at);
        engine.counters.frames += 1;
        engine.handle_segment(segment, 0, Claim::Home);
    }
}

fn reports(engine: &mut Engine) -> Vec<DirectionReport> {
    let mut reports: Vec<_> = std::iter::from_fn(|| engine.poll_event())
        .filter_map(|event| match event {
            Event::DirectionEnded(report) => Some(*report),
            _ => None,
        })
        .collect();
    reports.sort_by_key(|report| report.details.as_ref().map(|details| details.first_frame));
    reports
}

fn details(engine: &mut Engine) -> Vec<DirectionDetails> {
    reports(engine).into_iter().map(|report| *report.details.unwrap()).collect()
}

fn handshake(isn: u32) -> [Segment; 3] {
    [
        segment(ms(0), false, Flags::SYN, isn, 0, 0),
        segment(ms(1), true, Flags::SYN | Flags::ACK, 5_000, isn + 1, 0),
        segment(ms(41), false, Flags::ACK, isn + 1, 5_001, 0),
    ]
}

#[test]
fn a_new_initial_sequence_number_is_a_new_connection() {
    let mut engine = with_reports(EngineConfig::default());
    feed(&mut engine, &handshake(100));
    feed(&mut engine, &handshake(100));
    assert_eq!(engine.counters().connections, 1, "the same SYN again");
    feed(&mut engine, &handshake(900_000));
    assert_eq!((engine.counters().connections, engine.connections()), (2, 1));
    engine.finish(ms(50));
    let packets: Vec<u64> = details(&mut engine).iter().map(|row| row.packets).collect();
    assert_eq!(packets, [4, 2, 2, 1]);
}

#[test]
fn the_handshake_is_timed_on_both_sides() {
    let mut engine = with_reports(EngineConfig::default());
    feed(&mut engine, &handshake(100));
    engine.finish(ms(50));
    let rtts: Vec<_> = details(&mut engine).iter().map(|row| row.rtt_seqack.min).collect();
    assert_eq!(rtts, [Some(Micros(1_000)), Some(Micros(40_000))]);
}

/// What a host outside is not rebuilt for: how soon its peer answers its SYN.
#[test]
fn how_soon_a_sender_reacts_is_known_whether_or_not_its_peer_is_rebuilt() {
    let reaction = |flow_reports, again: bool| {
        let internal = vec!["192.0.2.0/24".parse().unwrap()];
        let mut engine = Engine::new(EngineConfig { internal, flow_reports, ..EngineConfig::default() });
        let [syn, answer, ack] = handshake(100);
        let later = Segment { at: ms(5), ..syn.clone() };
        let answer = Segment { at: ms(9), ..answer };
        feed(&mut engine, &[syn]);
        if again {
            feed(&mut engine, &[later]);
        }
        feed(&mut engine, &[answer, ack]);
        feed(&mut engine, &transfer(100, 5_001, 1)[..1]);
        engine.replica(endpoint(SERVER, 80), endpoint(CLIENT, 40_000)).unwrap().reaction()
    };
    assert_eq!(reaction(FlowReports::None, false), Micros(9_000));
    assert_eq!(
        reaction(FlowReports::None, true),
        reaction(FlowReports::Full, true),
        "which SYN it answers is not known"
    );
    assert_eq!(reaction(FlowReports::Full, false), Micros(9_000));
}

#[test]
fn the_sums_of_a_connection_come_when_it_closes() {
    let mut engine = Engine::new(EngineConfig { flow_reports: FlowReports::Sums, ..EngineConfig::default() });
    feed(&mut engine, &handshake(100));
    feed(&mut engine, &transfer(100, 5_001, 3));
    assert_eq!(engine.open_reports().map(|report| report.unique.0).sum::<u64>(), 3 * 1_460);
    let end = 5_001 + 3 * 1_460;
    feed(&mut engine, &[segment(ms(900), true, Flags::FIN | Flags::ACK, end, 101, 0)]);
    feed(&mut engine, &[segment(ms(950), false, Flags::FIN | Flags::ACK, 101, end + 1, 0)]);
    assert_eq!(reports(&mut engine), [], "it may send again");
    feed(&mut engine, &[segment(ms(951), true, Flags::ACK, end + 1, 102, 0)]);
    let [sums] = &reports(&mut engine)[..] else { panic!("of the sender of data alone") };
    assert_eq!((sums.source.port, sums.unique.0, sums.transfers.bytes.0), (80, 3 * 1_460, 3 * 1_460));
    assert_eq!((sums.data_packets, sums.first_sample, &sums.details), (3, Some(SampleReason::EndAppLimited), &None));
    engine.finish(ms(1_000));
    assert_eq!((reports(&mut engine), engine.open_reports().count()), (Vec::new(), 0));
}

#[test]
fn transfers_are_timed_without_the_silence_between_them() {
    let mut engine = with_reports(EngineConfig::default());
    feed(&mut engine, &handshake(100));
    feed(&mut engine, &transfer(100, 5_001, 3));
    feed(&mut engine, &transfer(60_000, 5_001 + 3 * 1_460, 3));
    let so_far: Vec<_> = engine.open_reports().map(|report| report.unique.0).collect();
    assert_eq!(so_far.iter().sum::<u64>(), 6 * 1_460, "{so_far:?}");
    engine.finish(ms(100_000));
    let all = reports(&mut engine);
    let server = all.iter().find(|report| report.source.port == 80).unwrap();
    let active: Micros = server.transfers.active;
    assert_eq!(server.transfers.bytes.0, 6 * 1_460);
    assert!((Micros(200_000)..Micros(300_000)).contains(&active), "{active:?}: about 100 ms each");
    assert!(server.acknowledged && !server.midstream);
    // Nothing of a client that sent no data; and a sender that was there before is marked so.
    let client = all.iter().find(|report| report.source.port != 80).unwrap();
    assert_eq!(client.transfers, TransferSummary::default());
    let mut engine = with_reports(EngineConfig::default());
    feed(&mut engine, &transfer(100, 5_001, 1)[..1]);
    engine.finish(ms(10_000));
    let alone = &reports(&mut engine)[0];
    assert!(alone.midstream && !alone.acknowledged);
}

#[test]
fn every_round_trip_reaches_its_network_by_the_end_of_the_transfer() {
    let mut engine = Engine::new(EngineConfig::default());
    feed(&mut engine, &handshake(100));
    let data = |n: u32| segment(ms(100 + u64::from(n)), true, Flags::ACK, 5_001 + n * 1_460, 101, 1_460);
    let ack = |n: u32| segment(ms(200 + u64::from(n)), false, Flags::ACK, 101, 5_001 + (n + 1) * 1_460, 0);
    feed(&mut engine, &[data(0), data(1), data(2), ack(0), ack(1)]);
    feed(&mut engine, &[ack(2)]);
    engine.handle_timeout(ms(5_000));
    let view = engine.network(engine.network_of(CLIENT.parse().unwrap()), ms(5_000)).unwrap();
    assert_eq!(view.rtt_min, Some(Micros(40_000)), "the client's answer to the SYN");
    assert_eq!(view.rtt_mean, Some(Micros(85_000)), "of that and of three segments, 100 ms each");
}

#[test]
fn a_full_table_lets_the_one_idle_longest_go() {
    let limits = Limits { connections: NonZeroUsize::new(2).unwrap(), ..Limits::default() };
    let mut engine = with_reports(EngineConfig { limits, ..EngineConfig::default() });
    for port in 1..=3 {
        let mut syn = segment(ms(u64::from(port)), false, Flags::SYN, 1, 0, 0);
        syn.source.port = port;
        feed(&mut engine, &[syn]);
    }
    assert_eq!(engine.connections(), 2);
    assert_eq!(engine.counters().connections_evicted, 1);
    assert_eq!(reports(&mut engine)[0].source.port, 1);
}

#[test]
fn a_connection_that_is_over_leaves_its_place_to_the_next() {
    let mut engine = Engine::new(EngineConfig::default());
    let (server, client) = (endpoint(SERVER, 80), endpoint(CLIENT, 40_000));
    feed(&mut engine, &handshake(100));
    feed(&mut engine, &[segment(ms(50), true, Flags::ACK, 5_001, 101, 1_460)]);
    assert!(engine.replica(server, client).is_some());
    let fins = [
        segment(ms(90), true, Flags::ACK | Flags::FIN, 6_461, 101, 0),
        segment(ms(130), false, Flags::ACK | Flags::FIN, 101, 6_462, 0),
        segment(ms(131), true, Flags::ACK, 6_462, 102, 0),
    ];
    feed(&mut engine, &fins);
    feed(&mut engine, &fins);
    assert!(engine.replica(server, client).is_none());
    assert_eq!((engine.connections(), engine.counters().connections), (1, 1), "its last words open nothing");
    feed(&mut engine, &[segment(ms(140), true, Flags::ACK, 5_001, 102, 1_460)]);
    assert!(engine.replica(server, client).is_none(), "nor does what is sent again of its data");
    feed(&mut engine, &handshake(900_000)[1..]);
    assert_eq!((engine.connections(), engine.counters().connections), (1, 2), "its answer alone opens the next one");
    engine.finish(ms(500));
    while engine.poll_event().is_some() {}
    assert_eq!(engine.counters().connections_one_sided, 0);
}

#[test]
fn starts_are_announced_to_the_host_inside() {
    let internal = vec!["192.0.2.0/24".parse().unwrap()];
    let mut engine = Engine::new(EngineConfig { internal, ..EngineConfig::default() });
    let mut events_of = |segments: &[Segment]| -> Vec<_> {
        feed(&mut engine, segments);
        std::iter::from_fn(|| engine.poll_event()).collect()
    };
    let announced = events_of(&handshake(100));
    assert!(matches!(announced[..], [Event::StartImminent(_)]), "a handshake establishes nothing: {announced:?}");
    let established = events_of(&[
        segment(ms(42), false, Flags::ACK | Flags::PSH, 101, 5_001, 300),
        segment(ms(43), true, Flags::ACK, 5_001, 401, 0),
        segment(ms(44), true, Flags::ACK, 5_001, 401, 0),
    ]);
    let of_the_host = Established { host: SERVER.parse().unwrap(), network: Network::of(CLIENT.parse().unwrap()) };
    assert_eq!(established, [Event::Established(of_the_host)], "once, and not for the end outside");
    let after_idle = events_of(&[segment(ms(5_000), false, Flags::ACK | Flags::PSH, 401, 5_001, 300)]);
    let triggers: Vec<_> = announced
        .into_iter()
        .chain(after_idle)
        .map(|event| match event {
            Event::StartImminent(start) => (start.host, start.remote, start.trigger),
            other => panic!("{other:?}"),
        })
        .collect();
    let (host, remote) = (SERVER.parse().unwrap(), CLIENT.parse().unwrap());
    assert_eq!(triggers, [(host, remote, Trigger::PassiveOpen), (host, remote, Trigger::Idle)]);
    let outsiders = segment(ms(5_001), false, Flags::SYN, 1, 0, 0);
    feed(&mut engine, &[Segment { destination: endpoint("203.0.113.1", 1), ..outsiders }]);
    assert_eq!(engine.counters().ignored(Ignored::NotInternal), 1);
}

#[test]
fn the_gateways_own_connections_are_not_followed() {
    let own_listeners = [format!("{SERVER}:80").parse().unwrap()].into();
    let mut engine = Engine::new(EngineConfig { own_listeners, ..EngineConfig::default() });
    feed(&mut engine, &handshake(100));
    assert_eq!((engine.connections(), engine.counters().ignored(Ignored::OwnTraffic)), (0, 3));
    assert!(engine.poll_event().is_none(), "no start is announced");
    let another_port = |segment: &Segment| Segment { destination: endpoint(SERVER, 443), ..segment.clone() };
    feed(&mut engine, &[another_port(&handshake(100)[0])]);
    assert_eq!(engine.connections(), 1, "a service on the same machine is one like any other");
    engine.set_own_listeners([format!("{SERVER}:8080").parse().unwrap()].into());
    feed(&mut engine, &handshake(100));
    assert_eq!(engine.connections(), 2, "that port is another service's now");
}

/// A transfer of `segments` full ones by the server, from `seq` on and `start` ms, acknowledged 100 ms later.
fn transfer(start: u64, seq: u32, segments: u32) -> Vec<Segment> {
    let data = (0..segments).map(|n| segment(ms(start), true, Flags::ACK, seq + n * 1_460, 101, 1_460));
    let ack = segment(ms(start + 100), false, Flags::ACK, 101, seq + segments * 1_460, 0);
    data.chain([ack]).collect()
}

#[test]
fn sizes_of_whole_transfers_are_learnt_for_the_port_that_was_opened_from_outside() {
    let internal = vec!["192.0.2.0/24".parse().unwrap()];
    let mut engine = Engine::new(EngineConfig { internal, ..EngineConfig::default() });
    for n in 0..10 {
        // The mirror misses the first segments of some: the acknowledgement shows it. A FIN is no byte of payload.
        let began = n * 20_000;
        let mut segments: Vec<_> = handshake(100).into_iter().chain(transfer(100, 5_001, 20)).collect();
        segments.extend(transfer(10_000, 5_001 + 20 * 1_460, 10));
        if n % 2 == 0 {
            segments.drain(3..8);
        }
        segments.extend([
            segment(ms(15_000), true, Flags::ACK | Flags::FIN, 5_001 + 30 * 1_460, 101, 0),
            segment(ms(15_001), false, Flags::ACK | Flags::FIN, 101, 5_002 + 30 * 1_460, 0),
            segment(ms(15_002), true, Flags::ACK, 5_002 + 30 * 1_460, 102, 0),
        ]);
        for segment in &mut segments {
            segment.at = segment.at.after(Micros::from_millis(began));
            let client = if segment.source.port == 80 { &mut segment.destination } else { &mut segment.source };
            client.address = IpAddr::from([198, 51, 100, u8::try_from(n).unwrap()]);
        }
        feed(&mut engine, &segments);
    }
    assert_eq!(engine.counters().service_sizes, 20, "two transfers of each connection");
    let [size] = engine.services()[..] else { panic!("{:?}", engine.services()) };
    assert_eq!((size.service, size.transfers), ("192.0.2.1:80".parse().unwrap(), 20));
    assert!((29_200..=31_850).contains(&size.quantile.0), "20 segments, at most 9 % more: {size:?}");
    let announced = std::iter::from_fn(|| engine.poll_event()).filter(|event| matches!(event, Event::ServiceSize(_)));
    assert!(announced.count() >= 1);
}

#[test]
fn transfers_that_were_cut_off_and_those_of_the_opener_give_no_size() {
    let mut engine = Engine::new(EngineConfig::default());
    feed(&mut engine, &handshake(100));
    // The client, which opened, sends too: of its port nobody will ask.
    feed(&mut engine, &[segment(ms(100), false, Flags::ACK, 101, 5_001, 1_000)]);
    feed(&mut engine, &[segment(ms(140), true, Flags::ACK, 5_001, 1_101, 1_460)]);
    feed(&mut engine, &[segment(ms(160), false, Flags::RST, 1_101, 0, 0)]);
    assert_eq!(engine.counters().service_sizes, 0);
    assert_eq!(engine.counters().ignored(Ignored::CutTransfer), 1);
    // The start of this one was not seen.
    let mut engine = Engine::new(EngineConfig::default());
    feed(&mut engine, &transfer(100, 5_001, 20));
    engine.handle_timeout(ms(20_000));
    assert_eq!((engine.counters().service_sizes, engine.counters().ignored(Ignored::CutTransfer)), (0, 0));
}

#[test]
fn connections_that_send_at_once_are_counted_for_their_network() {
    let mut engine = Engine::new(EngineConfig::default());
    let network = engine.network_of(CLIENT.parse().unwrap());
    let parallel = |engine: &Engine, at| engine.network(network, at).unwrap().parallel;
    let on_port = |port: u16, segments: Vec<Segment>| -> Vec<Segment> {
        let move_port = |mut segment: Segment| {
            let client = if segment.source.port == 80 { &mut segment.destination } else { &mut segment.source };
            client.port = port;
            segment
        };
        segments.into_iter().map(move_port).collect()
    };
    feed(&mut engine, &handshake(100));
    feed(&mut engine, &transfer(100, 5_001, 20));
    engine.handle_timeout(ms(9_000));
    assert_eq!(
        parallel(&engine, ms(9_000)),
        0,
        "it did not count for the network when it started: there was no network yet"
    );
    for port in 1..=3 {
        let opening = handshake(100).map(|segment| Segment { at: ms(20_000), ..segment });
        feed(&mut engine, &on_port(port, opening.into()));
    }
    for port in 1..=3 {
        let mut sent = on_port(port, transfer(20_000, 5_001, 5));
        let answer = sent.pop().unwrap();
        feed(&mut engine, &sent);
        // The first is answered, the second is cut off, and the third is left alone until the table lets it go.
        match port {
            1 => feed(&mut engine, &[Segment { at: ms(20_001), ..answer }]),
            2 => feed(&mut engine, &[Segment { at: ms(20_001), flags: Flags(Flags::RST), ..answer }]),
            _ => {}
        }
    }
    assert_eq!(parallel(&engine, ms(20_001)), 2, "the second was over when the third began");
    engine.handle_timeout(ms(30_000));
    assert_eq!(parallel(&engine, ms(50_000)), 1);
    engine.finish(ms(50_001));
    while engine.poll_event().is_some() {}
    engine.handle_timeout(ms(80_000));
    assert_eq!(parallel(&engine, ms(80_000)), 0);
}

/// Samples of a network at the end of time must not be looked at for ever (a capture of the corpus has such a clock).
#[test]
fn a_clock_at_the_end_of_time_leaves_something_to_wait_for() {
    let mut engine = Engine::new(EngineConfig::default());
    let end = Timestamp(u64::MAX);
    engine.handle_timeout(end);
    let transfer = [
        segment(LATEST, true, Flags::ACK | Flags::FIN, 5_001, 101, 1_000),
        segment(LATEST, false, Flags::ACK, 101, 6_002, 0),
    ];
    for segment in handshake(100).into_iter().chain(transfer) {
        engine.handle_segment(&Segment { at: LATEST, ..segment }, 0, Claim::Home);
    }
    assert!(!engine.networks(LATEST).is_empty(), "a transfer ended");
    engine.handle_timeout(end);
    assert!(engine.poll_timeout().is_none_or(|due| due > LATEST));
    engine.finish(end);
    while engine.poll_event().is_some() {}
    assert_eq!(engine.connections(), 0);
}

#[test]
fn advice_that_is_forgotten_before_its_time_is_counted() {
    let mut engine = Engine::new(EngineConfig::default());
    let remote: IpAddr = CLIENT.parse().unwrap();
    for n in 0..65_537_u32 {
        engine.note_advised(IpAddr::from(n.to_be_bytes()), remote, ms(0));
    }
    assert_eq!(engine.counters().ignored(Ignored::AdviceForgotten), 1);
}

#[test]
fn one_frame_from_the_far_future_does_not_move_the_clock() {
    let frame = Frame { link_type: 1, wire_len: 0, input: 0, data: &[] };
    let mut engine = Engine::new(EngineConfig::default());
    feed(&mut engine, &handshake(100));
    let far = ms(0).after(Micros::from_secs(46 * 365 * 86_400));
    engine.handle_frame(far, &frame);
    assert_eq!((engine.now, engine.connections()), (ms(41), 1));
    engine.handle_frame(ms(100), &frame);
    assert_eq!(engine.now, ms(100), "the clock goes on");
    engine.handle_frame(far, &frame);
    assert_eq!(engine.now, ms(100), "what lay between is no confirmation");
    engine.handle_frame(far.after(Micros(5)), &frame);
    assert_eq!((engine.now, engine.connections()), (far.after(Micros(5)), 0), "two in a row are believed");
    assert_eq!(engine.counters().ignored(Ignored::TimeForwards), 2);
}
