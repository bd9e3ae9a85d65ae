//! Packets of somebody who knows addresses and ports and guesses numbers, and real ones that look alike (RFC 5961).

use proptest::prelude::*;

use super::*;
use crate::networks::traffic::NetworkTraffic;
use crate::networks::view::NetworkView;

/// Two transfers of a connection, each a round trip long and ended by silence; the first gives its sample at 1.5 s.
fn exchange() -> Vec<Segment> {
    let first = transfer(100, 5_001, 20);
    let second = transfer(5_000, 5_001 + 20 * 1_460, 20);
    // Both ends close at 6 s; of the FINs one is acknowledged, and the other at 7 s.
    let end = 5_001 + 40 * 1_460;
    let close = [
        segment(ms(6_000), true, Flags::ACK | Flags::FIN, end, 101, 0),
        segment(ms(6_040), false, Flags::ACK | Flags::FIN, 101, end, 0),
        segment(ms(7_000), false, Flags::ACK, 102, end + 1, 0),
        segment(ms(7_001), true, Flags::ACK, end + 1, 102, 0),
    ];
    handshake(100).into_iter().chain(first).chain(second).chain(close).collect()
}

/// Feeds a connection's segments with others put in by time; gives the engine after silence has ended everything.
fn with_others(others: &[Segment]) -> Engine {
    let mut segments = exchange();
    segments.extend_from_slice(others);
    segments.sort_by_key(|segment| segment.at);
    let mut engine = Engine::new(EngineConfig::default());
    feed(&mut engine, &segments);
    engine.handle_timeout(ms(20_000));
    engine
}

/// What the connection's network got.
fn seen(engine: &Engine) -> (u64, u64, u64, u64, Option<NetworkView>) {
    let counters = engine.counters();
    let network = engine.network_of(CLIENT.parse().unwrap());
    let view = engine.network(network, ms(20_000));
    (counters.window_samples, counters.lower_bounds, counters.rtt_samples, counters.connections, view)
}

#[test]
fn blind_packets_change_nothing_in_a_connection() {
    let honest = seen(&with_others(&[]));
    assert_eq!((honest.0 + honest.1, honest.3), (2, 1), "two transfers: {honest:?}");
    // Numbers spread over the whole space, none near those in use.
    for n in 1..40_u32 {
        let (seq, ack) = (n * 104_729_000, n.wrapping_mul(2_654_435_761) | 1 << 30);
        for at in [50, 150, 900, 5_050, 6_500] {
            for from_server in [false, true] {
                for flags in [
                    Flags::RST,
                    Flags::RST | Flags::ACK,
                    Flags::SYN,
                    Flags::SYN | Flags::ACK,
                    Flags::ACK,
                    Flags::ACK | Flags::FIN,
                    Flags::ACK | Flags::PSH,
                ] {
                    let payload_len = if flags & Flags::PSH == 0 { 0 } else { 1_000 };
                    let blind = segment(ms(at), from_server, flags, seq, ack, payload_len);
                    let engine = with_others(std::slice::from_ref(&blind));
                    assert_eq!(seen(&engine), honest, "{blind:?}");
                    let reasons = [Ignored::BeyondWindow, Ignored::ResetNotExpected, Ignored::SynNotAnswered];
                    assert_eq!(
                        reasons.map(|reason| engine.counters().ignored(reason)).iter().sum::<u64>(),
                        1,
                        "{blind:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_reset_with_the_expected_number_ends_the_connection_and_its_transfer() {
    for (seq, from_server) in [(101, false), (5_001 + 20 * 1_460, true)] {
        let mut engine = Engine::new(EngineConfig::default());
        feed(&mut engine, &handshake(100));
        feed(&mut engine, &transfer(100, 5_001, 20));
        feed(&mut engine, &[segment(ms(250), from_server, Flags::RST, seq, 0, 0)]);
        let counters = engine.counters();
        assert_eq!(counters.window_samples + counters.lower_bounds, 1, "at once");
        assert_eq!(counters.ignored(Ignored::ResetNotExpected), 0);
        // The next SYN needs no answer.
        feed(&mut engine, &[segment(ms(300), false, Flags::SYN, 900_000, 0, 0)]);
        assert_eq!((engine.counters().connections, engine.connections()), (2, 1));
    }
}

/// The mirror missed what the client sent before it.
#[test]
fn a_reset_in_the_window_ends_the_connection_where_nothing_contradicts_it() {
    let reset = segment(ms(250), false, Flags::RST, 4_101, 0, 0);
    let run = |after: &[Segment]| {
        let mut engine = Engine::new(EngineConfig::default());
        feed(&mut engine, &handshake(100));
        feed(&mut engine, &transfer(100, 5_001, 20));
        // Data that nobody acknowledged any more.
        feed(&mut engine, &[segment(ms(240), true, Flags::ACK, 5_001 + 20 * 1_460, 101, 1_460)]);
        feed(&mut engine, std::slice::from_ref(&reset));
        feed(&mut engine, after);
        engine.handle_timeout(ms(125_000));
        engine
    };
    let ended = run(&[]);
    assert_eq!(ended.connections(), 0, "it may be silent for two minutes");
    let counters = ended.counters();
    assert_eq!((counters.window_samples + counters.lower_bounds, counters.ignored(Ignored::Unfinished)), (1, 0));
    let goes_on = run(&[segment(ms(350), false, Flags::ACK, 101, 5_001 + 21 * 1_460, 0)]);
    assert_eq!(goes_on.connections(), 1, "who was reset sends nothing");
    assert_eq!(goes_on.counters().ignored(Ignored::ResetNotExpected), 1);
}

#[test]
fn a_refused_connection_is_over_and_a_blind_reset_of_one_that_opens_is_ignored() {
    let reset = |flags, ack| segment(ms(1), true, flags, 0, ack, 0);
    let after = |reset: Segment| {
        let mut engine = Engine::new(EngineConfig::default());
        feed(&mut engine, &handshake(100)[..1]);
        feed(&mut engine, &[reset]);
        engine.counters().ignored(Ignored::ResetNotExpected)
    };
    assert_eq!(after(reset(Flags::RST | Flags::ACK, 101)), 0);
    assert_eq!(after(reset(Flags::RST | Flags::ACK, 102)), 1);
    assert_eq!(after(reset(Flags::RST, 0)), 1);
}

/// A client that lost its state, or a mirror that missed the end of the connection before.
fn again(answer: bool) -> Vec<Segment> {
    let mut segments = vec![segment(ms(30_000), false, Flags::SYN, 3_000_000_000, 0, 0)];
    if answer {
        segments.push(segment(ms(30_001), true, Flags::SYN | Flags::ACK, 2_000_000_000, 3_000_000_001, 0));
    }
    segments.push(segment(ms(30_041), false, Flags::ACK, 3_000_000_001, 2_000_000_001, 0));
    segments.extend(
        (0..20).map(|n| segment(ms(30_050), true, Flags::ACK, 2_000_000_001 + n * 1_460, 3_000_000_001, 1_460)),
    );
    segments.push(segment(ms(30_150), false, Flags::ACK, 3_000_000_001, 2_000_000_001 + 20 * 1_460, 0));
    segments
}

#[test]
fn addresses_and_ports_are_used_again_where_the_syn_is_answered() {
    let mut engine = with_reports(EngineConfig::default());
    feed(&mut engine, &exchange()[..45]);
    feed(&mut engine, &again(true)[..1]);
    assert_eq!(engine.counters().connections, 1, "not yet");
    feed(&mut engine, &again(true)[1..]);
    assert_eq!((engine.counters().connections, engine.connections()), (2, 1));
    engine.finish(ms(60_000));
    let rows: Vec<_> = details(&mut engine).iter().map(|row| (row.packets, row.first_at, row.rtt_seqack.min)).collect();
    assert_eq!(
        rows[2],
        (3, ms(30_000), Some(Micros(1_000))),
        "the SYN and its time are the new connection's: {rows:?}"
    );
    assert_eq!(rows[3].0, 21);
}

#[test]
fn where_the_mirror_missed_the_answer_the_first_acknowledgement_of_the_syn_replaces_it() {
    let mut engine = with_reports(EngineConfig::default());
    feed(&mut engine, &exchange()[..45]);
    feed(&mut engine, &again(false));
    assert_eq!((engine.counters().connections, engine.connections()), (2, 1));
    engine.finish(ms(60_000));
    let rows: Vec<_> = details(&mut engine).iter().map(|row| (row.packets, row.first_at)).collect();
    assert_eq!(rows[2..], [(2, ms(30_000)), (20, ms(30_050))], "without the acknowledgement that came before");
}

/// RFC 5961 section 4: who has the connection acknowledges what it expects, and the client that lost its state resets.
#[test]
fn a_challenge_acknowledgement_and_its_reset_end_a_half_open_connection() {
    let mut engine = Engine::new(EngineConfig::default());
    feed(&mut engine, &exchange()[..45]);
    feed(&mut engine, &again(true)[..1]);
    let nxt = 5_001 + 40 * 1_460;
    feed(&mut engine, &[segment(ms(30_001), true, Flags::ACK, nxt, 101, 0)]);
    feed(&mut engine, &[segment(ms(30_041), false, Flags::RST, 101, 0, 0)]);
    assert_eq!(engine.counters().connections, 1);
    for segment in again(true) {
        feed(&mut engine, &[Segment { at: segment.at.after(Micros::from_secs(1)), ..segment }]);
    }
    assert_eq!((engine.counters().connections, engine.connections()), (2, 1));
}

/// A mirror port that loses much: numbers far ahead are believed when they stay there.
#[test]
fn a_gap_of_the_mirror_is_left_behind_after_a_few_segments() {
    let mut engine = with_reports(EngineConfig::default());
    feed(&mut engine, &handshake(100));
    feed(&mut engine, &transfer(100, 5_001, 20));
    // The client sent 1 GB meanwhile. It acknowledges 20 more segments, one after the other.
    let seq = 5_001 + 20 * 1_460;
    let mut more = transfer(5_000, seq, 20);
    more.pop();
    feed(&mut engine, &more);
    for n in 1..=20 {
        feed(&mut engine, &[segment(ms(5_100 + u64::from(n)), false, Flags::ACK, 1_000_000_101, seq + n * 1_460, 0)]);
    }
    engine.handle_timeout(ms(20_000));
    let counters = engine.counters();
    assert_eq!(counters.window_samples + counters.lower_bounds, 2, "the second transfer ended, too");
    assert_eq!(counters.ignored(Ignored::BeyondWindow), 20);
}

#[test]
fn syns_that_wait_are_bounded() {
    let mut engine = Engine::new(EngineConfig::default());
    let on_port = |port: u16, segment: Segment| {
        let mut moved = segment;
        let client = if moved.source.port == 80 { &mut moved.destination } else { &mut moved.source };
        client.port = port;
        moved
    };
    for port in 1..=400 {
        for segment in handshake(100).into_iter().chain(transfer(100, 5_001, 2)) {
            feed(&mut engine, &[on_port(port, Segment { at: ms(200), ..segment })]);
        }
    }
    for port in 1..=400 {
        feed(&mut engine, &[on_port(port, segment(ms(300), false, Flags::SYN, 77_000_000, 0, 0))]);
    }
    assert_eq!(engine.counters().ignored(Ignored::SynNotAnswered), 400);
    assert_eq!((engine.openings.len(), engine.counters().connections), (256, 400));
    // Traffic of a connection that goes on drops its SYN.
    feed(&mut engine, &[on_port(400, segment(ms(400), true, Flags::ACK, 5_001 + 2 * 1_460, 101, 1_460))]);
    assert_eq!(engine.openings.len(), 255);
}

// Any segments at all.

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

    /// Hosts outside are rebuilt only for their reports: events of networks and starts are the same without.
    #[test]
    fn what_is_not_wanted_of_hosts_outside_changes_nothing(segments in prop::collection::vec(any_segment(), 1..200)) {
        let run = |flow_reports| {
            let internal = vec!["192.0.2.0/24".parse().unwrap()];
            let mut engine = Engine::new(EngineConfig { internal, flow_reports, ..EngineConfig::default() });
            feed(&mut engine, &handshake(100));
            let mut at = ms(41);
            for (step_us, segment) in &segments {
                at = at.after(Micros(*step_us));
                // A second SYN restarts a sender whose bytes are not counted, and a reset may be ignored.
                let flags = Flags(segment.flags.0 & !(Flags::SYN | Flags::RST));
                feed(&mut engine, &[Segment { at, flags, ..segment.clone() }]);
            }
            engine.finish(at);
            let events: Vec<_> = std::iter::from_fn(|| engine.poll_event())
                .filter(|event| !matches!(event, Event::DirectionEnded(_)))
                .collect();
            // Traffic is counted as long as a sender is there, and with reports it is there longer.
            let networks = engine.networks(at).into_iter();
            let networks: Vec<_> = networks.map(|view| NetworkView { traffic: NetworkTraffic::default(), ..view }).collect();
            (events, networks, engine.counters().window_samples, engine.counters().connections)
        };
        prop_assert_eq!(run(FlowReports::Full), run(FlowReports::None));
    }
}
