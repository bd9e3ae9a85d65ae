//! Blocks made by hand: sound ones, and ones no kernel writes.

use proptest::prelude::*;

use super::*;

const BLOCK: usize = 4_096;
const FIRST: usize = size_of::<tpacket_block_desc>();
const MAC: u16 = 96;

/// Writes numbers into a block at an offset of the kernel's structure.
fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

/// A block with one packet of these bytes, header at `FIRST`.
fn block(data: &[u8]) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    let head = offset_of!(tpacket_block_desc, hdr);
    put(&mut block, head + offset_of!(tpacket_hdr_v1, num_pkts), &1_u32.to_ne_bytes());
    let first = u32::try_from(FIRST).unwrap();
    put(&mut block, head + offset_of!(tpacket_hdr_v1, offset_to_first_pkt), &first.to_ne_bytes());
    let length = u32::try_from(data.len()).unwrap();
    put(&mut block, FIRST + offset_of!(tpacket3_hdr, tp_sec), &7_u32.to_ne_bytes());
    put(&mut block, FIRST + offset_of!(tpacket3_hdr, tp_nsec), &9_u32.to_ne_bytes());
    put(&mut block, FIRST + offset_of!(tpacket3_hdr, tp_snaplen), &length.to_ne_bytes());
    put(&mut block, FIRST + offset_of!(tpacket3_hdr, tp_len), &(length + 5).to_ne_bytes());
    put(&mut block, FIRST + offset_of!(tpacket3_hdr, tp_mac), &MAC.to_ne_bytes());
    put(&mut block, FIRST + usize::from(MAC), data);
    block
}

fn with(mut block: Vec<u8>, field: usize, value: u32) -> Vec<u8> {
    put(&mut block, FIRST + field, &value.to_ne_bytes());
    block
}

#[test]
fn a_packet_is_found_where_its_header_says() {
    let block = block(b"0123456789");
    assert_eq!(first(&block), Some((FIRST, 1)));
    let place = place(&block, FIRST).unwrap();
    assert_eq!(&block[place.data.clone()], b"0123456789");
    assert_eq!((place.wire_len, place.timestamp), (15, Timestamp(7_000_000_009)));
    assert_eq!((place.tag, place.next), (None, None));
}

#[test]
fn what_does_not_lie_in_the_block_is_no_packet() {
    let sound = block(b"0123456789");
    let snap_len = offset_of!(tpacket3_hdr, tp_snaplen);
    let fits = u32::try_from(BLOCK - FIRST).unwrap() - u32::from(MAC);
    assert!(place(&with(sound.clone(), snap_len, fits), FIRST).is_some());
    for beyond in [fits + 1, u32::MAX] {
        assert!(place(&with(sound.clone(), snap_len, beyond), FIRST).is_none(), "{beyond}");
    }
    let mut inside_the_header = sound.clone();
    put(&mut inside_the_header, FIRST + offset_of!(tpacket3_hdr, tp_mac), &8_u16.to_ne_bytes());
    assert!(place(&inside_the_header, FIRST).is_none());
    let next = offset_of!(tpacket3_hdr, tp_next_offset);
    assert!(place(&with(sound.clone(), next, 8), FIRST).is_none(), "the next packet inside this one");
    assert_eq!(place(&with(sound.clone(), next, 128), FIRST).unwrap().next, Some(FIRST + 128));
    assert!(place(&sound, BLOCK - 8).is_none());
    assert!(place(&sound, usize::MAX).is_none());
    assert!(first(&sound[..40]).is_none());
}

#[test]
fn a_tag_goes_back_behind_the_addresses() {
    let tagged = |status: u32, tci: u32, tpid: u16| {
        let mut block = with(block(b"AAAAAABBBBBBttpayload"), offset_of!(tpacket3_hdr, tp_status), status);
        let variant = FIRST + offset_of!(tpacket3_hdr, hv1);
        put(&mut block, variant + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tci), &tci.to_ne_bytes());
        put(&mut block, variant + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tpid), &tpid.to_ne_bytes());
        let place = place(&block, FIRST).unwrap();
        (block, place)
    };
    for (status, tpid, expected) in [
        (TP_STATUS_VLAN_VALID | TP_STATUS_VLAN_TPID_VALID, 0x88a8, [0x88, 0xa8, 0x20, 0x05]),
        (TP_STATUS_VLAN_VALID, 0x88a8, [0x81, 0x00, 0x20, 0x05]),
    ] {
        let (mut block, place) = tagged(status, 0x2005, tpid);
        assert_eq!(place.tag, Some(expected));
        let wire_len = place.wire_len;
        let place = put_tag_back(&mut block, place, expected);
        let whole = [b"AAAAAABBBBBB".as_slice(), &expected, b"ttpayload"].concat();
        assert_eq!(block[place.data.clone()], whole);
        assert_eq!(place.wire_len, wire_len + 4);
    }
    assert_eq!(tagged(0, 0x2005, 0x8100).1.tag, None);
    let (mut block, mut cut) = tagged(TP_STATUS_VLAN_VALID, 5, 0);
    cut.data.end = cut.data.start + 11;
    assert_eq!(put_tag_back(&mut block, cut.clone(), [1; 4]), cut, "no room between what is there");
}

proptest! {
    #[test]
    fn whatever_a_block_holds_packets_lie_in_it(bytes in prop::collection::vec(any::<u8>(), 0..512), at in 0..600_usize) {
        let mut bytes = bytes;
        let _ = first(&bytes);
        if let Some(place) = place(&bytes, at) {
            prop_assert!(place.data.start <= place.data.end && place.data.end <= bytes.len());
            prop_assert!(place.next.is_none_or(|next| next > at));
            let moved = put_tag_back(&mut bytes, place, [1; 4]);
            prop_assert!(moved.data.end <= bytes.len());
        }
    }

    #[test]
    fn lengths_of_any_size_are_held_against_the_block(snap_len: u32, mac: u16, next: u32) {
        let mut block = with(block(&[7; 64]), offset_of!(tpacket3_hdr, tp_snaplen), snap_len);
        put(&mut block, FIRST + offset_of!(tpacket3_hdr, tp_mac), &mac.to_ne_bytes());
        put(&mut block, FIRST + offset_of!(tpacket3_hdr, tp_next_offset), &next.to_ne_bytes());
        if let Some(place) = place(&block, FIRST) {
            prop_assert!(block.get(place.data).is_some());
        }
    }
}
