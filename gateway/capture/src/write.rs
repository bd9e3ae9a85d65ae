//! A small pcap writer, for tests and generated traces.

use std::io::{self, Write};

use spand_proto::units::Timestamp;

use crate::LinkType;

/// Writes a pcap file with nanosecond times, little-endian, cutting packets to a snap length.
///
/// It writes in small pieces: pass a `BufWriter`.
pub struct PcapWriter<W> {
    out: W,
    snap_len: u32,
}

impl<W: Write> PcapWriter<W> {
    /// Writes the file header.
    pub fn new(mut out: W, link_type: LinkType, snap_len: u32) -> io::Result<Self> {
        let mut header = [0; 24];
        let fields: [u32; 6] = [0xa1b2_3c4d, 2 | 4 << 16, 0, 0, snap_len, u32::from(link_type.0)];
        for (bytes, field) in header.chunks_exact_mut(4).zip(fields) {
            bytes.copy_from_slice(&field.to_le_bytes());
        }
        out.write_all(&header)?;
        Ok(Self { out, snap_len })
    }

    /// Writes a packet of `wire_len` bytes on the wire whose first bytes are `data`.
    ///
    /// Fails with `InvalidInput` where the second does not fit the format, after 2106-02-07.
    pub fn write(&mut self, timestamp: Timestamp, wire_len: u32, data: &[u8]) -> io::Result<()> {
        let captured = u32::try_from(data.len()).unwrap_or(u32::MAX).min(self.snap_len);
        let seconds = u32::try_from(timestamp.0 / 1_000_000_000)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a pcap record cannot hold a time after 2106"))?;
        let nanos = (timestamp.0 % 1_000_000_000) as u32;
        let mut header = [0; 16];
        for (bytes, field) in header.chunks_exact_mut(4).zip([seconds, nanos, captured, wire_len]) {
            bytes.copy_from_slice(&field.to_le_bytes());
        }
        self.out.write_all(&header)?;
        self.out.write_all(data.get(..captured as usize).unwrap_or(data))
    }

    /// Flushes and gives back where it wrote to.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}
