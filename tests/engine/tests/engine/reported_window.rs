//! Windows that senders report in a TCP option.

use std::collections::VecDeque;

use proptest::prelude::*;
use spand_core::config::FlowReports;
use spand_core::flow::report::DirectionDetails;

use super::*;

/// Bytes of a segment that has the option, too.
const FULL: u32 = 1_448;

/// A window in bytes and a round trip in us, as the option has them.
type Reported = (u32, u32);

/// The option with which a sender reports, as experiment 0x5350 of kind 254 (RFC 6994).
pub(crate) fn option((window_bytes, srtt_us): Reported) -> Vec<u8> {
    let values = [window_bytes.to_be_bytes(), srtt_us.to_be_bytes()];
    [254, 12, 0x53, 0x50].into_iter().chain(values.into_iter().flatten()).collect()
}

/// A loss-free Reno transfer of the server with a threshold of 16 segments, over 100 ms; `report` gives what it reports of a window in
/// bytes. Also the last report.
fn reno(segments: u32, mut report: impl FnMut(u32) -> Option<Reported>) -> (Vec<Segment>, Option<Reported>) {
    let (mut all, mut last) = (Vec::from(handshake()), None);
    let (mut window, mut sent, mut heard) = (10.0f64, 0, 0);
    let mut acks = VecDeque::from([(141_000, 0)]);
    while let Some((at_us, upto)) = acks.pop_front() {
        let at = |us: u64| Timestamp(ms(0).0 + us * 1_000);
        if upto > 0 {
            let ack = segment(0, false, Flags::ACK, CLIENT_FIRST, FIRST + upto * FULL, 0);
            all.push(Segment { at: at(at_us), ..ack });
            heard = upto;
            window += if window < 16.0 { 1.0 } else { window.recip() };
        }
        while sent < segments && f64::from(sent - heard) < window.floor() {
            let mut data = segment(0, true, Flags::ACK, FIRST + sent * FULL, CLIENT_FIRST, 1_448);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some segments")]
            let reported = report(window as u32 * FULL);
            if let Some(reported) = reported {
                data.tcp.set_options_raw(&option(reported)).unwrap_or_else(|fault| panic!("{fault}"));
                last = Some(reported);
            }
            all.push(Segment { at: at(at_us + 10), ..data });
            sent += 1;
            acks.push_back((at_us + 100_000, sent));
        }
    }
    (all, last)
}

/// What comes of the server's segments.
fn heard(segments: &[Segment], read_window_option: bool) -> (DirectionDetails, Engine) {
    let flow_reports = FlowReports::Full;
    let mut engine = Engine::new(EngineConfig { read_window_option, flow_reports, ..EngineConfig::default() });
    feed(&mut engine, segments);
    engine.finish(ms(60_000));
    let of_the_server = |event| match event {
        Event::DirectionEnded(report) if report.source.port == SERVER.port() => report.details,
        _ => None,
    };
    let details = events(&mut engine).into_iter().find_map(of_the_server);
    (*details.unwrap_or_else(|| panic!("the server sent")), engine)
}

#[test]
fn a_reported_window_is_the_sample_where_the_option_is_read() {
    let (segments, last) = reno(150, |window| Some((window, 101_000)));
    let (details, engine) = heard(&segments, true);
    let [sample] = details.samples[..] else { panic!("{:?}", details.samples) };
    assert!(!sample.reason.is_lower_bound(), "{sample:?}");
    let window = f64::from(last.unwrap().0);
    let grown = (sample.window.bytes() - window) / f64::from(FULL);
    assert!((0.0..=1.0).contains(&grown), "{} of {window}", sample.window.bytes());
    let counted = [engine.counters().window_options, engine.counters().window_option_samples];
    assert_eq!(counted, [150, 1]);
    let view = view(&engine, CLIENT.ip(), 60_000).unwrap();
    assert_eq!(view.rtt_min, Some(Micros(40_000)), "the smallest is the wire's");
    assert!(view.rtt_mean.unwrap() > Micros(100_500), "the others are the sender's: {:?}", view.rtt_mean);

    let (unread, engine) = heard(&segments, false);
    assert_eq!((engine.counters().window_options, engine.counters().window_option_samples), (0, 0));
    let reason = unread.samples.first().map(|sample| sample.reason);
    assert_eq!(reason, Some(sample.reason), "off, the packets alone count");
}

proptest! {
    /// Whatever a sender reports of itself, its samples stay within twice what was seen of it, and round trips too.
    #[test]
    fn nonsense_in_the_window_option_moves_no_sample_beyond_its_bounds(
        options in prop::collection::vec(prop::option::of((prop_oneof![any::<u32>(), 0u32..200_000], any::<u32>())), 150),
        segments in 30u32..150,
    ) {
        let mut options = options.into_iter();
        let (segments, _) = reno(segments, |_| options.next().flatten());
        let (details, engine) = heard(&segments, true);
        for sample in &details.samples {
            let most = 2.0 * details.flight_max.0 as f64 + f64::from(FULL);
            prop_assert!((1_000.0..=most).contains(&sample.window.bytes()), "{:?} of {}", sample, details.flight_max);
        }
        let mean = view(&engine, CLIENT.ip(), 60_000).unwrap().rtt_mean.unwrap();
        prop_assert!(mean >= Micros(45_000) && mean <= Micros(201_000), "{mean}");
    }
}
