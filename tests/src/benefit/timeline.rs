//! What a sender's packets say of its transfers: recorded at its own interface, where nothing is lost, reordered or copied.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use spand_core::wire::segment::{Endpoint, Flags, Segment};
use std::net::{IpAddr, SocketAddr};

use crate::lab::truth::FlowId;
use crate::lab::wire;

/// A data packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sent {
    /// When, in nanoseconds since 1970.
    pub at_ns: u64,
    /// First byte, counted from the connection's first.
    pub begin: u64,
    /// The byte after its last.
    pub end: u64,
    /// All its bytes had been sent before.
    pub again: bool,
}

/// One sender's side of a connection.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Timeline {
    first: Option<u32>,
    highest: u64,
    syns: u32,
    /// When the SYN or SYN-ACK was sent, and when the other end answered.
    opened_ns: (Option<u64>, Option<u64>),
    /// Data packets in order.
    pub sent: Vec<Sent>,
    /// Acknowledgements that moved forward: when, and up to which byte.
    pub acked: Vec<(u64, u64)>,
}

/// A transfer on a connection, as its packets show it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// From its first packet to the acknowledgement of its last byte, in milliseconds.
    pub completion_ms: f64,
    /// Its data packets.
    pub packets: u32,
    /// Those that repeat.
    pub again: u32,
    /// Packets before the first acknowledgement of any of its bytes.
    pub first_flight: u32,
    /// From the first of them to the last.
    pub first_flight_ms: f64,
}

/// Connections by their ends, those that had the same ends in order of time.
pub type Timelines = BTreeMap<FlowId, Vec<Timeline>>;

/// Timelines of all connections of the senders at `address` and `port`, whichever side opened them.
pub fn read(file: &Path, address: IpAddr, port: u16) -> Result<Timelines> {
    let mut timelines = Timelines::new();
    let end = |end: Endpoint| SocketAddr::new(end.address, end.port);
    for segment in wire::read(file)? {
        let (source, destination) = (end(segment.source), end(segment.destination));
        // The server's port is on one of the ends: on the sender's where it was connected to, on the other where it connects.
        if source.port() != port && destination.port() != port {
            continue;
        }
        let is_sent = source.ip() == address;
        let (local, remote) = if is_sent { (source, destination) } else { (destination, source) };
        take(timelines.entry(FlowId { local, remote }).or_default(), &segment, is_sent);
    }
    Ok(timelines)
}

/// Takes a segment of the connections with some ends.
fn take(connections: &mut Vec<Timeline>, segment: &Segment, is_sent: bool) {
    let is_another = |last: &Timeline| is_sent && last.is_followed_by(segment);
    if connections.last().is_none_or(is_another) {
        connections.push(Timeline::default());
    }
    match connections.last_mut() {
        Some(last) if is_sent => last.send(segment),
        Some(last) => last.receive(segment),
        None => {}
    }
}

impl Timeline {
    /// True if this segment of the sender is the SYN of another connection with the same ends.
    fn is_followed_by(&self, segment: &Segment) -> bool {
        segment.flags.has(Flags::SYN) && self.first.is_some_and(|first| first != segment.seq.wrapping_add(1))
    }

    fn send(&mut self, segment: &Segment) {
        if segment.flags.has(Flags::SYN) {
            self.first.get_or_insert(segment.seq.wrapping_add(1));
            self.syns += 1;
            self.opened_ns.0.get_or_insert(segment.at.0);
        }
        let Some(first) = self.first.filter(|_| segment.payload_len > 0) else { return };
        // Transfers are far shorter than the sequence space.
        let begin = u64::from(segment.seq.wrapping_sub(first));
        let end = begin + u64::from(segment.payload_len);
        self.sent.push(Sent { at_ns: segment.at.0, begin, end, again: end <= self.highest });
        self.highest = self.highest.max(end);
    }

    fn receive(&mut self, segment: &Segment) {
        let (Some(first), Some(ack)) = (self.first, segment.ack) else { return };
        self.opened_ns.1.get_or_insert(segment.at.0);
        let up_to = u64::from(ack.wrapping_sub(first));
        let before = self.acked.last().map_or(0, |(_, before)| *before);
        // The acknowledgement of a FIN counts one more than there are bytes.
        if up_to > before && up_to <= self.highest + 1 {
            self.acked.push((segment.at.0, up_to.min(self.highest)));
        }
    }

    /// Whether its SYN or SYN-ACK was sent more than once.
    pub fn repeated_its_syn(&self) -> bool {
        self.syns > 1
    }

    /// Round trip of the handshake at this end, where its SYN was sent once.
    pub fn handshake_ns(&self) -> Option<u64> {
        let (Some(sent), Some(answered)) = self.opened_ns else { return None };
        if self.repeated_its_syn() { None } else { answered.checked_sub(sent) }
    }

    /// When each packet before the first acknowledgement of data was sent.
    pub fn first_flight(&self) -> Option<Vec<u64>> {
        let (first_ack_ns, _) = self.acked.first()?;
        Some(self.sent.iter().map(|sent| sent.at_ns).take_while(|at_ns| at_ns < first_ack_ns).collect())
    }

    /// The transfer of `bytes` from `offset` on; `None` where its packets or its last acknowledgement were not seen.
    pub fn transfer(&self, offset: u64, bytes: u64) -> Option<Seen> {
        let end = offset + bytes;
        let of_it = || self.sent.iter().filter(|sent| sent.end > offset && sent.begin < end);
        let begin_ns = of_it().next()?.at_ns;
        let (end_ns, _) = self.acked.iter().find(|(_, up_to)| *up_to >= end)?;
        let first_ack_ns = self.acked.iter().find(|(_, up_to)| *up_to > offset)?.0;
        let flight = || of_it().filter(|sent| sent.at_ns < first_ack_ns);
        Some(Seen {
            completion_ms: end_ns.checked_sub(begin_ns)? as f64 / 1e6,
            packets: count(of_it()),
            again: count(of_it().filter(|sent| sent.again)),
            first_flight: count(flight()),
            first_flight_ms: flight().next_back()?.at_ns.checked_sub(begin_ns)? as f64 / 1e6,
        })
    }
}

fn count<'a>(packets: impl Iterator<Item = &'a Sent>) -> u32 {
    u32::try_from(packets.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use spand_core::wire::segment::Options;
    use spand_proto::units::Timestamp;

    use super::*;

    fn timeline(sent: &[(u64, u64, u64)], acked: &[(u64, u64)]) -> Timeline {
        let mut timeline = Timeline { acked: acked.to_vec(), ..Timeline::default() };
        for (at_ns, begin, end) in sent.iter().copied() {
            timeline.sent.push(Sent { at_ns, begin, end, again: end <= timeline.highest });
            timeline.highest = timeline.highest.max(end);
        }
        timeline
    }

    #[test]
    fn a_port_that_is_used_again_is_another_connection() {
        let flow = |port| SocketAddr::new([192, 0, 2, 1].into(), port);
        let end = |address: SocketAddr| Endpoint { address: address.ip(), port: address.port() };
        let segment = |at_ms: u64, flags: u8, seq: u32, payload_len: u32| Segment {
            at: Timestamp(at_ms * 1_000_000),
            source: end(flow(80)),
            destination: end(flow(40_000)),
            seq,
            ack: None,
            flags: Flags(flags),
            window: 1_000,
            payload_len,
            ip_id: None,
            ect: false,
            options: Options::default(),
        };
        let (syn, data) = (Flags::SYN, Flags::ACK);
        let mut connections = Vec::new();
        for sent in [
            segment(1, syn, 100, 0),
            segment(2, syn, 100, 0),
            segment(3, data, 101, 10),
            segment(50, syn, 900, 0),
            segment(51, data, 901, 20),
        ] {
            take(&mut connections, &sent, true);
        }
        let sizes: Vec<Vec<u64>> =
            connections.iter().map(|one| one.sent.iter().map(|sent| sent.end).collect()).collect();
        assert_eq!(sizes, [vec![10], vec![20]]);
        assert!(connections[0].repeated_its_syn() && !connections[1].repeated_its_syn());
    }

    #[test]
    fn a_transfer_ends_with_the_acknowledgement_of_its_last_byte() {
        let sent = [(1_000_000, 0, 10), (2_000_000, 10, 20), (9_000_000, 0, 10), (30_000_000, 20, 25)];
        let seen = timeline(&sent, &[(8_000_000, 5), (12_000_000, 20), (41_000_000, 25)]);
        let first = seen.transfer(0, 20).unwrap();
        assert_eq!(first, Seen { completion_ms: 11.0, packets: 3, again: 1, first_flight: 2, first_flight_ms: 1.0 });
        // The next one on the same connection has its own clock.
        let second = seen.transfer(20, 5).unwrap();
        assert_eq!(second, Seen { completion_ms: 11.0, packets: 1, again: 0, first_flight: 1, first_flight_ms: 0.0 });
        assert_eq!(seen.transfer(20, 6), None);
    }
}
