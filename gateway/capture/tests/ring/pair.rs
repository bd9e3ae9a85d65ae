//! The pair, and what is sent and taken at its ends.

use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sched::{CloneFlags, unshare};
use pcap::{Active, Capture};
use spand_capture::{Backend, LiveCapture, LiveOptions, Next, PacketSource};
use spand_proto::units::Timestamp;

/// Empty reads before a packet that was sent counts as lost.
pub(crate) const PATIENCE: usize = 2_000;

static SKIPPED: AtomicUsize = AtomicUsize::new(0);

/// Runs a test in a fresh namespace with a veth pair `near` and `far`, both up and silent.
pub(crate) fn on_a_pair(test: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(move || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
            let line = format!("\nSKIPPED: no network namespace ({error}); {count} tests checked nothing so far");
            // Not eprintln: the test runner would swallow it.
            writeln!(std::io::stderr(), "{line}").expect("standard error");
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
