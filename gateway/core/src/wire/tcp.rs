//! The TCP header (RFC 9293 section 3.1) and its options.

use spand_proto::units::Timestamp;

use super::ip::IpHeader;
use super::packet_bytes::PacketBytes;
use super::segment::{Endpoint, Flags, Options, SackBlock, Segment, Timestamps, WindowOption};
use crate::counters::Ignored;

pub(super) const HEADER_LEN_MIN: usize = 20;
/// Payload of the largest segment that an offload engine builds (BIG TCP, 512 KiB): where the IP header states no length,
/// a frame's own length beyond that is damage.
pub(super) const PAYLOAD_LEN_MAX: u32 = 512 * 1_024;

/// Builds the segment. Checksum and urgent pointer are not used, so a capture cut behind the window field is enough.
#[inline]
pub(super) fn segment(at: Timestamp, ip: &IpHeader, bytes: PacketBytes<'_>) -> Result<Segment, Ignored> {
    let &[sp0, sp1, dp0, dp1, s0, s1, s2, s3, a0, a1, a2, a3, offset, flags, w0, w1] = bytes.head::<16>()?;
    let header_len = usize::from(offset >> 4) * 4;
    let payload_len = u32::try_from(header_len).ok().and_then(|len| bytes.wire_len().checked_sub(len));
    let Some(payload_len) = payload_len.filter(|len| header_len >= HEADER_LEN_MIN && *len <= PAYLOAD_LEN_MAX) else {
        return Err(Ignored::Malformed);
    };
    let flags = Flags(flags);
    let end = bytes.captured().len().min(header_len);
    let listed = bytes.captured().get(HEADER_LEN_MIN..end).unwrap_or_default();
    // Built in one expression, last: the segment is written where the caller wants it and not copied there.
    Ok(Segment {
        at,
        source: Endpoint { address: ip.source, port: u16::from_be_bytes([sp0, sp1]) },
        destination: Endpoint { address: ip.destination, port: u16::from_be_bytes([dp0, dp1]) },
        seq: u32::from_be_bytes([s0, s1, s2, s3]),
        ack: flags.has(Flags::ACK).then_some(u32::from_be_bytes([a0, a1, a2, a3])),
        flags,
        window: u16::from_be_bytes([w0, w1]),
        payload_len,
        ip_id: ip.id,
        ect: ip.ect,
        options: options(header_len, bytes.captured().len() < header_len, listed, flags),
    })
}

/// The options of a header of `header_len`, of which `listed` was captured.
#[inline]
pub(super) fn options(header_len: usize, truncated: bool, listed: &[u8], flags: Flags) -> Options {
    let len = u8::try_from(header_len.saturating_sub(HEADER_LEN_MIN)).unwrap_or(u8::MAX);
    // Almost every segment of an established connection: two fillers and the timestamps.
    if let &[1, 1, 8, 10, v0, v1, v2, v3, e0, e1, e2, e3] = listed {
        let value = u32::from_be_bytes([v0, v1, v2, v3]);
        let timestamps = Some(Timestamps { value, echo: u32::from_be_bytes([e0, e1, e2, e3]) });
        return Options { timestamps, len, truncated, ..Options::default() };
    }
    let mut options = Options { len, truncated, ..Options::default() };
    read_options(&mut options, listed, flags);
    options
}

/// Reads the options as far as they were captured.
fn read_options(options: &mut Options, mut rest: &[u8], flags: Flags) {
    let syn = flags.has(Flags::SYN);
    loop {
        rest = match rest {
            [] | [0, ..] => return,
            [1, after @ ..] => after,
            // A length that cannot be ends the list: what stands before it was still sent.
            &[kind, option_len, ..] if option_len >= 2 => {
                let Some((option, after)) = rest.split_at_checked(usize::from(option_len)) else { return };
                read_option(options, kind, option.get(2..).unwrap_or_default(), syn);
                after
            }
            _ => return,
        };
    }
}

fn read_option(options: &mut Options, kind: u8, value: &[u8], syn: bool) {
    /// Largest shift (RFC 7323 section 2.3).
    const SHIFT_MAX: u8 = 14;
    match (kind, value) {
        (2, &[high, low]) if syn => options.mss = Some(u16::from_be_bytes([high, low])),
        (3, &[shift]) if syn => options.window_scale = Some(shift.min(SHIFT_MAX)),
        (4, []) if syn => options.sack_permitted = true,
        (5, blocks) => {
            // More than four blocks do not fit into 40 bytes; a repeated option must not overflow the list.
            for block in blocks.chunks_exact(8) {
                if let &[l0, l1, l2, l3, r0, r1, r2, r3] = block {
                    let left = u32::from_be_bytes([l0, l1, l2, l3]);
                    let right = u32::from_be_bytes([r0, r1, r2, r3]);
                    let _full = options.sack.try_push(SackBlock { left, right });
                }
            }
        }
        (8, &[v0, v1, v2, v3, e0, e1, e2, e3]) => {
            let value = u32::from_be_bytes([v0, v1, v2, v3]);
            options.timestamps = Some(Timestamps { value, echo: u32::from_be_bytes([e0, e1, e2, e3]) });
        }
        // The identifier distinguishes experiments of the same kind (RFC 6994 section 3).
        (254, &[0x53, 0x50, w0, w1, w2, w3, r0, r1, r2, r3]) => {
            options.window = Some(WindowOption {
                window_bytes: u32::from_be_bytes([w0, w1, w2, w3]),
                srtt_us: u32::from_be_bytes([r0, r1, r2, r3]),
            });
        }
        _ => {}
    }
}
