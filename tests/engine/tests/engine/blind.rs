//! Packets of somebody who knows addresses and ports and guesses numbers (RFC 5961).

use spand_core::counters::Ignored;

use super::*;

/// Two transfers of a connection, each a round trip long and ended by silence; the first gives its sample at 1.5 s. Both ends close at
/// 6 s; of the FINs one is acknowledged at 7 s. Another packet is put in by its time, and in the end silence ends everything.
fn with(other: Option<&Segment>) -> Engine {
    let end = FIRST + 40 * MSS;
    let close = [
        segment(6_000, true, Flags::ACK | Flags::FIN, end, CLIENT_FIRST, 0),
        segment(6_040, false, Flags::ACK | Flags::FIN, CLIENT_FIRST, end, 0),
        segment(7_000, false, Flags::ACK, CLIENT_FIRST + 1, end + 1, 0),
        segment(7_001, true, Flags::ACK, end + 1, CLIENT_FIRST + 1, 0),
    ];
    let mut segments: Vec<_> = handshake().into_iter().chain(transfer(100, 0..20)).collect();
    segments.extend(transfer(5_000, 20..40).into_iter().chain(close).chain(other.cloned()));
    segments.sort_by_key(|segment| segment.at);
    let mut engine = Engine::new(EngineConfig::default());
    feed(&mut engine, &segments);
    engine.handle_timeout(ms(20_000));
    engine
}

fn seen(engine: &Engine) -> ([u64; 4], Option<NetworkView>) {
    let counters = engine.counters();
    let counts = [counters.window_samples, counters.lower_bounds, counters.rtt_samples, counters.connections];
    (counts, view(engine, CLIENT.ip(), 20_000))
}

#[test]
fn blind_packets_change_nothing_in_a_connection() {
    let honest = seen(&with(None));
    let [samples, bounds, _, connections] = honest.0;
    assert_eq!((samples + bounds, connections), (2, 1), "two transfers: {honest:?}");
    let ack = Flags::ACK;
    let kinds = [Flags::RST, Flags::RST | ack, Flags::SYN, Flags::SYN | ack, ack, ack | Flags::FIN, ack | Flags::PSH];
    // Numbers spread over the whole space, none near those in use.
    for n in 1..40_u32 {
        let (seq, ack) = (n * 104_729_000, n.wrapping_mul(2_654_435_761) | 1 << 30);
        for (at, from_server) in [50, 150, 900, 5_050, 6_500].into_iter().flat_map(|at| [(at, false), (at, true)]) {
            for flags in kinds {
                let payload = if flags & Flags::PSH == 0 { 0 } else { 1_000 };
                let blind = segment(at, from_server, flags, seq, ack, payload);
                let engine = with(Some(&blind));
                assert_eq!(seen(&engine), honest, "{blind:?}");
                let reasons = [Ignored::BeyondWindow, Ignored::ResetNotExpected, Ignored::SynNotAnswered];
                let ignored: u64 = reasons.iter().map(|reason| engine.counters().ignored(*reason)).sum();
                assert_eq!(ignored, 1, "{blind:?}");
            }
        }
    }
}
