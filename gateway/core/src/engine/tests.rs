use std::num::NonZeroUsize;

use arrayvec::ArrayVec;
use proptest::prelude::*;
use spand_proto::units::{Bytes, Micros, Window};

use super::*;
use crate::config::Limits;
use crate::event::Trigger;
use crate::flow::report::DirectionReport;
use crate::flow::sample::ConnectionId;
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
    Engine::new(EngineConfig { flow_reports: true, ..config })
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
    reports.sort_by_key(|report| report.first_frame);
    reports
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
    let packets: Vec<u64> = reports(&mut engine).iter().map(|report| report.packets).collect();
    assert_eq!(packets, [4, 2, 2, 1]);
}

#[test]
fn the_handshake_is_timed_on_both_sides() {
    let mut engine = with_reports(EngineConfig::default());
    feed(&mut engine, &handshake(100));
    engine.finish(ms(50));
    let rtts: Vec<_> = reports(&mut engine).iter().map(|report| report.rtt_seqack.min).collect();
    assert_eq!(rtts, [Some(Micros(1_000)), Some(Micros(40_000))]);
}

#[test]
fn a_network_is_told_every_round_trip_by_the_end_of_the_transfer() {
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
    feed(&mut engine, &handshake(100));
    feed(&mut engine, &[segment(ms(5_000), false, Flags::ACK | Flags::PSH, 101, 5_001, 300)]);
    let triggers: Vec<_> = std::iter::from_fn(|| engine.poll_event())
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
        // The mirror misses the first segments of some: the acknowledgement tells of it. A FIN is no byte of payload.
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
        }
        feed(&mut engine, &segments);
    }
    assert_eq!(engine.counters().service_sizes, 20, "two transfers of each connection");
    let [size] = engine.services()[..] else { panic!("{:?}", engine.services()) };
    assert_eq!((size.service, size.transfers), ("192.0.2.1:80".parse().unwrap(), 20));
    assert!((29_200..=31_850).contains(&size.quantile.0), "20 segments, at most 9 % more: {size:?}");
    let told = std::iter::from_fn(|| engine.poll_event()).filter(|event| matches!(event, Event::ServiceSize(_)));
    assert!(told.count() >= 1);
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
    assert_eq!(parallel(&engine, ms(9_000)), 0, "it was none of the network's when it began: there was no network yet");
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

/// A loss-free Reno transfer of the server with a threshold of 16 segments, over 100 ms; `say` gives what it says of a window in
/// bytes.
fn reno(segments: u32, mut say: impl FnMut(f64) -> Option<WindowOption>) -> Vec<Segment> {
    const MSS: u32 = 1_448;
    let mut all: Vec<_> = handshake(100).into();
    let (mut window, mut sent, mut acked) = (10.0f64, 0, 0);
    let mut acks = VecDeque::from([(ms(141), 0)]);
    while let Some((at, upto)) = acks.pop_front() {
        if upto > 0 {
            all.push(segment(at, false, Flags::ACK, 101, 5_001 + upto * MSS, 0));
            acked = upto;
            window += if window < 16.0 { 1.0 } else { window.recip() };
        }
        while sent < segments && f64::from(sent - acked) < window.floor() {
            let mut data = segment(at.after(Micros(10)), true, Flags::ACK, 5_001 + sent * MSS, 101, MSS);
            data.options.window = say(window.floor() * f64::from(MSS));
            all.push(data);
            sent += 1;
            acks.push_back((at.after(Micros(100_000)), sent));
        }
    }
    all
}

fn heard(segments: &[Segment], read_window_option: bool) -> (Vec<DirectionReport>, Engine) {
    let mut engine = with_reports(EngineConfig { read_window_option, ..EngineConfig::default() });
    feed(&mut engine, segments);
    engine.finish(ms(60_000));
    (reports(&mut engine), engine)
}

#[test]
fn a_window_that_its_sender_says_is_the_sample_where_that_is_read() {
    let said = |window: f64| {
        let window_bytes = Window::from_bytes(window)?.segments(Bytes(1)).0;
        Some(WindowOption { window_bytes, srtt_us: 101_000 })
    };
    let segments = reno(150, said);
    let (reports, engine) = heard(&segments, true);
    let [sample] = reports[1].samples[..] else { panic!("{:?}", reports[1].samples) };
    assert!(!sample.reason.is_lower_bound(), "{sample:?}");
    let [.., last] = segments.iter().filter(|segment| segment.payload_len > 0).collect::<Vec<_>>()[..] else {
        panic!()
    };
    let window = f64::from(last.options.window.unwrap().window_bytes);
    let grown = (sample.window.bytes() - window) / 1_448.0;
    assert!((0.0..=1.0).contains(&grown), "{} of {window}", sample.window.bytes());
    let counted = [engine.counters().window_options, engine.counters().window_option_samples];
    assert_eq!(counted, [150, 1]);
    let view = engine.network(engine.network_of(CLIENT.parse().unwrap()), ms(60_000)).unwrap();
    assert_eq!(view.rtt_min, Some(Micros(40_000)), "the smallest is the wire's");
    assert!(view.rtt_mean.unwrap() > Micros(100_500), "the others are the sender's: {:?}", view.rtt_mean);

    let (unread, engine) = heard(&segments, false);
    assert_eq!((engine.counters().window_options, engine.counters().window_option_samples), (0, 0));
    assert_eq!(unread[1].samples, heard(&reno(150, |_| None), true).0[1].samples, "off, it is as if nothing were said");
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

/// `count` connections of which both directions were seen, at one moment.
fn connections(engine: &mut Engine, count: u16) {
    for port in 1..=count {
        for mut segment in handshake(100) {
            let client = if segment.source.port == 80 { &mut segment.destination } else { &mut segment.source };
            client.port = port;
            feed(engine, &[Segment { at: ms(0), ..segment }]);
        }
    }
}

fn limited_events(limit: usize) -> Limits {
    Limits { events: NonZeroUsize::new(limit).unwrap(), ..Limits::default() }
}

#[test]
fn every_report_comes_at_the_end_within_the_limit_of_events() {
    let mut engine = with_reports(EngineConfig { limits: limited_events(EVENTS_PER_STEP), ..EngineConfig::default() });
    connections(&mut engine, 100);
    while engine.poll_event().is_some() {}
    engine.finish(ms(1));
    assert_eq!(engine.connections(), 100, "none ends before there is room");
    let mut reports = 0;
    while let Some(event) = engine.poll_event() {
        reports += usize::from(matches!(event, Event::DirectionEnded(_)));
        assert!(engine.events.len() < EVENTS_PER_STEP);
    }
    assert_eq!((reports, engine.connections()), (200, 0));
    assert_eq!((engine.counters().connections_ended, engine.counters().ignored(Ignored::EventQueueFull)), (100, 0));
}

#[test]
fn silence_ends_no_more_connections_at_a_time_than_there_is_room_for() {
    let mut engine = with_reports(EngineConfig { limits: limited_events(40), ..EngineConfig::default() });
    connections(&mut engine, 100);
    while engine.poll_event().is_some() {}
    let (later, mut reports) = (ms(10_000_000), 0);
    for _ in 0..100 {
        engine.handle_timeout(later);
        assert!(engine.events.len() <= 40);
        reports += std::iter::from_fn(|| engine.poll_event())
            .filter(|event| matches!(event, Event::DirectionEnded(_)))
            .count();
    }
    assert_eq!((reports, engine.connections(), engine.counters().ignored(Ignored::EventQueueFull)), (200, 0, 0));
}

#[test]
fn networks_age_no_faster_than_there_is_room_for_their_events() {
    let mut engine = Engine::new(EngineConfig { limits: limited_events(7), ..EngineConfig::default() });
    let sampled = |n: u8, connection: u64| crate::flow::sample::WindowSample {
        at: ms(0),
        network: Network::of(IpAddr::from([198, 51, n, 1])),
        remote: [198, 51, n, 1].into(),
        connection: ConnectionId(connection),
        window: Window::from_bytes(10_000.0).unwrap(),
        mss: Bytes(1_000),
        reason: crate::flow::sample::SampleReason::End,
        sawtooth: None,
        phase: crate::flow::sample::Phase::CongestionAvoidance,
        transfer: Bytes(100_000),
        advised: false,
        rtt_min: None,
    };
    engine.handle_timeout(ms(0));
    for n in 0..50 {
        (1..=3).for_each(|connection| engine.networks.add(&sampled(n, connection)));
        engine.take_network_events();
        assert!(matches!(engine.poll_event(), Some(Event::Estimate(_))));
    }
    let mut gone = 0;
    for _ in 0..10 {
        engine.handle_timeout(ms(400_000));
        gone += std::iter::from_fn(|| engine.poll_event()).count();
    }
    assert_eq!((gone, engine.counters().ignored(Ignored::EventQueueFull)), (50, 0));
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

prop_compose! {
    fn any_segment()(
        step_us in 0u64..400_000,
        from_server: bool,
        port in 40_000u16..40_003,
        flags: u8,
        seq in prop_oneof![Just(u32::MAX - 3_000), any::<u32>(), 0u32..20_000],
        ack in prop_oneof![any::<u32>(), 0u32..20_000],
        payload_len in prop_oneof![Just(0u32), Just(1), Just(1_448), any::<u32>()],
        window: u16,
        ip_id: Option<u16>,
        sack in prop::collection::vec((0u32..20_000, 0u32..20_000), 0..4),
        timestamps: Option<(u32, u32)>,
        options in (any::<Option<u16>>(), any::<Option<u8>>(), any::<bool>()),
        window_option in prop::option::of((any::<u32>(), any::<u32>())),
    ) -> (u64, Segment) {
        let mut made = segment(Timestamp(0), from_server, flags, seq, ack, payload_len);
        let client = if from_server { &mut made.destination } else { &mut made.source };
        client.port = port;
        made.window = window;
        made.ip_id = ip_id;
        made.options = Options {
            mss: options.0,
            window_scale: options.1,
            sack_permitted: options.2,
            timestamps: timestamps.map(|(value, echo)| Timestamps { value, echo }),
            window: window_option.map(|(window_bytes, srtt_us)| WindowOption { window_bytes, srtt_us }),
            sack: sack.into_iter().map(|(left, right)| SackBlock { left, right }).collect::<ArrayVec<_, 4>>(),
            ..Options::default()
        };
        (step_us, made)
    }
}

proptest! {
    /// Whatever comes, nothing panics, limits hold, and the same input gives the same output.
    #[test]
    fn any_segments_are_taken(segments in prop::collection::vec(any_segment(), 1..200)) {
        let run = || {
            let limits = Limits { connections: NonZeroUsize::new(2).unwrap(), ..Limits::default() };
            let mut engine =
                with_reports(EngineConfig { limits, read_window_option: true, ..EngineConfig::default() });
            let mut at = ms(0);
            for (step_us, segment) in &segments {
                at = at.after(Micros(*step_us));
                feed(&mut engine, &[Segment { at, ..segment.clone() }]);
                assert!(engine.connections() <= 2);
            }
            engine.finish(at);
            let events: Vec<_> = std::iter::from_fn(|| engine.poll_event()).collect();
            (events, engine.counters().clone())
        };
        prop_assert_eq!(run(), run());
    }

    /// Whatever a sender says of itself, its samples stay within twice what was seen of it, and round trips too.
    #[test]
    fn nonsense_in_the_window_option_moves_no_sample_beyond_its_bounds(
        said in prop::collection::vec(prop::option::of((prop_oneof![any::<u32>(), 0u32..200_000], any::<u32>())), 150),
        segments in 30u32..150,
    ) {
        let mut said = said.into_iter();
        let say = |_| said.next().flatten().map(|(window_bytes, srtt_us)| WindowOption { window_bytes, srtt_us });
        let (reports, engine) = heard(&reno(segments, say), true);
        for sample in &reports[1].samples {
            let most = 2.0 * reports[1].flight_max.0 as f64 + 1_448.0;
            prop_assert!((1_000.0..=most).contains(&sample.window.bytes()), "{:?} of {}", sample, reports[1].flight_max);
        }
        let view = engine.network(engine.network_of(CLIENT.parse().unwrap()), ms(60_000)).unwrap();
        let mean = view.rtt_mean.unwrap();
        prop_assert!(mean >= Micros(45_000) && mean <= Micros(201_000), "{mean}");
    }

    /// Hosts outside are rebuilt only for their reports: what is said of networks and starts is the same without.
    #[test]
    fn what_is_not_wanted_of_hosts_outside_changes_nothing(segments in prop::collection::vec(any_segment(), 1..200)) {
        let run = |flow_reports| {
            let internal = vec!["192.0.2.0/24".parse().unwrap()];
            let mut engine = Engine::new(EngineConfig { internal, flow_reports, ..EngineConfig::default() });
            feed(&mut engine, &handshake(100));
            let mut at = ms(41);
            for (step_us, segment) in &segments {
                at = at.after(Micros(*step_us));
                // A second SYN starts anew a sender whose bytes nobody counts, and a reset may be none.
                let flags = Flags(segment.flags.0 & !(Flags::SYN | Flags::RST));
                feed(&mut engine, &[Segment { at, flags, ..segment.clone() }]);
            }
            engine.finish(at);
            let events: Vec<_> = std::iter::from_fn(|| engine.poll_event())
                .filter(|event| !matches!(event, Event::DirectionEnded(_)))
                .collect();
            (events, engine.networks(at), engine.counters().window_samples, engine.counters().connections)
        };
        prop_assert_eq!(run(true), run(false));
    }
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
