//! The few bits of an IP packet that a path looks at or changes.

/// IP protocol number of TCP.
const TCP: u8 = 6;
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

    fn checksum(header: &[u8]) -> u16 {
        let sum: u32 = header.as_chunks().0.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        !u16::try_from(folded).unwrap()
    }

    #[test]
    fn an_ipv4_header_is_marked_and_stays_valid() {
        let mut packet = vec![0x45, 0x02, 0, 40, 1, 2, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 2, 198, 51, 100, 11];
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend([0; 20]);
        packet[33] = 0x18;
        assert!(is_ecn_capable(&packet) && has_push(&packet));
        mark(&mut packet);
        assert_eq!((packet[1], checksum(&packet[..20])), (0x03, 0));
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
}
