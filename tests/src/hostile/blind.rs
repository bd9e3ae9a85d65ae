//! Blind packets on real connections: their sender knows addresses and ports, and guesses the numbers (RFC 5961).

use std::collections::HashMap;
use std::net::Ipv4Addr;

use strum::VariantArray;

use super::flood::mix;
use crate::trace::packet::{ACK, FIN, PSH, Packet, RST, SYN, Tuple, control};

/// What is sent once on every connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq, VariantArray)]
pub enum Blind {
    /// A reset as from the client.
    Reset,
    /// A reset as from the server, with an acknowledgement.
    ServerReset,
    /// A SYN as from the client.
    Syn,
    /// An answer to a SYN, as from the server.
    Answer,
    /// An acknowledgement as from the client.
    Ack,
    /// Data as from the server.
    Data,
    /// A FIN as from the client.
    Fin,
    /// All of these.
    All,
}

impl Blind {
    /// Its name in tables.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Reset => "RST of the client",
            Self::ServerReset => "RST and ACK of the server",
            Self::Syn => "SYN of the client",
            Self::Answer => "SYN and ACK of the server",
            Self::Ack => "acknowledgement of the client",
            Self::Data => "data of the server",
            Self::Fin => "FIN of the client",
            Self::All => "all of them",
        }
    }

    fn packets(self, [seq, ack]: [u32; 2]) -> Vec<Packet> {
        match self {
            Self::Reset => vec![control(false, seq, 0, RST, 0)],
            Self::ServerReset => vec![control(true, seq, ack, RST | ACK, 0)],
            Self::Syn => vec![control(false, seq, 0, SYN, 0)],
            Self::Answer => vec![control(true, seq, ack, SYN | ACK, 0)],
            Self::Ack => vec![control(false, seq, ack, ACK, 0)],
            Self::Data => vec![control(true, seq, ack, ACK | PSH, 1_000)],
            Self::Fin => vec![control(false, seq, ack, ACK | FIN, 0)],
            Self::All => {
                let each = Self::VARIANTS.iter().filter(|kind| **kind != Self::All).zip(1_u32..);
                each.flat_map(|(kind, n)| kind.packets([seq.wrapping_mul(2 * n + 1), ack.wrapping_add(n << 27)]))
                    .collect()
            }
        }
    }
}

/// Packets of a connection after which the blind ones come: in the midst of its first flights.
const AFTER: u32 = 15;

/// What was sent so far.
#[derive(Debug)]
pub(super) struct Spoofer {
    kind: Blind,
    /// Packets of each connection, and FINs among them.
    seen: HashMap<[(Ipv4Addr, u16); 2], [u32; 2]>,
    sent: u64,
}

impl Spoofer {
    pub(super) fn new(kind: Blind) -> Self {
        Self { kind, seen: HashMap::new(), sent: 0 }
    }

    /// A packet of the real connection passed; gives what is sent on it now.
    pub(super) fn after(&mut self, tuple: &Tuple, packet: &Packet) -> Vec<Packet> {
        let [seen, fins] = self.seen.entry([tuple.server, tuple.client]).or_default();
        // Addresses and ports may be used again.
        if packet.flags & (SYN | ACK) == SYN {
            (*seen, *fins) = (0, 0);
        }
        *seen += 1;
        *fins += u32::from(packet.flags & FIN != 0);
        // Nothing is known any more of one that is over: what comes then is a made-up connection.
        if *seen != AFTER || *fins >= 2 {
            return Vec::new();
        }
        self.sent += 1;
        let (seq, ack) = (mix(self.sent), mix(self.sent ^ 0x5eed));
        self.kind.packets([seq, ack].map(|number| u32::try_from(number >> 32).unwrap_or(0)))
    }

    /// Connections on which something was sent.
    pub(super) fn connections(&self) -> u64 {
        self.sent
    }
}
