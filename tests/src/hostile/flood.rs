//! The floods: what arrives from outside, and what the servers inside answer.

use std::net::Ipv4Addr;

use strum::VariantArray;

use crate::trace::packet::{ACK, FIN, PSH, Packet, RST, SYN, Tuple, control};

/// What a flood is made of. Sources are spoofed, each tuple is new.
#[derive(Clone, Copy, Debug, Eq, PartialEq, VariantArray)]
pub enum Kind {
    /// SYNs from anywhere, each answered by the server; nobody answers back.
    Syn,
    /// The same with sources in the networks of the real clients.
    SynOfNeighbours,
    /// Single acknowledgements, each refused by the server with a reset.
    Ack,
    /// Single acknowledgements that a packet filter behind the tap drops.
    DroppedAck,
    /// Segments with payload in the middle of connections that do not exist, dropped behind the tap.
    DroppedData,
    /// SYN, the server's answer, and a blind acknowledgement of a number that was not sent.
    BlindHandshake,
    /// Whole handshakes that are closed at once, by an address that is its own: tuple churn.
    Churn,
}

impl Kind {
    /// Its name in tables.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Syn => "SYNs from anywhere, answered",
            Self::SynOfNeighbours => "SYNs from the real clients' networks, answered",
            Self::Ack => "acknowledgements of nothing, reset",
            Self::DroppedAck => "acknowledgements of nothing, dropped behind the tap",
            Self::DroppedData => "data of nothing, dropped behind the tap",
            Self::BlindHandshake => "SYN, answer, and a blind acknowledgement",
            Self::Churn => "handshakes closed at once",
        }
    }
}

/// A flood that has come so far.
#[derive(Debug)]
pub(super) struct Flood {
    kind: Kind,
    gap_ns: u64,
    networks: u32,
    sent: u64,
}

/// It begins when the real networks have their estimates.
const BEGIN_NS: u64 = 15_000_000_000;

impl Flood {
    pub(super) fn new(kind: Kind, tuples_per_second: u64, networks: u32) -> Self {
        Self { kind, gap_ns: 1_000_000_000 / tuples_per_second.max(1), networks, sent: 0 }
    }

    pub(super) fn tuples(&self) -> u64 {
        self.sent
    }

    /// Gives everything before `end_ns`.
    pub(super) fn until(&mut self, end_ns: u64, mut see: impl FnMut(u64, &Tuple, &Packet)) {
        while BEGIN_NS + self.sent * self.gap_ns < end_ns {
            let at_ns = BEGIN_NS + self.sent * self.gap_ns;
            let drawn = mix(self.sent);
            self.sent += 1;
            let tuple = self.tuple(drawn);
            let [isn, answer] = [drawn.to_le_bytes(), mix(drawn).to_le_bytes()]
                .map(|[a, b, c, d, ..]| u32::from_le_bytes([a, b, c, d]));
            let mut pass = |after_ns: u64, packet: Packet| see(at_ns + after_ns, &tuple, &packet);
            match self.kind {
                Kind::Syn | Kind::SynOfNeighbours => {
                    pass(0, control(false, isn, 0, SYN, 0));
                    pass(1, control(true, answer, isn.wrapping_add(1), SYN | ACK, 0));
                }
                Kind::Ack => {
                    pass(0, control(false, isn, answer, ACK, 0));
                    pass(1, control(true, answer, 0, RST, 0));
                }
                Kind::DroppedAck => pass(0, control(false, isn, answer, ACK, 0)),
                Kind::DroppedData => pass(0, control(false, isn, answer, ACK | PSH, 1_000)),
                Kind::BlindHandshake => {
                    pass(0, control(false, isn, 0, SYN, 0));
                    pass(1, control(true, answer, isn.wrapping_add(1), SYN | ACK, 0));
                    pass(2, control(false, isn.wrapping_add(1), isn ^ answer, ACK, 0));
                }
                Kind::Churn => {
                    let (next, own) = (isn.wrapping_add(1), answer.wrapping_add(1));
                    pass(0, control(false, isn, 0, SYN, 0));
                    pass(1, control(true, answer, next, SYN | ACK, 0));
                    pass(2, control(false, next, own, ACK, 0));
                    pass(3, control(false, next, own, ACK | FIN, 0));
                    pass(4, control(true, own, next.wrapping_add(1), ACK | FIN, 0));
                    pass(5, control(false, next.wrapping_add(1), own.wrapping_add(1), ACK, 0));
                }
            }
        }
    }

    fn tuple(&self, drawn: u64) -> Tuple {
        let [a, b, c, d, low, high, e, f] = drawn.to_le_bytes();
        let client = match self.kind {
            // As the clients of the trace.
            Kind::SynOfNeighbours => {
                let network = u32::from_le_bytes([a, b, c, 0]) % self.networks.max(1);
                Ipv4Addr::from(0x5000_0000 | (network << 8) | u32::from(d))
            }
            Kind::Churn => Ipv4Addr::new(203, 0, 113, 9),
            // Outside of what is the trace's own.
            _ => Ipv4Addr::new(128 | (a & 0x3f), b, c, d),
        };
        // Servers of the trace, and enough tuples of one address that none comes twice.
        let server = Ipv4Addr::new(10, 0, e % 8, f);
        Tuple { server: (server, 443), client: (client, u16::from_le_bytes([low, high])) }
    }
}

/// A number as if drawn (splitmix64).
pub(super) fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
