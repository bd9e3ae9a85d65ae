//! The sending end: frames from one thread as fast as the kernel takes them, or at a rate.

use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::frames::Frames;

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
    let port = open(device)?;
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

/// A packet socket that hands whole frames to the device, past its queue.
fn open(device: &str) -> Result<OwnedFd> {
    let port = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)
        .context("cannot open a packet socket: this needs root")?;
    // SAFETY: numbers and an array of them; zero is a value of each.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET)?;
    address.sll_ifindex = i32::try_from(if_nametoindex(device)?)?;
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>())?;
    // SAFETY: the address lives through the call and `length` is its size.
    let bound = unsafe { libc::bind(port.as_raw_fd(), (&raw const address).cast(), length) };
    Errno::result(bound).context("cannot bind the packet socket")?;
    let (option, on) = (libc::PACKET_QDISC_BYPASS, 1_i32);
    let length = libc::socklen_t::try_from(size_of::<i32>())?;
    // SAFETY: the kernel reads an integer that lives through the call.
    let set = unsafe { libc::setsockopt(port.as_raw_fd(), libc::SOL_PACKET, option, (&raw const on).cast(), length) };
    Errno::result(set).context("cannot send past the device's queue")?;
    Ok(port)
}
