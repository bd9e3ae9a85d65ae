//! Live packets from an interface, by libpcap.
//!
//! A mirror port can fall silent for hours, and on Linux libpcap's own time-out does not fire without packets. So the
//! capture is non-blocking and waits for its descriptor itself: the thread that pulls packets gets [`Next::Idle`] at
//! least every read time-out and can look at its clock or be stopped then.

mod open;

use std::num::NonZeroU32;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pcap::{Active, Capture};
use spand_proto::units::Timestamp;

pub use open::{LiveError, LiveOptions};

use crate::{LinkType, Next, Packet, PacketSource, Progress, SourceError, SourceStats};

/// An interface that is being captured from.
pub struct LiveCapture {
    interface: String,
    capture: Capture<Active>,
    link_type: LinkType,
    snap_len: usize,
    read_timeout: PollTimeout,
    /// The last read found nothing: wait before the next.
    drained: bool,
    ended: bool,
    latest: Timestamp,
    drops_read_at: Timestamp,
    kernel: KernelCounters,
    stats: SourceStats,
}

/// libpcap's counters as last read: 32 bits each, so only their differences mean anything for long.
#[derive(Default)]
struct KernelCounters {
    received: u32,
    dropped: u32,
    if_dropped: u32,
}

/// Drop counters are read when so much packet time has passed, and whenever the interface is idle: a second.
const DROPS_EVERY_NANOS: u64 = 1_000_000_000;

impl LiveCapture {
    fn new(interface: String, capture: Capture<Active>, snap_len: NonZeroU32, read_timeout: PollTimeout) -> Self {
        // A data link number beyond 16 bits does not exist; it would decode as nothing known.
        let data_link = u16::try_from(capture.get_datalink().0).unwrap_or(u16::MAX);
        let mut live = Self {
            interface,
            capture,
            link_type: LinkType::from_wire(data_link),
            snap_len: snap_len.get() as usize,
            read_timeout,
            drained: false,
            ended: false,
            latest: Timestamp(0),
            drops_read_at: Timestamp(0),
            kernel: KernelCounters::default(),
            stats: SourceStats::default(),
        };
        live.read_drops();
        live
    }

    /// What the first byte of each packet belongs to.
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// Waits until packets are there or the time-out has passed. False: nothing came.
    fn wait(&mut self) -> Result<bool, SourceError> {
        let mut descriptors = [PollFd::new(self.capture.as_fd(), PollFlags::POLLIN)];
        match poll(&mut descriptors, self.read_timeout) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(self.stopped(error.to_string())),
        }
    }

    fn read_drops(&mut self) {
        self.drops_read_at = self.latest;
        // An interface that cannot count leaves the counters unknown.
        let Ok(now) = self.capture.stats() else { return };
        let add = |sum: &mut Option<u64>, now: u32, before: &mut u32| {
            *sum = Some(sum.unwrap_or(0) + u64::from(now.wrapping_sub(*before)));
            *before = now;
        };
        add(&mut self.stats.received, now.received, &mut self.kernel.received);
        add(&mut self.stats.dropped_by_kernel, now.dropped, &mut self.kernel.dropped);
        add(&mut self.stats.dropped_by_interface, now.if_dropped, &mut self.kernel.if_dropped);
    }

    fn stopped(&mut self, message: String) -> SourceError {
        self.ended = true;
        SourceError::Live { name: self.interface.clone(), message }
    }
}

impl PacketSource for LiveCapture {
    fn next_packet(&mut self) -> Result<Next<'_>, SourceError> {
        if self.ended {
            return Ok(Next::End);
        }
        if self.latest.0.saturating_sub(self.drops_read_at.0) >= DROPS_EVERY_NANOS {
            self.read_drops();
        }
        if self.drained && !self.wait()? {
            self.read_drops();
            return Ok(Next::Idle);
        }
        match self.capture.next_packet() {
            Ok(packet) => {
                self.drained = false;
                let timestamp = timestamp(packet.header);
                let data = packet.data.get(..self.snap_len).unwrap_or(packet.data);
                if timestamp < self.latest {
                    self.stats.backwards += 1;
                }
                self.latest = self.latest.max(timestamp);
                self.stats.packets += 1;
                self.stats.bytes += data.len() as u64;
                Ok(Next::Packet(Packet {
                    timestamp,
                    link_type: self.link_type,
                    wire_len: packet.header.len.max(packet.header.caplen),
                    interface: 0,
                    source: 0,
                    data,
                }))
            }
            Err(pcap::Error::TimeoutExpired) => {
                self.drained = true;
                Ok(Next::Idle)
            }
            Err(error) => {
                self.ended = true;
                Err(SourceError::Live { name: self.interface.clone(), message: open::message(error) })
            }
        }
    }

    fn stats(&self) -> SourceStats {
        self.stats
    }

    fn name(&self) -> &str {
        &self.interface
    }

    fn progress(&self) -> Option<Progress> {
        None
    }
}

/// With nanosecond precision asked for, `tv_usec` counts nanoseconds.
fn timestamp(header: &pcap::PacketHeader) -> Timestamp {
    let seconds = u64::try_from(header.ts.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(header.ts.tv_usec).unwrap_or(0);
    Timestamp(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

impl std::fmt::Debug for LiveCapture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveCapture")
            .field("interface", &self.interface)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
