//! Why transfers gave no sample, counted in their network.

use spand_proto::no_estimate::{Explanation, Outcomes, Reason};

use super::*;

const MSS: u32 = 1_460;
const FIRST: u32 = 5_001;

/// Data of the server from `at` on, one segment a millisecond.
fn data(at: u64, numbers: std::ops::Range<u32>) -> impl Iterator<Item = Segment> {
    numbers.zip(at..).map(|(n, at)| segment(ms(at), true, Flags::ACK, FIRST + n * MSS, 101, MSS))
}

/// The client acknowledges what lies before segment `number`.
fn ack(at: u64, number: u32) -> Segment {
    segment(ms(at), false, Flags::ACK, 101, FIRST + number * MSS, 0)
}

/// The same with what lies behind segment `number` up to `end` in a SACK block.
fn sack(at: u64, number: u32, end: u32) -> Segment {
    let mut segment = ack(at, number);
    segment.options.sack.push(SackBlock { left: FIRST + (number + 1) * MSS, right: FIRST + end * MSS });
    segment
}

fn played(segments: impl IntoIterator<Item = Segment>) -> Engine {
    let mut engine = Engine::new(EngineConfig::default());
    let segments: Vec<_> = segments.into_iter().collect();
    feed(&mut engine, &segments);
    engine.finish(ms(60_000));
    while engine.poll_event().is_some() {}
    engine
}

fn outcomes(engine: &Engine) -> Outcomes {
    let network = engine.network_of(CLIENT.parse().unwrap());
    engine.network(network, ms(60_000)).unwrap().outcomes
}

#[test]
fn a_loss_in_slow_start_is_counted() {
    let lost = data(100, 0..10).chain([ack(140, 0), sack(141, 0, 4), sack(142, 0, 10)]);
    let repaired = data(150, 0..1).chain([ack(190, 10)]);
    let engine = played(handshake(100).into_iter().chain(lost).chain(repaired));
    assert_eq!(outcomes(&engine), Outcomes::new(1, &[(Reason::SlowStartLoss, 1)]));
}

#[test]
fn a_retransmission_timeout_is_counted() {
    let lost = data(100, 0..10).chain(data(1_500, 0..1)).chain([ack(1_540, 10)]);
    let engine = played(handshake(100).into_iter().chain(lost));
    assert_eq!(outcomes(&engine).of(Reason::Timeout), 1, "{:?}", outcomes(&engine));
}

#[test]
fn a_transfer_that_its_application_limited_is_counted_and_explained() {
    let engine = played(handshake(100).into_iter().chain(transfer(100, FIRST, 2)));
    assert_eq!(outcomes(&engine), Outcomes::new(1, &[(Reason::AppLimited, 1)]));
    let network = engine.network_of(CLIENT.parse().unwrap());
    let why: Explanation = engine.network(network, ms(60_000)).unwrap().no_estimate().unwrap();
    assert_eq!(why.reason, Reason::AppLimited);
    assert!(why.to_string().starts_with("1 transfer seen, 1 limited by its application: no sample"), "{why}");
}

#[test]
fn data_that_nobody_acknowledges_displaces_no_network() {
    let config = |networks| EngineConfig {
        limits: Limits { networks: NonZeroUsize::new(networks).unwrap(), ..Limits::default() },
        ..EngineConfig::default()
    };
    let counted = |networks| {
        let mut engine = Engine::new(config(networks));
        let others = (0..4).flat_map(|n| {
            let other = IpAddr::from([203, 0, n, 1]);
            data(100, 0..10)
                .map(move |segment| Segment { destination: Endpoint { address: other, port: 9 }, ..segment })
        });
        let segments: Vec<_> = handshake(100).into_iter().chain(transfer(100, FIRST, 2)).chain(others).collect();
        feed(&mut engine, &segments);
        engine.finish(ms(60_000));
        while engine.poll_event().is_some() {}
        let networks = engine.networks(ms(60_000));
        assert!(networks.iter().any(|view| view.outcomes.of(Reason::AppLimited) == 1), "the first is there");
        networks.iter().filter(|view| view.outcomes == Outcomes::new(1, &[(Reason::OneSided, 1)])).count()
    };
    assert_eq!([8, 10].map(counted), [3, 4]);
}
