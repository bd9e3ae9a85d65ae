//! Generated packets as Ethernet frames in a pcap file with nanosecond times.

use std::io::{self, Write};

use super::packet::{Packet, Tuple};

/// Writes frames, cut at the snap length.
#[derive(Debug)]
pub struct FrameWriter<W> {
    out: W,
    snap_len: usize,
    file_bytes: u64,
    ip_id: u16,
    frame: Vec<u8>,
}

/// When a trace begins, in seconds since 1970.
pub const EPOCH_SECONDS: u64 = 1_700_000_000;
const SYN: u8 = 0x02;

impl<W: Write> FrameWriter<W> {
    /// Begins the file.
    ///
    /// # Errors
    /// What writing gives.
    pub fn new(mut out: W, snap_len: usize) -> io::Result<Self> {
        let mut header = Vec::with_capacity(24);
        header.extend(0xa1b2_3c4du32.to_le_bytes());
        header.extend(2u16.to_le_bytes());
        header.extend(4u16.to_le_bytes());
        header.extend([0; 8]);
        header.extend(262_144u32.to_le_bytes());
        header.extend(1u32.to_le_bytes());
        out.write_all(&header)?;
        Ok(Self { out, snap_len, file_bytes: 24, ip_id: 0, frame: Vec::with_capacity(128) })
    }

    /// Writes one packet.
    ///
    /// # Errors
    /// What writing gives.
    #[expect(clippy::cast_possible_truncation, reason = "frames are below 64 KiB, seconds below 2^32")]
    pub fn write(&mut self, at_ns: u64, tuple: &Tuple, packet: &Packet) -> io::Result<()> {
        self.ip_id = self.ip_id.wrapping_add(1);
        let wire_len = encode(&mut self.frame, self.ip_id, at_ns, tuple, packet);
        let frame = &mut self.frame;
        frame.resize(wire_len.min(self.snap_len), 0);
        let mut record = [0; 16];
        let fields = [
            (EPOCH_SECONDS + at_ns / 1_000_000_000) as u32,
            (at_ns % 1_000_000_000) as u32,
            frame.len() as u32,
            wire_len as u32,
        ];
        for (place, field) in record.chunks_exact_mut(4).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        self.out.write_all(&record)?;
        self.out.write_all(frame)?;
        self.file_bytes += 16 + frame.len() as u64;
        Ok(())
    }

    /// Ends the file and says how long it is.
    ///
    /// # Errors
    /// What flushing gives.
    pub fn finish(mut self) -> io::Result<u64> {
        self.out.flush()?;
        Ok(self.file_bytes)
    }
}

/// Puts the Ethernet frame of a packet, without its payload, into `frame`; its length on the wire.
#[expect(clippy::cast_possible_truncation, reason = "header lengths and frames are below 64 KiB")]
pub fn encode(frame: &mut Vec<u8>, ip_id: u16, at_ns: u64, tuple: &Tuple, packet: &Packet) -> usize {
    let options = options(at_ns, packet);
    let tcp_len = 20 + options.len();
    let ip_len = 20 + tcp_len + packet.payload_len as usize;
    let (from, to) = if packet.from_server { (tuple.server, tuple.client) } else { (tuple.client, tuple.server) };

    frame.clear();
    frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x08, 0x00]);
    let ip_at = frame.len();
    frame.extend([0x45, 0]);
    frame.extend((ip_len as u16).to_be_bytes());
    frame.extend(ip_id.to_be_bytes());
    frame.extend([0x40, 0, 64, 6, 0, 0]);
    frame.extend(from.0.octets());
    frame.extend(to.0.octets());
    let sum = header_checksum(frame.get(ip_at..).unwrap_or_default());
    if let Some(field) = frame.get_mut(ip_at + 10..ip_at + 12) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
    frame.extend(from.1.to_be_bytes());
    frame.extend(to.1.to_be_bytes());
    frame.extend(packet.seq.to_be_bytes());
    frame.extend(packet.ack.to_be_bytes());
    frame.extend([((tcp_len / 4) as u8) << 4, packet.flags]);
    frame.extend(60_000u16.to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(&options);
    14 + ip_len
}

#[expect(clippy::cast_possible_truncation, reason = "a timestamp clock wraps at 2^32; a block list is short")]
fn options(at_ns: u64, packet: &Packet) -> Vec<u8> {
    let mut options = Vec::with_capacity(40);
    if packet.flags & SYN != 0 {
        options.extend([2, 4, 0x05, 0xb4, 4, 2, 1, 3, 3, 7]);
        options.extend([1, 1]);
    }
    let clock_ms = (at_ns / 1_000_000) as u32;
    options.extend([1, 1, 8, 10]);
    options.extend(clock_ms.to_be_bytes());
    let echo_ms = packet.echo_ns.map_or(clock_ms.wrapping_sub(1), |at_ns| (at_ns / 1_000_000) as u32);
    options.extend(echo_ms.to_be_bytes());
    if !packet.sack.is_empty() {
        options.extend([1, 1, 5, 2 + 8 * packet.sack.len() as u8]);
        for (left, right) in &packet.sack {
            options.extend(left.to_be_bytes());
            options.extend(right.to_be_bytes());
        }
    }
    options
}

/// The Internet checksum (RFC 1071) of an IP header whose checksum field is zero.
fn header_checksum(header: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in header.chunks_exact(2) {
        if let [high, low] = pair {
            sum += u32::from(u16::from_be_bytes([*high, *low]));
        }
    }
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(0)
}
