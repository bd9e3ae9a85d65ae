//! Frames of any link layer through the decoder, the short ways held against the walk over all layers.

#![no_main]

use libfuzzer_sys::fuzz_target;
use spand_core::config::Tunnels;
use spand_core::fuzzing::walk;
use spand_core::types::TunnelKind;
use spand_core::wire::{Decoder, Frame};
use spand_proto::units::Timestamp;

/// Link types that mean something, so that a single byte chooses among them.
const LINKS: [u16; 23] = [1, 101, 12, 228, 229, 0, 108, 113, 276, 9, 51, 204, 104, 205, 100, 138, 219, 109, 178, 10, 105, 127, 239];

fuzz_target!(|data: &[u8]| {
    let tunnels = Tunnels::ALL
        .from_anyone((TunnelKind::Vxlan, 8472))
        .from_anyone((TunnelKind::IpInIp, 5555));
    let mut decoders = [Decoder::new(tunnels.clone()), Decoder::new(tunnels)];
    let (mut rest, mut now) = (data, 1);
    // Four bytes before each frame: its link type, bytes not captured (in fives), time since the one before, length of what follows.
    while let Some(([link, beyond, time, len], after)) = rest.split_first_chunk() {
        let link_type = LINKS.get(usize::from(*link)).copied().unwrap_or(u16::from(*link));
        let bytes = after.get(..usize::from(*len)).unwrap_or(after);
        rest = after.get(bytes.len()..).unwrap_or_default();
        now += u64::from(*time) << 28;
        let wire_len = u32::try_from(bytes.len()).unwrap_or(0) + u32::from(*beyond) * 5;
        let frame = Frame { link_type, wire_len, input: 0, data: bytes };
        let [short, long] = &mut decoders;
        let segment = short.decode(Timestamp(now), &frame);
        assert_eq!(segment, walk(long, Timestamp(now), &frame), "the short way and the long one");
        if let Ok(segment) = segment {
            assert!(segment.payload_len <= wire_len.max(u32::from(u16::MAX)));
            assert!(segment.options.len <= 40);
        }
    }
});
