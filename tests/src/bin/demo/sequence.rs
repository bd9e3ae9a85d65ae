//! A time/sequence plot of one transfer with and one without advice, from the packets that the mirror port saw.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Result;
use ipnet::IpNet;
use spand_core::wire::segment::{Endpoint, Flags, Segment};
use spand_tests::lab::truth::FlowId;
use spand_tests::lab::wire::Sender;
use spand_tests::plot::{Axis, Mark, Plot, Series};

use crate::load::Timed;

/// Size of the transfers that are shown.
pub(crate) const BYTES: u64 = 100_000;
/// The initial window that Linux gives a connection by itself.
pub(crate) const INITIAL_WINDOW: u64 = 10;

/// The two transfers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    /// Towards which network.
    pub(crate) network: IpNet,
    control: Timed,
    advised: Timed,
    /// Segments of its first flight.
    first_flight: u64,
}

/// Of the network whose advised connections start with the largest window the two transfers that took the median time of
/// those that started as plain TCP does and of those that started with more, among those without a retransmission: what
/// differs is the start. `None` where no network has both.
pub(crate) fn pair(timed: &[Timed], senders: &BTreeMap<FlowId, Sender>) -> Option<Pair> {
    // With each transfer the segments of its first flight.
    type Flights = Vec<(Timed, u64)>;
    let mut networks: BTreeMap<IpNet, (Flights, Flights)> = BTreeMap::new();
    for one in timed.iter().filter(|one| one.bytes == BYTES) {
        let whole = |sender: &&Sender| sender.first_flight_acked && sender.retransmitted_packets == 0;
        let flight = senders.get(&one.flow).filter(whole).map(|sender| sender.first_flight);
        let (control, advised) = networks.entry(one.network).or_default();
        match flight {
            Some(INITIAL_WINDOW) => control.push((*one, INITIAL_WINDOW)),
            Some(flight) if flight > INITIAL_WINDOW => advised.push((*one, flight)),
            _ => {}
        }
    }
    let median = |mut of: Flights| {
        of.sort_by_key(|(one, _)| one.completion);
        of.get(of.len() / 2).copied()
    };
    let pairs = networks.into_iter().filter_map(|(network, (control, advised))| {
        let ((control, _), (advised, first_flight)) = (median(control)?, median(advised)?);
        Some(Pair { network, control, advised, first_flight })
    });
    pairs.max_by_key(|pair| pair.first_flight)
}

impl Pair {
    /// The plot; `path` says over which path.
    pub(crate) fn plot(&self, segments: &[Segment], path: &str) -> Result<String> {
        let of = |timed: &Timed, name: &str, colour| {
            let trace = Trace::of(segments, timed.flow);
            let series = |what: &str, mark, points| Series { name: format!("{what}, {name}"), mark, colour, points };
            [series("sent", Mark::Dots, trace.sent), series("acknowledged", Mark::Steps, trace.acknowledged)]
        };
        let advised = format!("advised (first flight {})", self.first_flight);
        let control = format!("control (first flight {INITIAL_WINDOW})");
        Plot {
            title: format!("A transfer of {} KB with and without advice, {path}", BYTES / 1_000),
            x: Axis::new("time since the request", "s"),
            y: Axis::new("sequence number from the first byte", "KB"),
            series: of(&self.advised, &advised, 0).into_iter().chain(of(&self.control, &control, 1)).collect(),
        }
        .svg()
    }

    /// Both times in words.
    pub(crate) fn words(&self) -> String {
        let ms = |timed: &Timed| format!("{:.0} ms", timed.completion.as_secs_f64() * 1e3);
        let (control, advised) = (ms(&self.control), ms(&self.advised));
        format!(
            "{}: control {control}, advised {advised}, each the median of its group without a retransmission",
            self.network
        )
    }
}

/// Points of one sender's connection: seconds since the request against kilobytes from the first one.
#[derive(Clone, Debug, Default, PartialEq)]
struct Trace {
    /// The end of each data packet.
    sent: Vec<(f64, f64)>,
    /// What was acknowledged, where it rose.
    acknowledged: Vec<(f64, f64)>,
}

impl Trace {
    fn of(segments: &[Segment], flow: FlowId) -> Self {
        let is = |end: Endpoint, address: SocketAddr| end.address == address.ip() && end.port == address.port();
        let (mut trace, mut first, mut begin) = (Self::default(), None, None);
        let (mut highest, mut acknowledged) = (0_u32, 0_u32);
        for segment in segments {
            let time = |begin: u64| segment.at.0.saturating_sub(begin) as f64 / 1e9;
            let kilobytes = |bytes: u32| f64::from(bytes) / 1e3;
            if is(segment.source, flow.local) && is(segment.destination, flow.remote) {
                if segment.flags.has(Flags::SYN) {
                    first = Some(segment.seq.wrapping_add(1));
                }
                if let (Some(first), Some(begin), true) = (first, begin, segment.payload_len > 0) {
                    let end = segment.seq.wrapping_sub(first).wrapping_add(segment.payload_len);
                    highest = highest.max(end);
                    trace.sent.push((time(begin), kilobytes(end)));
                }
            } else if is(segment.source, flow.remote) && is(segment.destination, flow.local) {
                if begin.is_none() && segment.payload_len > 0 {
                    begin = Some(segment.at.0);
                    trace.acknowledged.push((0.0, 0.0));
                }
                if let (Some(first), Some(begin), Some(ack)) = (first, begin, segment.ack) {
                    // The FIN counts as a byte of the sequence space and not of the transfer.
                    let to = ack.wrapping_sub(first).min(highest);
                    if to > acknowledged {
                        acknowledged = to;
                        trace.acknowledged.push((time(begin), kilobytes(to)));
                    }
                }
            }
        }
        trace
    }
}

// The initial windows that connections really used, counted on the wire.

/// Shorter transfers may end before their window does.
const BYTES_MIN: u64 = 100_000;

/// First flights of the connections to a network that are long enough to show the whole initial window: segments and how
/// often.
fn first_flights(network: IpNet, timed: &[Timed], senders: &BTreeMap<FlowId, Sender>) -> BTreeMap<u64, usize> {
    let mut flights = BTreeMap::new();
    let long = timed.iter().filter(|one| one.network == network && one.bytes >= BYTES_MIN);
    for sender in long.filter_map(|one| senders.get(&one.flow)).filter(|sender| sender.first_flight_acked) {
        *flights.entry(sender.first_flight).or_default() += 1;
    }
    flights
}

/// Prints what the agent grants and what was seen.
pub(crate) fn print_first_flights(
    networks: &[IpNet],
    timed: &[Timed],
    senders: &BTreeMap<FlowId, Sender>,
    granted: &BTreeMap<IpNet, u32>,
) {
    println!("  {:<18} {:>14}  on the wire (segments x connections)", "network", "agent grants");
    for network in networks {
        let grants = granted.get(network).map_or("nothing".to_owned(), |window| format!("{window} segments"));
        let flights = first_flights(*network, timed, senders);
        let words: Vec<String> = flights.iter().map(|(value, times)| format!("{value} x {times}")).collect();
        println!("  {:<18} {grants:>14}  {}", network.to_string(), words.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spand_core::wire::segment::Options;
    use spand_proto::units::Timestamp;

    use super::*;

    const ISN: u32 = u32::MAX - 500;

    fn flow(port: u16) -> FlowId {
        FlowId {
            local: "192.0.2.2:80".parse().unwrap(),
            remote: SocketAddr::new("198.51.100.11".parse().unwrap(), port),
        }
    }

    fn segment(at_ms: u64, from_server: bool, seq: u32, ack: u32, flags: u8, payload_len: u32) -> Segment {
        let end = |address: SocketAddr| Endpoint { address: address.ip(), port: address.port() };
        let (server, client) = (end(flow(7).local), end(flow(7).remote));
        let (source, destination) = if from_server { (server, client) } else { (client, server) };
        Segment {
            at: Timestamp(at_ms * 1_000_000),
            source,
            destination,
            seq,
            ack: Some(ack),
            flags: Flags(flags),
            window: 1_000,
            payload_len,
            ip_id: None,
            ect: false,
            options: Options::default(),
        }
    }

    fn segments() -> Vec<Segment> {
        let at = |bytes: u32| ISN.wrapping_add(1).wrapping_add(bytes);
        vec![
            segment(1_000, true, ISN, 1, Flags::SYN, 0),
            segment(1_010, false, 1, at(0), 0x10, 20),
            segment(1_011, true, at(0), 21, 0x10, 1_000),
            segment(1_012, true, at(1_000), 21, 0x10, 1_000),
            segment(1_030, false, 21, at(1_000), 0x10, 0),
            segment(1_031, false, 21, at(1_000), 0x10, 0),
            segment(1_040, true, at(1_000), 21, 0x10, 1_000),
            segment(1_060, false, 21, at(2_001), 0x10, 0),
        ]
    }

    #[test]
    fn time_runs_from_the_request_and_bytes_from_the_first_across_the_wrap_of_the_sequence_numbers() {
        let trace = Trace::of(&segments(), flow(7));
        assert_eq!(trace.sent, [(0.001, 1.0), (0.002, 2.0), (0.03, 2.0)], "the retransmission is at its place");
        assert_eq!(trace.acknowledged, [(0.0, 0.0), (0.02, 1.0), (0.05, 2.0)]);
        assert_eq!(Trace::of(&segments(), flow(8)), Trace::default());
    }

    #[test]
    fn the_pair_is_of_the_medians_of_the_network_with_the_largest_first_flight() {
        const LOSSY: u16 = 11;
        let (mut timed, mut senders) = (Vec::new(), BTreeMap::new());
        let mut add = |network: &str, port, ms, first_flight| {
            let completion = Duration::from_millis(ms);
            timed.push(Timed { network: network.parse().unwrap(), bytes: BYTES, completion, flow: flow(port) });
            let mut sender = Sender::default();
            (sender.first_flight, sender.first_flight_acked) = (first_flight, true);
            sender.retransmitted_packets = u64::from(port == LOSSY);
            senders.insert(flow(port), sender);
        };
        for (port, ms, flight) in [(1, 900, 10), (2, 700, 10), (3, 300, 10), (4, 200, 30), (5, 250, 30), (6, 800, 30)] {
            add("198.51.100.0/24", port, ms, flight);
        }
        add("203.0.113.0/24", 7, 100, 40);
        add("2001:db8:1::/48", 8, 100, 10);
        add("2001:db8:1::/48", 9, 100, 20);
        add("198.51.100.0/24", LOSSY, 2_000, 10);
        add("198.51.100.0/24", 12, 100, 9);
        let pair = pair(&timed, &senders).unwrap();
        assert_eq!((pair.control.flow, pair.advised.flow, pair.first_flight), (flow(2), flow(5), 30));
        assert!(pair.words().contains("control 700 ms, advised 250 ms"), "{}", pair.words());
        let svg = pair.plot(&segments(), "20 Mbit/s").unwrap();
        assert!(svg.contains("time since the request (s)") && svg.contains("acknowledged, advised (first flight 30)"));
    }

    #[test]
    fn only_transfers_longer_than_a_window_count() {
        let network: IpNet = "198.51.100.0/24".parse().unwrap();
        let mut senders = BTreeMap::new();
        let mut timed = |port: u16, bytes, first_flight, first_flight_acked| {
            let remote = format!("198.51.100.11:{port}").parse().unwrap();
            let flow = FlowId { local: "192.0.2.2:80".parse().unwrap(), remote };
            let mut sender = Sender::default();
            (sender.first_flight, sender.first_flight_acked) = (first_flight, first_flight_acked);
            senders.insert(flow, sender);
            Timed { network, bytes, completion: Duration::ZERO, flow }
        };
        let all = [
            timed(1, 100_000, 10, true),
            timed(2, 1_000_000, 10, true),
            timed(3, 100_000, 34, true),
            timed(4, 10_000, 7, true),
            timed(5, 100_000, 12, false),
        ];
        assert_eq!(first_flights(network, &all, &senders), BTreeMap::from([(10, 2), (34, 1)]));
    }
}
