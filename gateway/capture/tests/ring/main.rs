//! The packet ring on veth pairs in namespaces of their own: each test makes one, sends frames into one end of a pair and
//! captures at the other.
//!
//! Needs root; without it the tests check nothing, and say so on standard error even where the test runner keeps output to
//! itself.

#![cfg(target_os = "linux")]

use std::num::NonZeroU32;
use std::process::Command;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sched::{CloneFlags, unshare};
use pcap::{Active, Capture};
use spand_capture::{Backend, LinkType, LiveCapture, LiveError, LiveOptions, Next, PacketSource, SourceError};
use spand_needs::{Need, lacks};
use spand_proto::units::{Bytes, Timestamp};

#[test]
fn every_packet_comes_once_in_order_and_with_its_time() {
    on_a_pair(|| {
        // Many more packets than a block holds, and more blocks than the ring: it goes round.
        for immediate in [false, true] {
            let options = LiveOptions { buffer: Bytes(1 << 16), block: Bytes(1 << 12), immediate, ..far() };
            let mut capture = open(&options);
            assert_eq!((capture.link_type(), capture.backend()), (LinkType::ETHERNET, Backend::AfPacket));
            let mut sender = Sender::new();
            let start = now();
            let mut seen = Vec::new();
            for burst in 0..50_u32 {
                (0..20).for_each(|n| sender.send(&frame(burst * 20 + n, 60 + (n as usize) * 70)));
                seen.extend(take(&mut capture, 20));
            }
            assert_eq!(seen.len(), 1_000);
            for (number, packet) in (0..).zip(&seen) {
                let sent = frame(number, 60 + (number as usize % 20) * 70);
                assert_eq!(packet.wire_len as usize, sent.len());
                assert_eq!(packet.data, sent[..sent.len().min(256)]);
            }
            assert!(seen.is_sorted_by_key(|packet| packet.at), "each not before the last");
            assert!(seen.iter().all(|packet| (start..=now()).contains(&packet.at)), "by the host's clock");
            let stats = capture.stats();
            assert_eq!((stats.packets, stats.received, stats.dropped_by_kernel), (1_000, Some(1_000), Some(0)));
            assert_eq!((stats.unreadable, stats.backwards, stats.ring_freezes), (0, 0, Some(0)));
        }
    });
}

/// A TCP segment of a connection, from its one end or the other.
fn segment(connection: u8, back: bool) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];
    frame.extend([0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0]);
    let (near, far) = ([10, 0, 0, 1], [192, 0, 2, connection]);
    let ports = [[0x9c, connection], [0x01, 0xbb]];
    let ((from, to), (from_port, to_port)) =
        if back { ((far, near), (ports[1], ports[0])) } else { ((near, far), (ports[0], ports[1])) };
    frame.extend([from, to].concat());
    frame.extend([from_port, to_port].concat());
    frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    frame.resize(60, 0);
    frame
}

#[test]
fn captures_of_one_group_share_the_connections_out() {
    on_a_pair(|| {
        let options = LiveOptions { group: Some(7), ..far() };
        let mut readers = [open(&options), open(&options)];
        let mut sender = Sender::new();
        for _ in 0..3 {
            for connection in 0..100 {
                sender.send(&segment(connection, false));
                sender.send(&segment(connection, true));
            }
        }
        // Which connections came to each: by the address outside, whichever way it went.
        let connections = readers.each_mut().map(|reader| {
            let seen = take(reader, 0);
            let connection = |seen: Seen| if seen.data[26] == 192 { seen.data[29] } else { seen.data[33] };
            seen.into_iter().map(connection).map(u32::from).collect::<Vec<_>>()
        });
        let times = |reader: &[u32], connection| reader.iter().filter(|seen| **seen == connection).count();
        for connection in 0..100 {
            let times = connections.each_ref().map(|reader| times(reader, connection));
            assert!(times == [6, 0] || times == [0, 6], "connection {connection}: {times:?}");
        }
        assert!(connections.iter().all(|reader| reader.len() > 100), "each has its part");
        let refused = LiveCapture::open(&LiveOptions { backend: Some(Backend::Libpcap), ..options }).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the capture backend libpcap cannot read far: it cannot be shared out among several readers; \
             the backend af_packet can"
        );
    });
}

#[test]
fn tags_that_the_kernel_took_out_are_in_the_frame_again() {
    const CUSTOMER: [u8; 4] = [0x81, 0x00, 0x60, 0x05];
    const SERVICE: [u8; 4] = [0x88, 0xa8, 0x00, 0x07];
    on_a_pair(|| {
        let sent = [tagged(1, &[CUSTOMER]), tagged(2, &[SERVICE, CUSTOMER]), tagged(3, &[]), tagged(4, &[SERVICE])];
        for snap_len in [256, 64] {
            let mut capture = open(&LiveOptions { snap_len: NonZeroU32::new(snap_len).unwrap(), ..far() });
            let mut sender = Sender::new();
            for frame in &sent {
                sender.send(frame);
            }
            for (sent, seen) in sent.iter().zip(take(&mut capture, sent.len())) {
                assert_eq!(seen.data, sent[..sent.len().min(snap_len as usize)]);
                assert_eq!(seen.wire_len as usize, sent.len());
            }
        }
    });
}

#[test]
fn the_filter_runs_in_the_kernel_and_knows_tags() {
    on_a_pair(|| {
        let mut sender = Sender::new();
        for (filter, passing) in [("vlan 5", 1), ("not vlan", 0), ("vlan 5 and ether proto 0x88b5", 1)] {
            let mut capture = open(&LiveOptions { filter: Some(filter.to_owned()), ..far() });
            for round in 0..5 {
                sender.send(&tagged(round * 3, &[]));
                sender.send(&tagged(round * 3 + 1, &[[0x81, 0x00, 0, 5]]));
                sender.send(&tagged(round * 3 + 2, &[[0x81, 0x00, 0, 6]]));
            }
            let seen = take(&mut capture, 5);
            let numbers = seen.iter().map(|packet| {
                let at = if passing == 1 { 18 } else { 14 };
                u32::from_be_bytes(packet.data[at..at + 4].try_into().unwrap())
            });
            let expected: Vec<_> = (0..5).map(|round| round * 3 + passing).collect();
            assert_eq!(numbers.collect::<Vec<_>>(), expected, "{filter}");
            assert_eq!(capture.stats().received, Some(5), "{filter}: the kernel counts what passed");
        }
    });
}

#[test]
fn what_comes_while_nobody_reads_is_kept_and_then_counted_as_dropped() {
    const SENT: u32 = 5_000;
    on_a_pair(|| {
        let options = LiveOptions { buffer: Bytes(1 << 17), block: Bytes(1 << 14), ..far() };
        let mut capture = open(&options);
        let mut sender = Sender::new();
        (0..SENT).for_each(|number| sender.send(&frame(number, 200)));
        let seen = take(&mut capture, 1);
        assert!((0..).zip(&seen).all(|(number, packet)| packet.data == frame(number, 200)), "the first ones, in order");
        let stats = capture.stats();
        let dropped = stats.dropped_by_kernel.unwrap();
        assert_eq!(seen.len() as u64 + dropped, u64::from(SENT));
        assert!(dropped > 0 && stats.ring_freezes > Some(0), "{stats:?}");
        assert_eq!(stats.received, Some(u64::from(SENT)), "dropped ones included");
        // And it goes on.
        sender.send(&frame(SENT, 200));
        assert_eq!(take(&mut capture, 1)[0].data, frame(SENT, 200));
    });
}

#[test]
fn both_backends_see_the_same() {
    on_a_pair(|| {
        let mut ring = open(&far());
        let mut libpcap = open(&LiveOptions { backend: Some(Backend::Libpcap), ..far() });
        let mut sender = Sender::new();
        for number in 0..2_000 {
            let tag = [0x81, 0x00, 0, (number % 250) as u8];
            let frame =
                if number % 3 == 0 { tagged(number, &[tag]) } else { frame(number, 60 + number as usize % 1_400) };
            sender.send(&frame);
        }
        let (by_ring, by_libpcap) = (take(&mut ring, 2_000), take(&mut libpcap, 2_000));
        assert_eq!(by_ring.len(), by_libpcap.len());
        for (a, b) in by_ring.iter().zip(&by_libpcap) {
            assert_eq!((a.wire_len, &a.data), (b.wire_len, &b.data));
            // The kernel reads its clock separately for each socket.
            assert!(a.at.0.abs_diff(b.at.0) < 1_000_000_000, "{:?} and {:?}", a.at, b.at);
        }
        assert_eq!(ring.stats().packets, libpcap.stats().packets);
    });
}

#[test]
fn an_interface_that_is_down_is_idle_and_one_that_is_gone_ends_the_capture() {
    on_a_pair(|| {
        let mut capture = open(&far());
        let mut sender = Sender::new();
        sender.send(&frame(1, 100));
        assert_eq!(take(&mut capture, 1).len(), 1);
        ip("link set far down");
        for _ in 0..5 {
            assert_eq!(capture.next_packet().unwrap(), Next::Idle, "it may come back");
        }
        assert!(matches!(LiveCapture::open(&far()), Err(LiveError::Down { .. })));
        ip("link set far up");
        let mut sender = Sender::new();
        sender.send(&frame(2, 100));
        assert_eq!(take(&mut capture, 1)[0].data, frame(2, 100), "without being opened again");

        // Down first: then the kernel says nothing when it goes.
        ip("link set far down");
        take(&mut capture, 0);
        ip("link delete far");
        let gone = (0..PATIENCE).find_map(|_| capture.next_packet().err()).expect("an end");
        assert!(matches!(&gone, SourceError::Live { name, .. } if name == "far"), "{gone}");
        assert_eq!(gone.to_string(), "capturing on far has stopped: the interface went away");
        assert_eq!(capture.next_packet().unwrap(), Next::End);
        let error = LiveCapture::open(&far()).unwrap_err();
        let LiveError::NoSuchInterface { present, .. } = &error else { panic!("{error}") };
        // Those of this namespace; `/sys` here shows the ones outside.
        let shown = Command::new("ip").args(["-o", "link"]).output().unwrap().stdout;
        let shown = String::from_utf8(shown).unwrap();
        assert!(present.split(", ").all(|name| shown.contains(&format!(": {name}"))), "{error}; there are {shown}");

        make_pair();
        let mut again = open(&far());
        Sender::new().send(&frame(3, 100));
        assert_eq!(take(&mut again, 1)[0].data, frame(3, 100));
        ip("link delete far");
        assert!((0..PATIENCE).any(|_| again.next_packet().is_err()), "while it is up, too");
    });
}

#[test]
fn raw_ip_is_read_without_a_link_layer() {
    on_a_pair(|| {
        ip("tuntap add dev tun0 mode tun");
        ip("link set tun0 up");
        let tun = open(&LiveOptions { backend: None, filter: Some("tcp".to_owned()), ..LiveOptions::new("tun0") });
        assert_eq!((tun.link_type(), tun.backend()), (LinkType::RAW, Backend::AfPacket));
    });
}

#[test]
fn a_mirror_port_gives_packets_for_others_where_asked() {
    on_a_pair(|| {
        let promiscuous = |name: &str| {
            let shown = Command::new("ip").args(["-d", "link", "show", name]).output().expect("ip of iproute2");
            String::from_utf8_lossy(&shown.stdout).contains("promiscuity 1 ")
        };
        let mut capture = open(&far());
        assert!(promiscuous("far"));
        Sender::new().send(&frame(1, 100));
        assert_eq!(take(&mut capture, 1).len(), 1, "for an address that is not the interface's");
        drop(capture);
        assert!(!promiscuous("far"), "and no longer than the capture");
        let _polite = open(&LiveOptions { promiscuous: false, ..far() });
        assert!(!promiscuous("far"));
    });
}

// The pair, and what is sent and taken at its ends.

/// Empty reads before a packet that was sent counts as lost.
pub(crate) const PATIENCE: usize = 2_000;

/// Runs a test in a fresh namespace with a veth pair `near` and `far`, both up and silent.
pub(crate) fn on_a_pair(test: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(move || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            lacks(Need::Root, error);
            return;
        }
        // Neighbour discovery would be packets nobody sent.
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("a setting of the namespace");
        make_pair();
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

pub(crate) fn make_pair() {
    ip("link add near type veth peer name far");
    for end in ["near", "far"] {
        ip(&format!("link set {end} arp off"));
        ip(&format!("link set {end} up"));
    }
}

pub(crate) fn ip(line: &str) {
    let output = Command::new("ip").args(line.split(' ')).output().expect("ip of iproute2");
    assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn far() -> LiveOptions {
    LiveOptions { backend: Some(Backend::AfPacket), ..LiveOptions::new("far") }
}

pub(crate) fn open(options: &LiveOptions) -> LiveCapture {
    LiveCapture::open(options).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) struct Sender(Capture<Active>);

impl Sender {
    pub(crate) fn new() -> Self {
        Self(Capture::from_device("near").and_then(Capture::open).expect("the near end"))
    }

    pub(crate) fn send(&mut self, frame: &[u8]) {
        self.0.sendpacket(frame).expect("room to send");
    }
}

/// A frame with a number in it, of a type that nobody answers (IEEE 802, for experiments).
pub(crate) fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut frame = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5].to_vec();
    frame.extend(number.to_be_bytes());
    frame.resize(len, 0x5a);
    frame
}

/// The same with tags between addresses and type.
pub(crate) fn tagged(number: u32, tags: &[[u8; 4]]) -> Vec<u8> {
    let mut frame = frame(number, 100);
    frame.splice(12..12, tags.concat());
    frame
}

#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) at: Timestamp,
    pub(crate) wire_len: u32,
    pub(crate) data: Vec<u8>,
}

/// Takes packets until `count` came and then nothing more for a few reads.
pub(crate) fn take(capture: &mut LiveCapture, count: usize) -> Vec<Seen> {
    let mut seen = Vec::new();
    let (mut idle, mut silent) = (0, 0);
    while seen.len() < count || silent < 5 {
        match capture.next_packet().expect("the interface stays") {
            Next::Packet(packet) => {
                silent = 0;
                seen.push(Seen { at: packet.timestamp, wire_len: packet.wire_len, data: packet.data.to_vec() });
            }
            Next::Idle => {
                idle += 1;
                silent += 1;
                assert!(idle < PATIENCE, "{} of {count} came", seen.len());
            }
            Next::End => panic!("a live capture does not end"),
        }
    }
    seen
}

pub(crate) fn now() -> Timestamp {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that was set");
    Timestamp(u64::try_from(since_1970.as_nanos()).expect("a year before 2554"))
}
