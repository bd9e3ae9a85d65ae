//! The few bits of an IP packet that a path looks at or changes.

/// IP protocol number of TCP.
const TCP: u8 = 6;
/// Of ICMP, and of ICMP for IPv6.
const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;
/// PSH in the flags of a TCP header.
const PSH: u8 = 0x08;

/// Whether the sender understands congestion marks (RFC 3168 section 5: any codepoint but Not-ECT).
pub(super) fn is_ecn_capable(packet: &[u8]) -> bool {
    ecn(packet).is_some_and(|bits| bits != 0)
}

/// Whether it is a TCP segment with PSH; extension headers are not looked behind.
pub(super) fn has_push(packet: &[u8]) -> bool {
    let (protocol, header) = match packet.first().map(|byte| (byte >> 4, byte & 0xf)) {
        Some((4, words)) => (packet.get(9), usize::from(words) * 4),
        Some((6, _)) => (packet.get(6), 40),
        _ => return false,
    };
    protocol == Some(&TCP) && packet.get(header + 13).is_some_and(|flags| flags & PSH != 0)
}

/// Sets CE, and puts an IPv4 checksum right again (RFC 1624).
pub(super) fn mark(packet: &mut [u8]) {
    match packet {
        [first, tos, _, _, _, _, _, _, _, _, high, low, ..] if *first >> 4 == 4 => {
            let old = u16::from_be_bytes([*first, *tos]);
            *tos |= 0b11;
            let new = u16::from_be_bytes([*first, *tos]);
            let sum = u32::from(!u16::from_be_bytes([*high, *low])) + u32::from(!old) + u32::from(new);
            let folded = (sum & 0xffff) + (sum >> 16);
            let folded = (folded & 0xffff) + (folded >> 16);
            let [.., a, b] = (!folded).to_be_bytes();
            (*high, *low) = (a, b);
        }
        [first, second, ..] if *first >> 4 == 6 => *second |= 0b11 << 4,
        _ => {}
    }
}

/// ICMP to the sender of a packet that is too long (RFC 792 and 1191, RFC 4443): the next MTU and the packet's beginning. Its source is the
/// packet's destination, as if the narrow link lay right before that. `None`: no IP packet.
pub(super) fn too_big(packet: &[u8], mtu: u32) -> Option<Vec<u8>> {
    const QUOTED: usize = 60;
    let quoted = packet.get(..packet.len().min(QUOTED))?;
    let mut message = match packet.first()? >> 4 {
        4 => vec![3, 4, 0, 0, 0, 0],
        6 => vec![2, 0, 0, 0],
        _ => return None,
    };
    let is_v4 = message.len() == 6;
    message.extend(if is_v4 { u16::try_from(mtu).ok()?.to_be_bytes().to_vec() } else { mtu.to_be_bytes().to_vec() });
    message.extend(quoted);
    let length = u16::try_from(message.len()).ok()?;
    let mut answer = Vec::with_capacity(128);
    if is_v4 {
        let (source, destination) = (packet.get(12..16)?, packet.get(16..20)?);
        answer.extend([0x45, 0]);
        answer.extend((length + 20).to_be_bytes());
        answer.extend([0, 0, 0, 0, 64, ICMP, 0, 0]);
        answer.extend(destination);
        answer.extend(source);
        let sum = checksum(&[&answer]);
        answer.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
    } else {
        let (source, destination) = (packet.get(8..24)?, packet.get(24..40)?);
        answer.extend([0x60, 0, 0, 0]);
        answer.extend(length.to_be_bytes());
        answer.extend([ICMP_V6, 64]);
        answer.extend(destination);
        answer.extend(source);
    }
    // ICMPv6 counts the addresses, too.
    let pseudo: &[u8] = if is_v4 { &[] } else { answer.get(8..40)? };
    let ends = if is_v4 { [0; 4] } else { [0, ICMP_V6, 0, 0] };
    let ends_length = if is_v4 { [0; 2] } else { length.to_be_bytes() };
    let sum = checksum(&[pseudo, &ends, &ends_length, &message]);
    message.get_mut(2..4)?.copy_from_slice(&sum.to_be_bytes());
    answer.extend(message);
    Some(answer)
}

/// The Internet checksum (RFC 1071) of parts of even length, but for the last.
fn checksum(parts: &[&[u8]]) -> u16 {
    let word = |part: &[u8]| match part {
        [high, low, ..] => u32::from(u16::from_be_bytes([*high, *low])),
        [last] => u32::from(*last) << 8,
        [] => 0,
    };
    let mut sum: u32 = parts.iter().flat_map(|part| part.chunks(2)).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [.., high, low] = (!sum).to_be_bytes();
    u16::from_be_bytes([high, low])
}

fn ecn(packet: &[u8]) -> Option<u8> {
    match packet {
        [first, second, ..] if *first >> 4 == 4 => Some(second & 0b11),
        [first, second, ..] if *first >> 4 == 6 => Some(second >> 4 & 0b11),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_header_is_marked_and_stays_valid() {
        let mut packet = vec![0x45, 0x02, 0, 40, 1, 2, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 2, 198, 51, 100, 11];
        let sum = checksum(&[&packet]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend([0; 20]);
        packet[33] = 0x18;
        assert!(is_ecn_capable(&packet) && has_push(&packet));
        mark(&mut packet);
        assert_eq!((packet[1], checksum(&[&packet[..20]])), (0x03, 0));
    }

    #[test]
    fn an_ipv6_header_is_marked() {
        let mut packet = vec![0; 60];
        packet[0] = 0x60;
        packet[6] = 6;
        assert!(!is_ecn_capable(&packet) && !has_push(&packet));
        packet[1] = 0x10;
        packet[53] = 0x08;
        assert!(is_ecn_capable(&packet) && has_push(&packet));
        mark(&mut packet);
        assert_eq!(packet[1], 0x30);
    }

    #[test]
    fn what_is_no_packet_is_left_alone() {
        for mut bytes in [vec![], vec![0x45], vec![0xff; 30]] {
            let before = bytes.clone();
            assert!(!is_ecn_capable(&[]) && !has_push(&bytes));
            mark(&mut bytes);
            assert_eq!(bytes, before);
        }
    }

    #[test]
    fn a_packet_too_long_is_answered_with_the_next_mtu() {
        let mut packet = vec![0x45, 0, 5, 220, 1, 2, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 2, 198, 51, 100, 11];
        packet.resize(1_500, 7);
        let answer = too_big(&packet, 1_280).unwrap();
        assert_eq!((answer.len(), checksum(&[&answer[..20]]), checksum(&[&answer[20..]])), (88, 0, 0));
        assert_eq!(
            (&answer[12..20], &answer[20..22], &answer[26..28]),
            (&[198, 51, 100, 11, 192, 0, 2, 2][..], &[3, 4][..], &[5, 0][..])
        );
        packet[0] = 0x60;
        let answer = too_big(&packet, 1_280).unwrap();
        assert_eq!((answer.len(), answer[6], answer[40], &answer[44..48]), (108, ICMP_V6, 2, &[0, 0, 5, 0][..]));
        assert_eq!(checksum(&[&answer[8..40], &[0, ICMP_V6, 0, 68], &answer[40..]]), 0);
        assert_eq!(too_big(&[0x50; 40], 1_280), None);
    }
}
