//! The mirror port: SYNs as Ethernet frames, at a steady rate.

use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use super::{End, Ledger, host, remote};
use crate::lab::port::packet_port;
use anyhow::{Context, Result};
use nix::sys::socket::{MsgFlags, send as send_frame};

/// Sends one SYN per entry of the ledger from the interface `device`, `rate` of them a second.
///
/// # Errors
/// Where the interface takes no frames.
pub fn send(device: &str, hosts: usize, networks: usize, rate: u32, ledger: &Ledger) -> Result<()> {
    let port = packet_port(device)?;
    let gap = Duration::from_secs(1) / rate;
    let started = Instant::now();
    for number in 0..ledger.len() {
        let due = started + gap * u32::try_from(number)?;
        // Sleeping is late by up to a tenth of a millisecond, which only makes the gaps uneven.
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let frame = syn(host(number % hosts), remote(number, networks));
        ledger.note(End::Sent, number);
        send_frame(port.as_raw_fd(), &frame, MsgFlags::empty()).context("cannot send on the mirror port")?;
    }
    Ok(())
}

/// A SYN with the usual options; its checksums are left at zero, as a mirror port may show them.
fn syn(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    frame.extend([0x45, 0, 0, 48, 0, 1, 0x40, 0, 64, 6, 0, 0]);
    frame.extend(from.octets());
    frame.extend(to.octets());
    frame.extend([0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x70, 0x02, 0xfa, 0xf0, 0, 0, 0, 0]);
    frame.extend([2, 4, 5, 0xb4, 1, 1, 4, 2]);
    frame
}
