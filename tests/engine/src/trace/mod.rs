//! Generated traces: as many packets and connections as a benchmark needs, without anybody's traffic in the repository.
//!
//! Servers inside the organisation send to clients outside; the tap is next to the servers. Each connection is a small
//! NewReno sender with a SACK receiver at the far end ([`connection`]), losses happen behind the tap, so that what the tap
//! sees is what a mirror port sees: both directions, interleaved connections, selective acknowledgements, fast
//! retransmits and timeouts. One seed gives one trace, byte for byte.

pub mod connection;
pub mod extreme;
pub mod frame;
pub mod packet;
pub mod receiver;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use connection::Connection;
use frame::FrameWriter;
use packet::{Packet, Tuple};

/// What a trace shall be.
#[derive(Clone, Copy, Debug)]
pub struct TraceConfig {
    /// Packets to write.
    pub packets: u64,
    /// Connections open at a time.
    pub connections: u32,
    /// Probability that a data packet is lost behind the tap.
    pub loss: f64,
    /// Destination /24 networks of the clients.
    pub networks: u32,
    /// Bytes kept of each packet.
    pub snap_len: usize,
    /// Seed.
    pub seed: u64,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TraceSummary {
    /// Packets.
    pub packets: u64,
    /// Connections begun.
    pub connections: u64,
    /// Data packets sent again.
    pub retransmissions: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// Writes a trace as a pcap file with nanosecond times.
///
/// # Errors
/// What writing to `out` gives.
pub fn write_trace<W: Write>(out: W, config: &TraceConfig) -> io::Result<TraceSummary> {
    let mut frames = FrameWriter::new(out, config.snap_len)?;
    let mut failed = Ok(());
    let mut summary = generate(config, |at_ns, tuple, packet| {
        failed = frames.write(at_ns, tuple, packet);
        failed.is_ok()
    });
    failed?;
    summary.file_bytes = frames.finish()?;
    Ok(summary)
}

/// Writes a trace as a capture of several receive queues is: the part `late` of its records follows up to `most_ns` after its time.
/// Holds the whole trace in memory.
///
/// # Errors
/// What writing to `out` gives.
pub fn write_unordered<W: Write>(out: W, config: &TraceConfig, late: f64, most_ns: u64) -> io::Result<TraceSummary> {
    let mut rng = StdRng::seed_from_u64(config.seed);
    let mut records = Vec::new();
    let mut summary = generate(config, |at_ns, tuple, packet| {
        let delay_ns = if rng.random_bool(late) { rng.random_range(1..=most_ns) } else { 0 };
        records.push((at_ns + delay_ns, at_ns, *tuple, packet.clone()));
        true
    });
    records.sort_by_key(|(written_ns, ..)| *written_ns);
    let mut frames = FrameWriter::new(out, config.snap_len)?;
    for (_, at_ns, tuple, packet) in &records {
        frames.write(*at_ns, tuple, packet)?;
    }
    summary.file_bytes = frames.finish()?;
    Ok(summary)
}

/// Gives the packets of a trace to `take`, in order of time, until it wants no more.
pub fn generate(config: &TraceConfig, take: impl FnMut(u64, &Tuple, &Packet) -> bool) -> TraceSummary {
    generate_with(config, |_, _| config.loss, take)
}

/// The same with a probability of loss for each data packet, by its connection and the time, in place of the configured one.
pub fn generate_with(
    config: &TraceConfig,
    loss: impl Fn(&Connection, u64) -> f64,
    mut take: impl FnMut(u64, &Tuple, &Packet) -> bool,
) -> TraceSummary {
    let mut rng = StdRng::seed_from_u64(config.seed);
    let mut summary = TraceSummary::default();
    let mut connections = Vec::new();
    let mut next = BinaryHeap::new();
    for slot in 0..config.connections {
        // The first generation begins within one second, so that the whole number is open from then on.
        let begin_ns = rng.random_range(0..1_000_000_000u64);
        connections.push(begin(&mut summary, begin_ns, config, &mut rng));
        next.push(Reverse((begin_ns, slot)));
    }
    while summary.packets < config.packets {
        let Some(Reverse((at_ns, slot))) = next.pop() else { break };
        let Some(connection) = connections.get_mut(slot as usize) else { break };
        if let Some(packet) = connection.step(at_ns, loss(connection, at_ns), &mut rng) {
            summary.packets += 1;
            summary.retransmissions += u64::from(packet.is_retransmission);
            if !take(at_ns, connection.tuple(), &packet) {
                break;
            }
        }
        let next_ns = if let Some(next_ns) = connection.next_ns() {
            next_ns.max(at_ns + 1)
        } else {
            let begin_ns = at_ns + rng.random_range(1_000..100_000_000u64);
            *connection = begin(&mut summary, begin_ns, config, &mut rng);
            begin_ns
        };
        next.push(Reverse((next_ns, slot)));
    }
    summary
}

fn begin(summary: &mut TraceSummary, begin_ns: u64, config: &TraceConfig, rng: &mut StdRng) -> Connection {
    summary.connections += 1;
    Connection::new(begin_ns, summary.connections, config.networks, rng)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: TraceConfig =
        TraceConfig { packets: 50_000, connections: 200, loss: 0.01, networks: 20, snap_len: 96, seed: 7 };

    #[test]
    fn a_seed_gives_one_trace() {
        let (mut first, mut second, mut other) = (Vec::new(), Vec::new(), Vec::new());
        write_trace(&mut first, &SMALL).unwrap();
        write_trace(&mut second, &SMALL).unwrap();
        write_trace(&mut other, &TraceConfig { seed: 8, ..SMALL }).unwrap();
        assert!(first == second);
        assert!(first != other);
    }

    #[test]
    fn the_late_part_of_an_unordered_trace_lies_behind_later_records() {
        const MOST_NS: u64 = 1_000_000;
        let (mut ordered, mut unordered) = (Vec::new(), Vec::new());
        write_trace(&mut ordered, &SMALL).unwrap();
        write_unordered(&mut unordered, &SMALL, 0.1, MOST_NS).unwrap();
        let [mut sorted, times] = [ordered, unordered].map(|file| times_ns(&file));
        let mut latest = 0;
        let behind = times.iter().filter(|at_ns| {
            latest = latest.max(**at_ns);
            assert!(latest - **at_ns <= MOST_NS);
            **at_ns < latest
        });
        // Some of them pass no other record.
        assert!((3_000..5_000).contains(&behind.count()));
        assert_ne!(sorted, times);
        sorted.sort_unstable();
        let mut times = times;
        times.sort_unstable();
        assert_eq!(sorted, times);
    }

    fn times_ns(mut file: &[u8]) -> Vec<u64> {
        let number = |bytes: &[u8]| u64::from(u32::from_le_bytes(bytes.try_into().unwrap()));
        file = &file[24..];
        let mut times = Vec::new();
        while let Some((head, rest)) = file.split_first_chunk::<16>() {
            times.push(number(&head[..4]) * 1_000_000_000 + number(&head[4..8]));
            file = &rest[usize::try_from(number(&head[8..12])).unwrap()..];
        }
        times
    }

    #[test]
    fn losses_are_repaired_and_connections_come_and_go() {
        let summary = write_trace(io::sink(), &SMALL).unwrap();
        assert_eq!(summary.packets, SMALL.packets);
        assert!(summary.connections > 2 * u64::from(SMALL.connections), "{summary:?}");
        // About 1 % of the data packets, which are more than half of all.
        assert!((200..1_500).contains(&summary.retransmissions), "{summary:?}");
    }
}
