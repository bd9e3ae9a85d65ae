//! From captured bytes to a TCP segment.
//!
//! Walks from the link layer through VLAN tags, MPLS, PPPoE and the configured tunnels to the innermost TCP header, one
//! layer per step and at most [`MAX_LAYERS`] of them. Does not reassemble IP packets or streams, verify checksums (mirror
//! ports see packets before the network card fills them in) or decrypt.

mod ether_type;
mod ip;
mod link;
mod packet_bytes;
mod plain;
pub mod segment;
mod tcp;
mod tunnel;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use arrayvec::ArrayVec;
use spand_proto::units::Timestamp;

use self::ip::IpHeader;
use self::packet_bytes::PacketBytes;
pub(crate) use self::plain::Plain;
use self::segment::Segment;
use crate::config::Tunnels;
use crate::counters::{Ignored, ProtocolNumber};

/// Layers followed in one frame, each VLAN tag, label stack and IPv6 extension header counting as one.
pub const MAX_LAYERS: usize = 24;

/// A captured frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// What the first bytes are: a LINKTYPE value of the tcpdump.org registry.
    pub link_type: u16,
    /// Bytes on the wire, captured or not.
    pub wire_len: u32,
    /// Which source (file, interface) it came from, counted from 0.
    pub input: u32,
    /// The captured bytes.
    pub data: &'a [u8],
}

/// What the remaining bytes begin with.
#[derive(Clone, Copy, Debug)]
enum Layer {
    /// Ethernet II or 802.3, from the destination address on.
    Ethernet,
    /// What follows an EtherType.
    EtherType(u16),
    /// LLC (IEEE 802.2), with or without SNAP.
    Llc,
    /// MPLS label stack.
    Mpls,
    /// PPP from its protocol field on, address and control bytes (RFC 1662) perhaps before it.
    Ppp,
    /// 802.11 MAC header.
    Ieee80211,
    /// IPv4 or IPv6 by the version field.
    Ip,
    /// What follows IPv4, IPv6 or an extension header of it.
    Protocol(IpHeader, u8),
}

/// The next layer, and the bytes from there on.
type Next<'a> = Result<(Layer, PacketBytes<'a>), Ignored>;

/// Source and destination of the segment in a frame, if the fixed headers suffice: TCP over IP over Ethernet, with
/// tags or without. Whether the segment is sound is not known then.
#[inline]
pub(crate) fn addresses(frame: &Frame<'_>) -> Option<(IpAddr, IpAddr)> {
    if let Some(plain) = Plain::of(frame) {
        return Some(plain.addresses());
    }
    link::ethernet_to_tcp(frame).map(|(header, _)| (header.source, header.destination))
}

/// Finds the TCP segments in frames.
#[derive(Debug)]
pub struct Decoder {
    tunnels: Tunnels,
    /// What the last frame held in place of IP or TCP.
    other: ArrayVec<ProtocolNumber, 2>,
}

impl Decoder {
    /// Looks into `tunnels`.
    pub fn new(tunnels: Tunnels) -> Self {
        Self { tunnels, other: ArrayVec::new() }
    }

    /// Finds the TCP segment in a frame.
    ///
    /// `at` becomes the segment's time. Of several IP headers the innermost one that the tunnels allow to be reached names
    /// the connection's ends.
    ///
    /// # Errors
    ///
    /// The reason why the frame holds no usable segment.
    #[inline]
    pub fn decode(&mut self, at: Timestamp, frame: &Frame<'_>) -> Result<Segment, Ignored> {
        match Plain::of(frame) {
            Some(plain) => Ok(plain.segment(at)),
            None => self.decode_rest(at, frame),
        }
    }

    /// The same for a frame that is not [`Plain`].
    #[inline(never)]
    pub(crate) fn decode_rest(&mut self, at: Timestamp, frame: &Frame<'_>) -> Result<Segment, Ignored> {
        self.other.clear();
        // Tags and IPv6: this way keeps nothing but the IP header between its steps.
        if let Some((header, bytes)) = link::ethernet_to_tcp(frame) {
            return tcp::segment(at, &header, bytes);
        }
        self.walk(at, frame)
    }

    /// What the last frame held where the reason is [`Ignored::NotIp`], [`Ignored::NotTcp`] or [`Ignored::LinkType`]: the numbers that may say which protocol
    /// it is, the likelier one first.
    pub(crate) fn other(&self) -> &[ProtocolNumber] {
        &self.other
    }

    /// Takes the layers one by one, whatever they are.
    #[inline(never)]
    pub(crate) fn walk(&mut self, at: Timestamp, frame: &Frame<'_>) -> Result<Segment, Ignored> {
        let (mut layer, mut bytes) =
            link::first_layer(frame.link_type, PacketBytes::new(frame.data, frame.wire_len))
                .inspect_err(|reason| self.note(*reason, &[ProtocolNumber::LinkType(frame.link_type)]))?;
        for _ in 0..MAX_LAYERS {
            (layer, bytes) = match layer {
                Layer::Ethernet => link::ethernet(bytes)?,
                Layer::EtherType(ether_type) => ether_type::next(ether_type, bytes)
                    .inspect_err(|reason| self.note(*reason, &[ProtocolNumber::EtherType(ether_type)]))?,
                Layer::Llc => ether_type::llc(bytes)?,
                Layer::Mpls => ether_type::mpls(bytes)?,
                Layer::Ppp => link::ppp(bytes)?,
                Layer::Ieee80211 => link::ieee80211(bytes)?,
                Layer::Ip => ip::header(bytes)?,
                Layer::Protocol(header, ip::TCP) => return tcp::segment(at, &header, bytes),
                Layer::Protocol(header, protocol) => match ip::extension(header, protocol, bytes)? {
                    Some(next) => next,
                    None => tunnel::enter(&header, protocol, bytes, &self.tunnels)
                        .inspect_err(|reason| self.note(*reason, &tunnel::numbers(protocol, bytes)))?,
                },
            };
        }
        Err(Ignored::TooDeep)
    }

    /// Keeps what says which protocol a frame holds that is ignored for `reason`.
    #[inline(never)]
    fn note(&mut self, reason: Ignored, numbers: &[ProtocolNumber]) {
        self.other = numbers.iter().copied().filter(|number| number.reason() == reason).collect();
    }
}
