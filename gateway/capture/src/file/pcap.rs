//! The pcap format: one file header, then records (draft-ietf-opsawg-pcap).

use spand_proto::units::Timestamp;

use super::input::Input;
use super::{Fault, MAX_PACKET_BYTES, Record};
use crate::LinkType;

const FILE_HEADER_BYTES: usize = 24;
const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Written by Alexey Kuznetzov's libpcap of the 1990s: eight more bytes per record.
const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;

/// Reads records, once the file header is past.
pub(super) struct PcapRecords {
    order: ByteOrder,
    record_header_bytes: usize,
    nanos_per_fraction: u64,
    lengths: Lengths,
    link_type: LinkType,
}

/// In which order a record header holds the captured length and the length on the wire.
#[derive(Clone, Copy)]
enum Lengths {
    CapturedFirst,
    /// Files before version 2.3.
    WireFirst,
    /// Version 2.3 was written both ways; the captured length is the smaller one.
    Either,
}

impl PcapRecords {
    /// Whether a file that starts so is pcap.
    pub(super) fn recognises(start: &[u8]) -> bool {
        magic(start).is_some()
    }

    /// Reads the file header and steps past it.
    pub(super) fn open(input: &mut Input) -> Result<Self, Fault> {
        let header = input.peek(FILE_HEADER_BYTES)?;
        let missing = FILE_HEADER_BYTES.saturating_sub(header.len()) as u64;
        let records = Self::parse(header).ok_or(Fault::Truncated { what: "file header", missing })?;
        input.consume(FILE_HEADER_BYTES);
        Ok(records)
    }

    fn parse(header: &[u8]) -> Option<Self> {
        let (magic, order) = magic(header)?;
        let version = (order.u16(header, 4)?, order.u16(header, 6)?);
        // The upper half holds the length of a trailing frame check sequence; it does not matter here.
        let link_type = order.u32(header, 20)? & 0xffff;
        Some(Self {
            order,
            record_header_bytes: if magic == MAGIC_MODIFIED { 24 } else { 16 },
            nanos_per_fraction: if magic == MAGIC_NANOSECONDS { 1 } else { 1_000 },
            lengths: match version {
                (2, 0..=2) | (543, _) => Lengths::WireFirst,
                (2, 3) => Lengths::Either,
                _ => Lengths::CapturedFirst,
            },
            link_type: LinkType::from_wire(u16::try_from(link_type).ok()?),
        })
    }

    /// Finds the next record, left at the front of `input`. False: the file has ended.
    #[inline]
    pub(super) fn next(&mut self, input: &mut Input, record: &mut Record) -> Result<bool, Fault> {
        input.begin_record();
        let window = input.peek(self.record_header_bytes)?;
        if window.is_empty() {
            return Ok(false);
        }
        let Some([seconds, fraction, first, second]) = self.header(window) else {
            let missing = self.record_header_bytes.saturating_sub(window.len()) as u64;
            return Err(Fault::Truncated { what: "record header", missing });
        };
        if is_file_header(window) {
            let what = "the header of another file begins here, as `cat one.pcap two.pcap` leaves it: put them together with `mergecap -w \
                        both.pcap one.pcap two.pcap`, or name both";
            return Err(Fault::Damaged(what.to_owned()));
        }
        let (captured, wire) = match self.lengths {
            Lengths::CapturedFirst => (first, second),
            Lengths::WireFirst => (second, first),
            Lengths::Either => (first.min(second), first.max(second)),
        };
        if captured > MAX_PACKET_BYTES {
            let what =
                format!("a packet record claims {captured} captured bytes, over the limit of {MAX_PACKET_BYTES}");
            return Err(Fault::Damaged(what));
        }
        let data_len = captured as usize;
        let total = self.record_header_bytes + data_len;
        let held = if window.len() < total { input.peek(total)?.len() } else { total };
        if held < total {
            return Err(Fault::Truncated { what: "packet record", missing: (total - held) as u64 });
        }
        // Cannot overflow: both factors are of 32 bits.
        let nanos = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.nanos_per_fraction;
        record.timestamp = Timestamp(nanos);
        record.link_type = self.link_type;
        record.wire_len = wire.max(captured);
        record.data_at = self.record_header_bytes;
        record.data_len = data_len;
        record.total = total;
        Ok(true)
    }

    #[inline]
    fn header(&self, window: &[u8]) -> Option<[u32; 4]> {
        let header: &[u8; 16] = window.get(..self.record_header_bytes)?.first_chunk()?;
        let (words, _) = header.as_chunks::<4>();
        let words: &[[u8; 4]; 4] = words.first_chunk()?;
        Some(match self.order {
            ByteOrder::Little => words.map(u32::from_le_bytes),
            ByteOrder::Big => words.map(u32::from_be_bytes),
        })
    }
}

/// Whether a file begins in place of a record: its magic number, version, and two numbers that are zero since 2.0. A record of nothing from
/// the year 2055 on might look like it.
fn is_file_header(window: &[u8]) -> bool {
    magic(window).is_some_and(|(_, order)| {
        order.u16(window, 4) == Some(2) && order.u16(window, 6) == Some(4) && window.get(8..16) == Some(&[0; 8])
    })
}

fn magic(start: &[u8]) -> Option<(u32, ByteOrder)> {
    [ByteOrder::Little, ByteOrder::Big].into_iter().find_map(|order| {
        let magic = order.u32(start, 0)?;
        matches!(magic, MAGIC_MICROSECONDS | MAGIC_NANOSECONDS | MAGIC_MODIFIED).then_some((magic, order))
    })
}

// Numbers in the byte order of the machine that wrote the file.

/// A file's, or a pcapng section's, byte order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The number at `at`; `None` where the bytes end before it does.
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let raw = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => u16::from_le_bytes(raw),
            Self::Big => u16::from_be_bytes(raw),
        })
    }

    /// As [`Self::u16`], four bytes.
    #[inline]
    pub(super) fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let raw = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => u32::from_le_bytes(raw),
            Self::Big => u32::from_be_bytes(raw),
        })
    }

    /// As [`Self::u16`], eight bytes, signed.
    pub(super) fn i64(self, bytes: &[u8], at: usize) -> Option<i64> {
        let raw = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => i64::from_le_bytes(raw),
            Self::Big => i64::from_be_bytes(raw),
        })
    }
}
