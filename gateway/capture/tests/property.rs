//! Readers against arbitrary input: whatever the bytes, no panic and an end; what was written is what is read.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::collection::vec;
use proptest::prelude::*;
use spand_capture::{LinkType, Next, PacketSource, PcapWriter, open_file};
use spand_proto::units::Timestamp;

type Written = Vec<(u64, u32, Vec<u8>)>;

/// Packets as time in nanoseconds, length on the wire and bytes.
fn packets() -> impl Strategy<Value = Written> {
    // Up to the last second a pcap record holds.
    let time = 0..u64::from(u32::MAX) * 1_000_000_000;
    vec((time, any::<u32>(), vec(any::<u8>(), 0..200)), 0..40)
}

fn pcap(packets: &Written, snap_len: u32) -> Vec<u8> {
    let mut writer = PcapWriter::new(Vec::new(), LinkType::ETHERNET, snap_len).expect("writing to memory");
    for (time, wire_len, data) in packets {
        writer.write(Timestamp(*time), *wire_len, data).expect("the time fits");
    }
    writer.finish().expect("writing to memory")
}

/// The packets of a file, and whether it ended without an error. `None`: it could not be opened.
fn read(path: &Path) -> Option<(Written, bool)> {
    let mut source = open_file(path).ok()?;
    let mut packets = Vec::new();
    loop {
        match source.next_packet() {
            Ok(Next::Packet(packet)) => packets.push((packet.timestamp.0, packet.wire_len, packet.data.to_vec())),
            Ok(_) => return Some((packets, true)),
            Err(_) => return Some((packets, false)),
        }
    }
}

fn read_bytes(bytes: &[u8]) -> Option<(Written, bool)> {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("room on the disk");
    read(file.path())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("writing to memory");
    encoder.finish().expect("writing to memory")
}

/// A start that gets past the format's detection, so that the bytes after it reach the record readers.
fn starts() -> impl Strategy<Value = Vec<u8>> {
    let pcap_header = |magic: u32, big: bool| {
        let magic = if big { magic.to_be_bytes() } else { magic.to_le_bytes() };
        [&magic[..], &[2, 0, 4, 0], &[0; 8], &[0, 0, 4, 0], &[1, 0, 0, 0]].concat()
    };
    let section = |big: bool| {
        let fields: [u32; 4] = [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1];
        let interface: [u32; 5] = [1, 20, 1, 0, 20];
        let words = fields.into_iter().chain([u32::MAX, u32::MAX, 28]).chain(interface);
        // The version's two halves and the link type with its reserved half differ by order; good enough for both.
        words.flat_map(|word| if big { word.to_be_bytes() } else { word.to_le_bytes() }).collect()
    };
    prop_oneof![
        Just(Vec::new()),
        Just(pcap_header(0xa1b2_c3d4, false)),
        Just(pcap_header(0xa1b2_3c4d, true)),
        Just(pcap_header(0xa1b2_cd34, false)),
        Just(section(false)),
        Just(section(true)),
        Just(vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]),
        Just(vec![0x28, 0xb5, 0x2f, 0xfd]),
    ]
}

/// Four-byte words that mean something to a reader, among any others: lengths, block types, magics.
fn words() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        3 => 0u32..64,
        1 => any::<u32>(),
        1 => prop_oneof![Just(0x0a0d_0d0a), Just(0x1a2b_3c4d), Just(u32::MAX), Just(262_144), Just(16 << 20)],
    ];
    (vec(word, 0..100), any::<bool>()).prop_map(|(words, big)| {
        words.into_iter().flat_map(|word| if big { word.to_be_bytes() } else { word.to_le_bytes() }).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_bytes_never_panic(start in starts(), rest in prop_oneof![words(), vec(any::<u8>(), 0..400)]) {
        let bytes = [start, rest].concat();
        let plain = read_bytes(&bytes);
        // Compressed, the reader sees the same bytes; only where these are compressed themselves does it refuse.
        if let Some(plain) = plain.filter(|_| !bytes.starts_with(&[0x1f, 0x8b]) && !bytes.starts_with(&[0x28, 0xb5])) {
            prop_assert_eq!(read_bytes(&gzip(&bytes)), Some(plain));
        }
    }

    #[test]
    fn what_was_written_is_read(packets in packets(), snap_len in 0u32..300) {
        let expected: Written = packets.iter().map(|(time, wire_len, data)| {
            let cut = &data[..data.len().min(snap_len as usize)];
            (*time, (*wire_len).max(u32::try_from(cut.len()).unwrap()), cut.to_vec())
        }).collect();
        let plain = pcap(&packets, snap_len);
        prop_assert_eq!(read_bytes(&plain), Some((expected.clone(), true)));
        prop_assert_eq!(read_bytes(&zstd::encode_all(&plain[..], 1).unwrap()), Some((expected, true)));
    }

    #[test]
    fn a_cut_file_gives_the_packets_before_the_cut(packets in packets(), cut in 24usize..4_000) {
        let whole = pcap(&packets, u32::MAX);
        let cut = cut.min(whole.len());
        let (got, clean) = read_bytes(&whole[..cut]).unwrap();
        let ends: Vec<usize> = packets.iter().scan(24, |end, (_, _, data)| { *end += 16 + data.len(); Some(*end) }).collect();
        prop_assert_eq!(got.len(), ends.iter().filter(|&&end| end <= cut).count());
        prop_assert_eq!(clean, cut == 24 || ends.contains(&cut));
    }

    #[test]
    fn damage_never_panics(packets in packets(), at in 0usize..4_000, byte in any::<u8>()) {
        let mut bytes = gzip(&pcap(&packets, u32::MAX));
        let at = at % bytes.len();
        bytes[at] = byte;
        read_bytes(&bytes);
    }
}
