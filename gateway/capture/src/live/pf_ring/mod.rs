//! Live packets by PF_RING, through the vendor's library.
//!
//! A device is named as the library names it: `eth1` and `zc:eth1` need the kernel module `pf_ring.ko`, `pcap:eth1` and
//! `pcap:FILE` do not. What each of the library's modules answers differs:
//!
//! | | `pcap:` | others |
//! | --- | --- | --- |
//! | the end of a file | -2 | does not happen |
//! | counters | none (-7) | there |
//! | waiting | by the second, and a read that does not wait may wait for ever | by the millisecond |
//! | clusters | none (-7) | there |
//!
//! The library reports link type 1 whatever it reads, so the type is looked up beside it.

mod library;
mod open;

use std::ffi::{c_int, c_uint};
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use spand_proto::units::Timestamp;

use self::library::{Device, Library, NOT_SUPPORTED};
use self::open::{link_type, start, unsupported};
use super::{LiveError, LiveOptions};
use crate::{LinkType, Next, Packet, PacketSource, Progress, SourceError, SourceStats};

/// Counters are read when so much packet time has passed, and whenever the device is idle: a second.
const COUNTERS_EVERY_NANOS: u64 = 1_000_000_000;
/// The end of a file, from the `pcap:` module.
const END_OF_FILE: c_int = -2;

/// A device that is being captured from.
pub(super) struct PfRingCapture {
    name: String,
    device: Device,
    is_pcap: bool,
    link_type: LinkType,
    snap_len: usize,
    timeout_ms: u16,
    /// How packets come: one at a time, or in chunks.
    chunks: Option<Chunks>,
    packet: Vec<u8>,
    /// The last read found nothing: wait before the next.
    drained: bool,
    ended: bool,
    latest: Timestamp,
    counters_read_at: Timestamp,
    stats: SourceStats,
}

/// How far the chunk at hand was read.
#[derive(Debug, Default)]
struct Chunks {
    at: usize,
    nanos_per_tick: u64,
}

impl Chunks {
    /// At the beginning of a chunk of this kind.
    fn new(kind: c_uint) -> Result<Self, String> {
        match nanos_per_tick(kind) {
            Some(nanos_per_tick) => Ok(Self { at: 0, nanos_per_tick }),
            None => Err(format!("its chunks are of kind {kind}, which is not read")),
        }
    }
}

impl PfRingCapture {
    /// Opens a device. Packets are captured from here on, filtered from the first one.
    pub(super) fn open(options: &LiveOptions) -> Result<Self, LiveError> {
        let checked = options.checked()?;
        let is_pcap = options.interface.starts_with("pcap:");
        let link_type = link_type(&options.interface)?;
        let library = Library::load(&options.pf_ring.library).map_err(|error| LiveError::NoLibrary {
            interface: options.interface.clone(),
            library: options.pf_ring.library.clone(),
            message: error,
        })?;
        let mut device = start(options, library, library::CHUNK_MODE)?;
        let chunks = match device.receive_chunk() {
            Err(NOT_SUPPORTED) => {
                device = start(options, device.close(), 0)?;
                None
            }
            Ok(kind) => {
                Some(Chunks::new(kind).map_err(|message| unsupported(options, &message, "choose another backend"))?)
            }
            Err(_) => Some(Chunks::default()),
        };
        let mut capture = Self {
            name: options.interface.clone(),
            device,
            is_pcap,
            link_type,
            snap_len: options.snap_len.get() as usize,
            timeout_ms: checked.timeout_ms,
            chunks,
            packet: Vec::new(),
            drained: false,
            ended: false,
            latest: Timestamp(0),
            counters_read_at: Timestamp(0),
            stats: SourceStats::default(),
        };
        capture.read_counters();
        Ok(capture)
    }

    /// What the first byte of each packet belongs to.
    pub(super) fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// The next packet's time and length on the wire; its bytes are in `packet`. `None`: nothing is there now.
    fn receive(&mut self) -> Result<Option<(u64, u32)>, SourceError> {
        if self.drained {
            if !self.wait()? {
                return Ok(None);
            }
        } else if self.is_pcap && self.device.poll(0) == 0 {
            // A read would wait: say first that nothing is there, so that what came before travels on.
            self.drained = true;
            return Ok(None);
        }
        let received = if self.chunks.is_some() { self.chunked()? } else { self.slot()? };
        self.drained = received.is_none();
        Ok(received)
    }

    fn slot(&mut self) -> Result<Option<(u64, u32)>, SourceError> {
        match self.device.receive(&mut self.packet, self.snap_len, self.is_pcap) {
            Ok(packet) => Ok(Some((packet.time_ns, packet.wire_len))),
            Err(0) => Ok(None),
            Err(END_OF_FILE) if self.is_pcap => {
                self.ended = true;
                Ok(None)
            }
            Err(answer) => Err(self.stopped(answer)),
        }
    }

    fn chunked(&mut self) -> Result<Option<(u64, u32)>, SourceError> {
        loop {
            let Some(chunks) = &mut self.chunks else { return Ok(None) };
            let (at, length) = (chunks.at, self.device.chunk_len());
            let header = at..at.saturating_add(HEADER_BYTES);
            if self.device.copy_of_chunk(header, &mut self.packet)
                && let Some(record) = record(&self.packet, at, length, chunks.nanos_per_tick)
            {
                chunks.at = record.data.end;
                let data = record.data.start..record.data.end.min(record.data.start.saturating_add(self.snap_len));
                self.device.copy_of_chunk(data, &mut self.packet);
                return Ok(Some((record.time_ns, record.wire_len)));
            }
            if at < length {
                // A record that does not fit its chunk hides those behind it.
                self.stats.unreadable += 1;
                chunks.at = length;
            }
            match self.device.receive_chunk() {
                Ok(kind) => match Chunks::new(kind) {
                    Ok(new) => *chunks = new,
                    Err(message) => return Err(self.stopped_for(message)),
                },
                Err(0) => return Ok(None),
                Err(answer) => return Err(self.stopped(answer)),
            }
        }
    }

    /// Waits until packets are there or the time-out has passed. False: nothing came.
    fn wait(&mut self) -> Result<bool, SourceError> {
        let duration = if self.is_pcap { 1 } else { self.timeout_ms.into() };
        match self.device.poll(duration) {
            0 => Ok(false),
            NOT_SUPPORTED => {
                std::thread::sleep(Duration::from_millis(1));
                Ok(true)
            }
            answer if answer < 0 && Errno::last() == Errno::EINTR => Ok(false),
            answer if answer < 0 => Err(self.stopped(answer)),
            _ => Ok(true),
        }
    }

    fn read_counters(&mut self) {
        self.counters_read_at = self.latest;
        if let Some(read) = self.device.statistics() {
            // The library counts packets read, the source those dropped as well.
            self.stats.received = Some(read.recv + read.drop);
            self.stats.dropped_by_kernel = Some(read.drop);
        }
    }

    fn stopped(&mut self, answer: c_int) -> SourceError {
        self.stopped_for(format!("PF_RING answers {answer} ({})", Errno::last()))
    }

    fn stopped_for(&mut self, message: String) -> SourceError {
        self.ended = true;
        SourceError::Live { name: self.name.clone(), message }
    }
}

impl PacketSource for PfRingCapture {
    fn next_packet(&mut self) -> Result<Next<'_>, SourceError> {
        if self.ended {
            return Ok(Next::End);
        }
        if self.latest.0.saturating_sub(self.counters_read_at.0) >= COUNTERS_EVERY_NANOS {
            self.read_counters();
        }
        let Some((time_ns, wire_len)) = self.receive()? else {
            self.read_counters();
            return Ok(if self.ended { Next::End } else { Next::Idle });
        };
        let timestamp = if time_ns == 0 {
            self.stats.untimed += 1;
            now()
        } else {
            Timestamp(time_ns)
        };
        if timestamp < self.latest {
            self.stats.backwards += 1;
        }
        self.latest = self.latest.max(timestamp);
        let data = self.packet.as_slice();
        self.stats.packets += 1;
        self.stats.bytes += data.len() as u64;
        let wire_len = wire_len.max(u32::try_from(data.len()).unwrap_or(u32::MAX));
        Ok(Next::Packet(Packet {
            timestamp,
            untimed: false,
            link_type: self.link_type,
            wire_len,
            interface: 0,
            source: 0,
            data,
        }))
    }

    fn stats(&self) -> SourceStats {
        self.stats
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn progress(&self) -> Option<Progress> {
        None
    }
}

fn now() -> Timestamp {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp(u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX))
}

impl std::fmt::Debug for PfRingCapture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PfRingCapture").field("name", &self.name).field("stats", &self.stats).finish_non_exhaustive()
    }
}

// Packets in a chunk: records as in a pcap file, one behind the other, in the machine's byte order.

/// Kinds of chunks (`pfring_chunk_type`) that are read, and how many nanoseconds the second number of a time counts.
fn nanos_per_tick(kind: c_uint) -> Option<u64> {
    match kind {
        0 => Some(1_000),
        1 => Some(1),
        _ => None,
    }
}

/// A packet in its chunk.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Record {
    /// Its bytes.
    data: Range<usize>,
    /// Nanoseconds since 1970.
    time_ns: u64,
    /// Length on the wire.
    wire_len: u32,
}

/// Bytes of a record before its data.
const HEADER_BYTES: usize = 16;

/// The record whose first bytes, at `at` in a chunk of `chunk_len` bytes, are `header`; the next begins where its data ends.
/// `None` where it does not fit. `header` is a copy: in the chunk the numbers may change after they were checked.
fn record(header: &[u8], at: usize, chunk_len: usize, nanos_per_tick: u64) -> Option<Record> {
    let start = at.checked_add(HEADER_BYTES)?;
    let (numbers, rest) = header.as_chunks::<4>();
    let ([seconds, ticks, captured, wire_len], []) = (numbers, rest) else { return None };
    let [seconds, ticks, captured, wire_len] =
        [seconds, ticks, captured, wire_len].map(|number| u32::from_ne_bytes(*number));
    let end = start.checked_add(usize::try_from(captured).ok()?)?;
    let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(ticks) * nanos_per_tick;
    (end <= chunk_len).then_some(Record { data: start..end, time_ns, wire_len })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_follow_each_other_and_end_with_the_chunk() {
        let mut chunk = Vec::new();
        for (seconds, data) in [(1_u32, b"abc".as_slice()), (2, b"")] {
            let length = u32::try_from(data.len()).unwrap();
            chunk.extend([seconds, 7, length, length + 60].iter().flat_map(|number| number.to_ne_bytes()));
            chunk.extend_from_slice(data);
        }
        let record_in = |chunk: &[u8], at: usize, nanos| {
            let header = chunk.get(at..)?.get(..HEADER_BYTES)?;
            record(header, at, chunk.len(), nanos)
        };
        let first = record_in(&chunk, 0, 1_000).unwrap();
        assert_eq!((&chunk[first.data.clone()], first.time_ns, first.wire_len), (b"abc".as_slice(), 1_000_007_000, 63));
        let second = record_in(&chunk, first.data.end, 1).unwrap();
        assert_eq!((second.data.len(), second.time_ns), (0, 2_000_000_007));
        assert_eq!(record_in(&chunk, second.data.end, 1), None);
        for cut in 0..first.data.end {
            assert_eq!(record_in(&chunk[..cut], 0, 1), None, "{cut}");
        }
        assert_eq!(record(&[0; HEADER_BYTES], usize::MAX, usize::MAX, 1), None);
        assert_eq!(record(&[0; 12], 0, 100, 1), None);
    }
}
