//! Capture files of any bytes: they end, their counters are right, and compressed they say the same.

#![no_main]

use std::cell::RefCell;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use libfuzzer_sys::fuzz_target;
use spand_capture::{MAX_PACKET_BYTES, Next, PacketSource, open_file};
use spand_fuzz::Scratch;

thread_local!(static FILE: RefCell<Scratch> = RefCell::new(Scratch::new()));

/// Packets read of one file: compressed, a small one holds very many.
const MOST_PACKETS: usize = 20_000;

fuzz_target!(|data: &[u8]| {
    FILE.with_borrow_mut(|file| {
        let plain = read(&file.holding(data));
        let compressed_already = data.starts_with(&[0x1f, 0x8b]) || data.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
        if plain.is_some() && !compressed_already {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(data).expect("room in memory");
            assert_eq!(read(&file.holding(&gzip.finish().expect("room in memory"))), plain, "as gzip");
            assert_eq!(read(&file.holding(&zstd::encode_all(data, 1).expect("room in memory"))), plain, "as zstd");
        }
    });
});

/// Packets, a digest of them, and the sentence at the end where it is one of damage. `None` where it could not be opened.
fn read(path: &Path) -> Option<(usize, u64, Option<String>)> {
    let mut source = match open_file(path) {
        Ok(source) => source,
        Err(error) => {
            let sentence = error.to_string();
            assert!(!sentence.chars().any(char::is_control), "{sentence}");
            return None;
        }
    };
    let (mut packets, mut digest) = (0, 0u64);
    while packets < MOST_PACKETS {
        match source.next_packet() {
            Ok(Next::Packet(packet)) => {
                assert!(
                    packet.data.len() <= MAX_PACKET_BYTES as usize && packet.data.len() <= packet.wire_len as usize
                );
                packets += 1;
                for byte in
                    packet.data.iter().chain(&packet.timestamp.0.to_le_bytes()).chain(&packet.wire_len.to_le_bytes())
                {
                    digest = (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
                }
            }
            Ok(_) => break,
            Err(error) => {
                assert!(!matches!(source.next_packet(), Ok(Next::Packet(_))), "an error is the end");
                return Some((packets, digest, Some(error.to_string())));
            }
        }
    }
    assert_eq!(source.stats().packets, packets as u64);
    Some((packets, digest, None))
}
