//! Where in a block the packets lie: offsets and lengths as the kernel wrote them, each held against the block.

#![expect(unsafe_code, reason = "structures are read from bytes")]

use std::mem::offset_of;
use std::ops::Range;

use libc::{
    TP_STATUS_VLAN_TPID_VALID, TP_STATUS_VLAN_VALID, TPACKET3_HDRLEN, tpacket_block_desc, tpacket_hdr_v1, tpacket3_hdr,
};
use spand_proto::units::Timestamp;

/// A packet in its block.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Place {
    /// Its captured bytes.
    pub(super) data: Range<usize>,
    /// Length on the wire.
    pub(super) wire_len: u32,
    /// When it was captured, by the wall clock.
    pub(super) timestamp: Timestamp,
    /// The VLAN tag that the kernel took out of it.
    pub(super) tag: Option<[u8; TAG_BYTES]>,
    /// Where the next packet's header lies; `None` behind the last.
    pub(super) next: Option<usize>,
}

/// A VLAN tag: its type and its value, as on the wire.
const TAG_BYTES: usize = 4;
/// What stands before a VLAN tag in a frame: both addresses.
const ADDRESSES_BYTES: usize = 12;
/// The type of a tag whose own is not known (IEEE 802.1Q).
const DOT1Q: u16 = 0x8100;

/// Where the first packet of a block lies, and how many there are.
pub(super) fn first(block: &[u8]) -> Option<(usize, u32)> {
    const HEAD: usize = offset_of!(tpacket_block_desc, hdr);
    let head: tpacket_hdr_v1 = read(block, HEAD)?;
    Some((usize::try_from(head.offset_to_first_pkt).ok()?, head.num_pkts))
}

/// The packet whose header lies at `at`. `None` where it does not lie in the block.
pub(super) fn place(block: &[u8], at: usize) -> Option<Place> {
    let header: tpacket3_hdr = read(block, at)?;
    let start = at.checked_add(usize::from(header.tp_mac))?;
    let end = start.checked_add(usize::try_from(header.tp_snaplen).ok()?)?;
    // Behind the header and the address that follows it.
    if usize::from(header.tp_mac) < TPACKET3_HDRLEN || end > block.len() {
        return None;
    }
    let next = match usize::try_from(header.tp_next_offset).ok()? {
        0 => None,
        // Backwards or into itself, and a damaged block would never end.
        distance => Some(at.checked_add(distance).filter(|_| distance >= TPACKET3_HDRLEN)?),
    };
    let seconds = u64::from(header.tp_sec) * 1_000_000_000;
    Some(Place {
        data: start..end,
        wire_len: header.tp_len,
        timestamp: Timestamp(seconds + u64::from(header.tp_nsec)),
        tag: tag(&header),
        next,
    })
}

fn tag(header: &tpacket3_hdr) -> Option<[u8; TAG_BYTES]> {
    if header.tp_status & TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let known = header.tp_status & TP_STATUS_VLAN_TPID_VALID != 0;
    let [a, b] = if known { header.hv1.tp_vlan_tpid } else { DOT1Q }.to_be_bytes();
    // The upper half is not used.
    let [_, _, c, d] = header.hv1.tp_vlan_tci.to_be_bytes();
    Some([a, b, c, d])
}

/// Puts the tag back between addresses and type of an Ethernet frame, in the room that `socket` reserved before each
/// packet: the addresses move, and nothing else. A frame cut within the addresses stays as it is.
pub(super) fn put_tag_back(block: &mut [u8], mut place: Place, tag: [u8; TAG_BYTES]) -> Place {
    let Some(start) = place.data.start.checked_sub(TAG_BYTES) else { return place };
    let Some(frame) = block.get_mut(start..place.data.end) else { return place };
    let Some(moved) = frame.get_mut(..TAG_BYTES + ADDRESSES_BYTES) else { return place };
    moved.copy_within(TAG_BYTES.., 0);
    let (_, between) = moved.split_at_mut(ADDRESSES_BYTES);
    between.copy_from_slice(&tag);
    place.data.start = start;
    place.wire_len = place.wire_len.saturating_add(4);
    place
}

/// Structures of the kernel that are plain numbers.
///
/// # Safety
///
/// Every pattern of bits must be a value.
unsafe trait Numbers: Copy {}
// SAFETY: fields are unsigned integers and structures and arrays of them.
unsafe impl Numbers for tpacket_hdr_v1 {}
// SAFETY: the same.
unsafe impl Numbers for tpacket3_hdr {}

fn read<T: Numbers>(bytes: &[u8], at: usize) -> Option<T> {
    let place = bytes.get(at..at.checked_add(size_of::<T>())?)?;
    // SAFETY: `place` holds the structure's size in initialised bytes, any of which are a value; alignment is not asked
    // for.
    Some(unsafe { place.as_ptr().cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests;
