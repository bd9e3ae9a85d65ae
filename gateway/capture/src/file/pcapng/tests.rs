//! Sections, blocks, interfaces and clocks, from blocks built here.

use std::io::{Cursor, Read};

use spand_proto::units::Timestamp;

use super::super::input::Meter;
use super::super::open::from_reader;
use super::interface::{Clock, OPTION_TSOFFSET, OPTION_TSRESOL};
use super::*;
use crate::{CaptureFile, LinkType, Next, PacketSource, SourceError};

/// A pcapng file in the making, in one byte order at a time.
struct File {
    bytes: Vec<u8>,
    order: ByteOrder,
}

impl File {
    fn section(order: ByteOrder) -> Self {
        Self { bytes: Vec::new(), order }.next_section(order)
    }

    fn next_section(mut self, order: ByteOrder) -> Self {
        self.order = order;
        let body = [self.u32(BYTE_ORDER_MAGIC), self.u16(1), self.u16(0), vec![0xff; 8]].concat();
        self.block(SECTION_HEADER, &body)
    }

    fn u16(&self, n: u16) -> Vec<u8> {
        if self.order == ByteOrder::Big { n.to_be_bytes().to_vec() } else { n.to_le_bytes().to_vec() }
    }

    fn u32(&self, n: u32) -> Vec<u8> {
        if self.order == ByteOrder::Big { n.to_be_bytes().to_vec() } else { n.to_le_bytes().to_vec() }
    }

    fn block(mut self, kind: u32, body: &[u8]) -> Self {
        let total = u32::try_from(12 + body.len().next_multiple_of(4)).unwrap();
        let mut padded = body.to_vec();
        padded.resize(total as usize - 12, 0);
        let block = [self.u32(kind), self.u32(total), padded, self.u32(total)].concat();
        self.bytes.extend(block);
        self
    }

    fn interface(self, link_type: u16, snap_len: u32, options: &[(u16, &[u8])]) -> Self {
        let mut body = [self.u16(link_type), self.u16(0), self.u32(snap_len)].concat();
        for (code, value) in options {
            body.extend([self.u16(*code), self.u16(u16::try_from(value.len()).unwrap()), value.to_vec()].concat());
            body.resize(body.len().next_multiple_of(4), 0);
        }
        self.block(INTERFACE_DESCRIPTION, &body)
    }

    fn enhanced(self, interface: u32, ticks: u64, captured: u32, data: &[u8]) -> Self {
        let [high, low] = [ticks >> 32, ticks & 0xffff_ffff].map(|half| u32::try_from(half).unwrap());
        let head = [interface, high, low, captured, 1_500].map(|n| self.u32(n)).concat();
        self.block(ENHANCED_PACKET, &[&head, data].concat())
    }

    fn simple(self, wire: u32, data: &[u8]) -> Self {
        let body = [&self.u32(wire), data].concat();
        self.block(SIMPLE_PACKET, &body)
    }

    fn open(self) -> CaptureFile {
        from_reader("test".to_owned(), Box::new(Cursor::new(self.bytes)), Meter::default()).unwrap()
    }
}

/// Time in nanoseconds, link type, interface, captured bytes.
type Seen = (u64, u16, u32, Vec<u8>);

fn read(mut file: CaptureFile) -> (Vec<Seen>, Option<SourceError>, SourceStats) {
    let mut seen = Vec::new();
    let end = loop {
        match file.next_packet() {
            Ok(Next::Packet(p)) => seen.push((p.timestamp.0, p.link_type.0, p.interface, p.data.to_vec())),
            Ok(_) => break None,
            Err(error) => break Some(error),
        }
    };
    (seen, end, file.stats())
}

#[test]
fn sections_differ_in_byte_order_and_interfaces_in_everything() {
    let file = File::section(ByteOrder::Big)
        .interface(1, 0, &[])
        .interface(12, 96, &[(2, b"eth12"), (OPTION_TSRESOL, &[9])])
        .block(0x0bad, &[7; 100])
        .enhanced(1, 5 << 32, 3, b"abc")
        .enhanced(0, 25_000_000, 2, b"de")
        .next_section(ByteOrder::Little)
        .interface(113, 0, &[(OPTION_TSRESOL, &[3])])
        .enhanced(0, 30_000, 1, b"f");
    let (seen, end, stats) = read(file.open());
    assert!(end.is_none());
    assert_eq!(
        seen,
        [
            (5 << 32, 101, 1, b"abc".to_vec()),
            (25_000_000_000, 1, 0, b"de".to_vec()),
            (30_000_000_000, 113, 2, b"f".to_vec())
        ]
    );
    assert_eq!((stats.packets, stats.bytes, stats.backwards), (3, 6, 0));
}

#[test]
fn an_offset_moves_the_clock() {
    let offset = (-1i64).to_le_bytes();
    let file = File::section(ByteOrder::Little)
        .interface(1, 0, &[(OPTION_TSOFFSET, &offset), (0, &[]), (OPTION_TSRESOL, &[0])])
        .enhanced(0, 2_000_001, 0, b"");
    assert_eq!(read(file.open()).0, [(1_000_001_000, 1, 0, vec![])]);
}

#[test]
fn ticks_of_any_length_become_nanoseconds() {
    let nanos = |resolution, ticks| Clock::new(Some(resolution), 0).timestamp(ticks);
    assert_eq!(nanos(0, 3), Timestamp(3_000_000_000));
    assert_eq!(nanos(6, 3), Timestamp(3_000));
    assert_eq!(nanos(12, 3_999), Timestamp(3));
    assert_eq!(nanos(0x7f, u64::MAX), Timestamp(1));
    assert_eq!(nanos(0x8a, 1_536), Timestamp(1_500_000_000));
    assert_eq!(nanos(0xff, u64::MAX), Timestamp(0));
    assert_eq!(nanos(0, u64::MAX), Timestamp(u64::MAX));
    assert_eq!(Clock::new(None, i64::MIN).timestamp(5), Timestamp(0));
}

#[test]
fn a_simple_packet_is_cut_to_the_snap_length_and_takes_the_time_before() {
    let file = File::section(ByteOrder::Big)
        .interface(1, 5, &[])
        .enhanced(0, 7, 1, b"a")
        .simple(3, b"bcd")
        .simple(1_500, b"efghi");
    let (seen, _, stats) = read(file.open());
    assert_eq!(seen[1..], [(7_000, 1, 0, b"bcd".to_vec()), (7_000, 1, 0, b"efghi".to_vec())]);
    assert_eq!((stats.untimed, stats.backwards), (2, 0));
}

#[test]
fn the_obsolete_packet_block_has_a_short_interface_number() {
    let mut file = File::section(ByteOrder::Big).interface(1, 0, &[]);
    let body = [&file.u16(0), &file.u16(9), &[0; 4][..], &file.u32(8), &file.u32(2), &file.u32(60), b"xy"].concat();
    file = file.block(OBSOLETE_PACKET, &body);
    assert_eq!(read(file.open()).0, [(8_000, 1, 0, b"xy".to_vec())]);
}

#[test]
fn packets_that_cannot_be_are_counted_and_passed_over() {
    let file = File::section(ByteOrder::Little)
        .simple(1, b"a")
        .interface(1, 0, &[])
        .enhanced(1, 0, 1, b"a")
        .enhanced(0, 0, 60, b"a")
        .enhanced(0, 0, 5, b"abcd")
        .enhanced(0, 0, MAX_PACKET_BYTES + 4, &vec![0; MAX_PACKET_BYTES as usize + 4])
        .enhanced(0, 0, 1, &vec![0; WINDOW_BYTES])
        .block(INTERFACE_DESCRIPTION, &[])
        .enhanced(1, 0, 1, b"a")
        .block(ENHANCED_PACKET, &[0; 4])
        .enhanced(0, 9, 1, b"z");
    let (seen, end, stats) = read(file.open());
    assert!(end.is_none());
    assert_eq!(seen, [(9_000, 1, 0, b"z".to_vec())]);
    assert_eq!(stats.unreadable, 8);
}

#[test]
fn damage_is_named_with_its_offset_and_nothing_large_is_taken() {
    let sound = || File::section(ByteOrder::Little).interface(1, 0, &[]).enhanced(0, 1, 1, b"a");
    let at = sound().bytes.len();
    let damaged = |bytes: &[u8], words: &str| {
        let mut file = sound();
        file.bytes.extend(bytes);
        let (seen, end, _) = read(file.open());
        assert_eq!(seen.len(), 1, "the packet before the damage");
        let message = end.expect("an error").to_string();
        assert!(message.contains(&format!("byte {at}")) && message.contains(words), "{message}");
    };
    let word = |n: u32| n.to_le_bytes();
    damaged(&[word(6), word(u32::MAX - 3), word(0)].concat(), "claims a length of 4294967292 bytes");
    damaged(&[word(5), word(8), word(8)].concat(), "claims a length of 8 bytes");
    damaged(&[word(5), word(14), word(14), word(14)].concat(), "claims a length of 14 bytes");
    damaged(&[word(6), word(36), [0; 4], [0; 4], [0; 4], [0; 4], [0; 4], [0; 4], word(35)].concat(), "then as 35");
    damaged(&[word(5), word(20), [0; 4], [0; 4], word(16)].concat(), "then as 16");
    damaged(&[word(5), word(20), [0; 4]].concat(), "lacks 8 bytes");
    damaged(&[word(SECTION_HEADER), word(28), word(28)].concat(), "byte-order mark");
    damaged(&[word(6), word(400), word(0)].concat(), "lacks 388 bytes");
    damaged(&word(6), "lacks 8 bytes");
    let section = [word(SECTION_HEADER), word(28), word(BYTE_ORDER_MAGIC), [2, 0, 0, 0]];
    damaged(&section.concat(), "version 2.0");
}

#[test]
fn bytes_that_drip_read_the_same() {
    struct Drip(Cursor<Vec<u8>>);
    impl Read for Drip {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let one = buffer.len().min(1);
            self.0.read(&mut buffer[..one])
        }
    }
    let file = File::section(ByteOrder::Big).interface(1, 0, &[]).enhanced(0, 7, 3, b"abc").simple(3, b"bcd");
    let drip = Drip(Cursor::new(file.bytes.clone()));
    let dripped = from_reader("test".to_owned(), Box::new(drip), Meter::default()).unwrap();
    assert_eq!(read(dripped).0, read(file.open()).0);
}

#[test]
fn the_registrys_link_types_pass_unchanged() {
    let file = File::section(ByteOrder::Little).interface(276, 0, &[]).enhanced(0, 0, 0, b"");
    let (seen, ..) = read(file.open());
    assert_eq!(seen[0].1, LinkType::LINUX_SLL2.0);
}
