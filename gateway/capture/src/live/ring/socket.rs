//! The packet socket: what is set on it, in which order, and what it says afterwards.
//!
//! A packet socket of protocol 0 receives nothing. So ring and filter are in place before it is bound to a protocol, and
//! no packet can be in the ring that the filter has not seen.

#![expect(unsafe_code, reason = "packet sockets have options and addresses that only the C interface names")]

use std::mem::{MaybeUninit, zeroed};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libc::{c_int, socklen_t, tpacket_req3, tpacket_stats_v3};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, getsockopt, socket, sockopt};

use super::memory::Ring;
use crate::LinkType;
use crate::live::error::interfaces;
use crate::live::options::Checked;
use crate::live::{Backend, LiveError, LiveOptions, filter};

/// Before a packet's bytes in its block at most: the header, the address, alignment and the room of a tag.
const BEFORE_A_PACKET_BYTES: u64 = 256;
/// Room before each packet for the VLAN tag that the kernel took out.
const TAG_ROOM_BYTES: c_int = 4;
/// A block that is not full is handed over after this long where packets are wanted at once. 0 would let the kernel choose
/// by the link's speed, 8 ms where it has none (`prb_calc_retire_blk_tmo`).
const AT_ONCE_MS: u16 = 1;

/// A filter of this one instruction takes nothing (`BPF_RET | BPF_K`).
const TAKE_NOTHING: libc::sock_filter = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 };

/// A packet socket bound to an interface.
#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

/// Opens a socket with its ring on the interface of the options.
pub(super) fn open(options: &LiveOptions, checked: Checked) -> Result<(PacketSocket, Ring, LinkType), LiveError> {
    let interface = options.interface.as_str();
    let refused = |what: &str, error: Errno| explain(interface, what, error);
    if interface == "any" {
        return Err(unsupported(interface, "it is no single interface".to_owned()));
    }
    let (block_bytes, blocks) = layout(options)?;
    let index = if_nametoindex(interface).map_err(|error| refused("it has no number", error))?;
    let index = c_int::try_from(index).map_err(|_| refused("it has no number", Errno::EOVERFLOW))?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None);
    let socket = PacketSocket(socket.map_err(|error| refused("no packet socket", error))?);
    socket.bind(index, 0).map_err(|error| refused("it cannot be bound to", error))?;
    let address = socket.address().map_err(|error| refused("it has no kind", error))?;
    let link_type = link_type(interface, address.sll_hatype)?;

    let retire_ms = if options.immediate { AT_ONCE_MS } else { checked.timeout_ms };
    let too_large = |_| options.bad("buffer", options.buffer.to_string(), "below 2 GiB");
    let request = tpacket_req3 {
        tp_block_size: block_bytes.get().try_into().map_err(too_large)?,
        tp_block_nr: blocks.get().try_into().map_err(too_large)?,
        // Packets of a block have no fixed frames; one per block is what the kernel checks.
        tp_frame_size: block_bytes.get().try_into().map_err(too_large)?,
        tp_frame_nr: blocks.get().try_into().map_err(too_large)?,
        tp_retire_blk_tov: retire_ms.into(),
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    };
    let version = libc::tpacket_versions::TPACKET_V3 as c_int;
    let loopback = c_int::from(is_loopback(interface));
    socket.set(libc::PACKET_VERSION, &version).map_err(|error| refused("no packet ring of version 3", error))?;
    socket.set(libc::PACKET_RESERVE, &TAG_ROOM_BYTES).map_err(|error| refused("no room for VLAN tags", error))?;
    // A packet on loopback comes by twice: as it is sent and as it is received.
    socket.set(libc::PACKET_IGNORE_OUTGOING, &loopback).map_err(|error| refused("packets would come twice", error))?;
    socket.set(libc::PACKET_RX_RING, &request).map_err(|error| refused("no memory for capture.buffer_mib", error))?;
    let ring = Ring::map(socket.as_fd(), block_bytes, blocks).map_err(|error| refused("no mapped ring", error))?;
    let filter = filter::compile(options, link_type)?;
    // A socket joins a group only when it receives: what it received until then would be another's, too.
    let first: &[libc::sock_filter] = if options.group.is_some() { &[TAKE_NOTHING] } else { &filter };
    socket.attach(first).map_err(|error| refused("no filter", error))?;
    if options.promiscuous {
        socket.make_promiscuous(index).map_err(|error| refused("no promiscuous mode", error))?;
    }
    socket.bind(index, libc::ETH_P_ALL).map_err(|error| refused("no packets", error))?;
    if let Some(group) = options.group {
        let fanout = u32::from(group) | (libc::PACKET_FANOUT_HASH << 16);
        socket.set(libc::PACKET_FANOUT, &fanout).map_err(|error| refused("it is not shared out", error))?;
        socket.attach(&filter).map_err(|error| refused("no filter", error))?;
    }
    match socket.take_error() {
        None => Ok((socket, ring, link_type)),
        Some(Errno::ENETDOWN) => Err(LiveError::Down { interface: interface.to_owned() }),
        Some(error) => Err(refused("no packets", error)),
    }
}

/// Size and number of the blocks.
fn layout(options: &LiveOptions) -> Result<(NonZeroUsize, NonZeroUsize), LiveError> {
    let a_packet = u64::from(options.snap_len.get()).saturating_add(BEFORE_A_PACKET_BYTES);
    let block = options.block.0.max(a_packet.checked_next_power_of_two().unwrap_or(u64::MAX));
    let blocks = options.buffer.0 / block;
    let sizes = usize::try_from(block).ok().and_then(NonZeroUsize::new).zip(usize::try_from(blocks).ok());
    match sizes {
        // While one is read another must be there to be filled.
        Some((block, blocks)) if blocks >= 2 => Ok((block, NonZeroUsize::MIN.saturating_add(blocks - 1))),
        _ => Err(options.bad("buffer", options.buffer.to_string(), "at least two blocks, each with room for snap_len")),
    }
}

/// The kind of interface by the hardware type that the kernel gives it (`include/uapi/linux/if_arp.h`).
fn link_type(interface: &str, hardware_type: u16) -> Result<LinkType, LiveError> {
    /// Raw IP, which the C library does not name.
    const ARPHRD_RAWIP: u16 = 519;
    match hardware_type {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Ok(LinkType::ETHERNET),
        libc::ARPHRD_NONE | ARPHRD_RAWIP => Ok(LinkType::RAW),
        other => Err(unsupported(interface, format!("its hardware type {other} is neither Ethernet nor raw IP"))),
    }
}

fn unsupported(interface: &str, what: String) -> LiveError {
    let way_out = "the backend libpcap can";
    LiveError::Unsupported { interface: interface.to_owned(), backend: Backend::AfPacket, what, way_out }
}

fn is_loopback(interface: &str) -> bool {
    use nix::ifaddrs::getifaddrs;
    use nix::net::if_::InterfaceFlags;

    let mut all = getifaddrs().into_iter().flatten();
    all.any(|address| address.interface_name == interface && address.flags.contains(InterfaceFlags::IFF_LOOPBACK))
}

fn explain(interface: &str, what: &str, error: Errno) -> LiveError {
    let interface = interface.to_owned();
    let message = format!("{what} ({error})");
    match error {
        Errno::EPERM | Errno::EACCES => LiveError::NoPrivilege { interface, message },
        Errno::ENODEV | Errno::ENXIO => LiveError::NoSuchInterface { interface, present: interfaces() },
        Errno::ENETDOWN => LiveError::Down { interface },
        _ => LiveError::Refused { interface, message },
    }
}

impl PacketSocket {
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// What the socket has to say, once.
    pub(super) fn take_error(&self) -> Option<Errno> {
        getsockopt(&self.0, sockopt::SocketError)
            .ok()
            .map(Errno::from_raw)
            .filter(|&error| error != Errno::UnknownErrno)
    }

    /// Whether the interface it was bound to has gone: the kernel then leaves it bound to none (`packet_notifier`).
    pub(super) fn is_orphaned(&self) -> bool {
        self.address().is_ok_and(|address| address.sll_ifindex <= 0)
    }

    /// The kernel's counters since they were last read; reading sets them to zero.
    pub(super) fn take_statistics(&self) -> Option<tpacket_stats_v3> {
        let mut read = MaybeUninit::<tpacket_stats_v3>::zeroed();
        let mut length = length_of::<tpacket_stats_v3>();
        let fd = self.0.as_raw_fd();
        // SAFETY: the kernel writes at most `length` bytes, the structure's size.
        let answer = unsafe {
            libc::getsockopt(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, read.as_mut_ptr().cast(), &raw mut length)
        };
        // SAFETY: numbers, zero where the kernel wrote none.
        Errno::result(answer).ok().map(|_| unsafe { read.assume_init() })
    }

    fn address(&self) -> Result<libc::sockaddr_ll, Errno> {
        // SAFETY: numbers and an array of them; zero is a value of each.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        let mut length = length_of::<libc::sockaddr_ll>();
        // SAFETY: the kernel writes at most `length` bytes, the structure's size.
        let answer = unsafe { libc::getsockname(self.0.as_raw_fd(), (&raw mut address).cast(), &raw mut length) };
        Errno::result(answer).map(|_| address)
    }

    /// Binds to an interface; `protocol` is one of the `ETH_P_` numbers, 0 to receive nothing.
    fn bind(&self, index: c_int, protocol: c_int) -> Result<(), Errno> {
        // SAFETY: numbers and an array of them; zero is a value of each.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET).map_err(|_| Errno::EINVAL)?;
        address.sll_protocol = u16::try_from(protocol).map_err(|_| Errno::EINVAL)?.to_be();
        address.sll_ifindex = index;
        // SAFETY: the kernel reads as many bytes as the structure has.
        let answer =
            unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), length_of::<libc::sockaddr_ll>()) };
        Errno::result(answer).map(drop)
    }

    /// Lets the kernel run a filter on every packet.
    fn attach(&self, program: &[libc::sock_filter]) -> Result<(), Errno> {
        let program = libc::sock_fprog {
            len: u16::try_from(program.len()).map_err(|_| Errno::E2BIG)?,
            // The kernel copies the program and does not write to it.
            filter: program.as_ptr().cast_mut(),
        };
        self.set_at(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    fn make_promiscuous(&self, index: c_int) -> Result<(), Errno> {
        let mode = u16::try_from(libc::PACKET_MR_PROMISC).map_err(|_| Errno::EINVAL)?;
        let membership = libc::packet_mreq { mr_ifindex: index, mr_type: mode, mr_alen: 0, mr_address: [0; 8] };
        self.set(libc::PACKET_ADD_MEMBERSHIP, &membership)
    }

    fn set<T>(&self, option: c_int, value: &T) -> Result<(), Errno> {
        self.set_at(libc::SOL_PACKET, option, value)
    }

    fn set_at<T>(&self, level: c_int, option: c_int, value: &T) -> Result<(), Errno> {
        let value: *const T = value;
        // SAFETY: the kernel reads at most `T`'s size from a value that lives until the call returns; a program that the
        // value points to lives in the caller.
        let answer = unsafe { libc::setsockopt(self.0.as_raw_fd(), level, option, value.cast(), length_of::<T>()) };
        Errno::result(answer).map(drop)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "structures of a few dozen bytes")]
const fn length_of<T>() -> socklen_t {
    size_of::<T>() as socklen_t
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use spand_proto::units::Bytes;

    use super::*;

    #[test]
    fn kinds_that_are_not_read_are_named_with_the_way_out() {
        assert_eq!(link_type("eth0", libc::ARPHRD_LOOPBACK).unwrap(), LinkType::ETHERNET);
        assert_eq!(link_type("tun0", libc::ARPHRD_NONE).unwrap(), LinkType::RAW);
        assert_eq!(
            link_type("gre1", 778).unwrap_err().to_string(),
            "the capture backend af_packet cannot read gre1: its hardware type 778 is neither Ethernet nor raw IP; \
             the backend libpcap can"
        );
    }

    #[test]
    fn a_block_holds_a_packet_of_the_snap_length_and_there_are_two() {
        let sizes = |snap_len, buffer, block| {
            let snap_len = NonZeroU32::new(snap_len).unwrap();
            let options =
                LiveOptions { snap_len, buffer: Bytes(buffer), block: Bytes(block), ..LiveOptions::new("eth0") };
            layout(&options).map(|(block, blocks)| (block.get(), blocks.get())).map_err(|error| error.to_string())
        };
        assert_eq!(sizes(256, 64 << 20, 1 << 17), Ok((1 << 17, 512)));
        assert_eq!(sizes(262_144, 64 << 20, 1 << 17), Ok((1 << 19, 128)), "262,400 bytes do not fit 256 KiB");
        assert_eq!(sizes(256, 1 << 13, 1 << 12), Ok((1 << 12, 2)));
        let too_small = sizes(256, 1 << 17, 1 << 17).unwrap_err();
        assert!(too_small.starts_with("capture option buffer on eth0 is 131072"), "{too_small}");
    }
}
