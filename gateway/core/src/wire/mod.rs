//! From captured bytes to a TCP segment.
//!
//! Walks from the link layer through VLAN tags, MPLS, PPPoE and the configured tunnels to the innermost TCP header, one
//! layer per step and at most [`MAX_LAYERS`] of them. Keeps nothing between frames: does not reassemble fragments or
//! streams, does not verify checksums (mirror ports see packets before the network card fills them in), does not decrypt.

mod capture_header;
mod ether_type;
mod ieee80211;
mod ip;
mod link;
mod octets;
pub mod segment;
mod tcp;
mod tunnel;

#[cfg(test)]
mod tests;

use spand_proto::units::Timestamp;

use self::ip::IpHeader;
use self::octets::Octets;
use self::segment::Segment;
use crate::config::Tunnels;
use crate::counters::Ignored;

/// Layers followed in one frame, each VLAN tag, label stack and IPv6 extension header counting as one.
pub const MAX_LAYERS: usize = 24;

/// A captured frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// What the first octets are: a LINKTYPE value of the tcpdump.org registry.
    pub link_type: u16,
    /// Octets on the wire, captured or not.
    pub wire_len: u32,
    /// Which source (file, interface) it came from, counted from 0.
    pub input: u32,
    /// The captured octets.
    pub data: &'a [u8],
}

/// What the remaining octets begin with.
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
    /// PPP from its protocol field on, address and control octets (RFC 1662) perhaps before it.
    Ppp,
    /// 802.11 MAC header.
    Ieee80211,
    /// IPv4 or IPv6 by the version field.
    Ip,
    /// What follows IPv4, IPv6 or an extension header of it.
    Protocol(IpHeader, u8),
}

/// Finds the TCP segment in a frame.
///
/// `at` becomes the segment's time. Of several IP headers the innermost one that `tunnels` allows to be reached names the
/// endpoints.
///
/// # Errors
///
/// The reason why the frame holds no usable segment.
#[inline]
pub fn decode(at: Timestamp, frame: &Frame<'_>, tunnels: Tunnels) -> Result<Segment, Ignored> {
    // Nearly every frame of a mirror port takes this way, which keeps nothing but the IP header between its steps.
    if let Some((header, octets)) = link::ethernet_to_tcp(frame) {
        return tcp::segment(at, &header, octets);
    }
    walk(at, frame, tunnels)
}

/// Takes the layers one by one, whatever they are.
#[inline(never)]
fn walk(at: Timestamp, frame: &Frame<'_>, tunnels: Tunnels) -> Result<Segment, Ignored> {
    let (mut layer, mut octets) = link::first_layer(frame.link_type, Octets::new(frame.data, frame.wire_len))?;
    for _ in 0..MAX_LAYERS {
        (layer, octets) = match layer {
            Layer::Ethernet => link::ethernet(octets)?,
            Layer::EtherType(ether_type) => ether_type::next(ether_type, octets)?,
            Layer::Llc => ether_type::llc(octets)?,
            Layer::Mpls => ether_type::mpls(octets)?,
            Layer::Ppp => link::ppp(octets)?,
            Layer::Ieee80211 => ieee80211::data_frame(octets)?,
            Layer::Ip => ip::header(octets)?,
            Layer::Protocol(header, tcp::PROTOCOL) => return tcp::segment(at, &header, octets),
            Layer::Protocol(header, protocol) => match ip::extension(header, protocol, octets)? {
                Some(next) => next,
                None => tunnel::enter(protocol, octets, tunnels)?,
            },
        };
    }
    Err(Ignored::TooDeep)
}
