//! IPv4 (RFC 791) and IPv6 (RFC 8200) headers and extension headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::packet_bytes::PacketBytes;
use super::{Layer, Next};
use crate::counters::Ignored;

/// What a segment keeps of its IP header.
#[derive(Clone, Copy, Debug)]
pub(super) struct IpHeader {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// Identification, IPv4 only.
    pub(super) id: Option<u16>,
    /// Whether the ECN field is not Not-ECT.
    pub(super) ect: bool,
}

/// The ECN field in the traffic class (RFC 3168 section 5).
pub(super) const ECN_FIELD: u8 = 0b11;

/// TCP's number in IP headers.
pub(super) const TCP: u8 = 6;

/// Fragment offset, in units of eight bytes, and the flag that more follow, in IPv4's field of both.
const OFFSET: u16 = 0x1fff;
const MORE_FRAGMENTS: u16 = 0x2000;

/// Takes the header that the version field announces.
pub(super) fn header(bytes: PacketBytes<'_>) -> Next<'_> {
    if bytes.first()? >> 4 == 4 {
        let (header, protocol, place, bytes) = ipv4(bytes)?;
        let is_whole = place & (OFFSET | MORE_FRAGMENTS) == 0;
        return if is_whole {
            Ok((Layer::Protocol(header, protocol), bytes))
        } else {
            part(header, protocol, place & OFFSET, bytes)
        };
    }
    let (header, protocol, bytes) = by_version(bytes)?;
    Ok((Layer::Protocol(header, protocol), bytes))
}

/// The header that the version field announces, the protocol that it announces and what follows it. Fragments of IPv4 are
/// left to [`header`].
#[inline]
pub(super) fn by_version(bytes: PacketBytes<'_>) -> Result<(IpHeader, u8, PacketBytes<'_>), Ignored> {
    match bytes.first()? >> 4 {
        4 => match ipv4(bytes)? {
            (header, protocol, place, bytes) if place & (OFFSET | MORE_FRAGMENTS) == 0 => Ok((header, protocol, bytes)),
            _ => Err(Ignored::Fragment),
        },
        6 => ipv6(bytes),
        _ => Err(Ignored::NotIp),
    }
}

/// Where a fragment leads. The first one of a tunnel's packet holds the inner headers, and these state the inner length. No
/// header states how long a TCP segment in fragments is, and TCP may also follow an extension header.
fn part(header: IpHeader, protocol: u8, offset: u16, bytes: PacketBytes<'_>) -> Next<'_> {
    match protocol {
        TCP | 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140 => Err(Ignored::Fragment),
        _ if offset > 0 => Err(Ignored::Fragment),
        _ => Ok((Layer::Protocol(header, protocol), bytes)),
    }
}

/// Header, protocol, the field of fragment offset and flags, and what follows.
#[inline]
fn ipv4(bytes: PacketBytes<'_>) -> Result<(IpHeader, u8, u16, PacketBytes<'_>), Ignored> {
    let &[version_ihl, tos, len0, len1, id0, id1, frag0, frag1, _, protocol, _, _, s0, s1, s2, s3, d0, d1, d2, d3] =
        bytes.head::<20>()?;
    let header_len = u16::from(version_ihl & 0xf) * 4;
    let total_len = u16::from_be_bytes([len0, len1]);
    let bytes = match u32::from(total_len) {
        // Captured before segmentation offload filled it in: the frame's own length has to do.
        0 => bytes,
        // The frame was cut before it was captured, or the header is damaged.
        stated if stated > bytes.wire_len() && !checksum_holds(bytes, usize::from(header_len)) => bytes,
        stated => bytes.stated(stated),
    };
    if header_len < 20 || (total_len != 0 && total_len < header_len) {
        return Err(Ignored::Malformed);
    }
    let header = IpHeader {
        source: IpAddr::V4(Ipv4Addr::new(s0, s1, s2, s3)),
        destination: IpAddr::V4(Ipv4Addr::new(d0, d1, d2, d3)),
        id: Some(u16::from_be_bytes([id0, id1])),
        ect: tos & ECN_FIELD != 0,
    };
    Ok((header, protocol, u16::from_be_bytes([frag0, frag1]), bytes.skip(usize::from(header_len))?))
}

/// Whether the header's checksum is right (RFC 1071). Only asked where lengths disagree: mirror ports and senders with
/// offload show packets whose checksum is not filled in yet.
#[cold]
fn checksum_holds(bytes: PacketBytes<'_>, header_len: usize) -> bool {
    let Some(header) = bytes.captured().get(..header_len) else { return false };
    let sum: u32 =
        header.chunks_exact(2).map(|word| word.iter().fold(0, |sum, &byte| (sum << 8) | u32::from(byte))).sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[inline]
fn ipv6(bytes: PacketBytes<'_>) -> Result<(IpHeader, u8, PacketBytes<'_>), Ignored> {
    let &[_, class_label, _, _, len0, len1, next_header, _, ref addresses @ ..] = bytes.head::<40>()?;
    let (source, destination) = addresses.split_at(16);
    let payload_len = u16::from_be_bytes([len0, len1]);
    // Zero: a jumbogram (RFC 2675), or captured before segmentation offload.
    let bytes = if payload_len == 0 { bytes } else { bytes.stated(u32::from(payload_len) + 40) };
    let header = IpHeader {
        source: ipv6_address(source),
        destination: ipv6_address(destination),
        id: None,
        ect: (class_label >> 4) & ECN_FIELD != 0,
    };
    Ok((header, next_header, bytes.skip(40)?))
}

/// An address; one mapped from IPv4 becomes what it stands for, so that both forms name the same connection.
#[inline]
fn ipv6_address(bytes: &[u8]) -> IpAddr {
    let bytes = bytes.first_chunk::<16>().copied().unwrap_or_default();
    match bytes {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
        _ => IpAddr::V6(Ipv6Addr::from(bytes)),
    }
}

/// Steps over one extension header; `None` where `protocol` is none.
pub(super) fn extension(
    header: IpHeader,
    protocol: u8,
    bytes: PacketBytes<'_>,
) -> Result<Option<(Layer, PacketBytes<'_>)>, Ignored> {
    let (next_header, len) = match protocol {
        // Hop-by-hop options, routing, destination options, mobility, HIP, Shim6.
        0 | 43 | 60 | 135 | 139 | 140 => {
            let &[next_header, units] = bytes.head::<2>()?;
            (next_header, (usize::from(units) + 1) * 8)
        }
        // Authentication header, counted in 4 bytes less two (RFC 4302 section 2.2).
        51 => {
            let &[next_header, units] = bytes.head::<2>()?;
            (next_header, (usize::from(units) + 2) * 4)
        }
        // Fragment; one that is the whole packet is atomic (RFC 6946).
        44 => {
            let &[protocol, _, offset0, offset1, ..] = bytes.head::<8>()?;
            let place = u16::from_be_bytes([offset0, offset1]);
            if place & 0xfff9 != 0 {
                return part(header, protocol, place & 0xfff8, bytes.skip(8)?).map(Some);
            }
            (protocol, 8)
        }
        _ => return Ok(None),
    };
    Ok(Some((Layer::Protocol(header, next_header), bytes.skip(len)?)))
}
