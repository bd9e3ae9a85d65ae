//! A way for whole frames onto a device.

use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// A packet socket that hands whole frames to the device, past its queue.
///
/// # Errors
/// Without the right to, or without the device.
pub fn packet_port(device: &str) -> Result<OwnedFd> {
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
