//! What the packets alone say about the lab's senders: counted by hand from a recording made beside the sender.
//!
//! Deliberately simpler than the gateway's engine, and independent of it: there is no loss, reordering or second copy
//! between sender and tap here, so a packet below the highest sequence number is a retransmission.

use std::collections::BTreeMap;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use spand_capture::{Next, PacketSource, open_file};
use spand_core::config::Tunnels;
use spand_core::wire::segment::{Endpoint, Flags, Segment};
use spand_core::wire::{Decoder, Frame};

use super::truth::FlowId;

/// Packets read from one recording; a longer one is an error, not a silent cut.
const PACKETS_MAX: usize = 4_000_000;

/// One sender's connection as its packets show it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Sender {
    /// Data packets, retransmissions included.
    pub data_packets: u64,
    /// Data packets whose bytes had all been sent before.
    pub retransmitted_packets: u64,
    /// Bytes of sequence space sent, SYN and FIN not counted.
    pub bytes: u64,
    /// Packets from the other end.
    pub packets_back: u64,
    /// Data packets sent before the first acknowledgement of data: the initial window that was really used.
    pub first_flight: u64,
    /// Whether that acknowledgement came; without it the flight may not have been complete.
    pub first_flight_acked: bool,
    first: u32,
}

/// The TCP segments of a recording, in order.
pub fn read(file: &Path) -> Result<Vec<Segment>> {
    let mut source = open_file(file)?;
    let mut segments = Vec::new();
    let mut decoder = Decoder::new(Tunnels::NONE);
    loop {
        match source.next_packet()? {
            Next::Packet(packet) => {
                let link_type = packet.link_type.0;
                let frame = Frame { link_type, wire_len: packet.wire_len, input: 0, data: packet.data };
                // The tap's filter lets TCP through only; anything else is no concern of the lab's.
                segments.extend(decoder.decode(packet.timestamp, &frame));
                anyhow::ensure!(segments.len() <= PACKETS_MAX, "{} has over {PACKETS_MAX} packets", file.display());
            }
            Next::Idle => {}
            Next::End => return Ok(segments),
        }
    }
}

/// Every connection served from `port` whose SYN-ACK was recorded; of one that was open before, nothing can be counted.
pub fn senders(segments: &[Segment], port: u16) -> BTreeMap<FlowId, Sender> {
    let mut senders: BTreeMap<FlowId, Sender> = BTreeMap::new();
    for segment in segments {
        let (source, destination) = (address(segment.source), address(segment.destination));
        if segment.source.port == port {
            let flow = FlowId { local: source, remote: destination };
            if segment.flags.has(Flags::SYN) {
                senders.entry(flow).or_insert_with(|| Sender::new(segment.seq.wrapping_add(1)));
            }
            if let Some(sender) = senders.get_mut(&flow) {
                sender.sent(segment);
            }
        } else if segment.destination.port == port
            && let Some(sender) = senders.get_mut(&FlowId { local: destination, remote: source })
        {
            sender.received(segment);
        }
    }
    senders
}

impl Sender {
    fn new(first: u32) -> Self {
        Self { first, ..Self::default() }
    }

    fn sent(&mut self, segment: &Segment) {
        if segment.payload_len == 0 {
            return;
        }
        // Transfers of the lab are far shorter than the sequence space.
        let end = u64::from(segment.seq.wrapping_sub(self.first)) + u64::from(segment.payload_len);
        self.data_packets += 1;
        self.retransmitted_packets += u64::from(end <= self.bytes);
        self.bytes = self.bytes.max(end);
        self.first_flight += u64::from(!self.first_flight_acked);
    }

    fn received(&mut self, segment: &Segment) {
        self.packets_back += 1;
        if let Some(ack) = segment.ack {
            let acknowledged = u64::from(ack.wrapping_sub(self.first));
            self.first_flight_acked |= acknowledged > 0 && acknowledged <= self.bytes;
        }
    }
}

fn address(end: Endpoint) -> SocketAddr {
    SocketAddr::new(end.address, end.port)
}

// A way for whole frames onto a device.

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
