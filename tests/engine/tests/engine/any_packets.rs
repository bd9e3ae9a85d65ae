//! Any packets at all.

use std::num::NonZeroUsize;

use proptest::prelude::*;
use spand_core::config::{FlowReports, Limits};
use spand_core::networks::traffic::NetworkTraffic;

use super::*;

/// Microseconds since the one before, and a packet.
type Step = (u64, Segment);

prop_compose! {
    fn any_step()(
        step_us in 0u64..400_000,
        from_server: bool,
        port in 40_000u16..40_003,
        flags: u8,
        seq in prop_oneof![Just(u32::MAX - 3_000), any::<u32>(), 0u32..20_000],
        ack in prop_oneof![any::<u32>(), 0u32..20_000],
        payload in prop_oneof![Just(0u16), Just(1), Just(1_448), 0u16..65_000],
        (window, id) in any::<(u16, u16)>(),
        sack in prop::collection::vec((0u32..20_000, 0u32..20_000), 0..4),
        timestamps: Option<(u32, u32)>,
        (mss, shift, sack_permitted) in any::<(Option<u16>, Option<u8>, bool)>(),
        reported in prop::option::of((any::<u32>(), any::<u32>())),
    ) -> Step {
        let blocks = sack.iter().flat_map(|(left, right)| [left.to_be_bytes(), right.to_be_bytes()]).flatten();
        let values = timestamps.map(|(value, echo)| [value.to_be_bytes(), echo.to_be_bytes()].concat());
        let wanted = [
            mss.map(|mss| [&[2, 4], &mss.to_be_bytes()[..]].concat()),
            shift.map(|shift| vec![3, 3, shift]),
            sack_permitted.then(|| vec![4, 2]),
            values.map(|values| [&[8, 10], &values[..]].concat()),
            reported.map(reported_window::option),
            (!sack.is_empty()).then(|| [5, u8::try_from(2 + 8 * sack.len()).unwrap_or(2)].into_iter().chain(blocks).collect()),
        ];
        // What fits.
        let options = wanted.into_iter().flatten().fold(Vec::new(), |all, option| {
            if all.len() + option.len() > 40 { all } else { [all, option].concat() }
        });
        let made = segment(0, from_server, flags, seq, ack, payload);
        let mut tcp = TcpHeader { window_size: window, ..made.tcp.clone() };
        tcp.set_options_raw(&options).unwrap_or_else(|fault| panic!("{fault}"));
        (step_us, Segment { tcp, id, ..made.with_client(SocketAddr::new(CLIENT.ip(), port)) })
    }
}

fn fed(config: EngineConfig, before: &[Segment], steps: &[Step], flags_but: u8) -> (Engine, Timestamp) {
    let mut engine = Engine::new(config);
    feed(&mut engine, before);
    let mut at = ms(41);
    for (step_us, segment) in steps {
        at = at.after(Micros(*step_us));
        let mut segment = Segment { at, ..segment.clone() };
        segment.tcp.syn &= flags_but & Flags::SYN == 0;
        segment.tcp.rst &= flags_but & Flags::RST == 0;
        feed(&mut engine, &[segment]);
        assert!(engine.connections() <= 3);
    }
    engine.finish(at);
    (engine, at)
}

/// Nothing panics, limits hold, and the same input gives the same output.
fn is_repeatable(steps: &[Step]) -> Result<(), TestCaseError> {
    let run = || {
        let limits = Limits { connections: NonZeroUsize::MIN, ..Limits::default() };
        let flow_reports = FlowReports::Full;
        let config = EngineConfig { limits, read_window_option: true, flow_reports, ..EngineConfig::default() };
        let (mut engine, _) = fed(config, &[], steps, 0);
        (events(&mut engine), engine.counters().clone())
    };
    prop_assert_eq!(run(), run());
    Ok(())
}

/// Hosts outside are rebuilt only for their reports: events of networks and starts are the same without.
fn is_the_same_without_reports(steps: &[Step]) -> Result<(), TestCaseError> {
    let [syn, answer, ack] = handshake();
    let run = |flow_reports| {
        // A second SYN restarts a sender whose bytes are not counted, and a reset may be ignored. The server is 9 ms from the tap.
        let opening = [syn.clone(), answer.clone().later(8), ack.clone()];
        let (mut engine, at) = fed(EngineConfig { flow_reports, ..inside() }, &opening, steps, Flags::SYN | Flags::RST);
        let mut events = events(&mut engine);
        events.retain(|event| !matches!(event, Event::DirectionEnded(_)));
        // Traffic is counted as long as a sender is there, and with reports it is there longer.
        let networks = engine.networks().views(at).into_iter();
        let networks: Vec<_> =
            networks.map(|view| NetworkView { traffic: NetworkTraffic::default(), ..view }).collect();
        (events, networks, engine.counters().window_samples, engine.counters().connections)
    };
    prop_assert_eq!(run(FlowReports::Full), run(FlowReports::None));
    Ok(())
}

proptest! {
    #[test]
    fn any_packets_are_taken(steps in prop::collection::vec(any_step(), 1..200)) {
        is_repeatable(&steps)?;
        is_the_same_without_reports(&steps)?;
    }
}

/// Microseconds, whether the server sends it, its client, flags, numbers and payload.
type Found = (u64, bool, u16, u8, u32, u32, u16);

/// What it found before, as it was shrunk.
#[test]
fn what_was_found_stays_fixed() {
    const TOP: u32 = u32::MAX - 3_000;
    const FOUND: [&[Found]; 3] = [
        &[(0, true, 0, 0x70, TOP, 102, 0)],
        &[
            (0, false, 0, 0, TOP, 0, 0),
            (0, false, 0, 0xbb, TOP, 0, 0),
            (0, true, 0, 0x0b, TOP, 0, 1_448),
            (1, false, 0, 0, TOP, 0, 0),
        ],
        &[
            (0, false, 0, 0, TOP, 0, 0),
            (0, false, 0, 0, TOP, 0, 0),
            (0, false, 2, 0, 13_925, 0, 0),
            (0, false, 2, 0, 0, 0, 1_448),
        ],
    ];
    for found in FOUND {
        let step = |&(step_us, from_server, port, flags, seq, ack, payload): &Found| {
            let client = SocketAddr::new(CLIENT.ip(), CLIENT.port() + port);
            (step_us, segment(0, from_server, flags, seq, ack, payload).with_client(client))
        };
        let steps: Vec<_> = found.iter().map(step).collect();
        is_repeatable(&steps).unwrap();
        is_the_same_without_reports(&steps).unwrap();
    }
}
