//! A generated trace in memory, as the bytes of a pcap file.

use anyhow::Context;
use spand_core::wire::Frame;
use spand_proto::units::Timestamp;
use spand_tests::trace::{TraceConfig, TraceSummary, write_trace};

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
