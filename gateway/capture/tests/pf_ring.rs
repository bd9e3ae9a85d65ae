//! PF_RING: against a double of its library, compiled here, and against the real one where it is found.
//!
//! The real library is `libpfring.so`, or what `SPAND_PFRING_LIB` names. Its `pcap:` module needs no kernel module. Without
//! it two tests check nothing, and say so on standard error even where the test runner keeps output to itself.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use spand_capture::{
    Backend, Cluster, ClusterKind, LinkType, LiveCapture, LiveError, LiveOptions, Next, PacketSource, PcapWriter,
    PfRingOptions, open_file,
};
use spand_needs::{Need, lacks};
use spand_proto::units::Timestamp;
use tempfile::TempDir;

/// The double, compiled once.
fn double() -> PathBuf {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| build("0x080900")).1.clone()
}

/// The double as a library of a version.
fn build(version: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let library = folder.path().join("libdouble.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pf_ring/double.c");
    let compiler = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"])
        .arg(format!("-DVERSION={version}"))
        .arg("-o")
        .args([&library, &source])
        .output()
        .expect("a C compiler, which other crates need too");
    assert!(compiler.status.success(), "{}", String::from_utf8_lossy(&compiler.stderr));
    (folder, library)
}

fn options(device: &str, library: PathBuf) -> LiveOptions {
    let pf_ring = PfRingOptions { library, ..PfRingOptions::default() };
    LiveOptions { backend: Some(Backend::PfRing), pf_ring, ..LiveOptions::new(device) }
}

fn open(device: &str) -> LiveCapture {
    LiveCapture::open(&options(device, double())).unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(options: &LiveOptions) -> String {
    LiveCapture::open(options).expect_err("a reason").to_string()
}

#[derive(Debug, PartialEq)]
struct Seen {
    at: Timestamp,
    wire_len: u32,
    data: Vec<u8>,
}

/// Packets until nothing comes for a few reads, or the end; and whether it was the end.
fn take(source: &mut impl PacketSource) -> (Vec<Seen>, bool) {
    let mut seen = Vec::new();
    let mut silent = 0;
    while silent < 3 {
        match source.next_packet().expect("no fault") {
            Next::Packet(packet) => {
                silent = 0;
                seen.push(Seen { at: packet.timestamp, wire_len: packet.wire_len, data: packet.data.to_vec() });
            }
            Next::Idle => silent += 1,
            Next::End => return (seen, true),
        }
    }
    (seen, false)
}

#[test]
fn packets_come_one_at_a_time_and_the_library_counts() {
    let mut capture = open("eth7");
    assert_eq!((capture.backend(), capture.link_type()), (Backend::PfRing, LinkType::ETHERNET));
    let (seen, ended) = take(&mut capture);
    assert!(!ended, "0 is no end");
    let expected = (1..=3_u8).map(|number| Seen {
        at: Timestamp((1_000 + u64::from(number)) * 1_000_000_000 + 5_000),
        wire_len: 60,
        data: vec![number; 60],
    });
    assert_eq!(seen, expected.collect::<Vec<_>>());
    let stats = capture.stats();
    assert_eq!(
        (stats.packets, stats.received, stats.dropped_by_kernel),
        (3, Some(5), Some(2)),
        "read and dropped ones"
    );
}

#[test]
fn what_was_set_reaches_the_library() {
    let mut options = options("echo", double());
    options.snap_len = NonZeroU32::new(120).unwrap();
    options.filter = Some("tcp port 80".to_owned());
    options.pf_ring.cluster = Some(Cluster { id: 77, kind: ClusterKind::FiveTuple });
    let options_seen = |options: &LiveOptions| {
        let (seen, _) = take(&mut LiveCapture::open(options).unwrap());
        String::from_utf8(seen[0].data.clone()).unwrap()
    };
    // Promiscuous, stamped, not taken apart; not in chunks, which this device does not have.
    assert_eq!(options_seen(&options), "caplen 120 flags 218 cluster 77 type 4 filter tcp port 80 name spand");
    options.pf_ring.cluster = Some(Cluster { id: 78, kind: ClusterKind::TwoTuple });
    options.promiscuous = false;
    assert_eq!(options_seen(&options), "caplen 120 flags 210 cluster 78 type 2 filter tcp port 80 name spand");
}

#[test]
fn times_are_the_best_there_are() {
    let (seen, _) = take(&mut open("hardware-clock"));
    assert_eq!(seen[0].at, Timestamp(7_000_000_001));
    let mut capture = open("no-clock");
    let (seen, _) = take(&mut capture);
    assert!(seen.is_sorted_by_key(|packet| packet.at) && seen[0].at > Timestamp(1_600_000_000_000_000_000));
    assert_eq!(capture.stats().untimed, 3);
}

#[test]
fn a_packet_is_cut_to_the_snap_length_whatever_the_library_gives() {
    let (seen, _) = take(&mut open("long"));
    assert_eq!((seen[0].data.len(), seen[0].wire_len), (256, 65_536));
}

#[test]
fn a_file_ends_and_has_no_counters() {
    let mut capture = open("pcap:not-a-file");
    assert_eq!(capture.next_packet().unwrap(), Next::Idle, "nothing yet: what came before is not held back");
    let (seen, ended) = take(&mut capture);
    assert_eq!((seen.len(), ended), (3, true));
    let stats = capture.stats();
    assert_eq!((stats.packets, stats.received, stats.dropped_by_kernel), (3, None, None), "not known is not 0");
}

#[test]
fn chunks_are_read_where_they_are_offered() {
    let mut capture = open("chunks");
    let (seen, _) = take(&mut capture);
    let expected = [(1, 5_000, 8), (2, 5_000, 12), (3, 5, 8)].map(|(second, nanos, len): (u8, u64, u8)| Seen {
        at: Timestamp(u64::from(second) * 1_000_000_000 + nanos),
        wire_len: u32::from(len) + 4,
        data: vec![second; len.into()],
    });
    assert_eq!(seen, expected);
    assert_eq!(capture.stats().unreadable, 1, "a record that is cut off");
    let mut odd = open("chunks-odd");
    let error = (0..10).find_map(|_| odd.next_packet().err()).unwrap().to_string();
    assert_eq!(error, "capturing on chunks-odd has stopped: its chunks are of kind 2, which is not read");
}

#[test]
fn a_library_of_another_version_is_refused_before_it_is_given_a_structure() {
    for (number, version) in [("0x070400", "7.4.0"), ("0x090001", "9.0.1"), ("0", "0.0.0")] {
        let (_folder, library) = build(number);
        let message = refusal(&options("eth7", library));
        assert!(message.starts_with("capturing on eth7 with PF_RING needs its library"), "{message}");
        let expected = format!("(it is PF_RING {version}; versions 8.x are supported)");
        assert!(message.contains(&expected) && message.lines().count() == 1, "{message}");
    }
    let (_folder, library) = build("0x080000");
    assert!(LiveCapture::open(&options("eth7", library)).is_ok());
}

#[test]
fn fields_that_a_later_version_adds_have_room() {
    let (seen, _) = take(&mut open("more-fields"));
    assert_eq!((seen.len(), seen[0].data.as_slice(), seen[0].wire_len), (3, [1_u8; 60].as_slice(), 60));
}

#[test]
fn a_packet_is_copied_out_of_memory_that_is_written_all_the_time() {
    let mut capture = open("changing");
    let mut packets = 0;
    while let Next::Packet(packet) = capture.next_packet().unwrap() {
        let before = packet.data.to_vec();
        std::thread::yield_now();
        assert_eq!((packet.data, packet.data.len()), (before.as_slice(), 60));
        packets += 1;
    }
    assert_eq!(packets, 2_000);
}

#[test]
fn a_length_that_changes_in_its_chunk_is_read_once() {
    let mut capture = open("chunks-changing");
    let mut packets = 0;
    for _ in 0..2_000 {
        match capture.next_packet().unwrap() {
            Next::Packet(packet) => {
                packets += 1;
                assert_eq!((packet.data.len(), packet.wire_len), (8, 12), "only one that fits");
            }
            Next::Idle | Next::End => {}
        }
    }
    assert!(packets > 0, "{packets} packets");
}

#[test]
fn an_error_ends_the_capture() {
    let mut capture = open("broken");
    assert!(matches!(capture.next_packet(), Ok(Next::Packet(_))));
    let error = capture.next_packet().unwrap_err().to_string();
    assert!(error.starts_with("capturing on broken has stopped: PF_RING answers -1 (EIO"), "{error}");
    assert_eq!(capture.next_packet().unwrap(), Next::End);
}

#[test]
fn each_failure_is_one_sentence() {
    let cluster = Some(Cluster { id: 1, kind: ClusterKind::TwoTuple });
    let with_cluster = PfRingOptions { library: double(), cluster };
    for (options, expected) in [
        (
            options("eth1", "/nowhere/libpfring.so".into()),
            "capturing on eth1 with PF_RING needs its library \"/nowhere/libpfring.so\", which cannot be used (",
        ),
        (
            // A library, and not that one.
            options("eth1", "libc.so.6".into()),
            "capturing on eth1 with PF_RING needs its library \"libc.so.6\", which cannot be used (",
        ),
        (
            options("eth-without-module", double()),
            "the capture backend pf_ring cannot read eth-without-module: the kernel module pf_ring.ko is not loaded; \
             load it (`modprobe pf_ring`), or choose the backend af_packet",
        ),
        (options("closed", double()), "capturing on closed needs the capability CAP_NET_RAW"),
        (options("missing", double()), "cannot capture on missing: PF_RING refuses to open it (ENODEV"),
        (options("busy", double()), "cannot capture on busy: PF_RING refuses to begin (-1)"),
        (
            LiveOptions { filter: Some("tcp prot 80".to_owned()), ..options("eth1", double()) },
            "the capture filter `tcp prot 80` does not work on eth1: PF_RING does not take it and says no more",
        ),
        (
            LiveOptions { pf_ring: with_cluster, ..options("pcap:x", double()) },
            "the capture backend pf_ring cannot read pcap:x: its module knows no clusters; leave the cluster out",
        ),
    ] {
        let message = refusal(&options);
        assert!(message.starts_with(expected), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

/// The real library, where it is found.
fn real() -> Option<PathBuf> {
    let library = std::env::var_os("SPAND_PFRING_LIB").map_or_else(|| PfRingOptions::default().library, PathBuf::from);
    match LiveCapture::open(&options("pcap:/nowhere", library.clone())) {
        Err(LiveError::NoLibrary { message, .. }) => {
            lacks(Need::PfRing, message);
            None
        }
        Ok(_) => panic!("there is no /nowhere"),
        Err(_) => Some(library),
    }
}

#[test]
fn the_real_library_reads_a_file_as_we_do() {
    let Some(library) = real() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (name, link_type, filter, passing) in [
        ("all.pcap", LinkType::ETHERNET, None, 2_000),
        ("filtered.pcap", LinkType::ETHERNET, Some("ether[14] = 7"), 8),
        ("raw.pcap", LinkType::RAW, None, 2_000),
    ] {
        let path = folder.path().join(name);
        let mut writer = PcapWriter::new(Vec::new(), link_type, 65_535).unwrap();
        for number in 0..2_000_u32 {
            let mut frame = vec![0x45; 60 + number as usize % 1_400];
            frame[14] = number.to_le_bytes()[0];
            // The library has microseconds.
            let at = Timestamp(1_700_000_000_000_000_000 + u64::from(number) * 1_000);
            writer.write(at, 1_514, &frame).unwrap();
        }
        fs::write(&path, writer.finish().unwrap()).unwrap();
        let device = format!("pcap:{}", path.display());
        let filter = filter.map(str::to_owned);
        let mut capture =
            LiveCapture::open(&LiveOptions { filter: filter.clone(), ..options(&device, library.clone()) }).unwrap();
        assert_eq!(capture.link_type(), link_type, "{name}: the library says Ethernet whatever it is");
        let (by_library, ended) = take(&mut capture);
        let (mut by_us, _) = take(&mut open_file(&path).unwrap());
        by_us.retain(|packet| filter.is_none() || packet.data[14] == 7);
        for packet in &mut by_us {
            packet.data.truncate(256);
        }
        assert_eq!((by_library.len(), ended), (passing, true), "{name}");
        assert_eq!(by_library, by_us, "{name}");
        assert_eq!((capture.stats().received, capture.stats().dropped_by_kernel), (None, None));
    }
}

#[test]
fn the_real_library_says_what_it_lacks() {
    let Some(library) = real() else { return };
    let message = refusal(&options("pcap:/nowhere", library.clone()));
    assert!(message.starts_with("cannot capture on pcap:/nowhere: PF_RING refuses to open it ("), "{message}");
    if Path::new("/proc/net/pf_ring").exists() {
        return;
    }
    for device in ["lo", "zc:lo"] {
        let message = refusal(&options(device, library.clone()));
        assert!(message.contains("the kernel module pf_ring.ko is not loaded"), "{message}");
    }
}

#[test]
fn the_real_library_captures_from_an_interface() {
    use std::net::UdpSocket;

    let Some(library) = real() else { return };
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = receiver.local_addr().unwrap().port();
    let filter = Some(format!("udp dst port {port}"));
    let mut capture = match LiveCapture::open(&LiveOptions { filter, ..options("pcap:lo", library) }) {
        Ok(capture) => capture,
        Err(error) => {
            lacks(Need::PfRing, error);
            return;
        }
    };
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..50_u8 {
        sender.send_to(&[number; 20], ("127.0.0.1", port)).unwrap();
    }
    let (seen, ended) = take(&mut capture);
    let numbers: Vec<_> = seen.iter().map(|packet| packet.data[42]).collect();
    assert_eq!(numbers, (0..50).collect::<Vec<_>>());
    assert!(!ended);
}
