//! Traces that no network has and an engine must bear: each drives one table or one connection as far as it goes.

use std::io::{self, Write};
use std::net::Ipv4Addr;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::TraceSummary;
use super::frame::FrameWriter;
use super::packet::{ACK, FIN, MSS, PSH, Packet, SYN, Tuple, control};

/// What is extreme about a trace.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Extreme {
    /// Every packet, one of data, belongs to another connection.
    OnePacketFlows,
    /// All packets belong to one connection, which loses none.
    OneFlow,
    /// Every connection goes to another /24: a handshake, a request, two segments of answer, the end.
    EveryNetwork,
    /// One connection for 16 packets: first all of them are opened and four segments of each put in flight, of every twentieth the first
    /// one lost and repaired; then any of them acknowledges two segments and is sent two more, again and again.
    Established,
}

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER_ISN: u32 = 1_000_000;
const CLIENT_ISN: u32 = 5_000_000;
const REQUEST: u32 = 200;
/// Segments of the one flow that are outstanding.
const OUTSTANDING: u32 = 64;
/// Connections to networks that are open at a time.
const GROUP: u32 = 1_000;
/// Packets for each of the established connections.
const PACKETS_EACH: u64 = 16;
/// Segments of each that are in flight.
const IN_FLIGHT: u32 = 4;
/// One in this many repairs a loss.
const REPAIRING: u32 = 20;
/// Ports that a client uses.
const PORTS: u32 = 60_000;
/// The first client's address: beyond the servers' 10.0.0.0/8.
const CLIENTS: u32 = 0x0b00_0000;

/// Writes an extreme trace as a pcap file with nanosecond times.
///
/// # Errors
/// What writing to `out` gives.
pub fn write_extreme<W: Write>(out: W, extreme: Extreme, packets: u64, snap_len: usize) -> io::Result<TraceSummary> {
    let mut trace = Trace { frames: FrameWriter::new(out, snap_len)?, at_ns: 0, left: packets, retransmissions: 0 };
    let connections = match extreme {
        Extreme::OnePacketFlows => trace.one_packet_flows()?,
        Extreme::OneFlow => trace.one_flow()?,
        Extreme::EveryNetwork => trace.every_network()?,
        Extreme::Established => trace.established()?,
    };
    let (packets, retransmissions) = (packets - trace.left, trace.retransmissions);
    Ok(TraceSummary { packets, connections, retransmissions, file_bytes: trace.frames.finish()? })
}

struct Trace<W> {
    frames: FrameWriter<W>,
    at_ns: u64,
    left: u64,
    retransmissions: u64,
}

impl<W: Write> Trace<W> {
    /// Writes a packet, unless there are enough; says whether it did.
    fn put(&mut self, client: (Ipv4Addr, u16), from_server: bool, fields: (u32, u32, u8, u32)) -> io::Result<bool> {
        let (seq, ack, flags, payload_len) = fields;
        self.put_whole(client, &control(from_server, seq, ack, flags, payload_len))
    }

    fn put_whole(&mut self, client: (Ipv4Addr, u16), packet: &Packet) -> io::Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        self.at_ns += 1_000;
        self.retransmissions += u64::from(packet.is_retransmission);
        self.frames.write(self.at_ns, &Tuple { server: (SERVER, 443), client }, packet)?;
        Ok(true)
    }

    fn one_packet_flows(&mut self) -> io::Result<u64> {
        let mut connections = 0;
        for address in CLIENTS.. {
            for port in 1_024..=u16::MAX {
                let client = (Ipv4Addr::from(address), port);
                if !self.put(client, true, (SERVER_ISN, CLIENT_ISN, ACK, MSS))? {
                    return Ok(connections);
                }
                connections += 1;
            }
        }
        Ok(connections)
    }

    fn one_flow(&mut self) -> io::Result<u64> {
        let client = (Ipv4Addr::from(CLIENTS), 40_000);
        self.open(client)?;
        let (first, ack) = (SERVER_ISN + 1, CLIENT_ISN + 1);
        for sent in (0u32..).step_by(2) {
            for segment in [sent, sent + 1] {
                self.put(client, true, (first.wrapping_add(segment.wrapping_mul(MSS)), ack, ACK, MSS))?;
            }
            // Acknowledged a window later, every second segment.
            if let Some(acked) = sent.checked_sub(OUTSTANDING) {
                self.put(client, false, (ack, first.wrapping_add(acked.wrapping_mul(MSS)), ACK, 0))?;
            }
            if self.left == 0 {
                break;
            }
        }
        Ok(1)
    }

    fn every_network(&mut self) -> io::Result<u64> {
        let (server, client_seq) = (SERVER_ISN + 1, CLIENT_ISN + 1);
        let (answered, end) = (client_seq + REQUEST, server + 2 * MSS);
        // Half a round trip lies between two steps of a group.
        let steps = [
            (false, (client_seq, server, ACK | PSH, REQUEST)),
            (true, (server, answered, ACK, MSS)),
            (true, (server + MSS, answered, ACK | PSH, MSS)),
            (false, (answered, end, ACK, 0)),
            (true, (end, answered, ACK | FIN, 0)),
            (false, (answered, end + 1, ACK | FIN, 0)),
            (true, (end + 1, answered + 1, ACK, 0)),
        ];
        let mut connections = 0;
        for group in 0u32.. {
            let clients =
                (group * GROUP..(group + 1) * GROUP).map(|n| (Ipv4Addr::from(CLIENTS + (n << 8) + 1), 40_000));
            for client in clients.clone() {
                self.open(client)?;
            }
            for (from_server, fields) in steps {
                self.at_ns += 10_000_000;
                for client in clients.clone() {
                    self.put(client, from_server, fields)?;
                }
            }
            connections += u64::from(GROUP);
            if self.left == 0 {
                break;
            }
        }
        Ok(connections)
    }

    fn established(&mut self) -> io::Result<u64> {
        let connections = u32::try_from(self.left / PACKETS_EACH).unwrap_or(u32::MAX).max(1);
        let client =
            |n: u32| (Ipv4Addr::from(CLIENTS + n / PORTS), u16::try_from(1_024 + n % PORTS).unwrap_or_default());
        let (request, answered) = (CLIENT_ISN + 1, CLIENT_ISN + 1 + REQUEST);
        let position = |segment: u32| (SERVER_ISN + 1).wrapping_add(segment.wrapping_mul(MSS));
        for n in 0..connections {
            self.open(client(n))?;
            self.put(client(n), false, (request, position(0), ACK | PSH, REQUEST))?;
            for segment in 0..IN_FLIGHT {
                self.put(client(n), true, (position(segment), answered, ACK, MSS))?;
            }
        }
        for n in (0..connections).step_by(REPAIRING as usize) {
            for arrived in 2..=IN_FLIGHT {
                let mut duplicate = control(false, answered, position(0), ACK, 0);
                duplicate.sack.push((position(1), position(arrived)));
                self.put_whole(client(n), &duplicate)?;
            }
            let lost = control(true, position(0), answered, ACK, MSS);
            self.put_whole(client(n), &Packet { is_retransmission: true, ..lost })?;
        }
        let mut random = StdRng::seed_from_u64(1);
        let mut acknowledged = vec![0u32; connections as usize];
        while self.left > 0 {
            let n = random.random_range(0..connections);
            let Some(acked) = acknowledged.get_mut(n as usize) else { break };
            *acked += 2;
            let (ack, next) = (*acked, *acked + IN_FLIGHT - 2);
            self.put(client(n), false, (answered, position(ack), ACK, 0))?;
            for segment in [next, next + 1] {
                self.put(client(n), true, (position(segment), answered, ACK, MSS))?;
            }
        }
        Ok(u64::from(connections))
    }

    fn open(&mut self, client: (Ipv4Addr, u16)) -> io::Result<()> {
        self.put(client, false, (CLIENT_ISN, 0, SYN, 0))?;
        self.put(client, true, (SERVER_ISN, CLIENT_ISN + 1, SYN | ACK, 0))?;
        self.put(client, false, (CLIENT_ISN + 1, SERVER_ISN + 1, ACK, 0))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(extreme: Extreme, packets: u64) -> TraceSummary {
        write_extreme(io::sink(), extreme, packets, 96).unwrap()
    }

    #[test]
    fn each_has_the_packets_asked_for_and_the_connections_that_make_it_extreme() {
        let of = |extreme| {
            let summary = written(extreme, 100_000);
            (summary.packets, summary.connections)
        };
        assert_eq!(of(Extreme::OnePacketFlows), (100_000, 100_000));
        assert_eq!(of(Extreme::OneFlow), (100_000, 1));
        assert_eq!(of(Extreme::EveryNetwork), (100_000, 10_000));
        assert_eq!(of(Extreme::Established), (100_000, 6_250));
        assert_eq!(written(Extreme::Established, 100_000).retransmissions, 313);
    }
}
