//! The sending end: frames from one thread as fast as the kernel takes them, or at a rate.

use std::mem;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use spand_tests::lab::port::packet_port;

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
