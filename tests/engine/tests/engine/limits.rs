//! What happens at the ends of tables and of time.

use spand_core::counters::Ignored;

use super::*;

/// Samples of a network at the end of time must not be looked at for ever (a capture of the corpus has such a clock).
#[test]
fn a_clock_at_the_end_of_time_leaves_something_to_wait_for() {
    let mut engine = Engine::new(EngineConfig::default());
    let (end, latest) = (Timestamp(u64::MAX), Timestamp(u64::MAX / 2));
    engine.handle_timeout(end);
    let close = segment(0, true, Flags::ACK | Flags::FIN, FIRST + MSS, CLIENT_FIRST, 0);
    let answer = segment(0, false, Flags::ACK, CLIENT_FIRST, FIRST + MSS + 1, 0);
    for segment in handshake().into_iter().chain([data(0, 0), close, answer]) {
        feed(&mut engine, &[Segment { at: end, ..segment }]);
    }
    assert!(!engine.networks().views(latest).is_empty(), "a transfer ended");
    engine.handle_timeout(end);
    assert!(engine.poll_timeout().is_none_or(|due| due > latest));
    engine.finish(end);
    events(&mut engine);
    assert_eq!(engine.connections(), 0);
}

#[test]
fn advice_that_is_forgotten_before_its_time_is_counted() {
    let mut engine = Engine::new(EngineConfig::default());
    for n in 0..65_537_u32 {
        engine.note_advised(IpAddr::from(n.to_be_bytes()), CLIENT.ip(), ms(0));
    }
    assert_eq!(engine.counters().ignored(Ignored::AdviceForgotten), 1);
}
