//! Hoards: connections that send many segments of one byte which nobody acknowledges, so that a program that follows them keeps them all.

use std::net::Ipv4Addr;

use crate::trace::packet::{ACK, PSH, Packet, SYN, Tuple, control};

/// A hoard.
#[derive(Clone, Copy, Debug)]
pub struct Hoard {
    /// Connections, all of them open at once.
    pub connections: u32,
    /// Segments of one byte that each sends, in turns.
    pub segments: u32,
    /// Whether the first of them is acknowledged; else only the handshake is.
    pub acknowledged: bool,
    /// Seconds in which all of it comes.
    pub seconds: u64,
}

/// A hoard that has come so far.
#[derive(Debug)]
pub(super) struct Hoarding {
    hoard: Hoard,
    gap_ns: u64,
    turns: u64,
}

/// It begins when the real networks have their estimates.
const BEGIN_NS: u64 = 15_000_000_000;
/// First numbers of both sides.
const ISNS: [u32; 2] = [7_000, 9_000];

impl Hoarding {
    pub(super) fn new(hoard: Hoard) -> Self {
        let turns = u64::from(hoard.connections) * u64::from(hoard.segments + 1);
        Self { hoard, gap_ns: (hoard.seconds * 1_000_000_000) / turns.max(1), turns: 0 }
    }

    /// Gives everything before `end_ns`: first each connection opens, then each sends a segment, and so on.
    pub(super) fn until(&mut self, end_ns: u64, mut see: impl FnMut(u64, &Tuple, &Packet)) {
        let connections = u64::from(self.hoard.connections.max(1));
        while BEGIN_NS + self.turns * self.gap_ns < end_ns && self.turns / connections <= self.hoard.segments.into() {
            let at_ns = BEGIN_NS + self.turns * self.gap_ns;
            let [round, number] = [self.turns / connections, self.turns % connections]
                .map(|number| u32::try_from(number).unwrap_or(u32::MAX));
            self.turns += 1;
            let tuple = tuple(number);
            let mut pass = |after_ns: u64, packet: Packet| see(at_ns + after_ns, &tuple, &packet);
            let [client, server] = ISNS.map(|isn| isn + 1);
            if round == 0 {
                pass(0, control(false, ISNS[0], 0, SYN, 0));
                pass(1, control(true, ISNS[1], client, SYN | ACK, 0));
                pass(2, control(false, client, server, ACK, 0));
                continue;
            }
            pass(0, control(true, server + round - 1, client, ACK | PSH, 1));
            if round == 1 && self.hoard.acknowledged {
                pass(1, control(false, client, server + 1, ACK, 0));
            }
        }
    }
}

/// A server inside and a client outside, in networks that are not the real clients'.
fn tuple(number: u32) -> Tuple {
    let [_, a, b, c] = number.to_be_bytes();
    Tuple { server: (Ipv4Addr::new(10, 0, 7, 7), 443), client: (Ipv4Addr::new(128 | a, b, c, 9), 4_000) }
}
