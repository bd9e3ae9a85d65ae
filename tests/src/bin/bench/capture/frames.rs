//! Frames of many TCP connections, both directions in turn: every segment carries data and acknowledges all of the other's.

use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use std::{mem, thread};

use anyhow::{Context, Result};
use nix::errno::Errno;
use spand_tests::lab::wire::packet_port;

/// Bytes before a segment's data: Ethernet, IPv4 and TCP without options.
const HEADERS_BYTES: usize = 14 + 20 + 20;
/// Shortest frame, its checksum not counted.
pub(super) const SHORTEST_BYTES: usize = 60;
/// Longest frame of an Ethernet without jumbo frames, its checksum not counted.
pub(super) const LONGEST_BYTES: usize = 1_514;

/// The frames of all connections, one after the other.
#[derive(Debug)]
pub(super) struct Frames {
    len: usize,
    connections: Vec<Connection>,
    next: usize,
    /// Whether this round's segments come from inside.
    from_inside: bool,
}

/// Sequence numbers of both ends.
#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    inside: u32,
    outside: u32,
}

impl Frames {
    /// Frames of `len` bytes from `connections` connections.
    pub(super) fn new(len: usize, connections: usize) -> Self {
        Self { len, connections: vec![Connection::default(); connections], next: 0, from_inside: true }
    }

    /// The outside end of each connection: no two in one network.
    pub(super) fn remotes(&self) -> Vec<IpAddr> {
        (0..self.connections.len()).map(|number| IpAddr::from(ends(number).1)).collect()
    }

    /// An empty frame to be filled.
    pub(super) fn blank(&self) -> Vec<u8> {
        let mut frame = vec![0; self.len];
        // Neither address is the interface's: a mirror port's frames are for others.
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 0x11, 2, 0, 0, 0, 0, 0x12, 0x08, 0x00]);
        frame[14..34].copy_from_slice(&[0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let ip_len = u16::try_from(self.len - 14).unwrap_or(u16::MAX);
        frame[16..18].copy_from_slice(&ip_len.to_be_bytes());
        // Header length, ACK and PSH, window.
        frame[46..50].copy_from_slice(&[0x50, 0x18, 0xff, 0xff]);
        frame
    }

    /// Fills a frame with the next segment.
    pub(super) fn fill(&mut self, frame: &mut [u8]) {
        let Some(connection) = self.connections.get_mut(self.next) else { return };
        let (host, remote) = ends(self.next);
        let payload = u32::try_from(self.len - HEADERS_BYTES).unwrap_or(0);
        let (from, to, ports, seq, ack) = if self.from_inside {
            (host, remote, [443_u16, 40_000], connection.inside, connection.outside)
        } else {
            (remote, host, [40_000, 443], connection.outside, connection.inside)
        };
        let sent = if self.from_inside { &mut connection.inside } else { &mut connection.outside };
        *sent = sent.wrapping_add(payload);
        let [from_port, to_port] = ports.map(u16::to_be_bytes);
        // Addresses, ports, sequence and acknowledgement numbers stand in a row.
        let numbers =
            [from, to, [from_port[0], from_port[1], to_port[0], to_port[1]], seq.to_be_bytes(), ack.to_be_bytes()];
        if let Some(place) = frame.get_mut(26..46) {
            place.copy_from_slice(numbers.as_flattened());
        }
        self.next += 1;
        if self.next == self.connections.len() {
            self.next = 0;
            self.from_inside = !self.from_inside;
        }
    }
}

/// Both ends of a connection: inside and outside.
fn ends(number: usize) -> ([u8; 4], [u8; 4]) {
    let [_, high, middle, low] = u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
    ([10, high, middle, low], [11, middle, low, 9])
}

// The sending end: frames from one thread as fast as the kernel takes them, or at a rate.

/// Frames per system call.
const BATCH: usize = 64;

/// What was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) frames: u64,
    pub(super) took: Duration,
}

/// Sends from `device` for `time`; at `rate` frames a second where there is one.
pub(super) fn send(device: &str, mut frames: Frames, time: Duration, rate: Option<u32>) -> Result<Sent> {
    let port = packet_port(device)?;
    let batch = if rate.is_some() { 1 } else { BATCH };
    let mut buffers: Vec<Vec<u8>> = (0..batch).map(|_| frames.blank()).collect();
    let mut pieces: Vec<libc::iovec> = buffers
        .iter_mut()
        .map(|buffer| libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() })
        .collect();
    let mut messages: Vec<libc::mmsghdr> = pieces
        .iter_mut()
        .map(|piece| {
            // SAFETY: numbers and pointers; zero and null are values of theirs.
            let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
            message.msg_hdr.msg_iov = piece;
            message.msg_hdr.msg_iovlen = 1;
            message
        })
        .collect();
    let started = Instant::now();
    let mut sent = 0;
    while started.elapsed() < time {
        for buffer in &mut buffers {
            frames.fill(buffer);
        }
        let count = u32::try_from(messages.len())?;
        let mut done: u32 = 0;
        while done < count {
            let rest = messages.get_mut(done as usize..).unwrap_or_default();
            // SAFETY: as many messages as `rest` holds, each with one piece of a buffer that outlives the call.
            let answer = unsafe { libc::sendmmsg(port.as_raw_fd(), rest.as_mut_ptr(), count - done, 0) };
            match Errno::result(answer) {
                Ok(taken) => done += u32::try_from(taken)?,
                // The device was full: the frame is offered again.
                Err(Errno::ENOBUFS | Errno::EAGAIN) => {}
                Err(error) => return Err(error).context("cannot send"),
            }
        }
        sent += u64::from(done);
        if let Some(rate) = rate {
            let due = started + Duration::from_secs_f64(sent as f64 / f64::from(rate));
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }
    Ok(Sent { frames: sent, took: started.elapsed() })
}
