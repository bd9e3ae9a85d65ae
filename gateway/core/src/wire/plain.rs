//! The way that nearly every frame of a mirror port takes: Ethernet, IPv4 without options, TCP.
//!
//! One look at the fixed headers, where the walk takes layer by layer. Whatever is not plain, and whatever is wrong with
//! a frame, is left to the walk.

use std::net::{IpAddr, Ipv4Addr};

use spand_proto::units::Timestamp;

use super::Frame;
use super::ip::ECN_FIELD;
use super::segment::{Endpoint, Flags, Segment};
use super::tcp::{self, HEADER_LEN_MIN, PAYLOAD_LEN_MAX};

/// The LINKTYPE of Ethernet.
const ETHERNET: u16 = 1;
const ETHERNET_LEN: usize = 14;
const IP_LEN: usize = 20;
/// Where TCP begins, and all three headers without TCP's options.
const TCP_AT: usize = ETHERNET_LEN + IP_LEN;
const HEADERS: usize = TCP_AT + HEADER_LEN_MIN;
/// All bits of IPv4's fragment field but "don't fragment".
const FRAGMENT: u16 = 0x3fff;

/// A frame whose headers are plain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain<'a> {
    head: &'a [u8; HEADERS],
    options: &'a [u8],
    header_len: usize,
    payload_len: u32,
}

impl<'a> Plain<'a> {
    /// Looks at a frame; `None` where it is not plain.
    #[inline]
    pub(crate) fn of(frame: &Frame<'a>) -> Option<Self> {
        let head: &[u8; HEADERS] = frame.data.first_chunk()?;
        let [_, _, _, _, _, _, _, _, _, _, _, _, 0x08, 0x00, 0x45, _, len0, len1, _, _, frag0, frag1, _, 6, ..] = head
        else {
            return None;
        };
        let total_len = u32::from(u16::from_be_bytes([*len0, *len1]));
        let [.., offset, _, _, _, _, _, _, _] = head;
        let header_len = usize::from(offset >> 4) * 4;
        let headers = u32::from(offset >> 4) * 4 + 20;
        let captured = u32::try_from(frame.data.len()).ok()?;
        let plain = frame.link_type == ETHERNET
            && u16::from_be_bytes([*frag0, *frag1]) & FRAGMENT == 0
            && header_len >= HEADER_LEN_MIN
            && headers <= total_len
            && total_len + 14 <= frame.wire_len.max(captured);
        let payload_len = total_len.wrapping_sub(headers);
        if !plain || payload_len > PAYLOAD_LEN_MAX {
            return None;
        }
        let end = (TCP_AT + header_len).min(frame.data.len());
        Some(Self { head, options: frame.data.get(HEADERS..end)?, header_len, payload_len })
    }

    /// Source and destination.
    #[inline]
    pub(super) fn addresses(&self) -> (IpAddr, IpAddr) {
        let &[.., s0, s1, s2, s3, d0, d1, d2, d3, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] =
            self.head;
        (IpAddr::V4(Ipv4Addr::new(s0, s1, s2, s3)), IpAddr::V4(Ipv4Addr::new(d0, d1, d2, d3)))
    }

    /// The segment in it.
    #[inline]
    pub(crate) fn segment(self, at: Timestamp) -> Segment {
        let &[_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, tos, _, _, id0, id1, _, _, _, _, _, _, ref rest @ ..] =
            self.head;
        let &[s0, s1, s2, s3, d0, d1, d2, d3, sp0, sp1, dp0, dp1, q0, q1, q2, q3, a0, a1, a2, a3, _, flags, w0, w1, ..] =
            rest;
        let flags = Flags(flags);
        let truncated = HEADERS + self.options.len() < TCP_AT + self.header_len;
        // Built in one expression: the segment is written where the caller wants it and not copied there.
        Segment {
            at,
            source: Endpoint {
                address: IpAddr::V4(Ipv4Addr::new(s0, s1, s2, s3)),
                port: u16::from_be_bytes([sp0, sp1]),
            },
            destination: Endpoint {
                address: IpAddr::V4(Ipv4Addr::new(d0, d1, d2, d3)),
                port: u16::from_be_bytes([dp0, dp1]),
            },
            seq: u32::from_be_bytes([q0, q1, q2, q3]),
            ack: flags.has(Flags::ACK).then_some(u32::from_be_bytes([a0, a1, a2, a3])),
            flags,
            window: u16::from_be_bytes([w0, w1]),
            payload_len: self.payload_len,
            ip_id: Some(u16::from_be_bytes([id0, id1])),
            ect: tos & ECN_FIELD != 0,
            options: tcp::options(self.header_len, truncated, self.options, flags),
        }
    }
}
