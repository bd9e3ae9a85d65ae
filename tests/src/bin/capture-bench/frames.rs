//! Frames of many TCP connections, both directions in turn: every segment carries data and acknowledges all of the other's.

use std::net::IpAddr;

/// Bytes before a segment's data: Ethernet, IPv4 and TCP without options.
const HEADERS_BYTES: usize = 14 + 20 + 20;
/// Shortest frame, its checksum not counted.
pub(super) const SHORTEST_BYTES: usize = 60;
/// Longest frame of an Ethernet without jumbo frames, its checksum not counted.
pub(super) const LONGEST_BYTES: usize = 1_514;

/// The frames of all connections, one after the other.
#[derive(Debug)]
pub(super) struct Frames {
    len: usize,
    connections: Vec<Connection>,
    next: usize,
    /// Whether this round's segments come from inside.
    from_inside: bool,
}

/// Sequence numbers of both ends.
#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    inside: u32,
    outside: u32,
}

impl Frames {
    /// Frames of `len` bytes from `connections` connections.
    pub(super) fn new(len: usize, connections: usize) -> Self {
        Self { len, connections: vec![Connection::default(); connections], next: 0, from_inside: true }
    }

    /// The outside end of each connection: no two in one network.
    pub(super) fn remotes(&self) -> Vec<IpAddr> {
        (0..self.connections.len()).map(|number| IpAddr::from(ends(number).1)).collect()
    }

    /// An empty frame to be filled.
    pub(super) fn blank(&self) -> Vec<u8> {
        let mut frame = vec![0; self.len];
        // Neither address is the interface's: a mirror port's frames are for others.
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 0x11, 2, 0, 0, 0, 0, 0x12, 0x08, 0x00]);
        frame[14..34].copy_from_slice(&[0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let ip_len = u16::try_from(self.len - 14).unwrap_or(u16::MAX);
        frame[16..18].copy_from_slice(&ip_len.to_be_bytes());
        // Header length, ACK and PSH, window.
        frame[46..50].copy_from_slice(&[0x50, 0x18, 0xff, 0xff]);
        frame
    }

    /// Fills a frame with the next segment.
    pub(super) fn fill(&mut self, frame: &mut [u8]) {
        let Some(connection) = self.connections.get_mut(self.next) else { return };
        let (host, remote) = ends(self.next);
        let payload = u32::try_from(self.len - HEADERS_BYTES).unwrap_or(0);
        let (from, to, ports, seq, ack) = if self.from_inside {
            (host, remote, [443_u16, 40_000], connection.inside, connection.outside)
        } else {
            (remote, host, [40_000, 443], connection.outside, connection.inside)
        };
        let sent = if self.from_inside { &mut connection.inside } else { &mut connection.outside };
        *sent = sent.wrapping_add(payload);
        let [from_port, to_port] = ports.map(u16::to_be_bytes);
        // Addresses, ports, sequence and acknowledgement numbers stand in a row.
        let numbers =
            [from, to, [from_port[0], from_port[1], to_port[0], to_port[1]], seq.to_be_bytes(), ack.to_be_bytes()];
        if let Some(place) = frame.get_mut(26..46) {
            place.copy_from_slice(numbers.as_flattened());
        }
        self.next += 1;
        if self.next == self.connections.len() {
            self.next = 0;
            self.from_inside = !self.from_inside;
        }
    }
}

/// Both ends of a connection: inside and outside.
fn ends(number: usize) -> ([u8; 4], [u8; 4]) {
    let [_, high, middle, low] = u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
    ([10, high, middle, low], [11, middle, low, 9])
}
