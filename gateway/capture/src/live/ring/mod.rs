//! Live packets from a ring that the kernel fills (packet(7), `TPACKET_V3`; `net/packet/af_packet.c`).
//!
//! The ring is cut into blocks of many packets each. A block belongs to the kernel until it is full or its time is over,
//! then to this process, which reads the packets where they lie and gives the whole block back: no system call and no copy
//! per packet, and no wake-up but one per block.
//!
//! Nothing in a block is taken on trust: offsets and lengths are held against the block before they are used.

mod block;
mod memory;
mod socket;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use spand_proto::units::Timestamp;

use self::block::Place;
use self::memory::Ring;
use self::socket::PacketSocket;
use super::{LiveError, LiveOptions};
use crate::{LinkType, Next, Packet, PacketSource, Progress, SourceError, SourceStats};

/// Drop counters are read when so much packet time has passed, and whenever the interface is idle: a second.
const DROPS_EVERY_NANOS: u64 = 1_000_000_000;

/// An interface that is being captured from.
pub(super) struct RingCapture {
    interface: String,
    socket: PacketSocket,
    ring: Ring,
    link_type: LinkType,
    snap_len: usize,
    read_timeout: PollTimeout,
    /// Packets of the block that is held which were not delivered yet, and where the first of them lies.
    left: u32,
    at: usize,
    /// The last look found no block: wait before the next.
    drained: bool,
    ended: bool,
    latest: Timestamp,
    drops_read_at: Timestamp,
    stats: SourceStats,
}

impl RingCapture {
    /// Opens an interface. Packets are captured from here on, filtered from the first one.
    pub(super) fn open(options: &LiveOptions) -> Result<Self, LiveError> {
        let checked = options.checked()?;
        let (socket, ring, link_type) = socket::open(options, checked)?;
        let mut capture = Self {
            interface: options.interface.clone(),
            socket,
            ring,
            link_type,
            snap_len: options.snap_len.get() as usize,
            read_timeout: checked.poll_timeout(),
            left: 0,
            at: 0,
            drained: false,
            ended: false,
            latest: Timestamp(0),
            drops_read_at: Timestamp(0),
            stats: SourceStats::default(),
        };
        capture.read_drops();
        Ok(capture)
    }

    /// What the first byte of each packet belongs to.
    pub(super) fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// The next packet's place in the block that is held. Gives back a block that was read to its end, and so must not be
    /// called while anything borrows from it: `&mut self` sees to that.
    fn advance(&mut self) -> Result<Option<Place>, SourceError> {
        loop {
            if self.left == 0 && !self.next_block()? {
                return Ok(None);
            }
            let Some(block) = self.ring.held() else {
                self.left = 0;
                continue;
            };
            let Some(place) = block::place(block, self.at) else {
                self.stats.unreadable += u64::from(self.left);
                self.left = 0;
                continue;
            };
            self.left -= 1;
            if let Some(next) = place.next {
                self.at = next;
            } else {
                self.stats.unreadable += u64::from(self.left);
                self.left = 0;
            }
            return Ok(Some(place));
        }
    }

    /// Gives back the block that was read and takes the next. False: there is none.
    fn next_block(&mut self) -> Result<bool, SourceError> {
        self.ring.release();
        if self.drained && !self.wait()? {
            self.read_drops();
            return Ok(false);
        }
        self.drained = !self.ring.acquire();
        if let Some(block) = self.ring.held() {
            match block::first(block) {
                Some((at, packets)) => (self.at, self.left) = (at, packets),
                // A block without readable head: how many packets it held is not known.
                None => self.stats.unreadable += 1,
            }
        }
        Ok(!self.drained)
    }

    /// Waits until a block is there or the time-out has passed. False: nothing came.
    fn wait(&mut self) -> Result<bool, SourceError> {
        let mut descriptors = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut descriptors, self.read_timeout) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(false),
            Err(error) => return Err(self.stopped(error.to_string())),
        }
        let events = descriptors[0].revents().unwrap_or(PollFlags::empty());
        // An interface that goes down says so and may come back: the socket then receives again. One that goes away
        // leaves the socket bound to none.
        if events.contains(PollFlags::POLLERR) {
            match self.socket.take_error() {
                None | Some(Errno::ENETDOWN) => {}
                Some(error) => return Err(self.stopped(error.to_string())),
            }
        }
        if !events.contains(PollFlags::POLLIN) && self.socket.is_orphaned() {
            return Err(self.stopped("the interface went away".to_owned()));
        }
        Ok(events.contains(PollFlags::POLLIN))
    }

    fn read_drops(&mut self) {
        self.drops_read_at = self.latest;
        let Some(read) = self.socket.take_statistics() else { return };
        let add = |sum: &mut Option<u64>, more: u32| *sum = Some(sum.unwrap_or(0) + u64::from(more));
        add(&mut self.stats.received, read.tp_packets);
        add(&mut self.stats.dropped_by_kernel, read.tp_drops);
        add(&mut self.stats.ring_freezes, read.tp_freeze_q_cnt);
    }

    fn stopped(&mut self, message: String) -> SourceError {
        self.ended = true;
        SourceError::Live { name: self.interface.clone(), message }
    }
}

impl PacketSource for RingCapture {
    fn next_packet(&mut self) -> Result<Next<'_>, SourceError> {
        if self.ended {
            return Ok(Next::End);
        }
        if self.latest.0.saturating_sub(self.drops_read_at.0) >= DROPS_EVERY_NANOS {
            self.read_drops();
        }
        let Some(mut place) = self.advance()? else { return Ok(Next::Idle) };
        if place.timestamp < self.latest {
            self.stats.backwards += 1;
        }
        self.latest = self.latest.max(place.timestamp);
        let ethernet = self.link_type == LinkType::ETHERNET;
        let data = match self.ring.held() {
            Some(block) => {
                if let Some(tag) = place.tag.filter(|_| ethernet) {
                    place = block::put_tag_back(block, place, tag);
                }
                block.get(place.data.clone()).unwrap_or_default()
            }
            None => &[],
        };
        let data = data.get(..self.snap_len).unwrap_or(data);
        self.stats.packets += 1;
        self.stats.bytes += data.len() as u64;
        Ok(Next::Packet(Packet {
            timestamp: place.timestamp,
            untimed: false,
            link_type: self.link_type,
            wire_len: place.wire_len.max(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            interface: 0,
            source: 0,
            data,
        }))
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

impl std::fmt::Debug for RingCapture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingCapture")
            .field("interface", &self.interface)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
