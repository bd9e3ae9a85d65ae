//! What every source of packets can do, say about itself and fail with.

use std::io;

use crate::Next;

/// Where packets come from: a file, several files merged, or an interface.
///
/// A source is pulled from one thread; it may be moved to that thread after it was opened.
pub trait PacketSource: Send {
    /// The next packet. It borrows the source's buffer, so it is gone at the next call.
    ///
    /// An error is given once; packets before it were delivered. A single file has then ended, a merge goes on with its
    /// other files.
    fn next_packet(&mut self) -> Result<Next<'_>, SourceError>;

    /// Counters so far.
    fn stats(&self) -> SourceStats;

    /// The file's path, `standard input`, `N files`, or the interface's name.
    fn name(&self) -> &str;

    /// How far a source of known size has been read.
    fn progress(&self) -> Option<Progress>;
}

/// Counters of a source. What a source cannot know is `None`, not 0.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SourceStats {
    /// Packets delivered.
    pub packets: u64,
    /// Captured bytes delivered.
    pub bytes: u64,
    /// Packets stamped earlier than one delivered before them.
    pub backwards: u64,
    /// Packets whose record holds no time (pcapng simple packet blocks): they carry the time of the packet before.
    pub untimed: u64,
    /// Packet records that were passed over although the file around them is sound: of an interface that was never
    /// described, with impossible lengths, or larger than [`MAX_PACKET_BYTES`](crate::MAX_PACKET_BYTES).
    pub unreadable: u64,
    /// Packets that passed the filter of a live capture, as the kernel counts them, dropped ones included.
    pub received: Option<u64>,
    /// Packets the kernel dropped because the capture buffer was full.
    pub dropped_by_kernel: Option<u64>,
    /// Packets the interface or its driver dropped: missed and FIFO errors.
    pub dropped_by_interface: Option<u64>,
    /// Times the packet ring was full and the kernel stopped filling it (`tp_freeze_q_cnt`).
    pub ring_freezes: Option<u64>,
    /// Packets dropped at the full backlog of a CPU, of the whole host, since the capture was opened
    /// (`/proc/net/softnet_stat`, second column). No capture buffer counts them.
    pub dropped_by_backlog: Option<u64>,
    /// Rise of the interface's `rx_dropped` since the capture was opened: dropped for want of memory or by the network
    /// stack, at a full backlog among others; packets that were captured may be among them.
    pub interface_rx_dropped: Option<u64>,
    /// Rise of the interface's `rx_missed_errors` since then: the host did not give it buffers in time.
    pub interface_rx_missed: Option<u64>,
    /// Rise of the interface's `rx_fifo_errors` since then: the interface's own queue ran over.
    pub interface_rx_fifo: Option<u64>,
}

/// How far a source has been read, in bytes as they lie on the disk (compressed ones where the file is).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// Bytes read so far.
    pub done_bytes: u64,
    /// Size of the source; a file that grows while it is read can exceed it.
    pub total_bytes: u64,
}

/// Why a source cannot go on. Offsets count bytes of the capture, after decompression.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Reading or decompressing failed.
    #[error("{name}: reading failed at byte {offset} of the capture: {error}; everything before that was read")]
    Read {
        /// The source's name.
        name: String,
        /// First byte that could not be had.
        offset: u64,
        /// The error of the system or the decompressor.
        #[source]
        error: io::Error,
    },
    /// The file stops inside a record.
    #[error(
        "{name}: the capture is cut short: the {what} at byte {offset} lacks {missing} bytes; everything before it was read"
    )]
    Truncated {
        /// The source's name.
        name: String,
        /// First byte of the incomplete record.
        offset: u64,
        /// Kind of record.
        what: &'static str,
        /// Bytes missing, as far as known.
        missing: u64,
    },
    /// A record's framing makes no sense, so the next one cannot be found.
    #[error("{name}: the capture is damaged at byte {offset}: {what}; everything before it was read")]
    Damaged {
        /// The source's name.
        name: String,
        /// First byte of the damaged record.
        offset: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The interface cannot be captured from any more: it went away or down, or the kernel refuses.
    #[error("capturing on {name} has stopped: {message}")]
    Live {
        /// The interface's name.
        name: String,
        /// The error of libpcap or the system.
        message: String,
    },
}
