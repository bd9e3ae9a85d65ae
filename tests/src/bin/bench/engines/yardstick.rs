//! What nothing that looks connections up can do without: a walk over the records of a file, and a bare batched loop over
//! them that finds each packet's connection in a table and keeps one line of it.
//!
//! The loop takes 64 packets at a time, in three passes: their headers and hashes, then a touch of each one's place in the table, so
//! that the machine fetches many at once, then the look-ups. What it keeps of a connection fits one cache line: the next sequence
//! number of both directions, bytes, packets, and packets sent again. It is a yardstick, not an engine: IPv4 and TCP without
//! options on Ethernet, a hash for a key.

use anyhow::Context;
use spand_core::wire::Frame;
use spand_proto::units::Timestamp;
use spand_tests::trace::{TraceConfig, TraceSummary, write_trace};

/// Packets taken at a time.
const BATCH: usize = 64;

/// A connection.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Line {
    key: u64,
    next: [u32; 2],
    acknowledged: [u32; 2],
    bytes: [u64; 2],
    packets: u32,
    again: u32,
}

/// A packet between two passes.
#[derive(Clone, Copy, Debug, Default)]
struct Looked {
    key: u64,
    side: usize,
    seq: u32,
    ack: u32,
    payload: u32,
}

/// Walks over all records; gives their number and the sum of their lengths.
pub(super) fn walk(trace: &Trace) -> (u64, u64) {
    trace.records().fold((0, 0), |(packets, bytes), (_, frame)| (packets + 1, bytes + u64::from(frame.wire_len)))
}

/// The bare batched loop; gives packets, connections and packets sent again.
pub(super) fn batched(trace: &Trace, connections: usize) -> (u64, u64, u64) {
    let mut lines = vec![Line::default(); (connections * 2).next_power_of_two()];
    let mask = lines.len() - 1;
    let mut batch = [Looked::default(); BATCH];
    let (mut packets, mut opened, mut again, mut touched) = (0u64, 0u64, 0u64, 0u64);
    let mut records = trace.records();
    loop {
        let mut filled = 0;
        for place in &mut batch {
            let Some((_, frame)) = records.next() else { break };
            *place = look(frame.data).unwrap_or_default();
            filled += 1;
        }
        let Some(batch) = batch.get(..filled).filter(|batch| !batch.is_empty()) else { break };
        for looked in batch {
            touched = touched.wrapping_add(lines[place(looked.key, mask)].key);
        }
        for looked in batch {
            let mut at = place(looked.key, mask);
            while lines[at].key != looked.key && lines[at].key != 0 {
                at = (at + 1) & mask;
            }
            let line = &mut lines[at];
            opened += u64::from(line.key == 0);
            line.key = looked.key;
            again += u64::from(line.take(looked));
            packets += 1;
        }
    }
    // What was touched is used, or it would not have been.
    std::hint::black_box(touched);
    (packets, opened, again)
}

impl Line {
    /// Takes a packet; whether its data was sent before.
    fn take(&mut self, looked: &Looked) -> bool {
        let (side, other) = (looked.side & 1, (looked.side & 1) ^ 1);
        let end = looked.seq.wrapping_add(looked.payload);
        let again = looked.payload > 0 && self.next[side] != 0 && end.wrapping_sub(self.next[side]).cast_signed() <= 0;
        if !again {
            self.next[side] = end;
        }
        self.acknowledged[other] = looked.ack;
        self.bytes[side] += u64::from(looked.payload);
        self.packets += 1;
        self.again += u32::from(again);
        again
    }
}

#[expect(clippy::cast_possible_truncation, reason = "only the lowest bits are wanted")]
fn place(key: u64, mask: usize) -> usize {
    (key as usize) & mask
}

fn look(data: &[u8]) -> Option<Looked> {
    let head: &[u8; 54] = data.first_chunk()?;
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let half = |at: usize| u32::from(u16::from_be_bytes([head[at], head[at + 1]]));
    let (from, to) = (u64::from(word(26)) << 16 | u64::from(half(34)), u64::from(word(30)) << 16 | u64::from(half(36)));
    let (low, high) = (from.min(to), from.max(to));
    let mixed = (low.wrapping_mul(0xa076_1d64_78bd_642f) ^ high.rotate_left(23)).wrapping_mul(0xe703_7ed1_a0b4_28db);
    let key = (mixed ^ mixed >> 32) | 1;
    let headers = 20 + u32::from(head[46] >> 4) * 4;
    let payload = half(16).checked_sub(headers)?;
    Some(Looked { key, side: usize::from(from > to), seq: word(38), ack: word(42), payload })
}

// A generated trace in memory, as the bytes of a pcap file.

/// Octets kept of each packet.
const SNAP_LEN: usize = 96;

/// The file.
pub(super) struct Trace {
    bytes: Vec<u8>,
    /// What was written.
    pub(super) summary: TraceSummary,
}

impl Trace {
    /// Generates one.
    ///
    /// # Errors
    /// None that memory could give.
    pub(super) fn generate(packets: u64, connections: u32) -> anyhow::Result<Self> {
        let config = TraceConfig { packets, connections, loss: 0.01, networks: 5_000, snap_len: SNAP_LEN, seed: 1 };
        let mut bytes = Vec::new();
        let summary = write_trace(&mut bytes, &config).context("the trace cannot be written")?;
        Ok(Self { bytes, summary })
    }

    /// The whole file.
    pub(super) fn file(&self) -> &[u8] {
        &self.bytes
    }

    /// Its records.
    pub(super) fn records(&self) -> impl Iterator<Item = (Timestamp, Frame<'_>)> {
        const FILE_HEADER: usize = 24;
        let mut rest = self.bytes.get(FILE_HEADER..).unwrap_or_default();
        std::iter::from_fn(move || {
            let (header, after) = rest.split_first_chunk::<16>()?;
            let &[s0, s1, s2, s3, n0, n1, n2, n3, c0, c1, c2, c3, w0, w1, w2, w3] = header;
            let word = u32::from_le_bytes;
            let data = after.get(..usize::try_from(word([c0, c1, c2, c3])).ok()?)?;
            rest = after.get(data.len()..)?;
            let at = u64::from(word([s0, s1, s2, s3])) * 1_000_000_000 + u64::from(word([n0, n1, n2, n3]));
            Some((Timestamp(at), Frame { link_type: 1, wire_len: word([w0, w1, w2, w3]), input: 0, data }))
        })
    }
}
