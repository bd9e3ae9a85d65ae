//! Openings from packets: what a second connection to a network is given.

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
