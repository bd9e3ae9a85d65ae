//! Openings from packets: what a second connection to a network is given.

use proptest::prelude::*;
use spand_proto::estimate::RuleKind;

use super::*;

/// The segments of one connection whose client has this port.
fn of(port: u16, segment: Segment) -> Segment {
    let [mut source, mut destination] = [segment.source, segment.destination];
    let client = if source.port == 80 { &mut destination } else { &mut source };
    client.port = port;
    Segment { source, destination, ..segment }
}

/// A server that sends in round trips of 100 ms and loses one segment in each of `lossy`; windows are as Linux's Reno would have them.
struct Transfer {
    port: u16,
    /// In ms.
    now: u64,
    sent: u32,
}

const MSS: u32 = 1_460;

impl Transfer {
    fn open(engine: &mut Engine, port: u16, at: u64) -> Self {
        let opening =
            handshake(100).map(|segment| of(port, Segment { at: Timestamp(segment.at.0 + at * 1_000_000), ..segment }));
        feed(engine, &opening);
        Self { port, now: at + 50, sent: 0 }
    }

    fn data(&self, at: u64, n: u32) -> Segment {
        of(self.port, segment(ms(at), true, Flags::ACK, 5_001 + n * MSS, 101, MSS))
    }

    fn acked(&self, at: u64, n: u32) -> Segment {
        of(self.port, segment(ms(at), false, Flags::ACK, 101, 5_001 + n * MSS, 0))
    }

    /// A flight of `segments`, acknowledged a round trip later two by two.
    fn round(&mut self, engine: &mut Engine, segments: u32) {
        for n in self.sent..self.sent + segments {
            feed(engine, &[self.data(self.now, n)]);
        }
        for n in (self.sent + 2..=self.sent + segments).step_by(2) {
            feed(engine, &[self.acked(self.now + 100, n)]);
        }
        self.sent += segments;
        self.now += 101;
    }

    /// The same, of which the first is lost and repeated after duplicates.
    fn lossy_round(&mut self, engine: &mut Engine, segments: u32) {
        for n in self.sent..self.sent + segments {
            feed(engine, &[self.data(self.now, n)]);
        }
        for _ in 1..segments {
            feed(engine, &[self.acked(self.now + 100, self.sent)]);
        }
        feed(engine, &[self.data(self.now + 101, self.sent), self.acked(self.now + 201, self.sent + segments)]);
        self.sent += segments;
        self.now += 202;
    }
}

fn engine(rule: RuleKind, compare: &[RuleKind]) -> Engine {
    Engine::new(EngineConfig {
        internal: vec!["192.0.2.0/24".parse().unwrap()],
        rule,
        compare: compare.to_vec(),
        window: WindowConfig { min_samples: 1, min_connections: 1, ..WindowConfig::default() },
        ..EngineConfig::default()
    })
}

/// A first connection that lost something twice, so it gave a sample and is in congestion avoidance.
fn with_a_first(mut engine: Engine) -> (Engine, Transfer) {
    let mut first = Transfer::open(&mut engine, 1, 0);
    for segments in [10, 20] {
        first.round(&mut engine, segments);
    }
    first.lossy_round(&mut engine, 40);
    for segments in [20, 20, 20] {
        first.round(&mut engine, segments);
    }
    first.lossy_round(&mut engine, 20);
    first.round(&mut engine, 10);
    (engine, first)
}

#[test]
fn a_second_connection_of_a_network_is_given_the_fair_share_of_the_first() {
    let (mut engine, mut first) = with_a_first(engine(RuleKind::Liss, &[RuleKind::Iss]));
    let (network, now) = (engine.network_of(CLIENT.parse().unwrap()), ms(first.now));
    let window = |engine: &Engine, port| {
        let (server, client) = (endpoint(SERVER, 80), endpoint(CLIENT, port));
        engine.replica(server, client).and_then(Shadow::window).unwrap().bytes()
    };
    let given = |engine: &Engine, now| {
        engine.estimate(network, now).unwrap().opening.map(|opening| (opening.rule, opening.threshold.bytes()))
    };
    let w = window(&engine, 1);
    assert_eq!(given(&engine, now), Some((RuleKind::Liss, w / 2.0)), "half of the only one's window");
    let view = engine.network(network, now).unwrap();
    assert_eq!(view.estimate.unwrap().rule, RuleKind::Robust);
    assert_eq!(view.compared[0].rule, RuleKind::Iss);
    assert!(view.compared[0].opening.unwrap().threshold.bytes() > w / 2.0, "it lags behind a loss");

    // The second is in slow start from its first segment on: S is its window, L = 1.
    let mut second = Transfer::open(&mut engine, 2, first.now);
    feed(&mut engine, &[second.data(second.now, 0)]);
    let (w, s) = (window(&engine, 1), window(&engine, 2));
    let (_, threshold) = given(&engine, ms(second.now)).unwrap();
    assert!((threshold - (s + w) / (2.0 + s / w)).abs() < 1e-6, "{threshold}");

    // The second ends with a reset, the first is silent for its timeout: nobody shows the share any more.
    let reset = of(2, segment(ms(second.now + 1), false, Flags::RST, 101, 0, 0));
    feed(&mut engine, &[reset]);
    assert_eq!(given(&engine, ms(second.now + 1)), Some((RuleKind::Liss, w / 2.0)));
    second.now += 3_000;
    assert_eq!(given(&engine, ms(second.now)), None);
    first.now = second.now;
    first.round(&mut engine, 4);
    assert_eq!(given(&engine, ms(first.now)), None, "after silence it is in slow start");
    for _ in 0..3 {
        first.round(&mut engine, 10);
    }
    assert_eq!(given(&engine, ms(first.now)), Some((RuleKind::Liss, window(&engine, 1) / 2.0)), "it shows it again");
    // Connections that are shed, evicted or cut off by the end of the capture leave as well.
    engine.finish(ms(first.now));
    while engine.poll_event().is_some() {}
    assert_eq!(given(&engine, ms(first.now)), None);
}

#[test]
fn nothing_is_kept_where_no_rule_asks() {
    let (engine, first) = with_a_first(engine(RuleKind::Robust, &[RuleKind::Probe]));
    let (network, now) = (engine.network_of(CLIENT.parse().unwrap()), ms(first.now));
    let view = engine.network(network, now).unwrap();
    assert!(view.estimate.unwrap().opening.is_none() && view.compared[0].opening.is_none());
    let (other, _) = with_a_first(self::engine(RuleKind::Robust, &[RuleKind::Cached]));
    let compared = other.network(network, now).unwrap().compared[0];
    assert!(compared.opening.is_some() && compared.share.is_some());
    assert!(other.memory().networks.used_bytes > engine.memory().networks.used_bytes);
}

// Windows that senders say in a TCP option.

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
