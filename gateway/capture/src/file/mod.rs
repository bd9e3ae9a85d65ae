//! Capture files: pcap and pcapng, plain, gzip or zstd, from a path or standard input.
//!
//! Memory is one buffer per file, whatever the file claims about its lengths. Damage ends a file with one error that
//! says what and where; packets before it are delivered.

mod input;
mod open;
mod pcap;
mod pcapng;

use spand_proto::units::Timestamp;

pub use open::{OpenError, open_file};

use crate::{LinkType, Next, Packet, PacketSource, Progress, SourceError, SourceStats};
use input::{Input, Meter};
use pcap::PcapRecords;
use pcapng::PcapngBlocks;

/// Largest packet delivered, in captured bytes: libpcap's `MAXIMUM_SNAPLEN`. Larger claims are damage.
pub const MAX_PACKET_BYTES: u32 = 262_144;

/// A capture file that is being read.
pub struct CaptureFile {
    name: String,
    input: Input,
    meter: Meter,
    format: Format,
    /// Where in `input`, at its start, the packet lies that `current` gives.
    record: Record,
    /// Whether there is such a packet.
    present: bool,
    ended: bool,
    latest: Timestamp,
    stats: SourceStats,
}

enum Format {
    Pcap(PcapRecords),
    Pcapng(PcapngBlocks),
}

/// A packet record at the front of the input. Readers fill it in place: it is the one thing moved per packet.
struct Record {
    timestamp: Timestamp,
    /// It holds no time.
    untimed: bool,
    link_type: LinkType,
    wire_len: u32,
    interface: u32,
    /// Bytes from the start of the record to the packet.
    data_at: usize,
    data_len: usize,
    /// Bytes of the whole record, padding and trailer included.
    total: usize,
}

/// Why the next record cannot be had; the file adds its name.
enum Fault {
    Read(std::io::Error),
    Truncated { what: &'static str, missing: u64 },
    Damaged(String),
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Self::Read(error)
    }
}

impl CaptureFile {
    fn new(name: String, input: Input, meter: Meter, format: Format) -> Self {
        let record = Record {
            timestamp: Timestamp(0),
            untimed: false,
            link_type: LinkType::NULL,
            wire_len: 0,
            interface: 0,
            data_at: 0,
            data_len: 0,
            total: 0,
        };
        let stats = SourceStats::default();
        Self { name, input, meter, format, record, present: false, ended: false, latest: Timestamp(0), stats }
    }

    /// Steps to the next packet, which `current` then gives. False: the file has ended.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool, SourceError> {
        if self.present {
            self.input.consume(self.record.total);
            self.present = false;
        }
        if self.ended {
            return Ok(false);
        }
        let found = match &mut self.format {
            Format::Pcap(records) => records.next(&mut self.input, &mut self.record),
            Format::Pcapng(blocks) => blocks.next(&mut self.input, &mut self.record, &mut self.stats),
        };
        match found {
            Ok(true) => {
                self.present = true;
                self.stats.packets += 1;
                self.stats.bytes += self.record.data_len as u64;
                self.stats.backwards += u64::from(self.record.timestamp < self.latest);
                self.latest = self.latest.max(self.record.timestamp);
                Ok(true)
            }
            Ok(false) => {
                self.ended = true;
                Ok(false)
            }
            Err(fault) => {
                self.ended = true;
                Err(self.error(fault))
            }
        }
    }

    /// The packet that `advance` found.
    #[inline]
    pub(crate) fn current(&self) -> Option<Packet<'_>> {
        let Record { timestamp, untimed, link_type, wire_len, interface, data_at, data_len, .. } = self.record;
        let data = self.input.window().get(data_at..)?.get(..data_len)?;
        self.present.then_some(Packet { timestamp, untimed, link_type, wire_len, interface, source: 0, data })
    }

    #[cold]
    fn error(&self, fault: Fault) -> SourceError {
        let name = self.name.clone();
        let offset = self.input.record_at();
        match fault {
            Fault::Read(error) => SourceError::Read { name, offset: self.input.read_to(), error },
            Fault::Truncated { what, missing } => SourceError::Truncated { name, offset, what, missing },
            Fault::Damaged(what) => SourceError::Damaged { name, offset, what },
        }
    }
}

impl PacketSource for CaptureFile {
    fn next_packet(&mut self) -> Result<Next<'_>, SourceError> {
        self.advance()?;
        Ok(self.current().map_or(Next::End, Next::Packet))
    }

    fn stats(&self) -> SourceStats {
        self.stats
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn progress(&self) -> Option<Progress> {
        self.meter.progress()
    }
}

impl std::fmt::Debug for CaptureFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CaptureFile").field("name", &self.name).field("stats", &self.stats).finish_non_exhaustive()
    }
}
