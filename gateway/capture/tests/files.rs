//! Whole files: what they are taken for, their variants and compressions, merging, and every sentence for what is wrong.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use spand_capture::{LinkType, MAX_PACKET_BYTES, MergedSource, Next, PacketSource, PcapWriter, SourceStats, open_file};
use spand_proto::units::Timestamp;

/// A pcap file of packets of one byte at these nanoseconds; the byte is the packet's number.
fn pcap(times: &[u64]) -> Vec<u8> {
    let mut writer = PcapWriter::new(Vec::new(), LinkType::RAW, 100).expect("writing to memory");
    for (byte, time) in (b'a'..=b'z').cycle().zip(times) {
        writer.write(Timestamp(*time), 60, &[byte]).expect("the time fits");
    }
    writer.finish().expect("writing to memory")
}

/// A directory and a way to put files into it.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).expect("room on the disk");
        path
    }
}

/// Time, captured byte and source of every packet; the messages between them; the counters at the end.
fn read(source: &mut dyn PacketSource) -> (Vec<(u64, u8, u32)>, Vec<String>, SourceStats) {
    let mut seen = Vec::new();
    let mut messages = Vec::new();
    loop {
        match source.next_packet() {
            Ok(Next::Packet(packet)) => {
                seen.push((packet.timestamp.0, packet.data.first().copied().unwrap_or(0), packet.source));
            }
            Ok(_) => return (seen, messages, source.stats()),
            Err(error) => messages.push(error.to_string()),
        }
    }
}

fn read_path(path: &Path) -> (Vec<(u64, u8, u32)>, Vec<String>, SourceStats) {
    read(&mut open_file(path).expect("a capture"))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("writing to memory");
    encoder.finish().expect("writing to memory")
}

#[test]
fn every_variant_of_pcap_is_read() {
    let files = Files::new();
    // Magic, version, zone and accuracy, snap length, link type; then seconds, fraction, two lengths and what follows.
    let header =
        |magic: [u8; 4], minor: u8| [&magic[..], &[0, 2, 0, minor], &[0; 8], &[0, 0, 1, 0], &[0, 0, 0, 12]].concat();
    let record =
        |first, second, rest: &[u8]| [&[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, first, 0, 0, 0, second], rest].concat();
    let cases = [
        ("microseconds", header([0xa1, 0xb2, 0xc3, 0xd4], 4), record(1, 60, b"x"), 1_000_002_000),
        ("nanoseconds", header([0xa1, 0xb2, 0x3c, 0x4d], 4), record(1, 60, b"x"), 1_000_000_002),
        ("modified", header([0xa1, 0xb2, 0xcd, 0x34], 4), record(1, 60, b"\0\0\0\x01\x08\0\0\0x"), 1_000_002_000),
        ("version 2.2", header([0xa1, 0xb2, 0xc3, 0xd4], 2), record(60, 1, b"x"), 1_000_002_000),
        ("version 2.3", header([0xa1, 0xb2, 0xc3, 0xd4], 3), record(60, 1, b"x"), 1_000_002_000),
        ("other version 2.3", header([0xa1, 0xb2, 0xc3, 0xd4], 3), record(1, 60, b"x"), 1_000_002_000),
    ];
    for (name, header, record, time) in cases {
        let path = files.put(name, &[header, record.clone(), record].concat());
        let mut source = open_file(&path).unwrap();
        for _ in 0..2 {
            let Next::Packet(packet) = source.next_packet().unwrap() else { panic!("{name} ends early") };
            assert_eq!((packet.timestamp, packet.wire_len, packet.data), (Timestamp(time), 60, &b"x"[..]), "{name}");
            assert_eq!(packet.link_type, LinkType::RAW, "12 is raw IP too");
        }
        assert_eq!(source.next_packet().unwrap(), Next::End);
    }
}

#[test]
fn the_largest_packet_is_read_and_a_larger_one_is_damage() {
    let files = Files::new();
    let header = &pcap(&[])[..24];
    let file = |bytes: u32| {
        let lengths = [bytes.to_le_bytes(), bytes.to_le_bytes()].concat();
        files.put("large", &[header, &[0; 8], &lengths, &vec![b'x'; bytes as usize]].concat())
    };
    let (seen, messages, stats) = read_path(&file(MAX_PACKET_BYTES));
    assert_eq!((seen.len(), stats.bytes), (1, u64::from(MAX_PACKET_BYTES)), "{messages:?}");
    let (seen, messages, _) = read_path(&file(MAX_PACKET_BYTES + 1));
    assert!(seen.is_empty() && messages[0].contains("damaged at byte 24"), "{messages:?}");
}

#[test]
fn compression_is_detected_by_the_first_bytes_and_may_come_in_parts() {
    let files = Files::new();
    let plain = pcap(&[1, 2, 3]);
    let expected = read_path(&files.put("plain", &plain));
    assert_eq!(expected.0, [(1, b'a', 0), (2, b'b', 0), (3, b'c', 0)]);
    let (head, tail) = plain.split_at(50);
    let zstd = |bytes| zstd::encode_all(bytes, 1).unwrap();
    for (name, bytes) in [
        ("one.gz", gzip(&plain)),
        ("two", [gzip(head), gzip(tail)].concat()),
        ("one.zst", zstd(&plain[..])),
        ("frames.pcap", [zstd(head), zstd(tail)].concat()),
        ("pzstd.zst", [&b"\x50\x2a\x4d\x18\x04\0\0\0size"[..], &zstd(&plain[..])].concat()),
    ] {
        assert_eq!(read_path(&files.put(name, &bytes)), expected, "{name}");
    }
}

#[test]
fn a_file_behind_another_is_named() {
    let files = Files::new();
    let both = [pcap(&[1, 2]), pcap(&[3])].concat();
    let (seen, messages, _) = read_path(&files.put("both.pcap", &both));
    assert_eq!(seen, [(1, b'a', 0), (2, b'b', 0)]);
    assert!(messages.len() == 1 && messages[0].contains("mergecap -w both.pcap"), "{messages:?}");
}

#[test]
fn a_broken_compressed_file_gives_what_came_before() {
    let files = Files::new();
    let times: Vec<u64> = (0..20_000).collect();
    let mut whole = gzip(&pcap(&times));
    let half = whole.len() / 2;
    let (seen, messages, _) = read_path(&files.put("cut.gz", &whole[..half]));
    assert!(seen.len() > 5_000 && seen.len() < 20_000, "{}", seen.len());
    assert!(messages.len() == 1 && messages[0].contains("the compressed file is cut short"), "{messages:?}");
    // A wrong checksum at the end: everything was delivered by then.
    let crc = whole.len() - 8;
    whole[crc] ^= 1;
    let (seen, messages, _) = read_path(&files.put("checksum.gz", &whole));
    assert_eq!((seen.len(), messages.len()), (20_000, 1), "{messages:?}");
}

#[test]
fn what_is_no_capture_is_refused_in_one_sentence() {
    let files = Files::new();
    let refused = |path: &Path, words: &str| {
        let message = open_file(path).expect_err("not a capture").to_string();
        assert!(message.contains(words) && message.contains(&path.display().to_string()), "{message}");
        assert!(!message.contains('\n') && message.len() < 300, "{message}");
    };
    refused(&files.0.path().join("absent"), "No such file");
    refused(files.0.path(), "is a directory");
    refused(&files.put("empty", b""), "is empty: nothing was captured into it");
    refused(&files.put("empty.gz", &gzip(b"")), "is empty");
    refused(&files.put("text", b"hello"), "not a pcap or pcapng capture: it starts with 68 65 6c 6c");
    refused(&files.put("snoop", b"snoop\0\0\0"), "editcap -F pcap");
    refused(&files.put("lz4", &[0x04, 0x22, 0x4d, 0x18, 0x64, 0x60]), "(lz4; decompress it first)");
    refused(&files.put("lcap", &[0x1c, 0, 1, 0xac, 0, 2, 0, 4]), "(Ixia's lcap; `editcap -F pcap` converts it)");
    let erf = |seconds: u32| {
        let [high, low] = 80u16.to_be_bytes();
        [&[0; 4], &seconds.to_le_bytes()[..], &[2, 4, high, low, 0, 0, 0, 62], &[0; 64]].concat()
    };
    let both = |one: u32, other: u32| [erf(one), erf(other)].concat();
    refused(&files.put("erf", &both(1_800_000_000, 1_800_000_001)), "(Endace ERF; `editcap -F pcap` converts it)");
    refused(&files.put("one.erf", &erf(1_800_000_000)), "(Endace ERF;");
    refused(&files.put("no erf", &both(1_800_000_000, 5)), "it starts with 00 00 00 00");
    refused(&files.put("twice.gz", &gzip(&gzip(&pcap(&[])))), "compressed twice");
    refused(&files.put("short", &pcap(&[])[..10]), "a pcap capture without a usable file header: it lacks 14 bytes");
    refused(&files.put("section", &[10, 13, 13, 10, 28, 0]), "a pcapng capture without a usable file header");
    refused(&files.put("bad.gz", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xff, 0xff]), "cannot read");
    // A zstd frame that asks for a window of 1 GiB: refused, not allocated.
    refused(&files.put("window.zst", &[0x28, 0xb5, 0x2f, 0xfd, 0, 20 << 3, 1, 0, 0]), "cannot read");
    assert_eq!(read_path(&files.put("no packets", &pcap(&[]))).0, []);
}

#[test]
fn time_running_backwards_is_counted_and_left_alone() {
    let files = Files::new();
    let (seen, _, stats) = read_path(&files.put("back", &pcap(&[5, 9, 7, 8, 9])));
    assert_eq!(seen.iter().map(|packet| packet.0).collect::<Vec<_>>(), [5, 9, 7, 8, 9]);
    assert_eq!(stats.backwards, 2);
}

#[test]
fn files_merge_by_time_and_equal_times_by_order() {
    let files = Files::new();
    let paths = [
        files.put("0", &pcap(&[2, 4, 4, 9])),
        files.put("1", &gzip(&pcap(&[1, 4, 3]))),
        files.put("2", &pcap(&[])),
        files.put("3", &[pcap(&[5, 6]), vec![0; 3]].concat()),
    ];
    let mut merged = MergedSource::new(paths.iter().map(|path| open_file(path).unwrap()).collect());
    let size: u64 = paths.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert_eq!(merged.progress().unwrap().total_bytes, size);
    let (seen, messages, stats) = read(&mut merged);
    let expected = [(1, 1), (2, 0), (4, 0), (4, 0), (4, 1), (3, 1), (5, 3), (6, 3), (9, 0)];
    assert_eq!(seen.iter().map(|packet| (packet.0, packet.2)).collect::<Vec<_>>(), expected);
    assert!(messages.len() == 1 && messages[0].contains("lacks 13 bytes"), "the others go on: {messages:?}");
    assert_eq!((stats.packets, stats.bytes, stats.backwards), (9, 9, 1));
    assert_eq!(merged.progress().unwrap().done_bytes, size);
    assert_eq!(merged.files().len(), 4);
}

#[test]
fn standard_input_is_read_as_it_comes() {
    if std::env::var_os("SPAND_TEST_CHILD").is_some() {
        let (seen, messages, _) = read_path(Path::new("-"));
        assert_eq!((seen.len(), messages.len()), (2, 0));
        assert_eq!(
            open_file(Path::new("-")).unwrap_err().to_string(),
            "standard input is empty: nothing was captured into it"
        );
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "standard_input_is_read_as_it_comes", "--nocapture"])
        .env("SPAND_TEST_CHILD", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&gzip(&pcap(&[1, 2]))).unwrap();
    assert!(child.wait().unwrap().success());
}
