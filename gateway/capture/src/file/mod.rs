//! Capture files: pcap and pcapng, plain, gzip or zstd, from a path or standard input.
//!
//! Memory is one buffer per file, whatever the file claims about its lengths. Damage ends a file with one error that
//! says what and where; packets before it are delivered.

mod byte_order;
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
    /// The record `current` describes; its bytes lie at the start of `input`.
    record: Option<Record>,
    ended: bool,
    latest: Option<Timestamp>,
    stats: SourceStats,
}

enum Format {
    Pcap(PcapRecords),
    Pcapng(PcapngBlocks),
}

/// A packet record at the front of the input.
#[derive(Clone, Copy)]
struct Record {
    /// `None` where the record holds none.
    timestamp: Option<Timestamp>,
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
        Self { name, input, meter, format, record: None, ended: false, latest: None, stats: SourceStats::default() }
    }

    /// Steps to the next packet, which `current` then gives. `Ok(None)`: the file has ended.
    pub(crate) fn advance(&mut self) -> Result<Option<Timestamp>, SourceError> {
        if let Some(done) = self.record.take() {
            self.input.consume(done.total);
        }
        if self.ended {
            return Ok(None);
        }
        let record = match &mut self.format {
            Format::Pcap(records) => records.next(&mut self.input),
            Format::Pcapng(blocks) => blocks.next(&mut self.input, &mut self.stats.unreadable),
        };
        match record {
            Ok(Some(record)) => Ok(Some(self.accept(record))),
            Ok(None) => {
                self.ended = true;
                Ok(None)
            }
            Err(fault) => {
                self.ended = true;
                Err(self.error(fault))
            }
        }
    }

    /// The packet that `advance` found.
    pub(crate) fn current(&self) -> Option<Packet<'_>> {
        let record = self.record.as_ref()?;
        let data = self.input.window().get(record.data_at..)?.get(..record.data_len)?;
        Some(Packet {
            timestamp: record.timestamp.unwrap_or_default(),
            link_type: record.link_type,
            wire_len: record.wire_len,
            interface: record.interface,
            source: 0,
            data,
        })
    }

    fn accept(&mut self, mut record: Record) -> Timestamp {
        let latest = self.latest.unwrap_or_default();
        let timestamp = record.timestamp.unwrap_or_else(|| {
            self.stats.untimed += 1;
            latest
        });
        if timestamp < latest {
            self.stats.backwards += 1;
        }
        self.latest = Some(latest.max(timestamp));
        self.stats.packets += 1;
        self.stats.bytes += record.data_len as u64;
        record.timestamp = Some(timestamp);
        self.record = Some(record);
        timestamp
    }

    fn error(&self, fault: Fault) -> SourceError {
        let name = self.name.clone();
        let offset = self.input.offset();
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
