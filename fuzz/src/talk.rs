//! Conversations: steps of a few bytes that become packets of connections which agree with themselves, so that a fuzzer
//! reaches what lies behind a handshake, and may then lie about anything.

use std::collections::VecDeque;

use arbitrary::Arbitrary;

/// A thing that happens on the wire, or to the clock.
#[derive(Arbitrary, Clone, Debug)]
pub enum Packet {
    /// A handshake after which both sides agree: with timestamps where the lowest bit of `isn` is set, and with senders that say
    /// their window where the next one is.
    Open { connection: u8, isn: u32, mss: u16, scale: u8, rtt_ms: u8 },
    /// Full segments of one side, perhaps some from before again.
    Data { connection: u8, server: bool, segments: u8, again: u8, gap_us: u16 },
    /// An acknowledgement of one side, short of what came by some segments, with SACK blocks in segments beyond it.
    Ack { connection: u8, server: bool, short: u8, sacks: [(u8, u8); 2], window: u16 },
    /// A whole transfer of the server's in slow start and congestion avoidance, each loss its place.
    Transfer { connection: u8, segments: u8, rtt_ms: u8, window: u8, lost: [u8; 2] },
    /// Any segment at all.
    Odd { connection: u8, server: bool, seq: i32, ack: i32, flags: u8, payload: u16, options: [u8; 20] },
    /// The end, in order or not.
    Close { connection: u8, reset: bool },
    /// Bytes that claim to be IP.
    Raw { bytes: Vec<u8> },
    /// Time goes by, or back.
    Wait { ms: u32, back: bool },
}

/// Bytes of a full segment.
const MSS: u32 = 1_448;

/// Connections talked about.
const CONNECTIONS: usize = 12;

/// The state of all conversations.
#[derive(Debug)]
pub struct Talk {
    connections: [Connection; CONNECTIONS],
    /// Nanoseconds since 1970.
    pub now: u64,
    /// Packets not taken yet: when, and their bytes from the IP header on.
    pub packets: VecDeque<(u64, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    /// The next sequence number of client and server.
    next: [u32; 2],
    /// The newest timestamp that each heard, where they use timestamps.
    heard: Option<[u32; 2]>,
    says_window: bool,
    ip_id: u16,
}

impl Talk {
    /// Nobody has spoken.
    pub fn new(now: u64) -> Self {
        Self { connections: Default::default(), now, packets: VecDeque::new() }
    }

    /// Adds what a step brings.
    pub fn take(&mut self, packet: &Packet) {
        match *packet {
            Packet::Open { connection, isn, mss, scale, rtt_ms } => {
                let n = place(connection);
                let (heard, says_window) = ((isn & 1 == 1).then_some([0; 2]), isn & 2 == 2);
                self.connections[n] =
                    Connection { next: [isn, isn.wrapping_mul(7)], heard, says_window, ..self.connections[n] };
                let [high, low] = mss.to_be_bytes();
                let options = [2, 4, high, low, 4, 2, 1, 1, 3, 3, scale, 0];
                self.send(n, false, 0, 0x02, 0, 65_535, &options);
                self.connections[n].next[0] = isn.wrapping_add(1);
                self.send(n, true, 0, 0x12, 0, 65_535, &options);
                let server = &mut self.connections[n].next[1];
                *server = server.wrapping_add(1);
                self.pass(u64::from(rtt_ms) * 1_000_000);
                self.send(n, false, 0, 0x10, 0, 500, &[]);
            }
            Packet::Data { connection, server, segments, again, gap_us } => {
                let n = place(connection);
                let back = u32::from(again) * MSS;
                let next = &mut self.connections[n].next[usize::from(server)];
                *next = next.wrapping_sub(back);
                for _ in 0..segments % 40 {
                    self.send(n, server, 0, 0x10, MSS, 500, &[]);
                    let next = &mut self.connections[n].next[usize::from(server)];
                    *next = next.wrapping_add(MSS);
                    self.pass(u64::from(gap_us) * 1_000);
                }
            }
            Packet::Ack { connection, server, short, sacks, window } => {
                let n = place(connection);
                let ack = 0u32.wrapping_sub(u32::from(short) * MSS);
                let from = self.connections[n].next[usize::from(!server)].wrapping_add(ack);
                let mut options = Vec::new();
                for (left, right) in sacks.into_iter().filter(|(left, right)| left < right) {
                    options.extend(from.wrapping_add(u32::from(left) * MSS).to_be_bytes());
                    options.extend(from.wrapping_add(u32::from(right) * MSS).to_be_bytes());
                }
                if !options.is_empty() {
                    let len = u8::try_from(options.len() + 2).unwrap_or(2);
                    options.splice(0..0, [1, 1, 5, len]);
                }
                self.send(n, server, ack, 0x10, 0, window, &options);
            }
            Packet::Transfer { connection, segments, rtt_ms, window, lost } => {
                self.transfer(place(connection), segments % 120, rtt_ms, window, lost);
            }
            Packet::Odd { connection, server, seq, ack, flags, payload, options } => {
                let n = place(connection);
                let next = &mut self.connections[n].next[usize::from(server)];
                let before = *next;
                *next = next.wrapping_add_signed(seq);
                self.send(n, server, ack.cast_unsigned(), flags, payload.into(), 500, &options);
                self.connections[n].next[usize::from(server)] = before;
            }
            Packet::Close { connection, reset } => {
                let n = place(connection);
                if reset {
                    return self.send(n, false, 0, 0x04, 0, 0, &[]);
                }
                for server in [true, false] {
                    self.send(n, server, 0, 0x11, 0, 500, &[]);
                    let next = &mut self.connections[n].next[usize::from(server)];
                    *next = next.wrapping_add(1);
                }
                self.send(n, true, 0, 0x10, 0, 500, &[]);
            }
            Packet::Raw { ref bytes } => self.packets.push_back((self.now, bytes.clone())),
            Packet::Wait { ms, back: false } => self.pass(u64::from(ms) * 1_000_000),
            Packet::Wait { ms, back: true } => self.now = self.now.saturating_sub(u64::from(ms) * 1_000_000),
        }
    }

    fn pass(&mut self, ns: u64) {
        self.now = self.now.saturating_add(ns);
    }

    /// Rounds of a window that grows, each acknowledged segment by segment a round trip later.
    fn transfer(&mut self, n: usize, segments: u8, rtt_ms: u8, threshold: u8, lost: [u8; 2]) {
        let first = self.connections[n].next[1];
        let at = |segment: u8| first.wrapping_add(u32::from(segment) * MSS);
        let (mut sent, mut window) = (0, 10);
        while sent < segments {
            let end = segments.min(sent.saturating_add(window));
            for segment in sent..end {
                self.connections[n].next[1] = at(segment);
                self.send(n, true, 0, 0x10, MSS, 500, &[]);
                self.pass(10_000);
            }
            self.pass(u64::from(rtt_ms) * 1_000_000);
            let hole = lost.into_iter().filter(|lost| (sent..end).contains(lost)).min();
            for segment in sent..end {
                let acked = hole.filter(|hole| *hole <= segment).unwrap_or(segment + 1);
                self.connections[n].next[1] = at(acked);
                let block = [at(acked + 1).to_be_bytes(), at(segment + 1).to_be_bytes()].concat();
                let sack = [&[1, 1, 5, 10], &block[..]].concat();
                let options: &[u8] = if acked < segment { &sack } else { &[] };
                self.send(n, false, 0, 0x10, 0, 500, options);
                self.pass(10_000);
            }
            if let Some(hole) = hole {
                self.connections[n].next[1] = at(hole);
                self.send(n, true, 0, 0x10, MSS, 500, &[]);
                self.pass(u64::from(rtt_ms) * 1_000_000);
                self.connections[n].next[1] = at(end);
                self.send(n, false, 0, 0x10, 0, 500, &[]);
                window = (window / 2).max(2);
            } else {
                window = window.saturating_add(if window < threshold { window } else { 1 });
            }
            sent = end;
        }
        self.connections[n].next[1] = at(segments);
    }

    /// A segment of one side at its next sequence number, which acknowledges the other side's next less or plus `ack`.
    #[expect(clippy::too_many_arguments, reason = "a TCP header has these fields")]
    fn send(&mut self, n: usize, server: bool, ack: u32, flags: u8, payload: u32, window: u16, options: &[u8]) {
        let now_ms = u32::try_from(self.now / 1_000_000 % (1 << 32)).unwrap_or_default();
        let connection = &mut self.connections[n];
        connection.ip_id = connection.ip_id.wrapping_add(1);
        let low = n.to_le_bytes()[0];
        let [high_port, low_port] = (40_000 + u16::from(low)).to_be_bytes();
        let (here, there) = (usize::from(server), usize::from(!server));
        let ports = if server { [0, 80, high_port, low_port] } else { [high_port, low_port, 0, 80] };
        let mut options = options.to_vec();
        if let Some(heard) = &mut connection.heard {
            options.extend([1, 1, 8, 10]);
            options.extend(now_ms.to_be_bytes());
            options.extend(heard[here].to_be_bytes());
            heard[there] = now_ms;
        }
        if connection.says_window && payload > 0 {
            options.extend([254, 12, 0x53, 0x50]);
            options.extend((u32::from(connection.ip_id % 64) * MSS).to_be_bytes());
            options.extend(40_000_u32.to_be_bytes());
        }
        let words = u8::try_from(5 + options.len().div_ceil(4)).unwrap_or(15).min(15);
        let mut tcp = ports.to_vec();
        tcp.extend(connection.next[here].to_be_bytes());
        tcp.extend(connection.next[there].wrapping_add(ack).to_be_bytes());
        tcp.extend([words << 4, flags]);
        tcp.extend(window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(&options);
        tcp.resize(usize::from(words) * 4, 1);
        let total = u16::try_from(u32::try_from(tcp.len()).unwrap_or(0) + payload).unwrap_or(u16::MAX - 20);
        let ends = [[198, 51, low % 5, low], [192, 0, 2, 1 + low % 2]];
        let mut packet = Vec::with_capacity(60);
        if n % 6 == 5 {
            packet.extend([0x60, 0, 0, 0]);
            packet.extend(total.to_be_bytes());
            packet.extend([6, 64]);
            for end in [ends[here], ends[there]] {
                packet.extend([0x20, 1, 0x0d, 0xb8, end[2], end[2], 0, 0, 0, 0, 0, 0]);
                packet.extend(end);
            }
        } else {
            packet.extend([0x45, 0]);
            packet.extend(total.saturating_add(20).to_be_bytes());
            packet.extend(connection.ip_id.to_be_bytes());
            packet.extend([0x40, 0, 64, 6, 0, 0]);
            packet.extend(ends[here]);
            packet.extend(ends[there]);
        }
        packet.extend(tcp);
        self.packets.push_back((self.now, packet));
    }
}

fn place(connection: u8) -> usize {
    usize::from(connection) % CONNECTIONS
}
