//! Live packets by libpcap.
//!
//! On Linux libpcap's own time-out does not fire without packets, so the capture waits for its descriptor itself.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pcap::{Active, Capture, Precision};
use spand_proto::units::Timestamp;

use super::error::interfaces;
use super::{LiveError, LiveOptions};
use crate::{LinkType, Next, Packet, PacketSource, Progress, SourceError, SourceStats};

/// An interface that is being captured from.
pub(super) struct PcapCapture {
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
/// Asked for on top of the snap length and cut off again: in immediate mode libpcap 1.10 makes the frames of its ring two
/// bytes too small for the snap length.
const SNAP_SLACK_BYTES: i32 = 16;

impl PcapCapture {
    /// Opens an interface. Packets are captured from here on, filtered from the first one.
    pub(super) fn open(options: &LiveOptions) -> Result<Self, LiveError> {
        let interface = options.interface.as_str();
        let checked = options.checked()?;
        let inactive = Capture::from_device(interface).map_err(|error| explain(interface, message(error)))?;
        let active = inactive
            .snaplen(checked.snap_len.saturating_add(SNAP_SLACK_BYTES))
            .buffer_size(checked.buffer)
            .immediate_mode(options.immediate)
            // libpcap only warns that `any` cannot be promiscuous, but the binding takes the warning for an error.
            .promisc(options.promiscuous && interface != "any")
            .timeout(i32::from(checked.timeout_ms))
            .precision(Precision::Nano)
            .open()
            .map_err(|error| explain(interface, message(error)))?;
        let mut capture = active.setnonblock().map_err(|error| explain(interface, message(error)))?;
        if let Some(filter) = &options.filter {
            capture.filter(filter, true).map_err(|error| LiveError::BadFilter {
                interface: interface.to_owned(),
                filter: filter.clone(),
                message: message(error),
            })?;
        }
        // A data link number beyond 16 bits does not exist; it would decode as nothing known.
        let data_link = u16::try_from(capture.get_datalink().0).unwrap_or(u16::MAX);
        let mut live = Self {
            interface: interface.to_owned(),
            capture,
            link_type: LinkType::from_wire(data_link),
            snap_len: options.snap_len.get() as usize,
            read_timeout: checked.poll_timeout(),
            drained: false,
            ended: false,
            latest: Timestamp(0),
            drops_read_at: Timestamp(0),
            kernel: KernelCounters::default(),
            stats: SourceStats::default(),
        };
        live.read_drops();
        Ok(live)
    }

    /// What the first byte of each packet belongs to.
    pub(super) fn link_type(&self) -> LinkType {
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

impl PacketSource for PcapCapture {
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
                    untimed: false,
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
                Err(SourceError::Live { name: self.interface.clone(), message: message(error) })
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

impl std::fmt::Debug for PcapCapture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PcapCapture")
            .field("interface", &self.interface)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// libpcap has its reasons only as text.
pub(super) fn explain(interface: &str, message: String) -> LiveError {
    let interface = interface.to_owned();
    let says = |words: &[&str]| words.iter().any(|word| message.to_lowercase().contains(word));
    if says(&["no such device"]) {
        LiveError::NoSuchInterface { interface, present: interfaces() }
    } else if says(&["permission", "not permitted"]) {
        LiveError::NoPrivilege { interface, message }
    } else if says(&["not up", "is down"]) {
        LiveError::Down { interface }
    } else {
        LiveError::Refused { interface, message }
    }
}

/// The words of an error, on one line and without the binding's own preamble.
pub(super) fn message(error: pcap::Error) -> String {
    let words = match error {
        pcap::Error::PcapError(words) => words,
        other => other.to_string(),
    };
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}
