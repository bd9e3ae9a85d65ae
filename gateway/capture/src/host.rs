//! What the host does to packets and to their time stamps before they are captured.
//!
//! An interface that merges the packets of a connection (GRO in the kernel, LRO in the adapter) shows fewer packets and
//! acknowledgements than were on the wire. Asked by ethtool's first interface (`include/uapi/linux/ethtool.h`), which every
//! kernel and driver has and which needs no privilege to read.

#![expect(unsafe_code, reason = "ethtool's requests and the kernel's clock have a C interface only")]

use std::io;
use std::mem::zeroed;
use std::os::fd::AsRawFd;

use libc::{c_char, c_int, c_ulong};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::live::interface_of;

/// What an interface does to packets by itself; `None` where its driver does not say.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Offloads {
    /// The kernel merges packets that were received (generic receive offload).
    pub gro: Option<bool>,
    /// The adapter does, and loses what is in their headers (large receive offload).
    pub lro: Option<bool>,
    /// The adapter cuts large packets that this host sends (TCP segmentation offload): a capture shows them whole.
    pub tso: Option<bool>,
    /// The kernel does, late (generic segmentation offload): the same.
    pub gso: Option<bool>,
}

const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
/// Of the answer to `ETHTOOL_GFLAGS`.
const ETH_FLAG_LRO: u32 = 1 << 15;

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Asks what the interface of a device does.
pub fn offloads(device: &str) -> io::Result<Offloads> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let ask = |command| -> io::Result<Option<u32>> {
        let mut value = EthtoolValue { command, data: 0 };
        let mut request = request(device)?;
        request.ifr_ifru.ifru_data = (&raw mut value).cast::<c_char>();
        match ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &mut request) {
            Ok(()) => Ok(Some(value.data)),
            Err(Errno::EOPNOTSUPP | Errno::EPERM) => Ok(None),
            Err(error) => Err(error.into()),
        }
    };
    let on = |command| Ok::<_, io::Error>(ask(command)?.map(|data| data != 0));
    Ok(Offloads {
        gro: on(ETHTOOL_GGRO)?,
        lro: ask(ETHTOOL_GFLAGS)?.map(|flags| flags & ETH_FLAG_LRO != 0),
        tso: on(ETHTOOL_GTSO)?,
        gso: on(ETHTOOL_GGSO)?,
    })
}

/// Longest packet in bytes, link header left out, that the interface of a device takes (netdevice(7), `SIOCGIFMTU`).
pub fn mtu_bytes(device: &str) -> io::Result<u32> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut request = request(device)?;
    ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: SIOCGIFMTU filled this member.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).map_err(|_| io::Error::from(Errno::ERANGE))
}

/// Whether somebody keeps the system's clock right (adjtimex(2), `STA_UNSYNC`); `None` where the kernel does not say.
pub fn clock_is_synchronised() -> Option<bool> {
    // SAFETY: all zeros is a timex that changes nothing (`modes` is 0).
    let mut clock: libc::timex = unsafe { zeroed() };
    // SAFETY: the kernel writes into the timex, which lives through the call.
    let state = unsafe { libc::adjtimex(&raw mut clock) };
    (state >= 0).then_some(clock.status & libc::STA_UNSYNC == 0)
}

/// A request about the interface of a device.
fn request(device: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all zeros is an ifreq with an empty name.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let name = interface_of(device).as_bytes();
    // The last byte stays the zero that ends it.
    if name.len() >= request.ifr_name.len() {
        return Err(Errno::ENODEV.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = c_char::from_ne_bytes([*from]);
    }
    Ok(request)
}

fn ioctl(socket: c_int, what: c_ulong, request: &mut libc::ifreq) -> Result<(), Errno> {
    // SAFETY: both requests that are made here take an ifreq, and what it points to lives through the call.
    let answer = unsafe { libc::ioctl(socket, what, std::ptr::from_mut(request)) };
    Errno::result(answer).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_says_what_it_does() {
        let offloads = offloads("lo").unwrap();
        assert_eq!(offloads.lro, Some(false), "there is no adapter: {offloads:?}");
        assert!(offloads.tso.is_some() && offloads.gro.is_some(), "{offloads:?}");
        assert!(mtu_bytes("lo").unwrap() >= 1_500);
        assert!(clock_is_synchronised().is_some());
    }

    #[test]
    fn an_interface_that_is_not_there_is_an_error() {
        for name in ["no-such-if0", "a-name-far-too-long-for-an-interface"] {
            assert!(offloads(name).is_err() && mtu_bytes(name).is_err(), "{name}");
        }
    }
}
