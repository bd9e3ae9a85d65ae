//! Any segments at all.

use proptest::prelude::*;

use super::*;
use crate::window::traffic::NetworkTraffic;
use crate::window::view::NetworkView;

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
