//! Windows that senders say in a TCP option.

use proptest::prelude::*;

use super::*;

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

fn heard(segments: &[Segment], read_window_option: bool) -> (Vec<DirectionDetails>, Engine) {
    let mut engine = with_reports(EngineConfig { read_window_option, ..EngineConfig::default() });
    feed(&mut engine, segments);
    engine.finish(ms(60_000));
    (details(&mut engine), engine)
}

#[test]
fn a_reported_window_is_the_sample_where_the_option_is_read() {
    let option = |window: f64| {
        let window_bytes = Window::from_bytes(window)?.segments(Bytes(1)).0;
        Some(WindowOption { window_bytes, srtt_us: 101_000 })
    };
    let segments = reno(150, option);
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
    assert_eq!(
        unread[1].samples,
        heard(&reno(150, |_| None), true).0[1].samples,
        "off, it is as if there were no options"
    );
}

proptest! {
    /// Whatever a sender reports of itself, its samples stay within twice what was seen of it, and round trips too.
    #[test]
    fn nonsense_in_the_window_option_moves_no_sample_beyond_its_bounds(
        options in prop::collection::vec(prop::option::of((prop_oneof![any::<u32>(), 0u32..200_000], any::<u32>())), 150),
        segments in 30u32..150,
    ) {
        let mut options = options.into_iter();
        let option = |_| options.next().flatten().map(|(window_bytes, srtt_us)| WindowOption { window_bytes, srtt_us });
        let (reports, engine) = heard(&reno(segments, option), true);
        for sample in &reports[1].samples {
            let most = 2.0 * reports[1].flight_max.0 as f64 + 1_448.0;
            prop_assert!((1_000.0..=most).contains(&sample.window.bytes()), "{:?} of {}", sample, reports[1].flight_max);
        }
        let view = engine.network(engine.network_of(CLIENT.parse().unwrap()), ms(60_000)).unwrap();
        let mean = view.rtt_mean.unwrap();
        prop_assert!(mean >= Micros(45_000) && mean <= Micros(201_000), "{mean}");
    }
}
